/* SPDX-License-Identifier: Apache-2.0 */
/* binary.c -- elementwise ops of two inputs of the same shape.
 *
 *     MULTIPLY    y = a b      dx[0] = dy b    dx[1] = dy a
 *     SUBTRACT    y = a - b    dx[0] = dy      dx[1] = -dy
 *
 * The output y may alias `a` or `b`. A dx[k] may alias dy, and dx[0] may alias dx[1]. This works
 * because each element is loaded before it is stored, and because dx[1] is stored before dx[0] is
 * added. */
#include "backend/cpu/kernels/map.h"

INLINE vec product_of(vec a, vec b, float unused) {
    (void)unused;
    return a * b;
}

INLINE vec difference_of(vec a, vec b, float unused) {
    (void)unused;
    return a - b;
}

INLINE void multiply(cgp_dtype type, void *y, const void *a, const void *b, int64_t n) {
    map_two_to(type, y, a, b, n, 0.0f, false, product_of);
}

INLINE void subtract(cgp_dtype type, void *y, const void *a, const void *b, int64_t n) {
    map_two_to(type, y, a, b, n, 0.0f, false, difference_of);
}

TYPED(multiply, (void *y, const void *a, const void *b, int64_t n), y, a, b, n)
TYPED(subtract, (void *y, const void *a, const void *b, int64_t n), y, a, b, n)

void CGP__CPU_NAME(multiply)(cgp_dtype type, void *y, const void *a, const void *b, int64_t n) {
    CALL_TYPED(type, multiply, y, a, b, n);
}

void CGP__CPU_NAME(subtract)(cgp_dtype type, void *y, const void *a, const void *b, int64_t n) {
    CALL_TYPED(type, subtract, y, a, b, n);
}

/* Store dx[1] first, then dx[0]. */
INLINE void put_both(cgp_dtype type, void *const dx[2], int64_t i, int64_t left, vec first,
                     vec second, uint32_t add) {
    if (dx[1]) store_left(type, dx[1], i, second, left, add >> 1 & 1u);
    if (dx[0]) store_left(type, dx[0], i, first, left, add & 1u);
}

INLINE void multiply_back(cgp_dtype type, void *const dx[2], const void *a, const void *b,
                          const void *dy, int64_t n, uint32_t add) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t left = n - i;
        const vec d = load_left(type, dy, i, left), in_a = load_left(type, a, i, left),
                  in_b = load_left(type, b, i, left);
        put_both(type, dx, i, left, d * in_b, d * in_a, add);
    }
}

INLINE void subtract_back(cgp_dtype type, void *const dx[2], const void *dy, int64_t n,
                          uint32_t add) {
    for (int64_t i = 0; i < n; i += LANES) {
        const vec d = load_left(type, dy, i, n - i);
        put_both(type, dx, i, n - i, d, -d, add);
    }
}

TYPED(multiply_back,
      (void *const dx[2], const void *a, const void *b, const void *dy, int64_t n, uint32_t add),
      dx, a, b, dy, n, add)
TYPED(subtract_back, (void *const dx[2], const void *dy, int64_t n, uint32_t add), dx, dy, n, add)

void CGP__CPU_NAME(multiply_backward)(cgp_dtype type, void *const dx[2], const void *a,
                                      const void *b, const void *dy, int64_t n, uint32_t add) {
    CALL_TYPED(type, multiply_back, dx, a, b, dy, n, add);
}

void CGP__CPU_NAME(subtract_backward)(cgp_dtype type, void *const dx[2], const void *dy, int64_t n,
                                      uint32_t add) {
    CALL_TYPED(type, subtract_back, dx, dy, n, add);
}
