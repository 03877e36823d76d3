/* SPDX-License-Identifier: Apache-2.0 */
/* element_losses.cu -- losses of single elements x with targets t, and their slopes in x. Binary
 * cross-entropy of logits is -t log s(x) - (1 - t) log(1 - s(x)), where s(x) = 1 / (1 + exp(-x)).
 *
 *     e = exp(-|x|)        loss = max(x, 0) - x t + log(1 + e)        slope = s(x) - t
 *     s(x) = 1 / (1 + e) for x >= 0, e / (1 + e) for x < 0
 *
 * This form neither overflows nor loses precision to cancellation. The other losses, with d = x -
 * t:
 *
 *     MSE          d^2                                           slope = 2 d
 *     SMOOTH_L1    d^2 / (2 beta) if |d| < beta                  slope = d / beta
 *                  |d| - beta / 2 elsewhere                      slope = sign(d)
 *     WEIGHTED_MEAN x t                                          slope = t
 *
 * dx = scale slope. Losses are float and are summed in double. First the elements of each sample
 * are added, in the order that rows.cuh defines for a buffer, and then the samples in order. The
 * gradient dx may share x's memory. */
#include "backend/cuda/loss.cuh"
#include "backend/cuda/map.cuh"
#include "backend/cuda/math.cuh"
#include "backend/cuda/rows.cuh"

__device__ static inline float exp_of_minus_abs(float x) {
    return exp_or_zero(x > 0.0f ? -x : x);
}

struct bce {
    static __device__ float loss(float x, float target, float) {
        return (x <= 0.0f ? 0.0f : x) - x * target + log_one_plus(exp_of_minus_abs(x));
    }
    static __device__ float slope(float x, float target, float) {
        const float e = exp_of_minus_abs(x);
        return (x < 0.0f ? e : 1.0f) / (1.0f + e) - target;
    }
};

struct mse {
    static __device__ float loss(float x, float target, float) {
        return (x - target) * (x - target);
    }
    static __device__ float slope(float x, float target, float) {
        return 2.0f * (x - target);
    }
};

struct smooth_l1 {
    static __device__ float loss(float x, float target, float beta) {
        const float d = x - target, size = d < 0.0f ? -d : d;
        return size < beta ? 0.5f * d * d / beta : size - 0.5f * beta;
    }
    static __device__ float slope(float x, float target, float beta) {
        const float d = x - target, size = d < 0.0f ? -d : d;
        const float sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : 0.0f;
        return size < beta ? d / beta : sign;
    }
};

struct weighted_mean {
    static __device__ float loss(float x, float factor, float) {
        return x * factor;
    }
    static __device__ float slope(float, float factor, float) {
        return factor;
    }
};

/* Sum the losses of a part of a sample, in one thread block. */
template <class T, class Of>
__global__ void element_loss_forward(double *losses, const T *x, const T *targets, int64_t size,
                                     int64_t parts, float beta) {
    const int64_t sample = blockIdx.x / parts, begin = blockIdx.x % parts * PART;
    const int64_t left = size - begin, at = sample * size + begin;
    const double sum = part_sum(
        left < PART ? (int)left : (int)PART,
        [&](int i) { return Of::loss(load(x, at + i), load(targets, at + i), beta); },
        [](float loss) { return (double)loss; });
    if (threadIdx.x == 0) losses[blockIdx.x] = sum;
}

static int64_t parts_of(const cgp_kernel_spec *spec) {
    return ceil_div(spec->attributes.rows * spec->attributes.out, PART);
}

static float beta_of(const cgp_kernel_spec *spec) {
    return (float)cgp_spec_element_loss(spec)->beta;
}

template <class Of, class T>
static cudaError_t forward_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                              cudaStream_t stream) {
    const int64_t parts = parts_of(spec), blocks = spec->n * parts;
    CGP__TRY_CUDA_ERROR(launch(element_loss_forward<T, Of>, dim3((unsigned)blocks), dim3(BLOCK),
                               stream, (double *)args->workspace, (const T *)args->x[0],
                               (const T *)args->x[1], spec->attributes.rows * spec->attributes.out,
                               parts, beta_of(spec)));
    return set_loss(args, blocks, stream);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return spec->op == CGP_OP_MSE             ? forward_of<mse, T>(spec, args, stream)
           : spec->op == CGP_OP_SMOOTH_L1     ? forward_of<smooth_l1, T>(spec, args, stream)
           : spec->op == CGP_OP_WEIGHTED_MEAN ? forward_of<weighted_mean, T>(spec, args, stream)
                                              : forward_of<bce, T>(spec, args, stream);
}

template <class Of> struct scaled_slope {
    const cgp_step_values *values;
    int loss;
    float beta;
    __device__ float operator()(float x, float target) const {
        return loss_scale(values, loss) * Of::slope(x, target, beta);
    }
};

template <class Of, class T>
static cudaError_t input_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                            cudaStream_t stream) {
    const void *x = args->x[0] ? args->x[0] : args->x[1]; /* WEIGHTED_MEAN has no x */
    return map((T *)args->dx[0], (const T *)x, (const T *)args->x[1], elements(spec), adds(spec, 0),
               stream, scaled_slope<Of>{args->values, args->loss, beta_of(spec)});
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    return spec->op == CGP_OP_MSE             ? input_of<mse, T>(spec, args, stream)
           : spec->op == CGP_OP_SMOOTH_L1     ? input_of<smooth_l1, T>(spec, args, stream)
           : spec->op == CGP_OP_WEIGHTED_MEAN ? input_of<weighted_mean, T>(spec, args, stream)
                                              : input_of<bce, T>(spec, args, stream);
}

/* Return the workspace size in bytes: one sum for each part. */
static int64_t workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_FORWARD) return 0;
    return spec->n * parts_of(spec) * (int64_t)sizeof(double);
}

#define ELEMENT_LOSS                                                                               \
    { {BY_TYPE(forward), BY_TYPE(input), NULL}, workspace }
const cgp__cuda_op cgp__cuda_bce_with_logits = ELEMENT_LOSS;
const cgp__cuda_op cgp__cuda_mse = ELEMENT_LOSS;
const cgp__cuda_op cgp__cuda_smooth_l1 = ELEMENT_LOSS;
const cgp__cuda_op cgp__cuda_weighted_mean = ELEMENT_LOSS;
