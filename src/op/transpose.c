/* SPDX-License-Identifier: Apache-2.0 */
/* transpose.c -- exchanges two dimensions of a sample: [a, i, b, j, c] -> [a, j, b, i, c], where
 * `a`, `b` and `c` each stand for any number of dimensions. dx is dy with the same two dimensions
 * exchanged. */
#include "op/rules.h"

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__parts_attributes *a = cgp__parts_of(attributes);
    int first = 0, second = 0;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_find_dim(a->dim[0], &inputs[0].shape, &first));
    CGP_TRY(cgp__op_find_dim(a->dim[1], &inputs[0].shape, &second));
    int64_t *dims = out->output.shape.dims;
    dims[first] = inputs[0].shape.dims[second];
    dims[second] = inputs[0].shape.dims[first];
    return CGP_OK;
}

/* Set the sizes i, b, j and c. The dims that form `a` count as samples. */
static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__parts_attributes *a = cgp__parts_of(node->attributes);
    const cgp_shape *x = &node->inputs[0].shape;
    int first = a->dim[0] < 0 ? a->dim[0] + x->rank : a->dim[0];
    int second = a->dim[1] < 0 ? a->dim[1] + x->rank : a->dim[1];
    if (first > second) {
        const int other = first;
        first = second;
        second = other;
    }
    sizes->in = sizes->out;
    sizes->parts.parts[0] = x->dims[first];
    sizes->parts.parts[1] = cgp__op_product(x, first + 1, second);
    sizes->parts.parts[2] = first == second ? 1 : x->dims[second];
    sizes->parts.parts[3] = cgp__op_product(x, second + 1, x->rank);
}

const cgp__op cgp__op_transpose = {
    .op.name = "transpose",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .dx = CGP__DX_SEPARATE,
    .sizes = set_sizes,
};
