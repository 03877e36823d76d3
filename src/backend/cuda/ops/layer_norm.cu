/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.cu -- LAYER_NORM (Ba et al. 2016, arXiv:1607.06450) and RMS_NORM (Zhang and Sennrich
 * 2019, arXiv:1910.07467): y = (x - mean) rstd weight + bias, for rows of C elements.
 *
 *     mean = sum x / C     rstd = 1 / sqrt(sum (x - mean)^2 / C + eps)     h = (x - mean) rstd
 *     g = dy weight        dx = rstd (g - sum g / C - h sum (g h) / C)
 *     dweight = sum over rows of dy h        dbias = sum over rows of dy
 *
 * RMS_NORM is not `centred`, which means that it omits mean, bias and the sum of g. If the sum of
 * squares overflows, rstd is NaN.
 *
 * Forward saves mean and rstd; backward reads them and x. The gradient dx may share dy's memory,
 * because dweight and dbias are computed first, and the sums of a row are complete before dx is
 * written. A thread block reads its rows once, if shared memory can hold them (rows.cuh). The order
 * of operations and the bits are the same as in the cpu backend. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/rows.cuh"

enum { COLUMN_BLOCK = 128, LOADED_ROWS = 16 };
static_assert((int)COLUMN_BLOCK >= (int)ROW_BLOCK, "a thread for each row of a block");

/* Operands; block_of() moves them to the thread block's first row. mean and bias are NULL in
 * RMS_NORM. */
template <class T> struct operands {
    int64_t rows, width;
    float eps;
    const T *x, *dy;
    const float *weight, *bias;
    T *y, *dx;
    float *mean, *rstd;
    bool add;
};

template <int ROWS, class T> __device__ static inline operands<T> block_of(operands<T> a) {
    const int64_t first = (int64_t)blockIdx.x * ROWS, at = first * a.width;
    a.rows = a.rows - first < ROWS ? a.rows - first : (int64_t)ROWS;
    a.x += at;
    if (a.mean) a.mean += first;
    a.rstd += first;
    if (a.dy) a.dy += at;
    if (a.y) a.y += at;
    if (a.dx) a.dx += at;
    return a;
}

/* Return rstd from a row's sum of squares. If the sum has overflowed, return NaN, because 1 /
 * infinity would hide the overflow. */
__device__ static inline float reciprocal_deviation(float squares, float width, float eps) {
    return squares < INFINITY ? 1.0f / sqrtf(squares / width + eps) : NAN;
}

template <class T, bool centred, int ROWS>
__global__ void __launch_bounds__(BLOCK, 2) norm_forward(operands<T> all) {
    __shared__ row_tile<1, ROWS> tile;
    __shared__ float means[ROWS], rstds[ROWS];
    const operands<T> a = block_of<ROWS>(all);
    auto rows = hold_rows(tile, a.width, [&](float(&v)[1], int r, int64_t c) {
        v[0] = r < a.rows ? load(a.x, r * a.width + c) : 0.0f;
    });
    float sum[1], mean = 0.0f;
    if (centred) {
        rows.add_up(sum, [](float(&to)[1], const float(&v)[1]) { to[0] += v[0]; });
        mean = sum[0] / (float)a.width;
    }
    rows.add_up(sum, [&](float(&to)[1], const float(&v)[1]) {
        const float off = centred ? v[0] - mean : v[0];
        to[0] += off * off;
    });
    const int row = sum_row();
    if (row < ROWS && threadIdx.x % LANES == 0) {
        means[row] = mean;
        rstds[row] = reciprocal_deviation(sum[0], (float)a.width, a.eps);
        if (centred && row < a.rows) a.mean[row] = mean;
        if (row < a.rows) a.rstd[row] = rstds[row];
    }
    __syncthreads();
    rows.each([&](int64_t c, const float(&x)[ROWS][1]) {
        const float weight = a.weight[c], bias = centred ? a.bias[c] : 0.0f;
        for (int r = 0; r < ROWS; r++) {
            const float h = (centred ? x[r][0] - means[r] : x[r][0]) * rstds[r];
            if (r < a.rows)
                store(a.y, r * a.width + c, centred ? h * weight + bias : h * weight);
        }
    });
}

/* Compute dx from each row's sum of g h and, if `centred` is true, its sum of g. The tile holds g
 * and h. */
template <class T, bool centred, int ROWS>
__global__ void __launch_bounds__(BLOCK, 2) norm_input(operands<T> all) {
    constexpr int sums = centred ? 2 : 1;
    __shared__ row_tile<2, ROWS> tile;
    __shared__ float means[ROWS], rstds[ROWS], g_means[ROWS], gh_means[ROWS];
    const operands<T> a = block_of<ROWS>(all);
    if ((int)threadIdx.x < a.rows) {
        means[threadIdx.x] = centred ? a.mean[threadIdx.x] : 0.0f;
        rstds[threadIdx.x] = a.rstd[threadIdx.x];
    }
    auto rows = hold_rows(tile, a.width, [&](float(&v)[2], int r, int64_t c) {
        const int64_t at = r * a.width + c;
        const float x = r < a.rows ? load(a.x, at) : 0.0f;
        v[0] = r < a.rows ? load(a.dy, at) * a.weight[c] : 0.0f;
        v[1] = r < a.rows ? (centred ? x - means[r] : x) * rstds[r] : 0.0f;
    });
    float sum[sums];
    rows.add_up(sum, [](float(&to)[sums], const float(&v)[2]) {
        to[0] += v[0] * v[1];
        if (centred) to[sums - 1] += v[0];
    });
    const int row = sum_row();
    if (row < ROWS && threadIdx.x % LANES == 0) {
        gh_means[row] = sum[0] / (float)a.width;
        if (centred) g_means[row] = sum[sums - 1] / (float)a.width;
    }
    __syncthreads();
    rows.each([&](int64_t c, const float(&v)[ROWS][2]) {
        float before[ROWS];
        for (int r = 0; r < ROWS; r++)
            before[r] = a.add && r < a.rows ? load(a.dx, r * a.width + c) : 0.0f;
        for (int r = 0; r < ROWS; r++) {
            const float off = centred ? v[r][0] - g_means[r] : v[r][0];
            const float dx = rstds[r] * (off - v[r][1] * gh_means[r]);
            if (r < a.rows) store(a.dx, r * a.width + c, a.add ? before[r] + dx : dx);
        }
    });
}

