/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c -- takes indices begin .. end - 1 of one dimension: [..., d, ...] -> [..., end - begin,
 * ...].
 *
 * dx is zero outside these indices. The first use of x that computes a part of x's gradient writes
 * the whole gradient; later uses add only to their own parts. So if a value is split into parts,
 * its gradient costs one pass over the whole gradient, and one pass over each part except the
 * first. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__parts_attributes *a = cgp__parts_of(attributes);
    int dim = 0;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_find_dim(a->dim[0], &inputs[0].shape, &dim));
    const int64_t size = inputs[0].shape.dims[dim];
    if (a->begin < 0 || a->begin >= a->end || a->end > size)
        return cgp_fail(CGP_EINVAL,
                        "expects 0 <= begin < end <= %" PRId64 ", got %" PRId64 " and %" PRId64,
                        size, a->begin, a->end);
    out->output.shape.dims[dim] = a->end - a->begin;
    return CGP_OK;
}

/* Describe the slice as a range of columns of a matrix. A row of the matrix has the sliced
 * dimension and all dimensions after it. */
static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__parts_attributes *a = cgp__parts_of(node->attributes);
    const cgp_shape *x = &node->inputs[0].shape;
    const int dim = a->dim[0] < 0 ? a->dim[0] + x->rank : a->dim[0];
    const int64_t inner = cgp__op_product(x, dim + 1, x->rank);
    sizes->rows = cgp__op_product(x, 0, dim);
    sizes->in = x->dims[dim] * inner;
    sizes->out = (a->end - a->begin) * inner;
    sizes->parts.parts[0] = a->begin * inner;
}

const cgp__op cgp__op_slice = {
    .op.name = "slice",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .dx = CGP__DX_SEPARATE,
    .sizes = set_sizes,
};
