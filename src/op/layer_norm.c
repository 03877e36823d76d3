/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.c -- rows to mean 0 and variance 1, then scaled and shifted: [..., C] -> [..., C];
 * weight [C], bias [C]. Saves mean and 1 / standard deviation of each row; the small weight
 * gradients come with dx. Source: Ba et al. 2016, arXiv:1607.06450. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    static const char *const suffixes[] = {"weight", "bias"};
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    CGP_TRY(cgp__op_check_eps(attributes->eps));
    out->attributes.eps = (float)attributes->eps;
    out->n_saved = 2;
    out->n_params = 2;
    for (int k = 0; k < 2; k++) {
        out->saved[k].dtype = CGP_F32;
        out->saved[k].shape = cgp__op_shape_rows(&inputs[0].shape);
        out->params[k].suffix = suffixes[k];
        out->params[k].shape = cgp_shape_make(1, &out->attributes.out);
    }
    return CGP_OK;
}

/* Per element: forward, 1 for the mean, 3 for the variance, 4 for the result. Backward I: 5 for
 * the two sums (g, h and a multiply-add), 5 for dx, 3 for the weights' sums. Once a row is not
 * counted. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    const double each[CGP__DIRECTIONS] = {8.0, 13.0, 0.0};
    return each[direction] * elements;
}

const cgp__op cgp__op_layer_norm = {
    .name = "layer_norm",
    .kind = CGP__OP_LAYER_NORM,
    .n_inputs = 1,
    .infer = infer,
    .input_needs_x = 1u << 0,
    .input_needs_saved = 1u << 0 | 1u << 1,
    .weight_in_input = true,
    .cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = flops,
};
