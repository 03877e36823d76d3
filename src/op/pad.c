/* SPDX-License-Identifier: Apache-2.0 */
/* pad.c -- rows and columns of zeros around an image, cropped where the padding is negative: [H, W, C]
 * -> [H + top + bottom, W + left + right, C]. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    cgp__attributes a = *attributes;
    for (int i = 0; i < 2; i++)
        a.kernel[i] = a.stride[i] = 1;
    return cgp__op_infer_windows(&a, &inputs[0], true, out);
}

static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    (void)attributes;
    (void)direction;
    return 0.0;
}

const cgp__op cgp__op_pad = {
    .name = "pad",
    .kind = CGP__OP_PAD,
    .n_inputs = 1,
    .infer = infer,
    .cheap = true,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};
