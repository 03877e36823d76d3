/* SPDX-License-Identifier: Apache-2.0 */
/* add.c -- y = a + b, of one shape. Both gradients are dy itself. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    (void)attributes;
    char first[192], second[192];
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    out->attributes.slope = 1.0f;
    CGP_TRY(cgp__op_check("input", &inputs[1], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    if (!cgp_shape_equal(&inputs[0].shape, &inputs[1].shape))
        return cgp_fail(CGP_EINVAL, "expects two inputs of one shape, got %s and %s",
                        cgp_shape_text(&inputs[0].shape, first, sizeof first),
                        cgp_shape_text(&inputs[1].shape, second, sizeof second));
    return CGP_OK;
}

/* One sum per element. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    return direction == CGP__FORWARD ? (double)attributes->rows * (double)attributes->out : 0.0;
}

const cgp__op cgp__op_add = {
    .name = "add",
    .kind = CGP__OP_ADD,
    .n_inputs = 2,
    .infer = infer,
    .overwrites = 1u << 0 | 1u << 1,
    .dx = CGP__DX_SAME,
    .flops = flops,
};
