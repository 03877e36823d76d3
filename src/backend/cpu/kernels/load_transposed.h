/* SPDX-License-Identifier: Apache-2.0 */
/* load_transposed.h -- loads LANES rows of LANES elements as LANES columns, by an in-register
 * transpose that exchanges blocks of doubling size (Eklundh 1972). */
#ifndef CGP_SRC_CPU_LOAD_TRANSPOSED_H
#define CGP_SRC_CPU_LOAD_TRANSPOSED_H

#include "backend/cpu/kernels/vec.h"

#define UNROLL _Pragma("GCC unroll 16")

/* exchange_span() swaps blocks of `span` across the diagonal. After spans 1, 2, 4, ... lane j of
 * r[i] holds the former lane i of r[j]. LOWER and UPPER are lane numbers for a shuffle of `a` and
 * `b`; the numbers of b's lanes follow the numbers of a's lanes. */
#define LOWER(lane, span) ((lane) & (span) ? (lane) + LANES - (span) : (lane))
#define UPPER(lane, span) ((lane) & (span) ? (lane) + LANES : (lane) + (span))
#define FOUR(PICK, from, span)                                                                     \
    PICK((from) + 0, span), PICK((from) + 1, span), PICK((from) + 2, span), PICK((from) + 3, span)
#define EIGHT(PICK, from, span) FOUR(PICK, from, span), FOUR(PICK, (from) + 4, span)
#if LANES == 16
#define ALL(PICK, span) EIGHT(PICK, 0, span), EIGHT(PICK, 8, span)
#elif LANES == 8
#define ALL(PICK, span) EIGHT(PICK, 0, span)
#else
#define ALL(PICK, span) FOUR(PICK, 0, span)
#endif
#define DEFINE_EXCHANGE(span)                                                                      \
    INLINE void exchange_##span(vec *r) {                                                          \
        UNROLL for (int i = 0; i < LANES; i++) {                                                   \
            if (i & (span)) continue;                                                              \
            const vec a = r[i], b = r[i + (span)];                                                 \
            r[i] = __builtin_shufflevector(a, b, ALL(LOWER, span));                                \
            r[i + (span)] = __builtin_shufflevector(a, b, ALL(UPPER, span));                       \
        }                                                                                          \
    }

DEFINE_EXCHANGE(1)
DEFINE_EXCHANGE(2)
#if LANES > 4
DEFINE_EXCHANGE(4)
#endif
#if LANES > 8
DEFINE_EXCHANGE(8)
#endif

INLINE void transpose(vec r[LANES]) {
    exchange_1(r);
    exchange_2(r);
#if LANES > 4
    exchange_4(r);
#endif
#if LANES > 8
    exchange_8(r);
#endif
}

/* Load n <= LANES elements of each of LANES rows, starting at element i, and transpose them. Rows
 * are `stride` elements apart. Rows that do not exist (`rows` and later) are zero. */
INLINE void load_transposed(cgp_dtype type, vec r[LANES], const void *from, int64_t i,
                            int64_t stride, int64_t rows, int64_t n) {
    if (rows == LANES && n == LANES) {
        UNROLL for (int row = 0; row < LANES; row++) r[row] = load_as(type, from, i + row * stride);
    } else {
        for (int row = 0; row < LANES; row++)
            r[row] = row < rows ? load_part_as(type, from, i + row * stride, n) : (vec){0};
    }
    transpose(r);
}

#endif
