/* SPDX-License-Identifier: Apache-2.0 */
/* argmax.cu -- y[row] = the first c with the largest x[row, c]. A NaN never counts as larger. There
 * is one thread block per row. */
#include "backend/cuda/map.cuh"

#include <math.h>

typedef struct place {
    float x;
    int32_t c;
} place;

/* Return the larger element; among equal elements, the first. */
__device__ static inline place larger_of(place a, place b) {
    return b.x > a.x || (b.x == a.x && b.c < a.c) ? b : a;
}

template <class T> __global__ void argmax(int32_t *y, const T *x, int64_t width) {
    __shared__ place best[BLOCK];
    place mine = {-INFINITY, INT32_MAX};
    x += blockIdx.x * width;
    for (int64_t c = threadIdx.x; c < width; c += BLOCK)
        mine = larger_of(mine, {load(x, c), (int32_t)c});
    best[threadIdx.x] = mine;
    __syncthreads();
    for (int apart = BLOCK / 2; apart > 0; apart /= 2) {
        if ((int)threadIdx.x < apart)
            best[threadIdx.x] = larger_of(best[threadIdx.x], best[threadIdx.x + apart]);
        __syncthreads();
    }
    const float front = load(x, 0);
    if (threadIdx.x == 0)
        y[blockIdx.x] = front == front ? best[0].c : 0; /* if x[0] is a NaN, nothing is larger */
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows;
    return launch(argmax<T>, dim3((unsigned)rows), dim3(BLOCK), stream, (int32_t *)args->y,
                  (const T *)args->x[0], spec->attributes.in);
}

const cgp__cuda_op cgp__cuda_argmax = {{BY_TYPE(forward), NULL, NULL}, NULL};
