/* SPDX-License-Identifier: Apache-2.0 */
/* conv_transpose2d.c -- transposed convolution of x [H, W, in] to y [OH, OW, out], with weight
 * [kernel height, kernel width, out / groups, in] and bias [out].
 *
 * Take the CONV2D that maps [OH, OW, out] to [H, W, in] with the same weight, kernel, stride and
 * padding. Forward of this op computes the input gradient of that CONV2D. The dx of this op is that
 * CONV2D applied to dy. The dweight of this op is the dweight of that CONV2D with x and dy
 * exchanged. Backward reads the weight for dx and x for dweight; it does not read y. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__windows_attributes *a = cgp__windows_of(attributes);
    CGP_TRY(cgp__op_infer_transposed(a, &inputs[0], 1, out)); /* [OH, OW, 1] */
    CGP_TRY(cgp__op_check_groups(a, cgp__op_width(&inputs[0].shape)));
    const int64_t groups = cgp__op_or_one(a->groups), in = cgp__op_width(&inputs[0].shape);
    const int64_t window = (int64_t)a->kernel[0] * a->kernel[1];
    CGP_TRY(cgp__op_check_size("weight", in, window));
    CGP_TRY(cgp__op_check_size("weight", a->size / groups, in * window));
    CGP_TRY(cgp__op_set_output(out, out->output.shape.dims[0], out->output.shape.dims[1], a->size));
    /* As in PyTorch, the fans are taken from the CONV2D whose input gradient this op computes. */
    cgp__op_add_weight(
        out, attributes,
        cgp_shape_make(4, (int64_t[]){a->kernel[0], a->kernel[1], a->size / groups, in}),
        window * a->size / groups, window * in);
    return CGP_OK;
}

/* A multiply-add counts as 2 FLOPs in each direction; multiply-adds for pixels that padding removes
 * are counted too. The bias adds one FLOP per element of y, in forward and in backward W. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__windows_attributes *a = cgp__windows_of(node->attributes);
    const double inputs = (double)cgp_shape_count(&node->inputs[0].shape);
    const double window = (double)a->kernel[0] * a->kernel[1];
    const double bias = a->bias && direction != CGP_OP_BACKWARD_INPUT
                            ? (double)cgp_shape_count(&node->shapes.output.shape)
                            : 0.0;
    return 2.0 * inputs * window * (double)(a->size / cgp__op_or_one(a->groups)) + bias;
}

const cgp__op cgp__op_conv_transpose2d = {
    .op.name = "conv_transpose2d",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.weight_needs_x = 1u << 0,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .bias_reads_dy = true,
    .sizes = cgp__op_set_convolution,
};
