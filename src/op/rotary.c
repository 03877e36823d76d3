/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c -- rotary position embedding, x [T, heads D] -> [T, heads D]. It rotates pairs of
 * columns by angles that grow with the row's position. The gradient is dy rotated back. Backward
 * needs nothing from forward except the positions, if they are an input [T] i32. Source: Su et al.
 * 2021, arXiv:2104.09864. */
#include "op/rules.h"

#include "backend/rotary.h"

#include <inttypes.h>
#include <math.h>

static double theta_of(const cgp__rotary_attributes *a) {
    return a->theta != 0 ? a->theta : 10000.0;
}

static cgp_status check_width(const cgp__rotary_attributes *a, int64_t width) {
    if (a->heads < 1) return cgp_fail(CGP_EINVAL, "expects heads >= 1, got %" PRId64, a->heads);
    if (width % a->heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "expects input of a width that %" PRId64 " heads divide, got %" PRId64,
                        a->heads, width);
    const int64_t head = width / a->heads, rotated = a->rotated ? a->rotated : head;
    if (rotated < 2 || rotated % 2 != 0 || rotated > head || rotated > CGP__ROTARY_MAX)
        return cgp_fail(CGP_EINVAL,
                        "expects an even number of columns to rotate, 2 to %" PRId64
                        ", got %" PRId64,
                        head < CGP__ROTARY_MAX ? head : CGP__ROTARY_MAX, rotated);
    return CGP_OK;
}

/* Check the factors and the base. If `theta` or `factor` were below 1, frequencies would be above
 * 1. */
static cgp_status check_frequencies(const cgp__rotary_attributes *a) {
    const double theta = theta_of(a);
    if (!((float)theta >= 1.0f && isfinite((float)theta)))
        return cgp_fail(CGP_EINVAL, "expects theta >= 1 and finite as f32, got %g", theta);
    if (a->scaling < CGP_ROTARY_UNSCALED || a->scaling > CGP_ROTARY_LLAMA3)
        return cgp_fail(CGP_EINVAL, "expects a scaling of 0 to %d, got %d", (int)CGP_ROTARY_LLAMA3,
                        a->scaling);
    if (a->scaling == CGP_ROTARY_UNSCALED) return CGP_OK;
    if (!((float)a->factor >= 1.0f && isfinite((float)a->factor)))
        return cgp_fail(CGP_EINVAL, "expects a factor >= 1 and finite as f32, got %g", a->factor);
    if (a->scaling == CGP_ROTARY_LINEAR) return CGP_OK;
    if (!((float)a->low_freq_factor > 0.0f &&
          (float)a->high_freq_factor > (float)a->low_freq_factor &&
          isfinite((float)a->high_freq_factor)))
        return cgp_fail(CGP_EINVAL, "expects 0 < low_freq_factor < high_freq_factor, got %g and %g",
                        a->low_freq_factor, a->high_freq_factor);
    if (a->original_length < 1 || a->original_length > 1 << 24)
        return cgp_fail(CGP_EINVAL, "expects original_max_position of 1 to 2^24, got %" PRId64,
                        a->original_length);
    return CGP_OK;
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__rotary_attributes *a = cgp__rotary_of(attributes);
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 2, 2));
    CGP_TRY(check_width(a, cgp__op_width(&inputs[0].shape)));
    CGP_TRY(check_frequencies(a));
    if (a->offset < 0 || a->offset > CGP__MAX_ELEMENTS)
        return cgp_fail(CGP_EINVAL, "expects an offset of 0 to 2^40, got %" PRId64, a->offset);
    if (a->n_inputs == 2) {
        CGP_TRY(cgp__op_check("positions", &inputs[1], CGP_I32, 1, 1));
        if (inputs[1].shape.dims[0] != inputs[0].shape.dims[0])
            return cgp_fail(CGP_EINVAL,
                            "expects as many positions as rows, %" PRId64 ", got %" PRId64,
                            inputs[0].shape.dims[0], inputs[1].shape.dims[0]);
    }
    out->output = inputs[0];
    return CGP_OK;
}

/* Set the sizes. Fields that only other kinds of scaling use stay 0, so that equal uses have equal
 * bytes. */
static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__rotary_attributes *a = cgp__rotary_of(node->attributes);
    cgp_op_rotary *g = &sizes->rotary;
    g->heads = a->heads;
    g->rotated = a->rotated ? a->rotated : g->out / a->heads;
    g->offset = a->offset;
    g->theta = (float)theta_of(a);
    g->interleaved = a->interleaved;
    g->scaling = a->scaling;
    if (a->scaling != CGP_ROTARY_UNSCALED) g->factor = (float)a->factor;
    if (a->scaling != CGP_ROTARY_LLAMA3) return;
    g->low_freq_factor = (float)a->low_freq_factor;
    g->high_freq_factor = (float)a->high_freq_factor;
    g->original_length = a->original_length;
}

/* FLOPs per element: two products and a sum. The cosines and sines are not counted, because one
 * pair serves all heads. */
const cgp__op cgp__op_rotary = {
    .op.name = "rotary",
    .op.n_inputs = 2, /* maximum number of inputs */
    .op.infer = infer,
    .op.input_needs_x = 1u << 1,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {3, 3, 0},
    .sizes = set_sizes,
};
