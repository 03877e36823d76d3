/* SPDX-License-Identifier: Apache-2.0 */
/* init.c -- initializes parameters. Element e of parameter p depends only on (seed, p, e), and not
 * on the device or the range of elements. Normal numbers come from the Box-Muller transform, two
 * pairs from each Philox block of four words. Before that, op/init.c converts initializations that
 * depend on fans. */
#include "model/model.h"

#include <math.h>

static double unit(uint32_t word) {
    return (word + 0.5) / 4294967296.0; /* in (0, 1) */
}

/* Draw four elements. `attempt` is 0 for the first draw, and the number of the redraw otherwise. */
static void block(const cgp_init *init, cgp__rng_key key, uint64_t index, uint32_t attempt,
                  float out[4]) {
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), attempt, 0};
    uint32_t words[4];
    cgp__philox(words, counter, key);
    for (int k = 0; k < 4; k += 2) {
        if (init->kind == CGP_INIT_UNIFORM) {
            out[k] = (float)(init->scale * (2 * unit(words[k]) - 1));
            out[k + 1] = (float)(init->scale * (2 * unit(words[k + 1]) - 1));
            continue;
        }
        const double radius = init->scale * sqrt(-2 * log(unit(words[k])));
        const double angle = 6.283185307179586 * unit(words[k + 1]);
        out[k] = (float)(radius * cos(angle));
        out[k + 1] = (float)(radius * sin(angle));
    }
}

/* Redraw elements further than two standard deviations from 0 (one in 22), up to 63 times, then
 * clamp. */
static void truncate(const cgp_init *init, cgp__rng_key key, uint64_t index, float out[4]) {
    const float limit = (float)(2 * init->scale);
    for (int k = 0; k < 4; k++) {
        float again[4];
        for (uint32_t attempt = 1; fabsf(out[k]) > limit && attempt < 64; attempt++) {
            block(init, key, index, attempt, again);
            out[k] = again[k];
        }
        out[k] = fminf(fmaxf(out[k], -limit), limit);
    }
}

void cgp__init_fill(const cgp_init *init, uint64_t seed, int parameter, int64_t first,
                    int64_t count, float *out) {
    if (init->kind == CGP_INIT_ZERO || init->kind == CGP_INIT_ONE) {
        for (int64_t i = 0; i < count; i++)
            out[i] = init->kind == CGP_INIT_ONE ? 1.0f : 0.0f;
        return;
    }
    const cgp__rng_key key = cgp__rng_derive(seed, CGP__RNG_WEIGHTS, 0, (uint32_t)parameter);
    float four[4];
    for (int64_t i = 0; i < count; i++) {
        const int64_t e = first + i;
        if (i == 0 || e % 4 == 0) {
            block(init, key, (uint64_t)(e / 4), 0, four);
            if (init->kind == CGP_INIT_TRUNCATED_NORMAL)
                truncate(init, key, (uint64_t)(e / 4), four);
        }
        out[i] = four[e % 4];
    }
}
