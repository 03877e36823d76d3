/* SPDX-License-Identifier: Apache-2.0 */
/* silu.c -- y = x / (1 + exp(-x)), elementwise. Source: Hendrycks and Gimpel 2016,
 * arXiv:1606.08415; Elfwing et al. 2017, arXiv:1702.03118. Backward reads x. */
#include "op/rules.h"

/* FLOPs per element: forward has 3 operations and an exp; backward I has 7 operations and an exp.
 * An exp counts as 10. */
const cgp__op cgp__op_silu = {
    .op.name = "silu",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.input_needs_x = 1u << 0,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {13, 17, 0},
};
