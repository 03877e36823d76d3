/* SPDX-License-Identifier: Apache-2.0 */
/* scale.c -- y = slope x, elementwise; dx = slope dy. Backward needs nothing from forward. */
#include "op/rules.h"

#include <math.h>

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__attributes *a = attributes;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    if (!isfinite((float)a->slope))
        return cgp_fail(CGP_EINVAL, "expects a factor that is finite as f32, got %g", a->slope);
    return CGP_OK;
}

const cgp__op cgp__op_scale = {
    .op.name = "scale",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {1, 1, 0},
};
