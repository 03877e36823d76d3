/* SPDX-License-Identifier: Apache-2.0 */
/* argmax.c -- the index of each row's maximum, the first of equals: [..., C] -> [...] i32 in 0..C-1. It has no gradient. */
#include "op/rules.h"

#include <inttypes.h>
#include <string.h>

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    (void)attributes;
    const cgp_shape *x = &inputs[0].shape;
    memset(out, 0, sizeof *out);
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    if (cgp__op_width(x) > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "expects rows of at most %d, got %" PRId64, INT32_MAX,
                        cgp__op_width(x));
    out->attributes.rows = cgp__op_rows(x);
    out->attributes.in = cgp__op_width(x);
    out->attributes.out = 1;
    out->output.dtype = CGP_I32;
    out->output.upper_bound = out->attributes.in;
    out->output.shape =
        x->rank == 1 ? cgp_shape_make(1, (int64_t[]){1}) : cgp__op_shape_rows(x);
    return CGP_OK;
}

/* One comparison per element. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    return direction == CGP__FORWARD ? (double)attributes->rows * (double)attributes->in : 0.0;
}

const cgp__op cgp__op_argmax = {
    .name = "argmax",
    .kind = CGP__OP_ARGMAX,
    .n_inputs = 1,
    .infer = infer,
    .dx = CGP__DX_NONE,
    .flops = flops,
};
