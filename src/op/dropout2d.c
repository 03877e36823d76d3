/* SPDX-License-Identifier: Apache-2.0 */
/* dropout2d.c -- sets each channel of a sample to zero with probability p, and multiplies the other
 * channels by 1 / (1 - p): [H, W, C] -> [H, W, C]. Backward recomputes the mask and needs nothing
 * from forward. Source: Tompson et al. 2015, arXiv:1411.4280. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_check_image(&inputs[0]));
    return cgp__op_check_probability(((const cgp__attributes *)attributes)->p);
}

/* FLOPs per element: one product. The mask is computed for one row only. */
const cgp__op cgp__op_dropout2d = {
    .op.name = "dropout2d",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {1, 1, 0},
};
