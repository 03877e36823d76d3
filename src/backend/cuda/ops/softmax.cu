/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.cu -- computes the softmax of each row, or its log. Below, m = max x.
 *
 *     SOFTMAX        y = exp(x - m) / sum exp(x - m)          dx = y (dy - sum dy y)
 *     LOG_SOFTMAX    y = (x - m) - log sum exp(x - m)         dx = dy - exp(y) sum dy
 *
 * The output y may share x's memory, and dx may share dy's memory, because the sums of a row are
 * complete before the row is written. The order of operations and the bits are the same as in the
 * cpu backend. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/row_exp.cuh"
#include "backend/cuda/rows.cuh"

template <class T, bool LOGS>
__global__ void softmax_forward(T *y, const T *x, int64_t rows, int64_t width) {
    __shared__ exp_rows tile;
    const int64_t row = (int64_t)blockIdx.x * EXP_ROWS + threadIdx.x / ROW_LANES;
    const int64_t n = row < rows ? width : 0, first = row * width;
    const float max = row_exp(tile, x + first, n);
    const double sum = exp_sum(tile);
    const float of_row = LOGS ? (float)log_of(sum) : (float)(1.0 / sum);
#pragma unroll 4
    for (int64_t c = threadIdx.x % ROW_LANES; c < n; c += ROW_LANES) {
        const float below = load(x, first + c) - max;
        store(y, first + c, LOGS ? below - of_row : exp_or_zero(below) * of_row);
    }
}

template <class T, int ROWS, bool LOGS>
__global__ void __launch_bounds__(BLOCK, 2)
    softmax_input(T *dx, const T *y, const T *dy, int64_t rows, int64_t width, bool add) {
    __shared__ row_tile<2, ROWS> tile;
    __shared__ float sums[ROWS];
    const int64_t first = (int64_t)blockIdx.x * ROWS, left = rows - first;
    const int count = left < ROWS ? (int)left : (int)ROWS, row = sum_row();
    auto held = hold_rows(tile, width, [&](float(&v)[2], int r, int64_t c) {
        const int64_t at = (first + r) * width + c;
        v[0] = r < count ? load(y, at) : 0.0f;
        v[1] = r < count ? load(dy, at) : 0.0f;
    });
    float sum[1];
    held.add_up(sum, [](float(&to)[1], const float(&v)[2]) { to[0] += LOGS ? v[1] : v[1] * v[0]; });
    if (row < ROWS && threadIdx.x % LANES == 0) sums[row] = sum[0];
    __syncthreads();
    held.each([&](int64_t c, const float(&v)[ROWS][2]) {
        for (int r = 0; r < count; r++)
            put(dx, (first + r) * width + c, add,
                LOGS ? v[r][1] - exp_or_zero(v[r][0]) * sums[r] : v[r][0] * (v[r][1] - sums[r]));
    });
}

template <class T, bool LOGS>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows;
    return launch(softmax_forward<T, LOGS>, dim3((unsigned)ceil_div(rows, EXP_ROWS)), dim3(BLOCK),
                  stream, (T *)args->y, (const T *)args->x[0], rows, spec->attributes.out);
}

template <class T, bool LOGS>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows;
    if (!args->dx[0]) return cudaSuccess;
    return launch_rows(softmax_input<T, SUM_ROWS, LOGS>, softmax_input<T, 1, LOGS>, rows, stream,
                       (T *)args->dx[0], (const T *)args->y, (const T *)args->dy, rows,
                       spec->attributes.out, adds(spec, 0));
}

#define SOFTMAX(logs)                                                                              \
    {                                                                                              \
        {by_type<forward<float, logs>, forward<bf16, logs>>,                                       \
         by_type<input<float, logs>, input<bf16, logs>>, NULL},                                    \
            NULL                                                                                   \
    }
const cgp__cuda_op cgp__cuda_softmax = SOFTMAX(false);
const cgp__cuda_op cgp__cuda_log_softmax = SOFTMAX(true);
