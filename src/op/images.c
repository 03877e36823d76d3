/* SPDX-License-Identifier: Apache-2.0 */
/* images.c -- shape rules of ops on images [H, W, C]: sides, windows and padding.
 *
 *     top   ................      a window of kernel_height x kernel_width pixels at every
 *           .+----------+...      stride_height x stride_width pixels of the padded image:
 *           .|  image   |...
 *           .|          |...          out = (side + both paddings - kernel) / stride + 1
 *           .+----------+...
 *           ................      rounded down; the pixels left over are in no window
 *
 * With a dilation, a window covers (kernel - 1) dilation + 1 pixels along a side. */
#include "op/rules.h"

#include <inttypes.h>

#define MAX_SIDE (1 << 20)   /* largest side of an image, in pixels */
#define MAX_WINDOW (1 << 15) /* largest kernel, stride or padding, in pixels */

cgp_status cgp__op_check_image(const cgp_op_type *type) {
    char text[192];
    CGP_TRY(cgp__op_check("image", type, CGP_F32, 3, 3));
    if (type->shape.dims[0] > MAX_SIDE || type->shape.dims[1] > MAX_SIDE)
        return cgp_fail(CGP_EINVAL, "expects an image of at most 2^20 x 2^20 pixels, got %s",
                        cgp_shape_text(&type->shape, text, sizeof text));
    return CGP_OK;
}

static cgp_status check_range(const char *name, const int *values, int n, int min, int max) {
    for (int i = 0; i < n; i++) {
        if (values[i] < min || values[i] > max)
            return cgp_fail(CGP_EINVAL, "expects %s from %d to %d, got %d", name, min, max,
                            values[i]);
    }
    return CGP_OK;
}

/* Return the number of pixels that a window covers along side i. */
static int64_t extent(const cgp__windows_attributes *a, int i) {
    return (a->kernel[i] - 1) * cgp__op_or_one(a->dilation[i]) + 1;
}

/* Return the number of windows along one side; 0: no window fits. */
static int64_t windows(int64_t side, int front, int behind, int64_t kernel, int stride) {
    const int64_t range = side + front + behind - kernel;
    return range < 0 ? 0 : range / stride + 1;
}

cgp_status cgp__op_set_output(cgp_op_shapes *out, int64_t height, int64_t width, int64_t channels) {
    if (height > MAX_SIDE || width > MAX_SIDE)
        return cgp_fail(CGP_EINVAL,
                        "expects an output of at most 2^20 x 2^20 pixels, got %" PRId64
                        " x %" PRId64,
                        height, width);
    CGP_TRY(cgp__op_check_size("output", height * width, channels));
    out->output.shape = cgp_shape_make(3, (int64_t[]){height, width, channels});
    return CGP_OK;
}

cgp_status cgp__op_infer_windows(const cgp__windows_attributes *a, const cgp_op_type *image,
                                 int64_t channels, bool crops, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_check_image(image));
    CGP_TRY(check_range("a kernel", a->kernel, 2, 1, MAX_WINDOW));
    CGP_TRY(check_range("a stride", a->stride, 2, 1, MAX_WINDOW));
    CGP_TRY(check_range("a dilation", a->dilation, 2, 0, MAX_WINDOW));
    if (crops) CGP_TRY(check_range("padding", a->padding, 4, -MAX_WINDOW, MAX_WINDOW));
    for (int i = 0; !crops && i < 4; i++)
        CGP_TRY(check_range("padding (less than the kernel)", &a->padding[i], 1, 0,
                            a->kernel[i / 2] - 1));
    const int64_t *dims = image->shape.dims;
    const int64_t height =
        windows(dims[0], a->padding[0], a->padding[1], extent(a, 0), a->stride[0]);
    const int64_t width =
        windows(dims[1], a->padding[2], a->padding[3], extent(a, 1), a->stride[1]);
    if (height < 1 || width < 1)
        return cgp_fail(CGP_EINVAL,
                        "expects an image, padding included, of at least the kernel's %" PRId64
                        " x %" PRId64 " pixels, got %" PRId64 " x %" PRId64,
                        extent(a, 0), extent(a, 1), dims[0] + a->padding[0] + a->padding[1],
                        dims[1] + a->padding[2] + a->padding[3]);
    return cgp__op_set_output(out, height, width, channels);
}

