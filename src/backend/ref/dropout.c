/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c -- y = x keep; keep = 0 with probability p, otherwise 1 / (1 - p). Reference kernels.
 *
 *     dx = dy keep          keep is per element; DROPOUT2D: per channel of a sample
 *
 * Backward needs nothing from forward: keep is recomputed from key, sample and element, by the rule
 * in cgpipe/ext/ops/common.h. Outside training, keep is 1. The output y may alias x. The gradient
 * dx may alias dy unless the kernel adds to dx. */
#include "backend/kernel.h"
#include "backend/ref/ref.h"

double cgp__ref_keep(const cgp_kernel_args *args, float p, int64_t sample, int64_t group,
                     int64_t element) {
    if (!args->training) return 1.0;
    const uint64_t index = (uint64_t)(args->values->sample + sample);
    const uint32_t counter[4] = {(uint32_t)(element / 4), (uint32_t)group, (uint32_t)index,
                                 (uint32_t)(index >> 32)};
    uint32_t words[4];
    cgp__philox(words, counter, cgp__dropout_key(args));
    return words[element % 4] >= cgp__dropout_threshold(p) ? 1.0 / (1.0 - (double)p) : 0.0;
}

/* Set `to` to `from` times keep, or add the product. */
static void apply(const cgp_kernel_spec *spec, const cgp_kernel_args *args, void *to, bool add,
                  const void *from) {
    const int64_t size = spec->attributes.rows * spec->attributes.out;
    const int64_t period = spec->op == CGP_OP_DROPOUT2D ? spec->attributes.out : size;
    for (int64_t s = 0; s < spec->n; s++) {
        for (int64_t e = 0; e < size; e++) {
            const double keep = cgp__ref_keep(args, spec->attributes.p, s, 0, e % period);
            const float x = cgp__ref_load(spec->type, from, s * size + e);
            cgp__ref_store(spec->type, to, s * size + e, add, keep == 0.0 ? 0.0 : x * keep);
        }
    }
}

static void dropout_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    apply(spec, args, args->y, false, args->x[0]);
}

static void dropout_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    if (args->dx[0]) apply(spec, args, args->dx[0], cgp__ref_adds(spec, 0), args->dy);
}

const cgp__ref_op cgp__ref_dropout = {.run = {dropout_forward, dropout_input}};

const cgp__ref_op cgp__ref_dropout2d = {.run = {dropout_forward, dropout_input}};
