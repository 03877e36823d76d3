/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c -- computes the softmax of each row, y = exp(x) / sum(exp(x)), or the log of the
 * softmax: [..., C] -> [..., C]. Backward reads y. */
#include "op/rules.h"

/* FLOPs per element; an exp counts as 10. Forward needs 1 for the maximum, 12 for the sum and 12
 * for y. Backward I needs 2 for the sum and 2 for dx. */
const cgp__op cgp__op_softmax = {
    .op.name = "softmax",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.input_needs_y = true,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {25, 4, 0},
};

/* FLOPs per element: forward needs 1 for the maximum, 12 for the sum and 2 for y. Backward I needs
 * 1 for the sum and 12 for dx. */
const cgp__op cgp__op_log_softmax = {
    .op.name = "log_softmax",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.input_needs_y = true,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {15, 13, 0},
};
