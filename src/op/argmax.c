/* SPDX-License-Identifier: Apache-2.0 */
/* argmax.c -- the index of each row's maximum, or the lowest index if several elements are the
 * maximum: [..., C] -> [...] i32 in 0..C-1. The op has no gradient. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    const cgp_shape *x = &inputs[0].shape;
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    if (cgp__op_width(x) > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "expects rows of at most %d, got %" PRId64, INT32_MAX,
                        cgp__op_width(x));
    out->output.dtype = CGP_I32;
    out->output.upper_bound = cgp__op_width(x);
    out->output.shape = x->rank == 1 ? cgp_shape_make(1, (int64_t[]){1}) : cgp__op_shape_rows(x);
    return CGP_OK;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    sizes->rows = cgp__op_rows(&node->inputs[0].shape);
    sizes->out = 1;
}

/* Count one comparison per element of x. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    return direction == CGP_OP_FORWARD ? (double)cgp_shape_count(&node->inputs[0].shape) : 0.0;
}

const cgp__op cgp__op_argmax = {
    .op.name = "argmax",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.flops = flops,
    .dx = CGP__DX_NONE,
    .sizes = set_sizes,
};