/* Set `partial` [row blocks, 2 or 1, C] to the sums of dweight and, if `centred` is true, of dbias.
 * LOADED_ROWS rows are loaded before they are added. */
template <class T, bool centred> __global__ void norm_weight(float *partial, operands<T> a) {
    __shared__ float means[ROW_BLOCK], rstds[ROW_BLOCK];
    const int64_t c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    const int64_t begin = (int64_t)blockIdx.x * ROW_BLOCK, left = a.rows - begin;
    const int rows = left < ROW_BLOCK ? (int)left : (int)ROW_BLOCK, thread = (int)threadIdx.x;
    if (thread < rows) {
        means[thread] = centred ? a.mean[begin + thread] : 0.0f;
        rstds[thread] = a.rstd[begin + thread];
    }
    __syncthreads();
    if (c >= a.width) return;
    float dweight = 0.0f, dbias = 0.0f;
    for (int first = 0; first < rows; first += LOADED_ROWS) {
        float dy[LOADED_ROWS], x[LOADED_ROWS];
#pragma unroll
        for (int i = 0; i < LOADED_ROWS; i++) {
            const int64_t at = (begin + first + i) * a.width + c;
            dy[i] = first + i < rows ? load(a.dy, at) : 0.0f;
            x[i] = first + i < rows ? load(a.x, at) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < LOADED_ROWS; i++) {
            const int row = first + i;
            if (row >= rows) continue;
            dweight += dy[i] * ((centred ? x[i] - means[row] : x[i]) * rstds[row]);
            if (centred) dbias += dy[i];
        }
    }
    constexpr int64_t sums = centred ? 2 : 1;
    partial[sums * blockIdx.x * a.width + c] = dweight;
    if (centred) partial[(sums * blockIdx.x + 1) * a.width + c] = dbias;
}

template <class T, bool centred>
static operands<T> norm_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    operands<T> a = {};
    a.rows = spec->n * spec->attributes.rows;
    a.width = spec->attributes.out;
    a.eps = cgp_spec_norm(spec)->eps;
    a.x = (const T *)args->x[0];
    a.weight = args->param[0];
    a.bias = centred ? args->param[1] : NULL;
    a.mean = centred ? args->saved[0] : NULL;
    a.rstd = args->saved[centred ? 1 : 0];
    return a;
}

template <class T, bool centred>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    operands<T> a = norm_of<T, centred>(spec, args);
    a.y = (T *)args->y;
    return launch_rows(norm_forward<T, centred, SUM_ROWS>, norm_forward<T, centred, 1>, a.rows,
                       stream, a);
}

/* Return the number of sums that a block of rows has. */
static int64_t block_sums(const cgp_kernel_spec *spec) {
    return (spec->op == CGP_OP_LAYER_NORM ? 2 : 1) * spec->attributes.out;
}

template <class T, bool centred>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    operands<T> a = norm_of<T, centred>(spec, args);
    const int64_t blocks = ceil_div(a.rows, ROW_BLOCK), n = block_sums(spec);
    float *partial = (float *)args->workspace;
    a.dy = (const T *)args->dy;
    a.dx = (T *)args->dx[0];
    a.add = adds(spec, 0);
    if (args->dparam[0] || args->dparam[1]) {
        CGP__TRY_CUDA_ERROR(
            launch(norm_weight<T, centred>,
                   dim3((unsigned)blocks, (unsigned)ceil_div(a.width, COLUMN_BLOCK)),
                   dim3(COLUMN_BLOCK), stream, partial, a));
        CGP__TRY_CUDA_ERROR(cgp__cuda_add_blocks(args->dparam[0], args->dparam[1], partial, blocks,
                                                 a.width, n, !args->first, stream));
    }
    if (!a.dx) return cudaSuccess;
    return launch_rows(norm_input<T, centred, SUM_ROWS>, norm_input<T, centred, 1>, a.rows,
                       stream, a);
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    const int64_t rows = spec->n * spec->attributes.rows;
    if (spec->direction != CGP_OP_BACKWARD_INPUT) return 0;
    return ceil_div(rows, ROW_BLOCK) * block_sums(spec) * (int64_t)sizeof(float);
}

#define BY_TYPE_OF(run, centred) by_type<run<float, centred>, run<bf16, centred>>

const cgp__cuda_op cgp__cuda_layer_norm = {
    {BY_TYPE_OF(forward, true), BY_TYPE_OF(input, true), NULL}, workspace};

const cgp__cuda_op cgp__cuda_rms_norm = {
    {BY_TYPE_OF(forward, false), BY_TYPE_OF(input, false), NULL}, workspace};
