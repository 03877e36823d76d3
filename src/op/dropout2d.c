/* SPDX-License-Identifier: Apache-2.0 */
/* dropout2d.c -- whole channels of a sample set to zero with probability p, the others times 1 / (1 - p):
 * [H, W, C] -> [H, W, C]. Backward recomputes the mask and needs nothing. Source: Tompson et al. 2015,
 * arXiv:1411.4280. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    CGP_TRY(cgp__op_check_image(&inputs[0]));
    CGP_TRY(cgp__op_check_probability(attributes->p));
    out->attributes.p = (float)attributes->p;
    return CGP_OK;
}

/* A product per element; the mask is one row's. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    return direction == CGP__BACKWARD_WEIGHT ? 0.0 : elements;
}

const cgp__op cgp__op_dropout2d = {
    .name = "dropout2d",
    .kind = CGP__OP_DROPOUT2D,
    .n_inputs = 1,
    .infer = infer,
    .cheap = true,
    .overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = flops,
};
