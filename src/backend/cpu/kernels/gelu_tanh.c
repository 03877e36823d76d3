/* SPDX-License-Identifier: Apache-2.0 */
/* gelu_tanh.c -- the tanh approximation of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415): y =
 * x P(x), P(x) = (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3).
 *
 * P is the logistic function of 2 u. With e = exp(-|2 u|), which cannot overflow:
 *
 *     P = 1 / (1 + e)  for x >= 0      P (1 - P) = e / (1 + e)^2
 *         e / (1 + e)  for x < 0       dx = dy (P + x P (1 - P) 2 u')
 *
 * In this form, small values of P lose no precision to cancellation. For |x| > 16, e is 0 and P is
 * constant. So u is computed from x clamped to -16 .. 16, and no power of x overflows. The kernels
 * are elementwise; y may alias x, and dx may alias dy. Backward reads x, not y. */
#include "backend/cpu/kernels/map.h"

#define TWO_SQRT_TWO_OVER_PI 1.5957691216057308f
#define CUBIC 0.044715f
#define FAR 16.0f

/* Clamp x to -FAR .. FAR; NaN stays NaN. */
INLINE vec limited(vec x) {
    return pick(x > FAR, splat(FAR), pick(x < -FAR, splat(-FAR), x));
}

/* Return e for a clamped x. */
INLINE vec exp_of(vec x) {
    const vec two_u = TWO_SQRT_TWO_OVER_PI * x * (1.0f + CUBIC * x * x);
    return exp_or_zero(pick(x < 0.0f, two_u, -two_u));
}

INLINE vec forward_of(vec x, float slope) {
    const vec e = exp_of(limited(x));
    (void)slope;
    return x * pick(x < 0.0f, e, splat(1.0f)) / (1.0f + e);
}

INLINE vec backward_of(vec x, vec dy, float slope) {
    const vec near = limited(x), e = exp_of(near), inverse = 1.0f / (1.0f + e);
    const vec two_slope = TWO_SQRT_TWO_OVER_PI * (1.0f + 3.0f * CUBIC * near * near);
    const vec p = pick(x < 0.0f, e, splat(1.0f)) * inverse;
    (void)slope;
    return dy * (p + near * (e * inverse * inverse) * two_slope);
}

ELEMENTWISE(gelu_tanh)
