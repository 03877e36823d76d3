/* SPDX-License-Identifier: Apache-2.0 */
/* gelu.c -- y = x Phi(x), elementwise: the exact erf form, and the tanh approximation, which GPT-2
 * uses. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415. Backward reads x. */
#include "op/rules.h"

/* FLOPs per element: forward has 4 operations and an erf; backward I has 7 operations, an erf and
 * an exp. An erf or an exp counts as 10. */
const cgp__op cgp__op_gelu = {
    .op.name = "gelu",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.input_needs_x = 1u << 0,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {14, 27, 0},
};

/* FLOPs per element: forward has 7 operations and an exp; backward I has 14 operations and an exp.
 * An exp counts as 10. */
const cgp__op cgp__op_gelu_tanh = {
    .op.name = "gelu_tanh",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.input_needs_x = 1u << 0,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {17, 24, 0},
};
