/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.c -- windows of an image times a weight: x [H, W, in] -> [OH, OW, out]; weight
 * [kernel height, kernel width, in, out], bias [out]. Beyond its edges the image is zero;
 * negative padding crops it. dx needs the weight, dweight needs x, neither needs y. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    CGP_TRY(cgp__op_infer_windows(attributes, &inputs[0], true, out));
    cgp__op_attributes *g = &out->attributes;
    if (attributes->size < 1)
        return cgp_fail(CGP_EINVAL, "expects out >= 1, got %" PRId64, attributes->size);
    const int64_t window = (int64_t)g->kernel_height * g->kernel_width;
    CGP_TRY(cgp__op_check_size("weight", g->in, window));
    CGP_TRY(cgp__op_check_size("weight", attributes->size, g->in * window));
    CGP_TRY(cgp__op_set_output(out, g->out_height, g->out_width, attributes->size));
    g->has_bias = attributes->bias;
    out->n_params = attributes->bias ? 2 : 1;
    out->params[0].suffix = "weight";
    out->params[0].decays = true;
    out->params[0].shape =
        cgp_shape_make(4, (int64_t[]){g->kernel_height, g->kernel_width, g->in, g->out});
    if (attributes->bias) {
        out->params[1].suffix = "bias";
        out->params[1].shape = cgp_shape_make(1, &g->out);
    }
    return CGP_OK;
}

/* A multiply-add counts 2, those with padding included, in each direction; one sum per element
 * of y for the bias, forward and in backward W. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double outputs = (double)attributes->rows * (double)attributes->out;
    const double bias =
        attributes->has_bias && direction != CGP__BACKWARD_INPUT ? outputs : 0.0;
    return 2.0 * cgp__op_window_elements(attributes) * (double)attributes->out + bias;
}

const cgp__op cgp__op_conv2d = {
    .name = "conv2d",
    .kind = CGP__OP_CONV2D,
    .n_inputs = 1,
    .infer = infer,
    .weight_needs_x = 1u << 0,
    .dx = CGP__DX_SEPARATE,
    .flops = flops,
};
