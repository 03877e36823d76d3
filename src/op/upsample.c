/* SPDX-License-Identifier: Apache-2.0 */
/* upsample.c -- nearest-neighbour upsampling: each pixel becomes a block of s x t equal pixels, [H,
 * W, C] -> [H s, W t, C]. dx is the sum of dy over a block. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__windows_attributes *a = cgp__windows_of(attributes);
    const int64_t *dims = inputs[0].shape.dims;
    CGP_TRY(cgp__op_check_image(&inputs[0]));
    for (int i = 0; i < 2; i++) {
        if (a->stride[i] < 1 || a->stride[i] > 1024)
            return cgp_fail(CGP_EINVAL, "expects a scale from 1 to 1024, got %d", a->stride[i]);
    }
    return cgp__op_set_output(out, dims[0] * a->stride[0], dims[1] * a->stride[1], dims[2]);
}

const cgp__op cgp__op_upsample = {
    .op.name = "upsample",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .dx = CGP__DX_SEPARATE,
    .flops = {0, 1, 0}, /* forward copies, backward I adds */
    .sizes = cgp__op_set_windows,
};
