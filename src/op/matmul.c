/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c -- multiplies pairs of matrices, y = a b: `a` [..., M, K] and `b` [..., K, N] -> [...,
 * M, N]. Each operand may be stored transposed.
 *
 *     da = dy b^T        db = a^T dy
 *
 * Backward I computes both gradients from dy, `a` and `b`. */
#include "op/rules.h"

#include <inttypes.h>

/* Set the numbers of rows and columns that a matrix has in the product. For a matrix that is stored
 * transposed, these are the numbers after the transposition. */
static void sides_of(const cgp_shape *shape, bool transposed, int64_t *rows, int64_t *columns) {
    const int64_t *last = &shape->dims[shape->rank - 2];
    *rows = last[transposed];
    *columns = last[!transposed];
}

static cgp_shape leading_of(const cgp_shape *shape) {
    return cgp_shape_make(shape->rank - 2, shape->dims);
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__matmul_attributes *t = cgp__matmul_of(attributes);
    char first[192], second[192];
    int64_t m, n, k, of_b;
    for (int i = 0; i < 2; i++)
        CGP_TRY(cgp__op_check("input", &inputs[i], CGP_F32, 2, CGP__MAX_SAMPLE_RANK));
    const cgp_shape *a = &inputs[0].shape, *b = &inputs[1].shape;
    const cgp_shape of = leading_of(a), others = leading_of(b);
    if (!cgp_shape_equal(&of, &others))
        return cgp__op_check_same("inputs that differ in their last two dimensions only",
                                  &inputs[0], &inputs[1]);
    sides_of(a, t->transpose[0], &m, &k);
    sides_of(b, t->transpose[1], &of_b, &n);
    if (k != of_b)
        return cgp_fail(
            CGP_EINVAL,
            "expects as many columns of a as rows of b, got %" PRId64 " of %s%s and "
            "%" PRId64 " of %s%s",
            k, cgp_shape_text(a, first, sizeof first), t->transpose[0] ? " transposed" : "", of_b,
            cgp_shape_text(b, second, sizeof second), t->transpose[1] ? " transposed" : "");
    CGP_TRY(cgp__op_check_size("output", cgp_shape_count(&of) * m, n));
    out->output.shape = *a;
    out->output.shape.dims[a->rank - 2] = m;
    out->output.shape.dims[a->rank - 1] = n;
    return CGP_OK;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__matmul_attributes *t = cgp__matmul_of(node->attributes);
    const cgp_shape *a = &node->inputs[0].shape;
    int64_t m;
    sides_of(a, t->transpose[0], &m, &sizes->in);
    sizes->matmul.heads = cgp__op_product(a, 0, a->rank - 2);
    sizes->matmul.transposed[0] = t->transpose[0];
    sizes->matmul.transposed[1] = t->transpose[1];
}

/* A multiply-add counts as 2 FLOPs. Backward has two products, each of the same size as the product
 * of forward. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__matmul_attributes *t = cgp__matmul_of(node->attributes);
    int64_t m, k;
    sides_of(&node->inputs[0].shape, t->transpose[0], &m, &k);
    if (direction == CGP_OP_BACKWARD_WEIGHT) return 0;
    return (direction == CGP_OP_FORWARD ? 2.0 : 4.0) *
           (double)cgp_shape_count(&node->shapes.output.shape) * (double)k;
}

const cgp__op cgp__op_matmul = {
    .op.name = "matmul",
    .op.n_inputs = 2,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0 | 1u << 1,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .sizes = set_sizes,
};
