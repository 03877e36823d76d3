/* SPDX-License-Identifier: Apache-2.0 */
/* bce.c -- sigmoid and binary cross-entropy: logits [..., C]; targets of the same shape, f32 in
 * 0..1. Saves nothing; dx may overwrite the logits. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    (void)out;
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    CGP_TRY(cgp__op_check("targets", &inputs[1], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    return cgp__op_check_same("logits and targets of one shape", &inputs[0], &inputs[1]);
}

static int64_t count_targets(const cgp_op_node *node, const void *targets, int64_t n) {
    (void)targets;
    return n * cgp_shape_count(&node->inputs[1].shape);
}

/* FLOPs per logit; an exp or a log counts 10. Forward takes an exp, a log, three sums and a
 * product. Backward I takes an exp, a division and two other operations. */
const cgp__op cgp__op_bce_with_logits = {
    .op.name = "bce_with_logits",
    .op.n_inputs = 2,
    .op.is_loss = true,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0 | 1u << 1,
    .op.count = count_targets,
    .dx = CGP__DX_OVER_X,
    .flops = {24, 13, 0},
};
