/* SPDX-License-Identifier: Apache-2.0 */
/* multiply.c -- y = a b; dx[0] = dy b, dx[1] = dy a. Elementwise.
 *
 * y may be a or b. A dx[k] may be dy, and both may be one: an element is loaded before it is stored, and dx[1] is stored before dx[0]
 * is added to it. */
#include "backend/cpu/kernels/map.h"

INLINE vec product_of(vec a, vec b, float unused) {
    (void)unused;
    return a * b;
}

INLINE void forward(cgp_dtype type, void *y, const void *a, const void *b, int64_t n) {
    map_two_to(type, y, a, b, n, 0.0f, false, product_of);
}

TYPED(forward, (void *y, const void *a, const void *b, int64_t n), y, a, b, n)

void CGP__CPU_NAME(multiply)(cgp_dtype type, void *y, const void *a, const void *b, int64_t n) {
    CALL_TYPED(type, forward, y, a, b, n);
}

/* Elements from i on, `left` of them if that is less than a vector. */
INLINE vec get(cgp_dtype type, const void *from, int64_t i, int64_t left) {
    return left < LANES ? load_part_as(type, from, i, left) : load_as(type, from, i);
}

INLINE void put(cgp_dtype type, void *to, int64_t i, int64_t left, vec x, bool add) {
    if (add) x = get(type, to, i, left) + x;
    if (left < LANES)
        store_part_as(type, to, i, x, left);
    else
        store_as(type, to, i, x);
}

INLINE void backward(cgp_dtype type, void *const dx[2], const void *a, const void *b,
                     const void *dy, int64_t n, uint32_t add) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t left = n - i;
        const vec d = get(type, dy, i, left);
        const vec slope[] = {d * get(type, b, i, left), d * get(type, a, i, left)};
        for (int k = 1; k >= 0; k--) {
            if (dx[k]) put(type, dx[k], i, left, slope[k], add >> k & 1u);
        }
    }
}

TYPED(backward,
      (void *const dx[2], const void *a, const void *b, const void *dy, int64_t n,
       uint32_t add),
      dx, a, b, dy, n, add)

void CGP__CPU_NAME(multiply_backward)(cgp_dtype type, void *const dx[2], const void *a,
                                      const void *b, const void *dy, int64_t n, uint32_t add) {
    CALL_TYPED(type, backward, dx, a, b, dy, n, add);
}
