/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.cu -- lse - x[target] of each row, x are logits; then their sum in order.
 *
 *     lse = m + log sum_c exp(x[c] - m), m = max x
 *     dx[c] = scale (exp(x[c] - lse) - (c == target)), 0 in a row that does not count
 *
 * Sums of a row are float in 64 lanes, which keeps each short, and double across the lanes, as in the cpu backend. lse is saved
 * for every row. dx may be x. */
#include "backend/cuda/loss.cuh"
#include "backend/cuda/map.cuh"
#include "backend/cuda/math.cuh"

enum { ROW_LANES = 64, LOSS_ROWS = BLOCK / ROW_LANES, WARP = 32, AT_ONCE = 8 };

/* The maximum of a lane's elements that are numbers. */
template <class T> __device__ static inline float lane_max(const T *x, int64_t n, int lane) {
    float max = -INFINITY;
#pragma unroll 16
    for (int64_t c = lane; c < n; c += ROW_LANES)
        max = larger(load(x, c), max);
    return max;
}

/* Sum of exp(x - max) of a lane. Behind the last 64 elements whole sixteens go to the first 16 lanes, the rest to the next. */
template <class T>
__device__ static inline float lane_exp_sum(const T *x, int64_t n, float max, int lane) {
    const int64_t whole = n / 64 * 64, sixteens = n / 16 * 16;
    float sum = 0.0f;
#pragma unroll 16
    for (int64_t c = lane; c < whole; c += ROW_LANES)
        sum += exp_or_zero(load(x, c) - max);
    for (int64_t c = whole + lane; lane < 16 && c < sixteens; c += 16)
        sum += exp_or_zero(load(x, c) - max);
    const int64_t last = sixteens + lane - 16;
    if (lane >= 16 && lane < 32 && last < n) sum += exp_or_zero(load(x, last) - max);
    return sum;
}

template <class T>
__global__ void cross_entropy_forward(const T *x, const int32_t *targets, float *saved,
                                      double *losses, int64_t rows, int64_t classes,
                                      int64_t ignore) {
    __shared__ float maxima[LOSS_ROWS][ROW_LANES / WARP], sums[LOSS_ROWS][ROW_LANES];
    const int r = (int)threadIdx.x / ROW_LANES, lane = (int)threadIdx.x % ROW_LANES;
    const int64_t row = (int64_t)blockIdx.x * LOSS_ROWS + r;
    const int64_t n = row < rows ? classes : 0;
    x += row * classes;
    float max = lane_max(x, n, lane);
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        max = larger(__shfl_xor_sync(0xffffffffu, max, apart), max);
    if (lane % WARP == 0) maxima[r][lane / WARP] = max;
    __syncthreads();
    max = larger(maxima[r][0], maxima[r][1]);
    sums[r][lane] = lane_exp_sum(x, n, max, lane);
    __syncthreads();
    if (lane != 0 || row >= rows) return;
    double sum = 0.0;
    for (int i = 0; i < ROW_LANES; i++)
        sum += (double)sums[r][i];
    const double lse = (double)max + log_of(sum);
    const int32_t target = targets[row];
    saved[row] = (float)lse;
    losses[row] = target == ignore ? 0.0 : lse - (double)load(x, target);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows;
    CGP__TRY_CUDA(launch(cross_entropy_forward<T>, dim3((unsigned)ceil_div(rows, LOSS_ROWS)),
                         dim3(BLOCK), stream, (const T *)args->x[0],
                         (const int32_t *)args->x[1], args->saved[0], (double *)args->workspace,
                         rows, spec->attributes.in, spec->attributes.ignore));
    return set_loss(args, rows, stream);
}

/* A block for each row. A thread loads some logits before it writes: dx may be x, so later loads would wait. */
template <class T>
__global__ void cross_entropy_input(T *dx, const T *x, const int32_t *targets,
                                    const float *saved, int64_t classes, int64_t ignore,
                                    bool add, const cgp_step_values *values, int loss) {
    const int64_t row = blockIdx.x, first = row * classes;
    const int32_t target = targets[row];
    const float lse = saved[row], scale = loss_scale(values, loss);
    const bool counts = target != ignore;
    if (!counts && add) return;
    for (int64_t begin = threadIdx.x; begin < classes; begin += AT_ONCE * BLOCK) {
        float in[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t c = begin + k * BLOCK;
            in[k] = c < classes ? load(x, first + c) : 0.0f;
        }
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t c = begin + k * BLOCK;
            const float e = exp_or_zero(in[k] - lse);
            const float g = scale * (e - (c == target ? 1.0f : 0.0f));
            if (c < classes) put(dx, first + c, add, counts ? g : 0.0f);
        }
    }
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    return launch(cross_entropy_input<T>, dim3((unsigned)(spec->n * spec->attributes.rows)),
                  dim3(BLOCK), stream, (T *)args->dx[0], (const T *)args->x[0],
                  (const int32_t *)args->x[1], args->saved[0], spec->attributes.in,
                  spec->attributes.ignore, adds(spec, 0), args->values, args->loss);
}

/* One loss for each row. */
static int64_t workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_FORWARD) return 0;
    return spec->n * spec->attributes.rows * (int64_t)sizeof(double);
}

const cgp__cuda_op cgp__cuda_cross_entropy = {{BY_TYPE(forward), BY_TYPE(input), NULL},
                                              workspace};
