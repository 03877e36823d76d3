/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.cu -- computes the loss of each row of logits x, with label smoothing s and the
 * row's weight w, then adds up the losses in order.
 *
 *     max = max_c x[c]     log_sum = log sum_c exp(x[c] - max)
 *     loss = w (log_sum + (max - x[target]) + s (x[target] - mean(x)))
 *     dx[c] = scale w (exp((x[c] - max) - log_sum) - (1 - s) (c == target) - s / classes)
 *
 * The loss and dx are 0 in an ignored row. max and log_sum are saved separately for every row,
 * because their f32 sum would lose log_sum if logits are large. The gradient dx may share x's
 * memory. */
#include "backend/cuda/loss.cuh"
#include "backend/cuda/map.cuh"
#include "backend/cuda/row_exp.cuh"

enum { AT_ONCE = 8 };

template <class T> __device__ static inline float weight_of(const T *weights, int64_t row) {
    return weights ? load(weights, row) : 1.0f;
}

/* Return the sum of this thread's row of n elements. All threads of the block must call this
 * function. */
template <class T> __device__ static inline double row_sum(double *lanes, const T *x, int64_t n) {
    const int first = (int)threadIdx.x / ROW_LANES * ROW_LANES;
    double sum = 0.0;
    for (int64_t c = (int)threadIdx.x - first; c < n; c += ROW_LANES)
        sum += (double)load(x, c);
    lanes[threadIdx.x] = sum;
    __syncthreads();
    sum = 0.0;
    for (int i = 0; i < ROW_LANES; i++)
        sum += lanes[first + i];
    return sum;
}

template <class T>
__global__ void cross_entropy_forward(const T *x, const int32_t *targets, const T *weights,
                                      float *maxima, float *log_sums, double *losses, int64_t rows,
                                      int64_t classes, int64_t ignore, double smoothing) {
    __shared__ exp_rows tile;
    __shared__ double lanes[BLOCK];
    const int lane = (int)threadIdx.x % ROW_LANES;
    const int64_t row = (int64_t)blockIdx.x * EXP_ROWS + threadIdx.x / ROW_LANES;
    x += row * classes;
    const float max = row_exp(tile, x, row < rows ? classes : 0);
    const double sum = smoothing > 0.0 ? row_sum(lanes, x, row < rows ? classes : 0) : 0.0;
    if (lane != 0 || row >= rows) return;
    const double log_sum = log_of(exp_sum(tile));
    const int32_t target = targets[row];
    maxima[row] = max;
    log_sums[row] = (float)log_sum;
    losses[row] = 0.0;
    if (target == ignore) return;
    const double logit = (double)load(x, target);
    double loss = log_sum + ((double)max - logit);
    if (smoothing > 0.0) loss += smoothing * (logit - sum / (double)classes);
    losses[row] = (double)weight_of(weights, row) * loss;
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows;
    CGP__TRY_CUDA_ERROR(
        launch(cross_entropy_forward<T>, dim3((unsigned)ceil_div(rows, EXP_ROWS)), dim3(BLOCK),
               stream, (const T *)args->x[0], (const int32_t *)args->x[1], (const T *)args->x[2],
               args->saved[0], args->saved[1], (double *)args->workspace, rows, spec->attributes.in,
               cgp_spec_cross_entropy(spec)->ignore, cgp_spec_cross_entropy(spec)->smoothing));
    return set_loss(args, rows, stream);
}

/* Compute dx. There is one thread block per row. A thread loads several logits before it writes: dx
 * may alias x, so loads after a store would wait for the store. */
template <class T>
__global__ void cross_entropy_input(T *dx, const T *x, const int32_t *targets, const T *weights,
                                    const float *maxima, const float *log_sums, int64_t classes,
                                    int64_t ignore, float hit, float each, bool add,
                                    const cgp_step_values *values, int loss) {
    const int64_t row = blockIdx.x, first = row * classes;
    const int32_t target = targets[row];
    const float max = maxima[row], log_sum = log_sums[row];
    const float scale = loss_scale(values, loss) * weight_of(weights, row);
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
            const float e = exp_or_zero((in[k] - max) - log_sum);
            const float g = scale * ((e - (c == target ? hit : 0.0f)) - each);
            if (c < classes) put(dx, first + c, add, counts ? g : 0.0f);
        }
    }
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const double smoothing = cgp_spec_cross_entropy(spec)->smoothing;
    if (!args->dx[0]) return cudaSuccess;
    return launch(cross_entropy_input<T>, dim3((unsigned)(spec->n * spec->attributes.rows)),
                  dim3(BLOCK), stream, (T *)args->dx[0], (const T *)args->x[0],
                  (const int32_t *)args->x[1], (const T *)args->x[2], args->saved[0],
                  args->saved[1], spec->attributes.in, cgp_spec_cross_entropy(spec)->ignore,
                  (float)(1.0 - smoothing), (float)(smoothing / (double)spec->attributes.in),
                  adds(spec, 0), args->values, args->loss);
}

/* Return the workspace size in bytes: one loss for each row. */
static int64_t workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_FORWARD) return 0;
    return spec->n * spec->attributes.rows * (int64_t)sizeof(double);
}

const cgp__cuda_op cgp__cuda_cross_entropy = {{BY_TYPE(forward), BY_TYPE(input), NULL}, workspace};
