/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c -- takes the maximum or the mean of each window, per channel: [H, W, C] -> [OH, OW, C], or
 * [C] for the single window of a global pool. Padding does not count in the mean, and it is never
 * the maximum. Backward of the maximum recomputes the argmax from x; if several elements are the
 * maximum, it takes the first. Backward of the mean needs nothing from forward. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    cgp__windows_attributes a = *cgp__windows_of(attributes);
    const cgp_shape *x = &inputs[0].shape;
    CGP_TRY(cgp__op_check_image(&inputs[0]));
    for (int i = 0; a.global && i < 2; i++) {
        a.kernel[i] = (int)x->dims[i];
        a.stride[i] = 1;
    }
    CGP_TRY(cgp__op_infer_windows(&a, &inputs[0], x->dims[2], false, out));
    if (a.global) out->output.shape = cgp__op_shape_last(x);
    return CGP_OK;
}

/* Count one comparison or one sum per element of a window. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__windows_attributes *a = cgp__windows_of(node->attributes);
    if (direction == CGP_OP_BACKWARD_WEIGHT) return 0.0;
    if (a->global) return (double)cgp_shape_count(&node->inputs[0].shape);
    return (double)cgp_shape_count(&node->shapes.output.shape) * (double)a->kernel[0] *
           (double)a->kernel[1];
}

const cgp__op cgp__op_max_pool = {
    .op.name = "max_pool",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .sizes = cgp__op_set_windows,
};

const cgp__op cgp__op_average_pool = {
    .op.name = "average_pool",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .sizes = cgp__op_set_windows,
};
