/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c -- causal self-attention: qkv [T, 3C] -> [T, C]. Saves the log of each query's
 * sum of exponentials, [heads, T]; backward recomputes the probabilities from it, and uses y for
 * the sum of their gradients. Source: Vaswani et al. 2017, arXiv:1706.03762. */
#include "op/rules.h"

#include <inttypes.h>
#include <string.h>

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

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    const cgp_shape *qkv = &inputs[0].shape;
    memset(out, 0, sizeof *out);
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 2, 2));
    CGP_TRY(check_heads(qkv, attributes->heads));
    CGP_TRY(cgp__op_check_probability(attributes->p));
    out->attributes.rows = qkv->dims[0];
    out->attributes.in = qkv->dims[1];
    out->attributes.out = qkv->dims[1] / 3;
    out->attributes.heads = attributes->heads;
    out->attributes.p = (float)attributes->p;
    out->output.dtype = CGP_F32;
    out->output.shape = cgp__op_shape_width(qkv, out->attributes.out);
    out->n_saved = 1;
    out->saved[0].dtype = CGP_F32;
    out->saved[0].shape = cgp_shape_make(2, (int64_t[]){attributes->heads, qkv->dims[0]});
    return CGP_OK;
}

/* The T (T + 1) / 2 pairs of the causal triangle count. Per pair, each GEMM is C multiply-adds: forward q k and p v; backward I
 * q k recomputed, dy v, dq, dk, dv. An exp and the sums around it count 12 per pair and head. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double rows = (double)attributes->rows, pairs = rows * (rows + 1.0) / 2.0;
    const double gemms[CGP__DIRECTIONS] = {2.0, 5.0, 0.0};
    const double scores =
        direction == CGP__BACKWARD_WEIGHT ? 0.0 : 12.0 * (double)attributes->heads;
    return pairs * (2.0 * gemms[direction] * (double)attributes->out + scores);
}

const cgp__op cgp__op_attention = {
    .name = "attention",
    .kind = CGP__OP_ATTENTION,
    .n_inputs = 1,
    .infer = infer,
    .input_needs_x = 1u << 0,
    .input_needs_saved = 1u << 0,
    .input_needs_y = true,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};
