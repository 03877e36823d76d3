/* SPDX-License-Identifier: Apache-2.0 */
/* position.c -- y = x + weight[position]: x [T, C] -> [T, C]; weight [T, C]. dx is dy. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    (void)attributes;
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 2, 2));
    out->n_params = 1;
    out->params[0].suffix = "weight";
    out->params[0].decays = true;
    out->params[0].shape = inputs[0].shape;
    return CGP_OK;
}

/* One sum per element, forward and in backward W. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    return direction == CGP__BACKWARD_INPUT ? 0.0 : elements;
}

const cgp__op cgp__op_position = {
    .name = "position",
    .kind = CGP__OP_POSITION,
    .n_inputs = 1,
    .infer = infer,
    .overwrites = 1u << 0,
    .dx = CGP__DX_SAME,
    .flops = flops,
};
