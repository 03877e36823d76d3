/* SPDX-License-Identifier: Apache-2.0 */
/* sigmoid.c -- SIGMOID: y = 1 / (1 + exp(-x)); TANH: y = tanh(x); elementwise. Backward reads y,
 * not x, so only y is kept. */
#include "op/rules.h"

/* FLOPs per element: forward has 2 operations and an exp; backward I has 3 operations. An exp
 * counts as 10. */
const cgp__op cgp__op_sigmoid = {
    .op.name = "sigmoid",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.input_needs_y = true,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {12, 3, 0},
};

/* FLOPs per element: forward has 4 operations and an exp (or 11 operations for the polynomial near
 * x = 0); backward I has 4 operations. */
const cgp__op cgp__op_tanh = {
    .op.name = "tanh",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.input_needs_y = true,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {14, 4, 0},
};
