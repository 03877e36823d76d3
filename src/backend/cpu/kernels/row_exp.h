/* SPDX-License-Identifier: Apache-2.0 */
/* row_exp.h -- the maximum of a row, and the sum of its exponentials. The sum is kept in 4 LANES
 * f32 lanes, which keeps each partial sum short. The lanes are added up in double. */
#ifndef CGP_SRC_CPU_ROW_EXP_H
#define CGP_SRC_CPU_ROW_EXP_H

#include "backend/cpu/kernels/vec.h"

#include <math.h>

INLINE float row_max(cgp_dtype type, const void *x, int64_t n) {
    vec max[4];
    for (int k = 0; k < 4; k++)
        max[k] = splat(-INFINITY);
    int64_t c = 0;
    for (; c + 4 * LANES <= n; c += 4 * LANES) {
        for (int k = 0; k < 4; k++)
            max[k] = larger(load_as(type, x, c + k * LANES), max[k]);
    }
    for (; c + LANES <= n; c += LANES)
        max[0] = larger(load_as(type, x, c), max[0]);
    if (c < n) {
        const vec part = load_part_as(type, x, c, n - c);
        const vec tail = pick(lanes_below(n - c), part, splat(-INFINITY));
        max[0] = larger(tail, max[0]);
    }
    return max_lanes(larger(larger(max[0], max[1]), larger(max[2], max[3])));
}

/* Return the sum of exp(x - max). */
INLINE double row_exp_sum(cgp_dtype type, const void *x, int64_t n, float max) {
    vec sum[4] = {{0}};
    int64_t c = 0;
    for (; c + 4 * LANES <= n; c += 4 * LANES) {
        for (int k = 0; k < 4; k++)
            sum[k] += exp_or_zero(load_as(type, x, c + k * LANES) - max);
    }
    for (; c + LANES <= n; c += LANES)
        sum[0] += exp_or_zero(load_as(type, x, c) - max);
    if (c < n) {
        const vec part = load_part_as(type, x, c, n - c);
        sum[1] += keep(lanes_below(n - c), exp_or_zero(part - max));
    }
    double total = 0.0;
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < LANES; i++)
            total += (double)sum[k][i];
    }
    return total;
}

#endif
