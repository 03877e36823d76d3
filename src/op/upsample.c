/* SPDX-License-Identifier: Apache-2.0 */
/* upsample.c -- each pixel becomes a block of equal ones (nearest neighbour): [H, W, C] -> [H s, W t, C]. dx is
 * the sum over a block. */
#include "op/rules.h"

#include <string.h>

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    const int64_t *dims = inputs[0].shape.dims;
    memset(out, 0, sizeof *out);
    CGP_TRY(cgp__op_check_image(&inputs[0]));
    for (int i = 0; i < 2; i++) {
        if (attributes->stride[i] < 1 || attributes->stride[i] > 1024)
            return cgp_fail(CGP_EINVAL, "expects a scale from 1 to 1024, got %d",
                            attributes->stride[i]);
    }
    cgp__op_attributes *g = &out->attributes;
    g->height = (int32_t)dims[0];
    g->width = (int32_t)dims[1];
    g->in = dims[2];
    g->stride_height = attributes->stride[0];
    g->stride_width = attributes->stride[1];
    return cgp__op_set_output(out, dims[0] * g->stride_height, dims[1] * g->stride_width,
                              dims[2]);
}

/* Forward copies, backward I adds. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    return direction == CGP__BACKWARD_INPUT ? elements : 0.0;
}

const cgp__op cgp__op_upsample = {
    .name = "upsample",
    .kind = CGP__OP_UPSAMPLE,
    .n_inputs = 1,
    .infer = infer,
    .cheap = true,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};
