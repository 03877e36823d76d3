/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c -- the maximum or the mean of each window, per channel: [H, W, C] -> [OH, OW, C], or [C] of the one
 * window of a global pool. Padding is not counted, and never the maximum. Backward of the maximum recomputes the
 * argmax from x, the first of equals; that of the mean needs nothing. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    cgp__attributes a = *attributes;
    if (a.global) {
        CGP_TRY(cgp__op_check_image(&inputs[0]));
        for (int i = 0; i < 2; i++) {
            a.kernel[i] = (int)inputs[0].shape.dims[i];
            a.stride[i] = 1;
        }
    }
    CGP_TRY(cgp__op_infer_windows(&a, &inputs[0], false, out));
    if (a.global) out->output.shape = cgp_shape_make(1, &out->attributes.out);
    return CGP_OK;
}

/* One comparison or sum per element of a window. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    return direction == CGP__BACKWARD_WEIGHT ? 0.0 : cgp__op_window_elements(attributes);
}

const cgp__op cgp__op_max_pool = {
    .name = "max_pool",
    .kind = CGP__OP_MAX_POOL,
    .n_inputs = 1,
    .infer = infer,
    .input_needs_x = 1u << 0,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};

const cgp__op cgp__op_average_pool = {
    .name = "average_pool",
    .kind = CGP__OP_AVERAGE_POOL,
    .n_inputs = 1,
    .infer = infer,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};
