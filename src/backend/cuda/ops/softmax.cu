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

template <class T, int ROWS>
__global__ void __launch_bounds__(BLOCK, 2)
    softmax_input(T *dx, const T *y, const T *dy, int64_t rows, int64_t width, bool add) {
    __shared__ row_tile<2, ROWS> tile;
    __shared__ float dots[ROWS];
    const int64_t first = (int64_t)blockIdx.x * ROWS, left = rows - first;
    const int count = left < ROWS ? (int)left : (int)ROWS, row = sum_row();
    auto held = hold_rows(tile, width, [&](float(&v)[2], int r, int64_t c) {
        const int64_t at = (first + r) * width + c;
        v[0] = r < count ? load(y, at) : 0.0f;
        v[1] = r < count ? load(dy, at) : 0.0f;
    });
    float sum[1];
    held.add_up(sum, [](float(&to)[1], const float(&v)[2]) { to[0] += v[1] * v[0]; });
    if (row < ROWS && threadIdx.x % LANES == 0) dots[row] = sum[0];
    __syncthreads();
    held.each([&](int64_t c, const float(&v)[ROWS][2]) {
        for (int r = 0; r < count; r++)
            put(dx, (first + r) * width + c, add, v[r][0] * (v[r][1] - dots[r]));
    });
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
    return launch_rows(softmax_input<T, SUM_ROWS>, softmax_input<T, 1>, rows, stream,
                       (T *)args->dx[0], (const T *)args->y, (const T *)args->dy, rows,
                       spec->attributes.out, adds(spec, 0));
}

const cgp__cuda_op cgp__cuda_softmax = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
