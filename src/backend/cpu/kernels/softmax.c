/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c -- causal softmax over rows of attention scores, with dropout; in place.
 *
 * Forward, query t attends to n = t + 1 keys:
 *     m = max s      p = exp(scale (s - m)) / sum      lse = scale m + log sum      s := p keep
 * Backward, s holds the recomputed scores, dp = dy v^T:
 *     p = exp(scale s - lse)      s := p keep      dp := scale p (keep dp - delta)
 *
 * Keys after the query get 0 up to `width`, so that the GEMMs may take whole tiles. Rows are
 * padded: vectors are read and written whole and the rest is masked, never used. */
#include "backend/cpu/kernels/philox.h"

#include <math.h>

static float row_max(const float *s, int64_t n) {
    vec max = splat(-INFINITY);
    for (int64_t j = 0; j < n; j += LANES)
        max = larger(pick(lanes_below(n - j), load(s + j), splat(-INFINITY)), max);
    return max_lanes(max);
}

/* s := exp(scale (s - max)), 0 beyond n; returns the sum */
static float row_exp(float *s, int64_t n, float max, float scale) {
    vec sum = {0};
    for (int64_t j = 0; j < n; j += LANES) {
        const vec e = keep(lanes_below(n - j), exp_or_zero(scale * (load(s + j) - max)));
        sum += e;
        store(s + j, e);
    }
    return sum_lanes(sum);
}

/* s := factor s keep */
INLINE void row_scale(float *s, int64_t n, float factor, const cgp__cpu_mask *mask,
                      uint32_t group) {
    if (!mask) {
        for (int64_t j = 0; j < n; j += LANES)
            store(s + j, load(s + j) * factor);
        return;
    }
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        vec factors[2];
        dropout_factors(factors, mask, group, (uint64_t)j / 4);
        store(s + j, load(s + j) * factor * factors[0]);
        if (j + LANES < n) store(s + j + LANES, load(s + j + LANES) * factor * factors[1]);
    }
}

/* Whole vectors after the one with key n - 1, up to `width`. */
static void row_clear(float *s, int64_t n, int64_t width) {
    const vec zero = {0};
    for (int64_t j = (n + LANES - 1) / LANES * LANES; j < width; j += LANES)
        store(s + j, zero);
}

void CGP__CPU_NAME(softmax_forward)(const cgp__cpu_scores *scores) {
    const cgp__cpu_scores a = *scores;
    for (int64_t row = 0; row < a.rows; row++) {
        float *s = a.s + row * a.stride;
        const int64_t n = a.first + row + 1;
        const uint32_t group = a.mask ? a.mask->group + (uint32_t)row : 0;
        const float max = row_max(s, n);
        const float sum = row_exp(s, n, max, a.scale);
        a.lse[row] = a.scale * max + logf(sum);
        row_scale(s, n, 1.0f / sum, a.mask, group);
        row_clear(s, n, a.width);
    }
}

INLINE void backward_lanes(float *s, float *dp, ivec visible, vec factor, float scale,
                           float lse, float delta) {
    const vec p = keep(visible, exp_or_zero(scale * load(s) - lse));
    const vec slope = scale * p * (factor * load(dp) - delta);
    store(s, p * factor);
    store(dp, keep(visible, slope));
}

void CGP__CPU_NAME(softmax_backward)(const cgp__cpu_scores *scores) {
    const cgp__cpu_scores a = *scores;
    for (int64_t row = 0; row < a.rows; row++) {
        float *s = a.s + row * a.stride, *dp = a.dp + row * a.stride;
        const int64_t n = a.first + row + 1;
        const uint32_t group = a.mask ? a.mask->group + (uint32_t)row : 0;
        vec factors[2] = {splat(1.0f), splat(1.0f)};
        for (int64_t j = 0; j < n; j += 2 * LANES) {
            if (a.mask) dropout_factors(factors, a.mask, group, (uint64_t)j / 4);
            for (int64_t k = 0; k < 2 && j + k * LANES < n; k++) {
                const int64_t at = j + k * LANES;
                backward_lanes(s + at, dp + at, lanes_below(n - at), factors[k], a.scale,
                               a.lse[row], a.delta[row]);
            }
        }
        row_clear(s, n, a.width);
        row_clear(dp, n, a.width);
    }
}
