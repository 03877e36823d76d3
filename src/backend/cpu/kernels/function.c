/* SPDX-License-Identifier: Apache-2.0 */
/* function.c -- the functions of FUNCTION and FUNCTION_OF_Y (cgpipe/ext/ops/function.h) and their
 * gradients. The kernels are elementwise; y may alias x, and dx may alias dy.
 *
 * With e = exp(-|v|), which cannot overflow, the logistic function of v is 1 / (1 + e) for v >= 0
 * and e / (1 + e) below. The order of operations is the same as in the cuda backend. */
#include "backend/cpu/kernels/map.h"

#include <math.h>

/* Return exp(x) for any x. The result is infinity above 88.73. For x > 88, compute the square of
 * exp(x / 2). */
INLINE vec exp_of(vec x) {
    const ivec high = x > 88.0f;
    const vec e = exp_or_zero(pick(high, 0.5f * pick(x > 104.0f, splat(104.0f), x), x));
    return pick(high, e * e, e);
}

/* Return exp(x) - 1 for x <= 0, without cancellation near 0: 2^n (exp(r) - 1) + (2^n - 1). */
INLINE vec exp_minus_one(vec x) {
    vec scale;
    const vec p = exp_parts(pick(x < -87.0f, splat(-87.0f), x), &scale);
    return multiply_add(p, scale, scale - 1.0f);
}

/* Return log(x), computed as follows:
 *
 *     x = 2^k (1 + f), 1 + f between sqrt(1/2) and sqrt 2        s = f / (2 + f)
 *     log(x) = k ln 2 + 2 artanh(s)        2 artanh(s) = 2 s + 2 s^3 (1/3 + s^2 / 5 + ...)
 *
 * ln 2 is split into two parts such that k times the first part is exact. The omitted terms are
 * below 1e-9 of the result. A denormal x is first scaled by 2^24. */
INLINE vec log_of(vec x) {
    const ivec tiny = x < 0x1p-126f;
    const uvec bits = (uvec)pick(tiny, x * 0x1p24f, x);
    const ivec k = (ivec)(bits - 0x3f3504f3u) >> 23; /* sqrt(1/2) */
    const vec f = (vec)(bits - ((uvec)k << 23)) - 1.0f, s = f / (2.0f + f), z = s * s;
    const vec power = __builtin_convertvector(k - (tiny & 24), vec);
    vec sum = splat(1.0f / 9.0f);
    sum = multiply_add(sum, z, splat(1.0f / 7.0f));
    sum = multiply_add(sum, z, splat(1.0f / 5.0f));
    sum = multiply_add(sum, z, splat(1.0f / 3.0f));
    const vec low = multiply_add(sum * z, 2.0f * s, power * -0x1.bd0106p-13f);
    const vec found = multiply_add(power, splat(0x1.63p-1f), multiply_add(splat(2.0f), s, low));
    const vec outside = pick(x < 0.0f, splat(NAN), pick(x > 0.0f, found, splat(-INFINITY)));
    /* NOLINTNEXTLINE(misc-redundant-expression): x != x if x is NaN */
    return pick((x == INFINITY) | (x != x), x, outside);
}

INLINE vec logistic(vec x) {
    const vec e = exp_of_minus_abs(x);
    return pick(x < 0.0f, e, splat(1.0f)) / (1.0f + e);
}

INLINE vec within(vec x, float low, float high) {
    return pick(x < low, splat(low), pick(x > high, splat(high), x));
}

INLINE vec at_most(vec x, float limit) {
    return pick(x > limit, splat(limit), x);
}

INLINE vec at_least(vec x, float limit) {
    return pick(x < limit, splat(limit), x);
}

/* Return log(1 - x) without cancellation near 0. The formula is log(u) (x / (1 - u)), where u is
 * the rounded value of 1 - x. Source: Kahan's log1p, in Goldberg 1991, "What every computer
 * scientist should know about floating-point arithmetic", theorem 4. */
