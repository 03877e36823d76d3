/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c -- causal self-attention: qkv [T, 3C] -> [T, C]. Saves the log of each query's
 * sum of exponentials, [heads, T]; backward recomputes the probabilities from it, and uses y for
 * the sum of their gradients. Source: Vaswani et al. 2017, arXiv:1706.03762. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status check_heads(const cgp_shape *qkv, int64_t heads) {
    const int64_t width = cgp__op_width(qkv);
    if (width % 3 != 0)
        return cgp_fail(CGP_EINVAL,
                        "expects input of width 3 C (q, k, v side by side), got %" PRId64,
                        width);
    if (heads < 1) return cgp_fail(CGP_EINVAL, "expects heads >= 1, got %" PRId64, heads);
    if (width / 3 % heads != 0)
        return cgp_fail(CGP_EINVAL, "expects heads that divide C = %" PRId64 ", got %" PRId64,
                        width / 3, heads);
    /* dropout counts (head, query) in 32 bits and keys / 4 in 32 bits */
    if (qkv->dims[0] > UINT32_MAX / heads)
        return cgp_fail(CGP_EINVAL, "expects heads x T < 2^32, got %" PRId64 " x %" PRId64,
                        heads, qkv->dims[0]);
    return CGP_OK;
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__attributes *a = attributes;
    const cgp_shape *qkv = &inputs[0].shape;
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 2, 2));
    CGP_TRY(check_heads(qkv, a->heads));
    CGP_TRY(cgp__op_check_probability(a->p));
    out->output.shape = cgp__op_shape_width(qkv, cgp__op_width(qkv) / 3);
    cgp__op_add_saved(out, cgp_shape_make(2, (int64_t[]){a->heads, qkv->dims[0]}), false);
    return CGP_OK;
}

/* The T (T + 1) / 2 pairs of the causal triangle count. Per pair, each GEMM is C multiply-adds: forward q k and p v; backward I
 * q k recomputed, dy v, dq, dk, dv. An exp and the sums around it count 12 per pair and head. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__attributes *a = node->attributes;
    const cgp_shape *y = &node->shapes.output.shape;
    const double rows = (double)y->dims[0], pairs = rows * (rows + 1.0) / 2.0;
    const double gemms[CGP_OP_DIRECTIONS] = {2.0, 5.0, 0.0};
    const double scores = direction == CGP_OP_BACKWARD_WEIGHT ? 0.0 : 12.0 * (double)a->heads;
    return pairs * (2.0 * gemms[direction] * (double)y->dims[1] + scores);
}

const cgp__op cgp__op_attention = {
    .op.name = "attention",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0,
    .op.input_needs_saved = 1u << 0,
    .op.input_needs_y = true,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
};
