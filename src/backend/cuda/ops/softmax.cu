/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.cu -- softmax of each row.
 *
 *     y = exp(x - m) / sum exp(x - m), m = max x        dx = y (dy - sum dy y)
 *
 * y may share x's memory, dx may share dy's: a row's sums are complete before the row is written.
 * The order of operations and the bits are the same as in the cpu backend. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/row_exp.cuh"
#include "backend/cuda/rows.cuh"

template <class T>
__global__ void softmax_forward(T *y, const T *x, int64_t rows, int64_t width) {
    __shared__ exp_rows tile;
    const int64_t row = (int64_t)blockIdx.x * EXP_ROWS + threadIdx.x / ROW_LANES;
    const int64_t n = row < rows ? width : 0, first = row * width;
    const float max = row_exp(tile, x + first, n);
    const float inverse = (float)(1.0 / exp_sum(tile));
#pragma unroll 4
    for (int64_t c = threadIdx.x % ROW_LANES; c < n; c += ROW_LANES)
        store(y, first + c, exp_or_zero(load(x, first + c) - max) * inverse);
}

template <class T>
__global__ void softmax_input(T *dx, const T *y, const T *dy, int64_t rows, int64_t width,
                              bool add) {
    __shared__ terms<1> tile;
    __shared__ float dots[SUM_ROWS];
    const int64_t first = (int64_t)blockIdx.x * SUM_ROWS, left = rows - first;
    const int count = left < SUM_ROWS ? (int)left : (int)SUM_ROWS, row = sum_row();
    float sum[1];
    row_sums(sum, tile, width, [&](float(*term)[1], int64_t c) {
        for (int r = 0; r < SUM_ROWS; r++) {
            const int64_t at = (first + r) * width + c;
            term[r][0] = r < count ? load(dy, at) * load(y, at) : 0.0f;
        }
    });
    if (row < count && threadIdx.x % LANES == 0) dots[row] = sum[0];
    __syncthreads();
    for (int64_t c = threadIdx.x; c < width; c += BLOCK) {
        for (int r = 0; r < count; r++) {
            const int64_t at = (first + r) * width + c;
            put(dx, at, add, load(y, at) * (load(dy, at) - dots[r]));
        }
    }
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows;
    return launch(softmax_forward<T>, dim3((unsigned)ceil_div(rows, EXP_ROWS)), dim3(BLOCK),
                  stream, (T *)args->y, (const T *)args->x[0], rows, spec->attributes.out);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows;
    if (!args->dx[0]) return cudaSuccess;
    return launch(softmax_input<T>, dim3((unsigned)ceil_div(rows, SUM_ROWS)), dim3(BLOCK),
                  stream, (T *)args->dx[0], (const T *)args->y, (const T *)args->dy, rows,
                  spec->attributes.out, adds(spec, 0));
}

const cgp__cuda_op cgp__cuda_softmax = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
