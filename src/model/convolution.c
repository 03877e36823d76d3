/* SPDX-License-Identifier: Apache-2.0 */
/* convolution.c -- chooses between direct and Winograd convolution. */
#include "model/backward.h"
#include "model/model.h"

static const char *const names[] = {
    [CGP_CONVOLUTION_DIRECT] = "direct", [CGP_CONVOLUTION_WINOGRAD] = "winograd"};
enum { COUNT = sizeof names / sizeof names[0] };

cgp_status cgp_convolution_parse(cgp_convolution *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int i = 0;
    CGP_TRY(cgp__parse_name(&i, text, "convolution", "direct or winograd", names, COUNT));
    *out = (cgp_convolution)i;
    return CGP_OK;
}

const char *cgp_convolution_name(cgp_convolution convolution) {
    const int i = (int)convolution;
    return i >= 0 && i < COUNT ? names[i] : "unknown convolution";
}

cgp_status cgp__convolution_check(const char *name, cgp_convolution convolution) {
    const int i = (int)convolution;
    if (i >= 0 && i < COUNT) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected direct or winograd, got number %d", name, i);
}

/* Winograd's F(2 x 2, 3 x 3) has tiles of 2 x 2 output pixels (Lavin and Gray 2016,
 * arXiv:1509.09308). */
int32_t cgp__convolution_tile(cgp_convolution convolution, const cgp__node *node) {
    const cgp_op_windows *s = &node->sizes.windows;
    const bool has_tiles = node->kind == CGP_OP_CONV2D && s->kernel_height == 3 &&
                           s->kernel_width == 3 && s->stride_height == 1 && s->stride_width == 1 &&
                           s->dilation_height == 1 && s->dilation_width == 1 && s->groups == 1;
    return convolution == CGP_CONVOLUTION_WINOGRAD && has_tiles ? 2 : 0;
}
