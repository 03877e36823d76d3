/* SPDX-License-Identifier: Apache-2.0 */
/* bce.cu -- binary cross-entropy of logits: -t log s(x) - (1 - t) log(1 - s(x)), where s(x) = 1 /
 * (1 + exp(-x)).
 *
 *     e = exp(-|x|)        loss = max(x, 0) - x t + log(1 + e)        dx = scale (s(x) - t)
 *     s(x) = 1 / (1 + e) for x >= 0, e / (1 + e) for x < 0
 *
 * This form neither overflows nor cancels. Losses are float and are summed in double: first the
 * elements of each sample, in the order that rows.cuh gives for a buffer, then the samples in
 * order. The gradient dx may share x's memory. */
#include "backend/cuda/loss.cuh"
#include "backend/cuda/map.cuh"
#include "backend/cuda/math.cuh"
#include "backend/cuda/rows.cuh"

__device__ static inline float exp_of_minus_abs(float x) {
    return exp_or_zero(x > 0.0f ? -x : x);
}

__device__ static inline float loss_of(float x, float target) {
    return (x <= 0.0f ? 0.0f : x) - x * target + log_one_plus(exp_of_minus_abs(x));
}

/* Sum the losses of a part of a sample, in one thread block. */
template <class T>
__global__ void bce_forward(double *losses, const T *x, const T *targets, int64_t size,
                            int64_t parts) {
    const int64_t sample = blockIdx.x / parts, begin = blockIdx.x % parts * PART;
    const int64_t left = size - begin, at = sample * size + begin;
    const double sum = part_sum(
        left < PART ? (int)left : (int)PART,
        [&](int i) { return loss_of(load(x, at + i), load(targets, at + i)); },
        [](float loss) { return (double)loss; });
    if (threadIdx.x == 0) losses[blockIdx.x] = sum;
}

static int64_t parts_of(const cgp_kernel_spec *spec) {
    return ceil_div(spec->attributes.rows * spec->attributes.out, PART);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t parts = parts_of(spec), blocks = spec->n * parts;
    CGP__TRY_CUDA_ERROR(launch(bce_forward<T>, dim3((unsigned)blocks), dim3(BLOCK), stream,
                               (double *)args->workspace, (const T *)args->x[0],
                               (const T *)args->x[1],
                               spec->attributes.rows * spec->attributes.out, parts));
    return set_loss(args, blocks, stream);
}

struct slope_of {
    const cgp_step_values *values;
    int loss;
    __device__ float operator()(float x, float target) const {
        const float e = exp_of_minus_abs(x);
        return loss_scale(values, loss) * ((x < 0.0f ? e : 1.0f) / (1.0f + e) - target);
    }
};

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    return map((T *)args->dx[0], (const T *)args->x[0], (const T *)args->x[1], elements(spec),
               adds(spec, 0), stream, slope_of{args->values, args->loss});
}

/* Return the workspace size in bytes: one sum for each part. */
static int64_t workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_FORWARD) return 0;
    return spec->n * parts_of(spec) * (int64_t)sizeof(double);
}

const cgp__cuda_op cgp__cuda_bce_with_logits = {{BY_TYPE(forward), BY_TYPE(input), NULL},
                                                workspace};
