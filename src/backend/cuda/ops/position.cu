/* SPDX-License-Identifier: Apache-2.0 */
/* position.cu -- y = x + weight [R, C], with one weight for all samples; dx = dy, dweight = sum
 * over samples of dy.
 *
 * dweight is summed in blocks of 64 samples. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/rows.cuh"

template <class T>
__global__ void position_forward(T *y, const T *x, const float *weight, int64_t n,
                                 int64_t size) {
    for (int64_t sample = blockIdx.y; sample < n; sample += gridDim.y) {
        const int64_t first = sample * size;
        FOR_EACH(i, size) {
            store(y, first + i, load(x, first + i) + weight[i]);
        }
    }
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t size = spec->attributes.rows * spec->attributes.out;
    const unsigned samples = (unsigned)(spec->n < 65535 ? spec->n : 65535);
    return launch(position_forward<T>, dim3(blocks_for(size).x, samples), dim3(BLOCK), stream,
                  (T *)args->y, (const T *)args->x[0], args->param[0], spec->n, size);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    return pass_dy<T>(spec, args, 0, stream);
}

/* Sum dy over the samples. Each sample counts as one row. */
template <class T>
__global__ void position_weight(float *dweight, const T *dy, int64_t n, int64_t size,
                                bool add) {
    FOR_EACH(i, size) {
        float whole = 0.0f;
        for (int64_t begin = 0; begin < n; begin += ROW_BLOCK) {
            const int64_t end = begin + ROW_BLOCK < n ? begin + ROW_BLOCK : n;
            float partial = 0.0f;
            for (int64_t s = begin; s < end; s++)
                partial += load(dy, s * size + i);
            whole = begin == 0 ? partial : whole + partial;
        }
        put(dweight, i, add, whole);
    }
}

template <class T>
static cudaError_t weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                          cudaStream_t stream) {
    const int64_t size = spec->attributes.rows * spec->attributes.out;
    return launch(position_weight<T>, blocks_for(size), dim3(BLOCK), stream, args->dparam[0],
                  (const T *)args->dy, spec->n, size, !args->first);
}

const cgp__cuda_op cgp__cuda_position = {{BY_TYPE(forward), BY_TYPE(input), BY_TYPE(weight)},
                                         NULL};
