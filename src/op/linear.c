/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c -- y = x weight^T + bias: x [..., in] -> [..., out]; weight [out, in], or [in, out] if
 * `transposed`; bias [out]. Backward reads the weight for dx and x for dweight; it does not read
 * y. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__linear_attributes *a = cgp__linear_of(attributes);
    const cgp_shape *x = &inputs[0].shape;
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    if (a->size < 1) return cgp_fail(CGP_EINVAL, "expects out >= 1, got %" PRId64, a->size);
    const int64_t in = cgp__op_width(x);
    CGP_TRY(cgp__op_check_size("weight", a->size, in));
    CGP_TRY(cgp__op_check_size("output", cgp__op_rows(x), a->size));
    out->output.shape = cgp__op_shape_width(x, a->size);
    const int64_t weight[] = {a->transposed ? in : a->size, a->transposed ? a->size : in};
    cgp__op_add_weight(out, attributes, cgp_shape_make(2, weight), in, a->size);
    return CGP_OK;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__linear_attributes *a = cgp__linear_of(node->attributes);
    sizes->linear.has_bias = a->bias;
    sizes->linear.transposed = a->transposed;
}

/* A multiply-add counts as 2 FLOPs, so the GEMM of each direction has 2 x rows x in x out FLOPs.
 * The bias adds one FLOP per element of y, in forward and in backward W. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__linear_attributes *a = cgp__linear_of(node->attributes);
    const double outputs = (double)cgp_shape_count(&node->shapes.output.shape);
    const double bias = a->bias && direction != CGP_OP_BACKWARD_INPUT ? outputs : 0.0;
    return 2.0 * outputs * (double)cgp__op_width(&node->inputs[0].shape) + bias;
}

const cgp__op cgp__op_linear = {
    .op.name = "linear",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.weight_needs_x = 1u << 0,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .bias_reads_dy = true,
    .prefetches = true,
    .sizes = set_sizes,
};
