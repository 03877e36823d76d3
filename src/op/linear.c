/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c -- y = x weight^T + bias: x [..., in] -> [..., out]; weight [out, in], or [in, out]
 * if `transposed`; bias [out]. dx needs the weight, dweight needs x, neither needs y. */
#include "op/rules.h"

#include <inttypes.h>
#include <string.h>

static void set_params(const cgp__op_attributes *attributes, cgp__inferred *out) {
    const int64_t plain[] = {attributes->out, attributes->in};
    const int64_t transposed[] = {attributes->in, attributes->out};
    out->n_params = attributes->has_bias ? 2 : 1;
    out->params[0].suffix = "weight";
    out->params[0].decays = true;
    out->params[0].shape = cgp_shape_make(2, attributes->transposed ? transposed : plain);
    if (attributes->has_bias) {
        out->params[1].suffix = "bias";
        out->params[1].shape = cgp_shape_make(1, &attributes->out);
    }
}

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    const cgp_shape *x = &inputs[0].shape;
    memset(out, 0, sizeof *out);
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    if (attributes->size < 1)
        return cgp_fail(CGP_EINVAL, "expects out >= 1, got %" PRId64, attributes->size);
    CGP_TRY(cgp__op_check_size("weight", attributes->size, cgp__op_width(x)));
    CGP_TRY(cgp__op_check_size("output", cgp__op_rows(x), attributes->size));
    out->attributes.rows = cgp__op_rows(x);
    out->attributes.in = cgp__op_width(x);
    out->attributes.out = attributes->size;
    out->attributes.has_bias = attributes->bias;
    out->attributes.transposed = attributes->transposed;
    out->output.dtype = CGP_F32;
    out->output.shape = cgp__op_shape_width(x, attributes->size);
    set_params(&out->attributes, out);
    return CGP_OK;
}

/* A multiply-add counts 2: 2 rows in out for the GEMM of each direction, and one sum per
 * element of y for the bias, forward and in backward W. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double outputs = (double)attributes->rows * (double)attributes->out;
    const double bias =
        attributes->has_bias && direction != CGP__BACKWARD_INPUT ? outputs : 0.0;
    return 2.0 * outputs * (double)attributes->in + bias;
}

const cgp__op cgp__op_linear = {
    .name = "linear",
    .kind = CGP__OP_LINEAR,
    .n_inputs = 1,
    .infer = infer,
    .weight_needs_x = 1u << 0,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};
