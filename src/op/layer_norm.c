/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.c -- rows to mean 0 and variance 1, then scaled and shifted: [..., C] -> [..., C];
 * weight [C], bias [C]. Saves mean and 1 / standard deviation of each row; the small weight
 * gradients come with dx. Source: Ba et al. 2016, arXiv:1607.06450. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_check_eps(((const cgp__attributes *)attributes)->eps));
    for (int k = 0; k < 2; k++)
        cgp__op_add_saved(out, cgp__op_shape_rows(&inputs[0].shape), false);
    cgp__op_add_norm_parameters(out);
    return CGP_OK;
}

/* FLOPs of an element: forward, 1 for the mean, 3 for the variance, 4 for the result. Backward I: 5 for
 * the two sums (g, h and a multiply-add), 5 for dx, 3 for the weights' sums. Once a row is not
 * counted. */
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
};
