/* SPDX-License-Identifier: Apache-2.0 */
/* gelu.c -- y = x Phi(x), elementwise: the erf form, and the approximation with tanh that GPT-2 was
 * published with. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415. dx needs x. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    (void)attributes;
    return cgp__op_infer_elementwise(&inputs[0], out);
}

/* Per element: forward, 4 and an erf; backward I, 7, an erf and an exp. A function is 10. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    const double each[CGP__DIRECTIONS] = {14.0, 27.0, 0.0};
    return each[direction] * elements;
}

/* Per element: forward, 7 and an exp; backward I, 14 and an exp. */
static double tanh_flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    const double each[CGP__DIRECTIONS] = {17.0, 24.0, 0.0};
    return each[direction] * elements;
}

const cgp__op cgp__op_gelu = {
    .name = "gelu",
    .kind = CGP__OP_GELU,
    .n_inputs = 1,
    .infer = infer,
    .input_needs_x = 1u << 0,
    .cheap = true,
    .overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = flops,
};

const cgp__op cgp__op_gelu_tanh = {
    .name = "gelu_tanh",
    .kind = CGP__OP_GELU_TANH,
    .n_inputs = 1,
    .infer = infer,
    .input_needs_x = 1u << 0,
    .cheap = true,
    .overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = tanh_flops,
};
