/* SPDX-License-Identifier: Apache-2.0 */
/* bce.c -- sigmoid and binary cross-entropy: logits [..., C], targets of the same shape, f32 in 0..1. Saves nothing;
 * dx may overwrite the logits. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    (void)attributes;
    char first[192], second[192];
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    CGP_TRY(cgp__op_check("targets", &inputs[1], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    if (!cgp_shape_equal(&inputs[0].shape, &inputs[1].shape))
        return cgp_fail(CGP_EINVAL, "expects targets of the logits' shape %s, got %s",
                        cgp_shape_text(&inputs[0].shape, first, sizeof first),
                        cgp_shape_text(&inputs[1].shape, second, sizeof second));
    return CGP_OK;
}

/* Per logit: forward, an exp and a log (10 each), three sums and a product; backward I, an exp, a division and two
 * more. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    const double each[CGP__DIRECTIONS] = {24.0, 13.0, 0.0};
    return each[direction] * elements;
}

static int64_t count_targets(const cgp__op_attributes *attributes, const void *targets,
                             int64_t count) {
    (void)attributes;
    (void)targets;
    return count;
}

const cgp__op cgp__op_bce = {
    .name = "bce_with_logits",
    .kind = CGP__OP_BCE,
    .n_inputs = 2,
    .is_loss = true,
    .infer = infer,
    .input_needs_x = 1u << 0 | 1u << 1,
    .dx = CGP__DX_OVER_X,
    .flops = flops,
    .count = count_targets,
};
