/* SPDX-License-Identifier: Apache-2.0 */
/* concat.c -- joins two to four values along the last dimension: [..., C0], [..., C1] -> [..., C0 +
 * C1]. The gradients are column ranges of dy. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__attributes *a = attributes;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    int64_t width = cgp__op_width(&inputs[0].shape);
    for (int k = 1; k < a->n_inputs; k++) {
        CGP_TRY(cgp__op_check("input", &inputs[k], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
        cgp_op_type like = inputs[0];
        like.shape = cgp__op_shape_width(&like.shape, cgp__op_width(&inputs[k].shape));
        if (!cgp_shape_equal(&like.shape, &inputs[k].shape))
            return cgp__op_check_same("inputs that differ in the last dimension only", &inputs[0],
                                      &inputs[k]);
        width += cgp__op_width(&inputs[k].shape);
    }
    CGP_TRY(cgp__op_check_size("output", cgp__op_rows(&inputs[0].shape), width));
    out->output.shape = cgp__op_shape_width(&inputs[0].shape, width);
    return CGP_OK;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__attributes *a = node->attributes;
    sizes->in = sizes->out;
    for (int k = 0; k < a->n_inputs; k++)
        sizes->parts.parts[k] = cgp__op_width(&node->inputs[k].shape);
}

const cgp__op cgp__op_concat = {
    .op.name = "concat",
    .op.n_inputs = 2,
    .op.infer = infer,
    .op.cheap = true,
    .dx = CGP__DX_SEPARATE,
    .sizes = set_sizes,
};
