/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.c -- normalizes rows, [..., C] -> [..., C]. LAYER_NORM normalizes to mean 0 and
 * variance 1, then scales and shifts by weight [C] and bias [C]. RMS_NORM divides by the root mean
 * square, then scales by weight [C].
 *
 * Forward saves the mean (LAYER_NORM only) and 1 / standard deviation of each row. The weight
 * gradients are small and are computed together with dx.
 *
 * Source: Ba et al. 2016, arXiv:1607.06450; Zhang and Sennrich 2019, arXiv:1910.07467. */
#include "op/rules.h"

void cgp__op_set_norm(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__norm_attributes *a = cgp__norm_of(node->attributes);
    sizes->norm.groups = a->groups;
    sizes->norm.eps = (float)a->eps;
    sizes->norm.momentum = (float)a->momentum;
}

/* Set the shapes. The op saves `saved` numbers per row. */
static cgp_status infer_norm(const void *attributes, const cgp_op_type *inputs, int saved,
                             cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_check_eps(cgp__norm_of(attributes)->eps));
    for (int k = 0; k < saved; k++)
        cgp__op_add_saved(out, cgp__op_shape_rows(&inputs[0].shape), false);
    return CGP_OK;
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(infer_norm(attributes, inputs, 2, out));
    cgp__op_add_norm_parameters(out);
    return CGP_OK;
}

static cgp_status infer_rms(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(infer_norm(attributes, inputs, 1, out));
    cgp__op_add_parameter(out, "weight", cgp__op_shape_last(&inputs[0].shape),
                          (cgp_init){CGP_INIT_ONE, 0}, false);
    return CGP_OK;
}

/* FLOPs per element. Forward needs 1 for the mean, 3 for the variance and 4 for the result.
 * Backward I needs 5 for the two sums (g = weight dy, h = the normalized x, and a multiply-add), 5
 * for dx and 3 for the sums of the weight gradients. Work per row is not counted. */
const cgp__op cgp__op_layer_norm = {
    .op.name = "layer_norm",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0,
    .op.input_needs_saved = 1u << 0 | 1u << 1,
    .op.weight_in_input = true,
    .op.cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = {8, 13, 0},
    .sizes = cgp__op_set_norm,
};

/* FLOPs per element. Forward needs 2 for the mean square and 2 for the result. Backward I needs 4
 * for the sum of g h, 4 for dx and 2 for the sum of the weight gradient. */
const cgp__op cgp__op_rms_norm = {
    .op.name = "rms_norm",
    .op.n_inputs = 1,
    .op.infer = infer_rms,
    .op.input_needs_x = 1u << 0,
    .op.input_needs_saved = 1u << 0,
    .op.weight_in_input = true,
    .op.cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = {4, 10, 0},
    .sizes = cgp__op_set_norm,
};
