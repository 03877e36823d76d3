/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c -- softmax and cross-entropy: logits [..., classes]; targets [...] i32 in
 * 0..classes-1 or `ignore`; weights [...] f32, or none. The mean divides by the sum of the weights
 * of targets that are not ignored. Source of label smoothing: Szegedy et al. 2015,
 * arXiv:1512.00567.
 *
 * Forward saves each row's maximum and log sum exp(x - maximum). They are saved separately, because
 * their sum in one f32 would lose the probabilities of large logits. The gradient dx may overwrite
 * the logits. */
#include "op/rules.h"

#include <inttypes.h>

/* Check that targets have the leading dims of the logits. If the logits are one row, [classes],
 * targets are [1]. */
static cgp_status check_targets(const cgp_op_type *logits, const cgp_op_type *targets) {
    char first[192], second[192], third[192];
    const cgp_shape rows = cgp__op_shape_rows(&logits->shape);
    const cgp_shape one = cgp_shape_make(1, (int64_t[]){1});
    CGP_TRY(cgp__op_check("targets", targets, CGP_I32, 0, CGP__MAX_SAMPLE_RANK));
    if (cgp_shape_equal(&targets->shape, &rows)) return CGP_OK;
    if (rows.rank == 0 && cgp_shape_equal(&targets->shape, &one)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "expects targets %s for logits %s, got %s",
                    cgp_shape_text(rows.rank == 0 ? &one : &rows, first, sizeof first),
                    cgp_shape_text(&logits->shape, second, sizeof second),
                    cgp_shape_text(&targets->shape, third, sizeof third));
}

static cgp_status check_weights(const cgp_op_type *targets, const cgp_op_type *weights) {
    CGP_TRY(cgp__op_check("weights", weights, CGP_F32, 0, CGP__MAX_SAMPLE_RANK));
    return cgp__op_check_same("targets and weights of one shape", targets, weights);
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__cross_entropy_attributes *a = cgp__cross_entropy_of(attributes);
    const cgp_shape *logits = &inputs[0].shape;
    CGP_TRY(cgp__op_check("logits", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    CGP_TRY(check_targets(&inputs[0], &inputs[1]));
    if (a->n_inputs == 3) CGP_TRY(check_weights(&inputs[1], &inputs[2]));
    if (!(a->smoothing >= 0.0 && (float)a->smoothing < 1.0f))
        return cgp_fail(CGP_EINVAL, "expects 0 <= smoothing < 1, got %g", a->smoothing);
    if (inputs[1].upper_bound > cgp__op_width(logits))
        return cgp_fail(CGP_EINVAL,
                        "expects targets below the %" PRId64 " classes, got up to %" PRId64,
                        cgp__op_width(logits), inputs[1].upper_bound - 1);
    if (a->ignore >= 0 && a->ignore < inputs[1].upper_bound)
        return cgp_fail(CGP_EINVAL,
                        "expects an ignored target that the graph never makes, got %" PRId64
                        " (it makes 0 to %" PRId64 ")",
                        a->ignore, inputs[1].upper_bound - 1);
    for (int k = 0; k < 2; k++)
        cgp__op_add_saved(out, cgp__op_shape_rows(logits), false);
    return CGP_OK;
}

static int64_t upper_bound(const cgp_op_node *node, int k) {
    return k == 1 ? cgp__op_width(&node->inputs[0].shape) : 0;
}

static int64_t count_targets(const cgp_op_node *node, const void *targets, int64_t n) {
    const cgp__cross_entropy_attributes *a = cgp__cross_entropy_of(node->attributes);
    const int64_t all = n * cgp_shape_count(&node->inputs[1].shape);
    const int32_t *ids = targets;
    int64_t counted = 0;
    for (int64_t i = 0; i < all; i++)
        counted += !ids || ids[i] != a->ignore;
    return counted;
}

static double sum_weights(const cgp_op_node *node, const void *targets, const float *weights,
                          int64_t n) {
    const int64_t ignore = cgp__cross_entropy_of(node->attributes)->ignore;
    const int64_t all = n * cgp_shape_count(&node->inputs[1].shape);
    const int32_t *ids = targets;
    double sum = 0;
    for (int64_t i = 0; i < all; i++)
        sum += !ids || ids[i] != ignore ? (double)weights[i] : 0.0;
    return sum;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__cross_entropy_attributes *a = cgp__cross_entropy_of(node->attributes);
    sizes->cross_entropy.ignore = a->ignore;
    sizes->cross_entropy.smoothing = a->smoothing;
    sizes->cross_entropy.weighted = a->n_inputs == 3;
}

/* FLOPs per logit; an exp counts as 10. Forward computes a maximum, a difference, an exp and a sum.
 * Backward I computes a difference, an exp and a product. */
const cgp__op cgp__op_cross_entropy = {
    .op.name = "cross_entropy",
    .op.n_inputs = 3, /* maximum number of inputs */
    .op.is_loss = true,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0 | 1u << 1 | 1u << 2,
    .op.input_needs_saved = 1u << 0 | 1u << 1,
    .op.upper_bound = upper_bound,
    .op.count = count_targets,
    .dx = CGP__DX_OVER_X,
    .flops = {13, 12, 0},
    .ignores = true,
    .sizes = set_sizes,
    .sum_weights = sum_weights,
};
