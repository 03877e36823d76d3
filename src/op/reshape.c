/* SPDX-License-Identifier: Apache-2.0 */
/* reshape.c -- changes the dimensions of a sample, and keeps the order of its elements in memory. A
 * dimension of -1 is derived from the others. No data moves, since y may have the memory of x, and
 * dx is dy. */
#include "op/rules.h"

#include <inttypes.h>

/* Return the product of the given dims, each >= 1. At most one dim may be -1; *open is the index of
 * that dim. */
static cgp_status count_given(const cgp__parts_attributes *a, int *open, int64_t *count) {
    char text[192];
    const cgp_shape given = cgp_shape_make(a->rank, a->dims);
    *open = -1;
    *count = 1;
    for (int i = 0; i < a->rank; i++) {
        const int64_t dim = a->dims[i];
        if (dim < -1 || dim == 0 || (dim == -1 && *open >= 0))
            return cgp_fail(CGP_EINVAL, "expects dims >= 1, and at most one of -1, got %s",
                            cgp_shape_text(&given, text, sizeof text));
        if (dim == -1) {
            *open = i;
            continue;
        }
        if (dim > CGP__MAX_ELEMENTS / *count)
            return cgp_fail(CGP_EINVAL, "expects dims of at most 2^40 elements, got %s",
                            cgp_shape_text(&given, text, sizeof text));
        *count *= dim;
    }
    return CGP_OK;
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__parts_attributes *a = cgp__parts_of(attributes);
    char text[192], from[192];
    int open = -1;
    int64_t given = 1;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    if (a->rank < 1 || a->rank > CGP__MAX_SAMPLE_RANK)
        return cgp_fail(CGP_EINVAL, "expects 1 to %d dims, got %d", CGP__MAX_SAMPLE_RANK, a->rank);
    CGP_TRY(count_given(a, &open, &given));
    const int64_t count = cgp_shape_count(&inputs[0].shape);
    const cgp_shape shape = cgp_shape_make(a->rank, a->dims);
    if (open < 0 ? count != given : count % given != 0)
        return cgp_fail(CGP_EINVAL, "expects dims of the %" PRId64 " elements of %s, got %s", count,
                        cgp_shape_text(&inputs[0].shape, from, sizeof from),
                        cgp_shape_text(&shape, text, sizeof text));
    out->output.shape = shape;
    if (open >= 0) out->output.shape.dims[open] = count / given;
    return CGP_OK;
}

/* Set sizes that depend only on the number of elements, so that any two reshapes of the same number
 * of elements are equal uses. */
static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    sizes->rows = 1;
    sizes->in = sizes->out = cgp_shape_count(&node->inputs[0].shape);
}

const cgp__op cgp__op_reshape = {
    .op.name = "reshape",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_SAME,
    .sizes = set_sizes,
};