INLINE vec log_one_minus(vec x) {
    const vec u = 1.0f - x;
    return pick(u == 1.0f, -x, log_of(u) * (x / (1.0f - u)));
}

INLINE vec softplus(vec x, float a, float b) {
    const vec u = a * x;
    return pick(u > b, x, (pick(u < 0.0f, splat(0.0f), u) + log_one_plus(exp_of_minus_abs(u))) / a);
}

/* mish(x) = x t, t = tanh(log(1 + e)) = n / (n + 2), n = e (e + 2), e = exp(x). Above 20, t is 1.
 *
 *     1 - t^2 = 4 (n + 1) / (n + 2)^2
 */
INLINE vec mish_exp(vec x) {
    return exp_or_zero(pick(x > 20.0f, splat(20.0f), x));
}

INLINE vec mish(vec x) {
    const vec e = mish_exp(x), n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
}

INLINE vec mish_slope(vec x) {
    const vec e = mish_exp(x), n = e * (e + 2.0f), inverse = 1.0f / (n + 2.0f);
    const vec rest = keep(~(x > 20.0f), 4.0f * (n + 1.0f) * inverse * inverse);
    return n * inverse + x * rest * (e / (1.0f + e));
}

/* Return y. `function` is constant, so one case is compiled. */
INLINE vec value_of(cgp_function function, vec x, float a, float b) {
    switch (function) {
    case CGP_FUNCTION_HARDTANH:
    case CGP_FUNCTION_CLAMP:
        return within(x, a, b);
    case CGP_FUNCTION_SQRT:
        return square_root(x);
    case CGP_FUNCTION_RSQRT:
        return 1.0f / square_root(x);
    case CGP_FUNCTION_RECIPROCAL:
        return 1.0f / x;
    case CGP_FUNCTION_EXP:
        return exp_of(x);
    case CGP_FUNCTION_HARDSIGMOID:
        return within(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    case CGP_FUNCTION_HARDSWISH:
        return x * within(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    case CGP_FUNCTION_ABS:
        return (vec)((ivec)x & INT32_MAX);
    case CGP_FUNCTION_LOG:
        return log_of(x);
    case CGP_FUNCTION_ELU:
        return pick(x <= 0.0f, a * exp_minus_one(b * x), x);
    case CGP_FUNCTION_SOFTPLUS:
        return softplus(x, a, b);
    case CGP_FUNCTION_BCE_ONE:
        return at_most(-log_of(x), 100.0f);
    case CGP_FUNCTION_BCE_ZERO:
        return at_most(-log_one_minus(x), 100.0f);
    default:
        return mish(x);
    }
}

/* Return dx. For the functions of FUNCTION_OF_Y, `x` holds y. */
INLINE vec gradient_of(cgp_function function, vec x, vec dy, float a, float b) {
    switch (function) {
    case CGP_FUNCTION_HARDTANH:
        /* NOLINTNEXTLINE(misc-redundant-expression): false if x is NaN */
        return keep(~(x <= a) & ~(x >= b) & (x == x), dy);
    case CGP_FUNCTION_CLAMP:
        return keep((x >= a) & (x <= b), dy);
    case CGP_FUNCTION_SQRT:
        return dy / (2.0f * x);
    case CGP_FUNCTION_RSQRT:
        return -0.5f * dy * (x * x * x);
    case CGP_FUNCTION_RECIPROCAL:
        return -dy * (x * x);
    case CGP_FUNCTION_EXP:
        return dy * x;
    case CGP_FUNCTION_HARDSIGMOID:
        return keep((x > -3.0f) & (x < 3.0f), dy / 6.0f);
    case CGP_FUNCTION_HARDSWISH:
        return pick(x <= -3.0f, splat(0.0f), pick(x < 3.0f, dy * (x / 3.0f + 0.5f), dy));
    case CGP_FUNCTION_ABS:
        return pick(x > 0.0f, dy, keep(x < 0.0f, -dy));
    case CGP_FUNCTION_LOG:
        return dy / x;
    case CGP_FUNCTION_ELU:
        return pick(x <= 0.0f, dy * (a * b * exp_or_zero(b * x)), dy);
    case CGP_FUNCTION_SOFTPLUS:
        return pick(a * x > b, dy, dy * logistic(a * x));
    case CGP_FUNCTION_BCE_ONE:
        return -dy * (1.0f - x) / at_least((1.0f - x) * x, 1e-12f);
    case CGP_FUNCTION_BCE_ZERO:
        return dy * x / at_least((1.0f - x) * x, 1e-12f);
    default:
        return dy * mish_slope(x);
    }
}

/* --- loops --- */

INLINE void map_function(cgp_function function, cgp_dtype type, void *y, const void *x, int64_t n,
                         float a, float b) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch_ahead(type, x, i);
        store_as(type, y, i, value_of(function, load_as(type, x, i), a, b));
    }
    if (i < n)
        store_part_as(type, y, i, value_of(function, load_part_as(type, x, i, n - i), a, b), n - i);
}

