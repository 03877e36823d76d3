/* SPDX-License-Identifier: Apache-2.0 */
/* function.cu -- FUNCTION and FUNCTION_OF_Y: y = f(x), dx = dy f', elementwise, for the functions
 * of cgpipe/ext/ops/function.h. The output y may share x's memory, and dx may share dy's memory.
 *
 * With e = exp(-|v|), which cannot overflow, the logistic function of v is 1 / (1 + e) for v >= 0
 * and e / (1 + e) below. The order of operations and the bits are the same as in the cpu
 * backend. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/math.cuh"

__device__ static inline float exp_of_minus_abs(float x) {
    return exp_or_zero(x < 0.0f ? x : -x);
}

__device__ static inline float logistic(float x) {
    const float e = exp_of_minus_abs(x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

__device__ static inline float within(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

__device__ static inline float at_most(float x, float limit) {
    return x > limit ? limit : x;
}

__device__ static inline float at_least(float x, float limit) {
    return x < limit ? limit : x;
}

/* Return log(1 - x) without cancellation near 0. The formula is log(u) (x / (1 - u)), where u is
 * the rounded value of 1 - x. Source: Kahan's log1p, in Goldberg 1991, "What every computer
 * scientist should know about floating-point arithmetic", theorem 4. */
__device__ static inline float log_one_minus(float x) {
    const float u = 1.0f - x;
    return u == 1.0f ? -x : log_f32(u) * (x / (1.0f - u));
}

__device__ static inline float softplus(float x, float a, float b) {
    const float u = a * x;
    return u > b ? x : ((u < 0.0f ? 0.0f : u) + log_one_plus(exp_of_minus_abs(u))) / a;
}

/* mish(x) = x t, t = tanh(log(1 + e)) = n / (n + 2), n = e (e + 2), e = exp(x). Above 20, t is 1.
 *
 *     1 - t^2 = 4 (n + 1) / (n + 2)^2
 */
__device__ static inline float mish_exp(float x) {
    return exp_or_zero(x > 20.0f ? 20.0f : x);
}

__device__ static inline float mish(float x) {
    const float e = mish_exp(x), n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
}

__device__ static inline float mish_slope(float x) {
    const float e = mish_exp(x), n = e * (e + 2.0f), inverse = 1.0f / (n + 2.0f);
    const float rest = x > 20.0f ? 0.0f : 4.0f * (n + 1.0f) * inverse * inverse;
    return n * inverse + x * rest * (e / (1.0f + e));
}

/* Return y. `function` is the same for all threads. */
__device__ static inline float value_of(int function, float x, float a, float b) {
    switch (function) {
    case CGP_FUNCTION_HARDTANH:
    case CGP_FUNCTION_CLAMP:
        return within(x, a, b);
    case CGP_FUNCTION_SQRT:
        return sqrtf(x);
    case CGP_FUNCTION_RSQRT:
        return 1.0f / sqrtf(x);
    case CGP_FUNCTION_RECIPROCAL:
        return 1.0f / x;
    case CGP_FUNCTION_EXP:
        return exp_of(x);
    case CGP_FUNCTION_HARDSIGMOID:
        return within(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    case CGP_FUNCTION_HARDSWISH:
        return x * within(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    case CGP_FUNCTION_ABS:
        return __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
    case CGP_FUNCTION_LOG:
        return log_f32(x);
    case CGP_FUNCTION_ELU:
        return x <= 0.0f ? a * exp_minus_one(b * x) : x;
    case CGP_FUNCTION_SOFTPLUS:
        return softplus(x, a, b);
    case CGP_FUNCTION_BCE_ONE:
        return at_most(-log_f32(x), 100.0f);
    case CGP_FUNCTION_BCE_ZERO:
        return at_most(-log_one_minus(x), 100.0f);
    default:
        return mish(x);
    }
}

/* Return dx. For the functions of FUNCTION_OF_Y, `x` holds y. */
__device__ static inline float gradient_of(int function, float x, float dy, float a, float b) {
    switch (function) {
    case CGP_FUNCTION_HARDTANH:
        return x <= a || x >= b || x != x ? 0.0f : dy;
    case CGP_FUNCTION_CLAMP:
        return x >= a && x <= b ? dy : 0.0f;
    case CGP_FUNCTION_SQRT:
        return dy / (2.0f * x);
    case CGP_FUNCTION_RSQRT:
        return -0.5f * dy * (x * x * x);
    case CGP_FUNCTION_RECIPROCAL:
        return -dy * (x * x);
    case CGP_FUNCTION_EXP:
        return dy * x;
    case CGP_FUNCTION_HARDSIGMOID:
        return x > -3.0f && x < 3.0f ? dy / 6.0f : 0.0f;
    case CGP_FUNCTION_HARDSWISH:
        return x <= -3.0f ? 0.0f : x < 3.0f ? dy * (x / 3.0f + 0.5f) : dy;
    case CGP_FUNCTION_ABS:
        return x > 0.0f ? dy : x < 0.0f ? -dy : 0.0f;
    case CGP_FUNCTION_LOG:
        return dy / x;
    case CGP_FUNCTION_ELU:
        return x <= 0.0f ? dy * (a * b * exp_or_zero(b * x)) : dy;
    case CGP_FUNCTION_SOFTPLUS:
        return a * x > b ? dy : dy * logistic(a * x);
    case CGP_FUNCTION_BCE_ONE:
        return -dy * (1.0f - x) / at_least((1.0f - x) * x, 1e-12f);
    case CGP_FUNCTION_BCE_ZERO:
        return dy * x / at_least((1.0f - x) * x, 1e-12f);
    default:
        return dy * mish_slope(x);
    }
}

struct forward_of {
    int function;
    float a, b;
    __device__ float operator()(float x, float) const {
        return value_of(function, x, a, b);
    }
};

/* Return a limit of HARDTANH, rounded to the type of y. For an infinite limit, return NaN.
 * Comparisons with NaN are false, so no y reaches such a limit. */
template <class T> __device__ static inline float reached(float limit) {
    T rounded;
    store(&rounded, 0, limit);
    return limit - limit == 0.0f ? load(&rounded, 0) : NAN;
}

template <class T> struct backward_of {
    int function;
    float a, b;
    __device__ float operator()(float x, float dy) const {
        if (function != CGP_FUNCTION_HARDTANH) return gradient_of(function, x, dy, a, b);
        return gradient_of(function, x, dy, reached<T>(a), reached<T>(b));
    }
};

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const cgp_op_function *f = cgp_spec_function(spec);
    const T *x = (const T *)args->x[0];
    return map((T *)args->y, x, x, elements(spec), false, stream,
               forward_of{f->function, f->slope, f->second});
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const cgp_op_function *f = cgp_spec_function(spec);
    const void *operand = spec->op == CGP_OP_FUNCTION_OF_Y ? args->y : args->x[0];
    if (!args->dx[0]) return cudaSuccess;
    return map((T *)args->dx[0], (const T *)operand, (const T *)args->dy, elements(spec),
               adds(spec, 0), stream, backward_of<T>{f->function, f->slope, f->second});
}

const cgp__cuda_op cgp__cuda_function = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
const cgp__cuda_op cgp__cuda_function_of_y = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
