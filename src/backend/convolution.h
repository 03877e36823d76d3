/* SPDX-License-Identifier: Apache-2.0 */
/* convolution.h -- the geometry of CONV2D and CONV_TRANSPOSE2D. All backends, in C and C++, use it.
 *
 * A pointwise convolution is a LINEAR over pixels. A CONV_TRANSPOSE2D from x to y computes the
 * input gradient of a CONV2D from y to x. With a stride of s, the gradient of x is computed by s x
 * s GEMMs, one for each class (i mod s, j mod s) of pixels. All pixels of a class use the same taps
 * of the kernel. In cgp__pixel_class, neighbouring taps are `step` apart, and the outputs that they
 * read are `dilation` apart. */
#ifndef CGP_SRC_BACKEND_CONVOLUTION_H
#define CGP_SRC_BACKEND_CONVOLUTION_H

#include <cgpipe/ext/ops.h>

#include <stddef.h>
#include <string.h>

/* Return whether forward and both backward directions of the convolution are plain GEMMs over
 * pixels. */
static inline bool cgp__is_pointwise(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    return g->groups == 1 && g->kernel_height == 1 && g->kernel_width == 1 &&
           g->stride_height == 1 && g->stride_width == 1 && g->top == 0 && g->left == 0 &&
           g->out_height == g->height && g->out_width == g->width;
}

/* Return whether the convolution is depthwise: each channel is a group of its own. */
static inline bool cgp__is_depthwise(const cgp_op_windows *g) {
    return g->groups > 1 && g->in == g->groups && g->out == g->groups;
}

/* Return the spec of the LINEAR that computes a pointwise convolution. All bytes of the spec after
 * the LINEAR's fields are zero. */
static inline cgp_kernel_spec cgp__pointwise_linear(const cgp_kernel_spec *spec) {
    /* Bytes of the fields that both specs share. */
    const size_t common = offsetof(cgp_op_linear, has_bias);
    cgp_kernel_spec linear = *spec;
    linear.op = CGP_OP_LINEAR;
    memset((char *)&linear.attributes + common, 0, sizeof linear.attributes - common);
    linear.attributes.linear.has_bias = cgp_spec_windows(spec)->has_bias;
    linear.attributes.linear.transposed = spec->op == CGP_OP_CONV2D;
    return linear;
}

/* Return the spec of the CONV2D from y to x that corresponds to a CONV_TRANSPOSE2D from x to y.
 * `direction` is the direction of the CONV2D. */
static inline cgp_kernel_spec cgp__conv2d_of(const cgp_kernel_spec *spec,
                                             cgp_op_direction direction) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    cgp_kernel_spec conv = *spec;
    cgp_op_windows *to = &conv.attributes.windows;
    conv.op = CGP_OP_CONV2D;
    conv.direction = direction;
    to->rows = (int64_t)g->height * g->width;
    to->in = g->out;
    to->out = g->in;
    to->height = g->out_height;
    to->width = g->out_width;
    to->out_height = g->height;
    to->out_width = g->width;
    to->has_bias = false;
    return conv;
}

/* One axis of the GEMM that computes the pixels `first` + stride * i of dx. */
typedef struct cgp__pixel_class {
    /* First pixel and number of pixels of the class. */
    int64_t first, pixels;
    /* `tap` is the largest tap that applies to these pixels. It belongs to the first output that a
     * pixel reads. `taps` is the number of taps. */
    int64_t tap, taps;
    int64_t step, dilation;
    int64_t padding;
} cgp__pixel_class;

static inline int64_t cgp__common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* With stride s and dilation d, pixel i = c + s j is tap u of output o = (i + padding - u d) / s,
 * if o is an integer. With g = gcd(s, d), o is an integer for the taps u = u0 + t s / g. When t
 * decreases by 1, o increases by d / g. The first output is j + (c + padding - u0 d) / s - (taps -
 * 1) d / g. */
static inline cgp__pixel_class cgp__pixel_class_of(int64_t c, int64_t stride, int64_t dilation,
                                                   int64_t size, int64_t kernel, int64_t padding) {
    const int64_t divisor = cgp__common_divisor(stride, dilation), step = stride / divisor;
    const int64_t pixels = size > c ? (size - c + stride - 1) / stride : 0;
    int64_t first_tap = 0, taps = 0;
    while (first_tap < step && (c + padding - first_tap * dilation) % stride != 0)
        first_tap++;
    if (first_tap < step && kernel > first_tap) taps = (kernel - first_tap + step - 1) / step;
    const int64_t back = (taps - 1) * (dilation / divisor);
    const cgp__pixel_class found = {c,
                                    pixels,
                                    first_tap + (taps - 1) * step,
                                    taps,
                                    step,
                                    dilation / divisor,
                                    back - (c + padding - first_tap * dilation) / stride};
    return found;
}

#endif
