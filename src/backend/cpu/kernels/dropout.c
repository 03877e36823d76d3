/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c -- dropout (Srivastava et al. 2014): y[e] = x[e] / (1 - p) if element e is kept, else
 * 0, for elements or channels (spatial dropout, Tompson et al. 2015). cgpipe/ext/ops/common.h
 * defines the rule.
 *
 * The same loop computes dx from dy in backward. The mask is recomputed, not saved. The output y
 * may alias x. */
#include "backend/cpu/kernels/philox.h"

/* A dropped element is 0 even if x is not finite. */
INLINE vec apply(uvec words, const cgp__cpu_mask *mask, vec x) {
    return keep((ivec)(words >= mask->threshold), x * mask->scale);
}

INLINE void part(cgp_dtype type, void *y, const void *x, int64_t n, uvec words,
                 const cgp__cpu_mask *mask, bool add) {
    if (n >= LANES) {
        const vec kept = apply(words, mask, load_as(type, x, 0));
        store_as(type, y, 0, add ? load_as(type, y, 0) + kept : kept);
    } else if (n > 0) {
        const vec kept = apply(words, mask, load_part_as(type, x, 0, n));
        store_part_as(type, y, 0, add ? load_part_as(type, y, 0, n) + kept : kept, n);
    }
}

INLINE void dropout_all(cgp_dtype type, char *y, const char *x, int64_t e, int64_t n,
                        const cgp__cpu_mask *mask, bool add) {
    const int64_t bytes = type == CGP_BF16 ? 2 : 4, next = LANES * bytes;
    uvec words[2];
    for (; e + 2 * LANES <= n; e += 2 * LANES) {
        philox(words, mask, mask->group, (uint64_t)e / 4);
        part(type, y + e * bytes, x + e * bytes, LANES, words[0], mask, add);
        part(type, y + e * bytes + next, x + e * bytes + next, LANES, words[1], mask, add);
    }
    if (e == n) return;
    philox(words, mask, mask->group, (uint64_t)e / 4);
    y += e * bytes;
    x += e * bytes;
    part(type, y, x, n - e, words[0], mask, add);
    if (n - e > LANES) part(type, y + next, x + next, n - e - LANES, words[1], mask, add);
}

INLINE void dropout(cgp_dtype type, void *y, const void *x, int64_t begin, int64_t end,
                    const cgp__cpu_mask *mask, bool add) {
    const cgp__cpu_mask copy = *mask; /* the copy stays in registers, because stores to y do not
                                       * alias it */
    if (add)
        dropout_all(type, y, x, begin, end, &copy, true);
    else
        dropout_all(type, y, x, begin, end, &copy, false);
}

TYPED(dropout,
      (void *y, const void *x, int64_t begin, int64_t end, const cgp__cpu_mask *mask, bool add), y,
      x, begin, end, mask, add)

void CGP__CPU_NAME(dropout)(cgp_dtype type, void *y, const void *x, int64_t begin, int64_t end,
                            const cgp__cpu_mask *mask, bool add) {
    CALL_TYPED(type, dropout, y, x, begin, end, mask, add);
}

INLINE void channels_all(cgp_dtype type, void *y, const void *x, int64_t rows, int64_t width,
                         const float *factors, bool add) {
    for (int64_t row = 0; row < rows; row++) {
        const int64_t end = (row + 1) * width;
        const float *factor = factors;
        int64_t i = row * width;
        for (; i + LANES <= end; i += LANES, factor += LANES) {
            const vec f = load(factor);
            const vec kept = keep(f != 0.0f, load_as(type, x, i) * f);
            store_as(type, y, i, add ? load_as(type, y, i) + kept : kept);
        }
        if (i == end) continue;
        const vec f = load_part(factor, end - i);
        const vec kept = keep(f != 0.0f, load_part_as(type, x, i, end - i) * f);
        store_part_as(type, y, i, add ? load_part_as(type, y, i, end - i) + kept : kept, end - i);
    }
}

INLINE void channels(cgp_dtype type, void *y, const void *x, int64_t rows, int64_t width,
                     const float *factors, bool add) {
    if (add)
        channels_all(type, y, x, rows, width, factors, true);
    else
        channels_all(type, y, x, rows, width, factors, false);
}

TYPED(channels,
      (void *y, const void *x, int64_t rows, int64_t width, const float *factors, bool add), y, x,
      rows, width, factors, add)

void CGP__CPU_NAME(dropout_channels)(cgp_dtype type, void *y, const void *x, int64_t rows,
                                     int64_t width, const float *factors, bool add) {
    CALL_TYPED(type, channels, y, x, rows, width, factors, add);
}
