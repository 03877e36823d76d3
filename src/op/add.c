/* SPDX-License-Identifier: Apache-2.0 */
/* add.c -- elementwise ops on two values `a` and `b` of the same shape. ADD computes y = a + b; the
 * gradient of each input is dy itself. SUBTRACT computes y = a - b. MULTIPLY computes y = a b, and
 * its backward reads both inputs. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_check("input", &inputs[1], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    return cgp__op_check_same("two inputs of one shape", &inputs[0], &inputs[1]);
}

const cgp__op cgp__op_add = {
    .op.name = "add",
    .op.n_inputs = 2,
    .op.infer = infer,
    .op.overwrites = 1u << 0 | 1u << 1,
    .dx = CGP__DX_SAME,
    .flops = {1, 0, 0},
    .ends_in_relu = true,
};

/* FLOPs per element: forward computes one difference; backward I computes one negation of dy. */
const cgp__op cgp__op_subtract = {
    .op.name = "subtract",
    .op.n_inputs = 2,
    .op.infer = infer,
    .op.cheap = true,
    .op.overwrites = 1u << 0 | 1u << 1,
    .dx = CGP__DX_IN_PLACE,
    .flops = {1, 1, 0},
};

/* FLOPs per element: forward computes one product; backward I computes two products. */
const cgp__op cgp__op_multiply = {
    .op.name = "multiply",
    .op.n_inputs = 2,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0 | 1u << 1,
    .op.cheap = true,
    .op.overwrites = 1u << 0 | 1u << 1,
    .dx = CGP__DX_IN_PLACE,
    .flops = {1, 2, 0},
};
