/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.cu -- the elementwise ops of one input: y = f(x), dx = dy f'.
 *
 *     gelu       y = x P, P = (1 + erf(x / sqrt 2)) / 2
 *                dx = dy (P + x exp(-x^2 / 2) / sqrt(2 pi))
 *     gelu_tanh  y = x P, P = (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)
 *                dx = dy (P + x P (1 - P) 2 u')
 *     silu       y = x s, s = 1 / (1 + exp(-x))          dx = dy (s + x s (1 - s))
 *     relu       y = x where x > 0, slope x elsewhere    dx = dy where y > 0, slope dy elsewhere
 *     scale      y = slope x                             dx = slope dy
 *     sigmoid    y = s                                   dx = dy y (1 - y)
 *     tanh       y = tanh(x)                             dx = dy (1 - y) (1 + y)
 *
 * P of gelu_tanh is the logistic function of 2 u. With e = exp(-|v|), which cannot overflow, the
 * logistic function of v is 1 / (1 + e) for v >= 0 and e / (1 + e) for v < 0. In this form, small
 * values lose no precision to cancellation.
 *
 * The output y may share x's memory, and dx may share dy's memory. Backward of relu, sigmoid and
 * tanh reads y, backward of scale reads neither x nor y, and the others read x. The order of
 * operations and the bits are the same as in the cpu backend. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/math.cuh"

#define SQRT_HALF 0.70710678118654752f
#define SQRT_TWO_PI_INVERSE 0.39894228040143268f
#define TWO_SQRT_TWO_OVER_PI 1.5957691216057308f
#define CUBIC 0.044715f
#define FAR 16.0f

/* The operand that backward reads. */
enum operand { READS_X, READS_Y, READS_DY };

namespace op {

struct gelu {
    static constexpr operand reads = READS_X;
    __device__ static float forward(float x, float) {
        return 0.5f * x * (1.0f + erf_of(x * SQRT_HALF));
    }
    __device__ static float backward(float x, float dy, float) {
        const float half_erf = 0.5f + 0.5f * erf_of(x * SQRT_HALF);
        return dy * (half_erf + x * (SQRT_TWO_PI_INVERSE * exp_or_zero(-0.5f * x * x)));
    }
};

/* Clamp x to [-FAR, FAR], so that no power of x overflows. For |x| > FAR, e is 0 and P is constant.
 * NaN stays NaN. */
__device__ static inline float limited(float x) {
    return x > FAR ? FAR : x < -FAR ? -FAR : x;
}

struct gelu_tanh {
    static constexpr operand reads = READS_X;
    __device__ static float exp_of(float x) {
        const float two_u = TWO_SQRT_TWO_OVER_PI * x * (1.0f + CUBIC * x * x);
        return exp_or_zero(x < 0.0f ? two_u : -two_u);
    }
    __device__ static float forward(float x, float) {
        const float e = exp_of(limited(x));
        return x * (x < 0.0f ? e : 1.0f) / (1.0f + e);
    }
    __device__ static float backward(float x, float dy, float) {
        const float near = limited(x), e = exp_of(near), inverse = 1.0f / (1.0f + e);
        const float two_slope = TWO_SQRT_TWO_OVER_PI * (1.0f + 3.0f * CUBIC * near * near);
        const float p = (x < 0.0f ? e : 1.0f) * inverse;
        return dy * (p + near * (e * inverse * inverse) * two_slope);
    }
};

struct silu {
    static constexpr operand reads = READS_X;
    __device__ static float forward(float x, float) {
        const float e = exp_or_zero(x < 0.0f ? x : -x);
        return x * (x < 0.0f ? e : 1.0f) / (1.0f + e);
    }
    __device__ static float backward(float x, float dy, float) {
        const float e = exp_or_zero(x < 0.0f ? x : -x), inverse = 1.0f / (1.0f + e);
        const float s = (x < 0.0f ? e : 1.0f) * inverse;
        const float rest = (x < 0.0f ? 1.0f : e) * inverse;
        return dy * (s + x * s * rest);
    }
};

struct relu {
    static constexpr operand reads = READS_Y;
    __device__ static float forward(float x, float slope) {
        return backward(x, x, slope);
    }
    __device__ static float backward(float y, float dy, float slope) {
        return rectified(y, dy, slope);
    }
};

struct scale {
    static constexpr operand reads = READS_DY;
    __device__ static float forward(float x, float slope) {
        return x * slope;
    }
    __device__ static float backward(float, float dy, float slope) {
        return dy * slope;
    }
};

struct sigmoid {
    static constexpr operand reads = READS_Y;
    __device__ static float forward(float x, float) {
        const float e = exp_or_zero(x < 0.0f ? x : -x);
        return (x < 0.0f ? e : 1.0f) / (1.0f + e);
    }
    __device__ static float backward(float y, float dy, float) {
        return dy * (y * (1.0f - y));
    }
};

struct tanh {
    static constexpr operand reads = READS_Y;
    __device__ static float forward(float x, float) {
        return tanh_of(x);
    }
    __device__ static float backward(float y, float dy, float) {
        return dy * ((1.0f - y) * (1.0f + y));
    }
};

} // namespace op

template <class Op> struct forward_of {
    float slope;
    __device__ float operator()(float x, float) const {
        return Op::forward(x, slope);
    }
};

template <class Op> struct backward_of {
    float slope;
    __device__ float operator()(float operand, float dy) const {
        return Op::backward(operand, dy, slope);
    }
};

template <class Op, class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const T *x = (const T *)args->x[0];
    return map((T *)args->y, x, x, elements(spec), false, stream,
               forward_of<Op>{spec->attributes.slope});
}

template <class Op, class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const T *operand = (const T *)(Op::reads == READS_X   ? args->x[0]
                                   : Op::reads == READS_Y ? args->y
                                                          : args->dy);
    if (!args->dx[0]) return cudaSuccess;
    return map((T *)args->dx[0], operand, (const T *)args->dy, elements(spec), adds(spec, 0),
               stream, backward_of<Op>{spec->attributes.slope});
}

#define OP(kind, name, family)                                                                 \
    const cgp__cuda_op cgp__cuda_##name = {                                                    \
        {by_type<forward<op::name, float>, forward<op::name, bf16>>,                           \
         by_type<input<op::name, float>, input<op::name, bf16>>, NULL},                        \
        NULL};
CGP_ELEMENTWISE_OPS(OP)
