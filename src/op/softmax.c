/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c -- softmax of each row, y = exp(x) / sum(exp(x)), or its log: [..., C] -> [..., C].
 * Backward reads y. */
#include "op/rules.h"

/* FLOPs per element; an exp counts 10. Forward takes 1 for the maximum, 12 for the sum and 12 for
 * y. Backward I takes 2 for the sum and 2 for dx. */
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

/* FLOPs per element: forward takes 1 for the maximum, 12 for the sum and 2 for y. Backward I takes
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
