/* SPDX-License-Identifier: Apache-2.0 */
/* pad.c -- adds rows and columns of zeros around an image, and crops it where padding is negative:
 * [H, W, C] -> [H + top + bottom, W + left + right, C]. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    return cgp__op_infer_windows(cgp__windows_of(attributes), &inputs[0], inputs[0].shape.dims[2],
                                 true, out);
}

const cgp__op cgp__op_pad = {
    .op.name = "pad",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .dx = CGP__DX_SEPARATE,
    .sizes = cgp__op_set_windows,
};
