/* gelu.c -- y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2.
 *
 *     dx = dy (P(x) + x exp(-x^2 / 2) / sqrt(2 pi))
 *
 * Elementwise; y may be x, dx may be dy. Backward reads x, not y. */
#include "backend/cpu/kernels/vec.h"

#define SQRT_HALF 0.70710678118654752f
#define SQRT_TWO_PI_INVERSE 0.39894228040143268f

INLINE vec forward(vec x) {
    return 0.5f * x * (1.0f + erf_vec(x * SQRT_HALF));
}

INLINE vec slope(vec x) {
    const vec half_erf = 0.5f + 0.5f * erf_vec(x * SQRT_HALF);
    return half_erf + x * (SQRT_TWO_PI_INVERSE * exp_or_zero(-0.5f * x * x));
}

void CGP__CPU_NAME(gelu_forward)(float *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, forward(load(x + i)));
    if (i < n) store_part(y + i, forward(load_part(x + i, n - i)), n - i);
}

INLINE void backward(float *dx, const float *x, const float *dy, int64_t n, bool add) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec g = load(dy + i) * slope(load(x + i));
        store(dx + i, add ? load(dx + i) + g : g);
    }
    if (i < n) {
        const vec g = load_part(dy + i, n - i) * slope(load_part(x + i, n - i));
        store_part(dx + i, add ? load_part(dx + i, n - i) + g : g, n - i);
    }
}

void CGP__CPU_NAME(gelu_backward)(float *dx, const float *x, const float *dy, int64_t n,
                                  bool add) {
    if (add)
        backward(dx, x, dy, n, true);
    else
        backward(dx, x, dy, n, false);
}