/* Return the length, in pixels, of an image's side along which a convolution has `side` windows.
 * `more` is the number of these pixels that are in no window; it is less than the stride. */
static int64_t covered(int64_t side, int front, int behind, int64_t kernel, int stride, int more) {
    return (side - 1) * stride + kernel - front - behind + more;
}

cgp_status cgp__op_infer_transposed(const cgp__windows_attributes *a, const cgp_op_type *image,
                                    int64_t channels, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_check_image(image));
    CGP_TRY(check_range("a kernel", a->kernel, 2, 1, MAX_WINDOW));
    CGP_TRY(check_range("a stride", a->stride, 2, 1, MAX_WINDOW));
    CGP_TRY(check_range("a dilation", a->dilation, 2, 0, MAX_WINDOW));
    CGP_TRY(check_range("padding", a->padding, 4, -MAX_WINDOW, MAX_WINDOW));
    for (int i = 0; i < 2; i++)
        CGP_TRY(check_range("output padding (less than the stride)", &a->output_padding[i], 1, 0,
                            a->stride[i] - 1));
    const int64_t *dims = image->shape.dims;
    const int64_t height = covered(dims[0], a->padding[0], a->padding[1], extent(a, 0),
                                   a->stride[0], a->output_padding[0]);
    const int64_t width = covered(dims[1], a->padding[2], a->padding[3], extent(a, 1), a->stride[1],
                                  a->output_padding[1]);
    if (height < 1 || width < 1)
        return cgp_fail(CGP_EINVAL,
                        "expects padding that leaves a pixel, got an output of %" PRId64
                        " x %" PRId64,
                        height, width);
    return cgp__op_set_output(out, height, width, channels);
}

void cgp__op_set_windows(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__windows_attributes *a = cgp__windows_of(node->attributes);
    const int64_t *x = node->inputs[0].shape.dims, *y = node->shapes.output.shape.dims;
    cgp_op_windows *g = &sizes->windows;
    g->height = (int32_t)x[0];
    g->width = (int32_t)x[1];
    g->out_height = a->global ? 1 : (int32_t)y[0];
    g->out_width = a->global ? 1 : (int32_t)y[1];
    g->kernel_height = a->global ? g->height : a->kernel[0];
    g->kernel_width = a->global ? g->width : a->kernel[1];
    g->stride_height = a->global ? 1 : a->stride[0];
    g->stride_width = a->global ? 1 : a->stride[1];
    g->top = a->padding[0];
    g->left = a->padding[2];
    g->has_bias = a->bias;
}

cgp_status cgp__op_check_groups(const cgp__windows_attributes *a, int64_t in) {
    const int64_t groups = cgp__op_or_one(a->groups);
    if (a->size < 1) return cgp_fail(CGP_EINVAL, "expects out >= 1, got %" PRId64, a->size);
    if (groups < 1 || in % groups || a->size % groups)
        return cgp_fail(CGP_EINVAL,
                        "expects groups that divide the %" PRId64 " channels and the %" PRId64
                        " outputs, got %" PRId64,
                        in, a->size, groups);
    return CGP_OK;
}

void cgp__op_set_convolution(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__windows_attributes *a = cgp__windows_of(node->attributes);
    cgp__op_set_windows(node, sizes);
    sizes->windows.dilation_height = (int32_t)cgp__op_or_one(a->dilation[0]);
    sizes->windows.dilation_width = (int32_t)cgp__op_or_one(a->dilation[1]);
    sizes->windows.groups = cgp__op_or_one(a->groups);
}
