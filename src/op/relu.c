/* SPDX-License-Identifier: Apache-2.0 */
/* relu.c -- y = x where x > 0, and y = slope x elsewhere: [..., C] -> [..., C]. Since slope >= 0,
 * backward needs only the sign of y. Source: Nair and Hinton 2010; Maas et al. 2013 (leaky). */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__attributes *a = attributes;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    const float slope = (float)a->slope;
    if (!(slope >= 0.0f && slope <= 1.0f))
        return cgp_fail(CGP_EINVAL, "expects a slope from 0 to 1, got %g", a->slope);
    return CGP_OK;
}

/* FLOPs per element: a comparison and a product. */
const cgp__op cgp__op_relu = {
    .op.name = "relu",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.input_needs_y = true,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {2, 2, 0},
};
