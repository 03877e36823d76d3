/* SPDX-License-Identifier: Apache-2.0 */
/* concat.c -- two to four values side by side along the last dimension: [..., C0], [..., C1] -> [..., C0 + C1]. The
 * gradients are the columns of dy. */
#include "op/rules.h"

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    char first[192], other[192];
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    cgp__op_attributes *g = &out->attributes;
    g->parts[0] = g->in;
    for (int k = 1; k < attributes->n_inputs; k++) {
        CGP_TRY(cgp__op_check("input", &inputs[k], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
        g->parts[k] = cgp__op_width(&inputs[k].shape);
        const cgp_shape like = cgp__op_shape_width(&inputs[0].shape, g->parts[k]);
        if (!cgp_shape_equal(&like, &inputs[k].shape))
            return cgp_fail(CGP_EINVAL,
                            "expects inputs that differ in the last dimension only, got %s and "
                            "%s",
                            cgp_shape_text(&inputs[0].shape, first, sizeof first),
                            cgp_shape_text(&inputs[k].shape, other, sizeof other));
        g->out += g->parts[k];
    }
    CGP_TRY(cgp__op_check_size("output", g->rows, g->out));
    g->in = g->out;
    out->output.shape = cgp__op_shape_width(&inputs[0].shape, g->out);
    return CGP_OK;
}

static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    (void)attributes;
    (void)direction;
    return 0.0;
}

const cgp__op cgp__op_concat = {
    .name = "concat",
    .kind = CGP__OP_CONCAT,
    .n_inputs = 2,
    .infer = infer,
    .cheap = true,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};
