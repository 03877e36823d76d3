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

INLINE void forward_all(cgp_dtype type, void *y, const void *x, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_as(type, y, i, forward(load_as(type, x, i)));
    if (i < n) store_part_as(type, y, i, forward(load_part_as(type, x, i, n - i)), n - i);
}

TYPED(forward_all, (void *y, const void *x, int64_t n), y, x, n)

void CGP__CPU_NAME(gelu_forward)(cgp_dtype type, void *y, const void *x, int64_t n) {
    CALL_TYPED(type, forward_all, y, x, n);
}

INLINE void backward_all(cgp_dtype type, void *dx, const void *x, const void *dy, int64_t n,
                         bool add) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec g = load_as(type, dy, i) * slope(load_as(type, x, i));
        store_as(type, dx, i, add ? load_as(type, dx, i) + g : g);
    }
    if (i < n) {
        const vec g = load_part_as(type, dy, i, n - i) * slope(load_part_as(type, x, i, n - i));
        store_part_as(type, dx, i, add ? load_part_as(type, dx, i, n - i) + g : g, n - i);
    }
}

INLINE void backward(cgp_dtype type, void *dx, const void *x, const void *dy, int64_t n,
                     bool add) {
    if (add)
        backward_all(type, dx, x, dy, n, true);
    else
        backward_all(type, dx, x, dy, n, false);
}

TYPED(backward, (void *dx, const void *x, const void *dy, int64_t n, bool add), dx, x, dy, n,
      add)

void CGP__CPU_NAME(gelu_backward)(cgp_dtype type, void *dx, const void *x, const void *dy,
                                  int64_t n, bool add) {
    CALL_TYPED(type, backward, dx, x, dy, n, add);
}
