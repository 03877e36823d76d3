/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.c -- multiplies windows of an image by a weight: x [H, W, in] -> [OH, OW, out]; weight
 * [kernel height, kernel width, in / groups, out], bias [out]. The image counts as zero outside its
 * edges; negative padding crops the image. Backward reads the weight for dx and x for dweight; it
 * does not read y. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__windows_attributes *a = cgp__windows_of(attributes);
    const cgp_shape *x = &inputs[0].shape;
    CGP_TRY(cgp__op_infer_windows(a, &inputs[0], 1, true, out)); /* [OH, OW, 1] */
    CGP_TRY(cgp__op_check_groups(a, cgp__op_width(x)));
    const int64_t groups = cgp__op_or_one(a->groups), in = cgp__op_width(x) / groups;
    const int64_t window = (int64_t)a->kernel[0] * a->kernel[1];
    CGP_TRY(cgp__op_check_size("weight", in, window));
    CGP_TRY(cgp__op_check_size("weight", a->size, in * window));
    CGP_TRY(cgp__op_set_output(out, out->output.shape.dims[0], out->output.shape.dims[1], a->size));
    cgp__op_add_weight(out, attributes,
                       cgp_shape_make(4, (int64_t[]){a->kernel[0], a->kernel[1], in, a->size}),
                       window * in, window * a->size);
    return CGP_OK;
}

/* A multiply-add counts as 2 FLOPs in each direction; multiply-adds with padding are counted too.
 * The bias adds one FLOP per element of y, in forward and in backward W. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__windows_attributes *a = cgp__windows_of(node->attributes);
    const double outputs = (double)cgp_shape_count(&node->shapes.output.shape);
    const double window =
        (double)cgp_shape_count(&node->shapes.parameters[0].shape) / (double)a->size;
    const double bias = a->bias && direction != CGP_OP_BACKWARD_INPUT ? outputs : 0.0;
    return 2.0 * outputs * window + bias;
}

const cgp__op cgp__op_conv2d = {
    .op.name = "conv2d",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.weight_needs_x = 1u << 0,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .bias_reads_dy = true,
    .sizes = cgp__op_set_convolution,
};
