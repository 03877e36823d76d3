/* SPDX-License-Identifier: Apache-2.0 */
/* position.c -- y = x + weight[position]: x [T, C] -> [T, C]; weight [T, C]. dx is dy. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 2, 2));
    const cgp__attributes *a = attributes;
    const int64_t *dims = inputs[0].shape.dims;
    cgp__op_add_parameter(out, "weight", inputs[0].shape,
                          cgp_init_by_fan(a->init[0], dims[1], dims[0]), true);
    return CGP_OK;
}

/* FLOPs per element: forward and backward W each compute one sum. */
const cgp__op cgp__op_position = {
    .op.name = "position",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_SAME,
    .flops = {1, 0, 1},
};
