/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c -- computes the softmax of rows of attention scores in place, with dropout.
 *
 * Forward, over the keys that a query attends to:
 *     p = exp(scale (s - max)) / sum      log_sum = log sum      s := p keep
 * Backward, s holds the recomputed scores, dp = dy v^T:
 *     p = exp(scale (s - max) - log_sum)      s := p keep      dp := scale p (keep dp - delta)
 *
 * max and log_sum are saved separately, because one f32 for both would lose log_sum if scores are
 * large.
 *
 * Keys outside the mask get 0, so that GEMMs may use full tiles. Tiles begin at multiples of 64, so
 * lane l of a sum adds the keys l, l + LANES, ... of the sequence. So a sum depends only on the
 * query's own keys. Rows are padded; full vectors are read and written, and the padding is
 * masked. */
#include "backend/cpu/kernels/philox.h"

#include <math.h>

/* The columns of a row that its query attends to. */
typedef struct span {
    int64_t begin, end;
} span;

static span span_of(const cgp__cpu_scores *a, int64_t row) {
    const int64_t end = a->first + row + 1 - a->begin;
    const int64_t begin = a->window > 0 ? end - a->window : 0;
    return (span){begin > 0 ? begin : 0, a->causal ? end : a->width};
}

/* Return the first column of the vector, or of the pair of vectors, that contains column j. */
INLINE int64_t vector_of(int64_t j) {
    return j / LANES * LANES;
}

INLINE int64_t pair_of(int64_t j) {
    return j / (2 * LANES) * (2 * LANES);
}

/* Return a mask of the lanes that are in the span, for the vector that starts at column j. */
INLINE ivec inside(span x, int64_t j) {
    const ivec below = lanes_below(x.end - j);
    return j >= x.begin ? below : below & ~lanes_below(x.begin - j);
}

static float row_max(const float *s, span x) {
    vec max = splat(-INFINITY);
    for (int64_t j = vector_of(x.begin); j < x.end; j += LANES)
        max = larger(pick(inside(x, j), load(s + j), splat(-INFINITY)), max);
    return max_lanes(max);
}

/* Replace s by exp(scale (s - max)), and by 0 outside the span; return the sum. */
static float row_exp(float *s, span x, float max, float scale) {
    vec sum = {0};
    for (int64_t j = vector_of(x.begin); j < x.end; j += LANES) {
        const vec e = keep(inside(x, j), exp_or_zero(scale * (load(s + j) - max)));
        sum += e;
        store(s + j, e);
    }
    return sum_lanes(sum);
}

/* Replace each s by factor * s * keep. `block` is the Philox block of column 0. */
INLINE void row_scale(float *s, span x, float factor, const cgp__cpu_mask *mask, uint32_t group,
                      uint64_t block) {
    if (!mask) {
        for (int64_t j = vector_of(x.begin); j < x.end; j += LANES)
            store(s + j, load(s + j) * factor);
        return;
    }
    for (int64_t j = pair_of(x.begin); j < x.end; j += 2 * LANES) {
        vec factors[2];
        dropout_factors(factors, mask, group, block + (uint64_t)j / 4);
        store(s + j, load(s + j) * factor * factors[0]);
        if (j + LANES < x.end) store(s + j + LANES, load(s + j + LANES) * factor * factors[1]);
    }
}

/* Set the vectors before column `width` to zero if they contain no column of the span. */
static void row_clear(float *s, span x, int64_t width) {
    const vec zero = {0};
    for (int64_t j = 0; j < vector_of(x.begin); j += LANES)
        store(s + j, zero);
    for (int64_t j = vector_of(x.end + LANES - 1); j < width; j += LANES)
        store(s + j, zero);
}

void CGP__CPU_NAME(softmax_forward)(const cgp__cpu_scores *scores) {
    const cgp__cpu_scores a = *scores;
    for (int64_t row = 0; row < a.rows; row++) {
        float *s = a.s + row * a.stride;
        const span x = span_of(&a, row);
        const uint32_t group = a.mask ? a.mask->group + (uint32_t)row : 0;
        const float max = row_max(s, x);
        const float sum = row_exp(s, x, max, a.scale);
        if (a.max) {
            a.max[row] = max;
            a.log_sum[row] = logf(sum);
        }
        row_scale(s, x, 1.0f / sum, a.mask, group, (uint64_t)a.begin / 4);
        row_clear(s, x, a.width);
    }
}

INLINE void backward_lanes(float *s, float *dp, ivec visible, vec factor, float scale, float max,
                           float log_sum, float delta) {
    const vec p = keep(visible, exp_or_zero(scale * (load(s) - max) - log_sum));
    const vec slope = scale * p * (factor * load(dp) - delta);
    store(s, p * factor);
    store(dp, keep(visible, slope));
}

void CGP__CPU_NAME(softmax_backward)(const cgp__cpu_scores *scores) {
    const cgp__cpu_scores a = *scores;
    for (int64_t row = 0; row < a.rows; row++) {
        float *s = a.s + row * a.stride, *dp = a.dp + row * a.stride;
        const span x = span_of(&a, row);
        const uint32_t group = a.mask ? a.mask->group + (uint32_t)row : 0;
        vec factors[2] = {splat(1.0f), splat(1.0f)};
        for (int64_t j = pair_of(x.begin); j < x.end; j += 2 * LANES) {
            if (a.mask) dropout_factors(factors, a.mask, group, (uint64_t)(a.begin + j) / 4);
            for (int64_t k = 0; k < 2 && j + k * LANES < x.end; k++) {
                const int64_t at = j + k * LANES;
                backward_lanes(s + at, dp + at, inside(x, at), factors[k], a.scale, a.max[row],
                               a.log_sum[row], a.delta[row]);
            }
        }
        row_clear(s, x, a.width);
        row_clear(dp, x, a.width);
    }
}
