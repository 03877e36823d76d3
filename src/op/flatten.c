/* SPDX-License-Identifier: Apache-2.0 */
/* flatten.c -- all elements of a sample in one row, in the order they lie in: [..., C] -> [elements]. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    (void)attributes;
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    out->attributes.in = out->attributes.out *= out->attributes.rows;
    out->attributes.rows = 1;
    out->output.shape = cgp_shape_make(1, &out->attributes.out);
    return CGP_OK;
}

static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    (void)attributes;
    (void)direction;
    return 0.0;
}

const cgp__op cgp__op_flatten = {
    .name = "flatten",
    .kind = CGP__OP_FLATTEN,
    .n_inputs = 1,
    .infer = infer,
    .cheap = true,
    .overwrites = 1u << 0,
    .dx = CGP__DX_SAME,
    .flops = flops,
};
