/* SPDX-License-Identifier: Apache-2.0 */
/* flatten.c -- all elements of a sample in one row, in the order they lie in: [..., C] -> [elements]. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    out->output.shape = cgp_shape_make(1, (int64_t[]){cgp_shape_count(&inputs[0].shape)});
    return CGP_OK;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    (void)node;
    sizes->in = sizes->out;
}

const cgp__op cgp__op_flatten = {
    .op.name = "flatten",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_SAME,
    .sizes = set_sizes,
};
