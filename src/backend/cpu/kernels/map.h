/* SPDX-License-Identifier: Apache-2.0 */
/* map.h -- elementwise loops: to = f(a, constant) and to = f(a, b, constant), or to += f(a, b,
 * constant). `to` may alias `a` or `b`. */
#ifndef CGP_SRC_CPU_MAP_H
#define CGP_SRC_CPU_MAP_H

#include "backend/cpu/kernels/vec.h"

/* These functions must be INLINE, so that the loops contain no calls. */
typedef vec of_one(vec a, float constant);
typedef vec of_two(vec a, vec b, float constant);

/* Prefetch operands about a page ahead of the loop. */
INLINE void prefetch_ahead(cgp_dtype type, const void *from, int64_t i) {
    __builtin_prefetch(cgp__cpu_at(type, from, i + 1024));
}

INLINE void map_one(cgp_dtype type, void *to, const void *a, int64_t n, float constant, of_one *f) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch_ahead(type, a, i);
        store_as(type, to, i, f(load_as(type, a, i), constant));
    }
    if (i < n) store_part_as(type, to, i, f(load_part_as(type, a, i, n - i), constant), n - i);
}

INLINE void map_two_to(cgp_dtype type, void *to, const void *a, const void *b, int64_t n,
                       float constant, bool add, of_two *f) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch_ahead(type, a, i);
        prefetch_ahead(type, b, i);
        const vec out = f(load_as(type, a, i), load_as(type, b, i), constant);
        store_as(type, to, i, add ? load_as(type, to, i) + out : out);
    }
    if (i == n) return;
    const int64_t left = n - i;
    const vec out = f(load_part_as(type, a, i, left), load_part_as(type, b, i, left), constant);
    store_part_as(type, to, i, add ? load_part_as(type, to, i, left) + out : out, left);
}

INLINE void map_two(cgp_dtype type, void *to, const void *a, const void *b, int64_t n,
                    float constant, bool add, of_two *f) {
    if (add)
        map_two_to(type, to, a, b, n, constant, true, f);
    else
        map_two_to(type, to, a, b, n, constant, false, f);
}

/* Define the kernels of an elementwise op from forward_of(x, slope) and backward_of(operand, dy,
 * slope). The operand is x for ELEMENTWISE and y for ELEMENTWISE_OF_Y. For ELEMENTWISE_OF_DY it is
 * dy, because neither x nor y is needed. */
#define ELEMENTWISE(name) ELEMENTWISE_OF(name, CGP__CPU_READS_X)
#define ELEMENTWISE_OF_Y(name) ELEMENTWISE_OF(name, CGP__CPU_READS_Y)
#define ELEMENTWISE_OF_DY(name) ELEMENTWISE_OF(name, CGP__CPU_READS_DY)
#define ELEMENTWISE_OF(name, reads)                                                                \
    INLINE void forward(cgp_dtype type, void *y, const void *x, int64_t n, float slope) {          \
        map_one(type, y, x, n, slope, forward_of);                                                 \
    }                                                                                              \
    TYPED(forward, (void *y, const void *x, int64_t n, float slope), y, x, n, slope)               \
    static void run_forward(cgp_dtype type, void *y, const void *x, int64_t n, float slope) {      \
        CALL_TYPED(type, forward, y, x, n, slope);                                                 \
    }                                                                                              \
    INLINE void backward(cgp_dtype type, void *dx, const void *operand, const void *dy, int64_t n, \
                         float slope, bool add) {                                                  \
        map_two(type, dx, operand, dy, n, slope, add, backward_of);                                \
    }                                                                                              \
    TYPED(backward,                                                                                \
          (void *dx, const void *operand, const void *dy, int64_t n, float slope, bool add), dx,   \
          operand, dy, n, slope, add)                                                              \
    static void run_backward(cgp_dtype type, void *dx, const void *operand, const void *dy,        \
                             int64_t n, float slope, bool add) {                                   \
        CALL_TYPED(type, backward, dx, operand, dy, n, slope, add);                                \
    }                                                                                              \
    const cgp__cpu_elementwise CGP__CPU_NAME(name) = {run_forward, run_backward, reads};

#endif
