/* SPDX-License-Identifier: Apache-2.0 */
/* mean.c -- takes the mean over one dim and removes it: [A, D, B] -> [A, B], where A and B are any
 * dims; [D] -> [1] if there is no other dim. Backward needs nothing from forward.
 *
 * The op runs the kernels of AVERAGE_POOL. For them, x is an image with A * D rows of one pixel and
 * B channels, and a window has D rows. If B is 1, the image has A rows of D pixels and one channel,
 * and a window has one row. */
#include "op/rules.h"

#include <inttypes.h>

/* Products of dims: the product of the dims before `dim`, the dim itself, and the product of the
 * dims after `dim`. */
typedef struct extent {
    int64_t before, along, behind;
} extent;

static extent extent_of(const cgp_shape *x, int dim) {
    extent e = {1, x->dims[dim], 1};
    for (int i = 0; i < x->rank; i++) {
        if (i < dim) e.before *= x->dims[i];
        if (i > dim) e.behind *= x->dims[i];
    }
    return e;
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp_shape *x = &inputs[0].shape;
    int dim = 0;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_find_dim(cgp__windows_of(attributes)->dim[0], x, &dim));
    const extent e = extent_of(x, dim);
    if (e.before * e.along > INT32_MAX)
        return cgp_fail(CGP_EINVAL,
                        "expects at most 2^31 - 1 elements in the dims up to %d, got %" PRId64, dim,
                        e.before * e.along);
    cgp_shape y = {.rank = x->rank - 1};
    for (int i = 0; i < y.rank; i++)
        y.dims[i] = x->dims[i < dim ? i : i + 1];
    out->output.shape = y.rank > 0 ? y : cgp_shape_make(1, (int64_t[]){1});
    return CGP_OK;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    cgp_op_windows *g = &sizes->windows;
    const cgp_shape *x = &node->inputs[0].shape;
    const int dim = cgp__windows_of(node->attributes)->dim[0];
    const extent e = extent_of(x, dim < 0 ? dim + x->rank : dim);
    const bool last = e.behind == 1;
    g->rows = e.before;
    g->in = g->out = e.behind;
    g->height = (int32_t)(last ? e.before : e.before * e.along);
    g->width = last ? (int32_t)e.along : 1;
    g->out_height = (int32_t)e.before;
    g->out_width = 1;
    g->kernel_height = g->stride_height = last ? 1 : (int32_t)e.along;
    g->kernel_width = g->stride_width = g->width;
}

/* Count one addition per element of x. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    return direction == CGP_OP_BACKWARD_WEIGHT ? 0.0
                                               : (double)cgp_shape_count(&node->inputs[0].shape);
}

const cgp__op cgp__op_mean = {
    .op.name = "mean",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .sizes = set_sizes,
};