INLINE void map_gradient(cgp_function function, cgp_dtype type, void *dx, const void *x,
                         const void *dy, int64_t n, float a, float b, bool add) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch_ahead(type, x, i);
        prefetch_ahead(type, dy, i);
        const vec out = gradient_of(function, load_as(type, x, i), load_as(type, dy, i), a, b);
        store_as(type, dx, i, add ? load_as(type, dx, i) + out : out);
    }
    if (i == n) return;
    const int64_t left = n - i;
    const vec out = gradient_of(function, load_part_as(type, x, i, left),
                                load_part_as(type, dy, i, left), a, b);
    store_part_as(type, dx, i, add ? load_part_as(type, dx, i, left) + out : out, left);
}

/* Return a limit of HARDTANH, rounded to the type of y. For an infinite limit, return NaN.
 * Comparisons with NaN are false, so no y reaches such a limit. */
INLINE float reached(cgp_dtype type, float limit) {
    if (!(limit - limit == 0.0f)) return NAN;
    return type == CGP_BF16 ? widen(narrow(splat(limit)))[0] : limit;
}

#define FORWARD(name)                                                                              \
    case CGP_FUNCTION_##name:                                                                      \
        map_function(CGP_FUNCTION_##name, type, y, x, n, f->slope, f->second);                     \
        break;

INLINE void forward(cgp_dtype type, const cgp_op_function *f, void *y, const void *x, int64_t n) {
    switch (f->function) { CGP_FUNCTION_LIST(FORWARD) }
}

#define BACKWARD(name)                                                                             \
    case CGP_FUNCTION_##name:                                                                      \
        if (add)                                                                                   \
            map_gradient(CGP_FUNCTION_##name, type, dx, x, dy, n, a, b, true);                     \
        else                                                                                       \
            map_gradient(CGP_FUNCTION_##name, type, dx, x, dy, n, a, b, false);                    \
        break;

INLINE void backward(cgp_dtype type, const cgp_op_function *f, void *dx, const void *x,
                     const void *dy, int64_t n, bool add) {
    const bool limits = f->function == CGP_FUNCTION_HARDTANH;
    const float a = limits ? reached(type, f->slope) : f->slope;
    const float b = limits ? reached(type, f->second) : f->second;
    switch (f->function) { CGP_FUNCTION_LIST(BACKWARD) }
}

TYPED(forward, (const cgp_op_function *f, void *y, const void *x, int64_t n), f, y, x, n)
TYPED(backward,
      (const cgp_op_function *f, void *dx, const void *x, const void *dy, int64_t n, bool add), f,
      dx, x, dy, n, add)

void CGP__CPU_NAME(function_forward)(const cgp_op_function *f, cgp_dtype type, void *y,
                                     const void *x, int64_t n) {
    CALL_TYPED(type, forward, f, y, x, n);
}

void CGP__CPU_NAME(function_backward)(const cgp_op_function *f, cgp_dtype type, void *dx,
                                      const void *x, const void *dy, int64_t n, bool add) {
    CALL_TYPED(type, backward, f, dx, x, dy, n, add);
}
