/* SPDX-License-Identifier: Apache-2.0 */
/* convolution.h -- the geometry of CONV2D and CONV_TRANSPOSE2D for all backends, C and C++.
 *
 * A pointwise convolution is a LINEAR over pixels. A CONV_TRANSPOSE2D from x to y computes the
 * input gradient of a CONV2D from y to x. With a stride of s, the gradient of x is s x s GEMMs, one
 * for each class (i mod s, j mod s) of pixels. Pixels of a class use the same taps of the
 * kernel. */
#ifndef CGP_SRC_BACKEND_CONVOLUTION_H
#define CGP_SRC_BACKEND_CONVOLUTION_H

#include <cgpipe/ext/ops.h>

#include <stddef.h>
#include <string.h>

/* Return whether the convolution is a plain GEMM over pixels, in all directions. */
static inline bool cgp__is_pointwise(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    return g->kernel_height == 1 && g->kernel_width == 1 && g->stride_height == 1 &&
           g->stride_width == 1 && g->top == 0 && g->left == 0 && g->out_height == g->height &&
           g->out_width == g->width;
}

/* Return the spec of the LINEAR that computes a pointwise convolution. All bytes after its fields
 * are zero. */
static inline cgp_kernel_spec cgp__pointwise_linear(const cgp_kernel_spec *spec) {
    const size_t common = offsetof(cgp_op_linear, has_bias); /* bytes of shared fields */
    cgp_kernel_spec linear = *spec;
    linear.op = CGP_OP_LINEAR;
    memset((char *)&linear.attributes + common, 0, sizeof linear.attributes - common);
    linear.attributes.linear.has_bias = cgp_spec_windows(spec)->has_bias;
    linear.attributes.linear.transposed = spec->op == CGP_OP_CONV2D;
    return linear;
}

/* Return the spec of the CONV2D from y to x that corresponds to a CONV_TRANSPOSE2D from x to y.
 * `direction`: a direction of the CONV2D. */
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

/* One axis of the GEMM for the pixels `first` + stride x i of dx. */
typedef struct cgp__pixel_class {
    /* First pixel and number of pixels of the class. */
    int64_t first, pixels;
    /* Largest tap of these pixels, which belongs to their first output; number of taps. */
    int64_t tap, taps;
    int64_t padding;
} cgp__pixel_class;

/* Pixel i = c + s j is tap u of output (i + padding - u) / s if that is an integer, so u = u0 + s
 * t. As t falls, the outputs rise; the first is j + (c + padding - u0) / s - (taps - 1). */
static inline cgp__pixel_class cgp__pixel_class_of(int64_t c, int64_t stride, int64_t size,
                                                   int64_t kernel, int64_t padding) {
    const int64_t first_tap = ((c + padding) % stride + stride) % stride;
    const int64_t pixels = size > c ? (size - c + stride - 1) / stride : 0;
    const int64_t taps = kernel > first_tap ? (kernel - first_tap + stride - 1) / stride : 0;
    const cgp__pixel_class found = {c, pixels, first_tap + (taps - 1) * stride, taps,
                                    taps - 1 - (c + padding - first_tap) / stride};
    return found;
}

#endif
