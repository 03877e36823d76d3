/* SPDX-License-Identifier: Apache-2.0 */
/* element_losses.c -- losses that are computed element by element, from x [..., C] and f32 targets
 * of the same shape. Forward saves nothing, and dx may overwrite x. BCE_WITH_LOGITS is sigmoid and
 * binary cross-entropy, with targets in 0..1. SMOOTH_L1 is the Huber loss divided by beta. Source:
 * Huber 1964; Girshick 2015, arXiv:1504.08083. WEIGHTED_MEAN is the mean of x times factors, for
 * losses that other ops compute. If there are weights [...], f32 of any shape, WEIGHTED_MEAN
 * divides the sum of x times factors by the sum of the weights. */
#include "op/rules.h"

#include <math.h>

static cgp_status infer_as(const char *expected, const cgp_op_type *inputs) {
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    CGP_TRY(cgp__op_check("targets", &inputs[1], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    return cgp__op_check_same(expected, &inputs[0], &inputs[1]);
}

static cgp_status infer_bce(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    (void)out;
    return infer_as("logits and targets of one shape", inputs);
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const double beta = cgp__element_loss_of(attributes)->beta;
    (void)out;
    if (!((float)beta >= 0.0f && isfinite((float)beta)))
        return cgp_fail(CGP_EINVAL, "expects beta >= 0 and finite as f32, got %g", beta);
    return infer_as("input and targets of one shape", inputs);
}

static cgp_status infer_mean(const void *attributes, const cgp_op_type *inputs,
                             cgp_op_shapes *out) {
    (void)out;
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    CGP_TRY(cgp__op_check("factors", &inputs[1], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    if (cgp__element_loss_of(attributes)->n_inputs == 3)
        CGP_TRY(cgp__op_check("weights", &inputs[2], CGP_F32, 0, CGP__MAX_SAMPLE_RANK));
    return cgp__op_check_same("input and factors of one shape", &inputs[0], &inputs[1]);
}

static double sum_weights(const cgp_op_node *node, const void *factors, const float *weights,
                          int64_t n) {
    const int64_t all = n * cgp_shape_count(&node->inputs[2].shape);
    double sum = 0;
    (void)factors;
    for (int64_t i = 0; i < all; i++)
        sum += (double)weights[i];
    return sum;
}

static int64_t count_targets(const cgp_op_node *node, const void *targets, int64_t n) {
    (void)targets;
    return n * cgp_shape_count(&node->inputs[1].shape);
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    sizes->element_loss.beta = (float)cgp__element_loss_of(node->attributes)->beta;
}

/* FLOPs per logit; an exp or a log counts as 10. Forward computes an exp, a log, three sums and a
 * product. Backward I computes an exp, a division and two other operations. */
const cgp__op cgp__op_bce_with_logits = {
    .op.name = "bce_with_logits",
    .op.n_inputs = 2,
    .op.is_loss = true,
    .op.infer = infer_bce,
    .op.input_needs_x = 1u << 0 | 1u << 1,
    .op.count = count_targets,
    .dx = CGP__DX_OVER_X,
    .flops = {24, 13, 0},
};

/* FLOPs per element: forward computes a difference, a square and a sum. Backward I computes a
 * difference and two products. */
const cgp__op cgp__op_mse = {
    .op.name = "mse",
    .op.n_inputs = 2,
    .op.is_loss = true,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0 | 1u << 1,
    .op.count = count_targets,
    .dx = CGP__DX_OVER_X,
    .flops = {3, 3, 0},
};

/* FLOPs per element: forward computes three differences and sums, a comparison, two products and a
 * division. Backward I computes a difference, a comparison, a product and a division. */
const cgp__op cgp__op_smooth_l1 = {
    .op.name = "smooth_l1",
    .op.n_inputs = 2,
    .op.is_loss = true,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0 | 1u << 1,
    .op.count = count_targets,
    .dx = CGP__DX_OVER_X,
    .flops = {7, 4, 0},
    .sizes = set_sizes,
};

/* FLOPs per element: forward computes a product and a sum. Backward I computes a product. */
const cgp__op cgp__op_weighted_mean = {
    .op.name = "weighted_mean",
    .op.n_inputs = 3, /* maximum number of inputs */
    .op.is_loss = true,
    .op.infer = infer_mean,
    .op.input_needs_x = 1u << 1,
    .op.count = count_targets,
    .dx = CGP__DX_OVER_X,
    .flops = {2, 1, 0},
    .sum_weights = sum_weights,
};
