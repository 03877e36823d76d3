/* SPDX-License-Identifier: Apache-2.0 */
/* relu.c -- y = x above 0, slope x elsewhere: [..., C] -> [..., C]. As slope >= 0 backward needs the
 * sign of y alone. Source: Nair and Hinton 2010; Maas et al. 2013 (leaky). */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    const float slope = (float)attributes->slope;
    if (!(slope >= 0.0f && slope <= 1.0f))
        return cgp_fail(CGP_EINVAL, "expects a slope from 0 to 1, got %g", attributes->slope);
    out->attributes.slope = slope;
    return CGP_OK;
}

/* A comparison and a product per element. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    return direction == CGP__BACKWARD_WEIGHT ? 0.0 : 2.0 * elements;
}

const cgp__op cgp__op_relu = {
    .name = "relu",
    .kind = CGP__OP_RELU,
    .n_inputs = 1,
    .infer = infer,
    .input_needs_y = true,
    .cheap = true,
    .overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = flops,
};
