/* SPDX-License-Identifier: Apache-2.0 */
/* windows.h -- ops over windows of images [H, W, C]: convolutions, pools, UPSAMPLE, PAD, MEAN.
 *
 *  op               x[0]          x[1]  y          saved  param
 *  CONV2D           [n,H,W,in]    -     [n,R,C]    -      weight [KH,KW,in/G,C], bias [C]
 *  CONV_TRANSPOSE2D [n,H,W,in]    -     [n,R,C]    -      weight [KH,KW,C/G,in], bias [C]
 *  MAX_POOL         [n,H,W,C]     -     [n,R,C]    -      -
 *  AVERAGE_POOL     [n,H,W,C]     -     [n,R,C]    -      -
 *  UPSAMPLE         [n,H,W,C]     -     [n,R,C]    -      -
 *  PAD              [n,H,W,C]     -     [n,R,C]    -      -
 *  MEAN             [n,H,W,C]     -     [n,R,C]    -      -
 *
 * R = out_height x out_width; KH = kernel_height, KW = kernel_width, G = groups. A bias exists if
 * has_bias.
 *
 * Element (u, v) of the window of output pixel (i, j) is input pixel (i stride_height + u - top, j
 * stride_width + v - left), if it exists. If the pixel does not exist, CONV2D takes zero, and a
 * pool ignores the element. Every window has at least one pixel. The first of several equal maxima
 * counts, and a NaN is larger than every number.
 *
 * In CONV_TRANSPOSE2D, element (u, v) of the window of input pixel (i, j) is output pixel (i
 * stride_height + u - top, j stride_width + v - left), if it exists. The op adds the element to
 * this pixel.
 *
 * A convolution with a dilation has u dilation_height instead of u, and v dilation_width instead of
 * v. With G groups, channels of x and of y form G groups of equal size, and a channel of y depends
 * on the channels of x in its own group.
 *
 * MEAN is an AVERAGE_POOL whose windows do not overlap. Output pixel (i, j) of UPSAMPLE is input
 * pixel (i / stride_height, j / stride_width); of PAD, it is input pixel (i - top, j - left), or
 * zero. */
#ifndef CGPIPE_EXT_OPS_WINDOWS_H
#define CGPIPE_EXT_OPS_WINDOWS_H

#include <cgpipe/ext/ops/common.h>

typedef struct CGP_OP_STRUCT cgp_op_windows {
    CGP_OP_COMMON
    /** Size of the input in pixels. */
    int32_t height, width;
    int32_t out_height, out_width;
    int32_t kernel_height, kernel_width;
    int32_t stride_height, stride_width;
    /** Pixels of padding above and to the left of the input; negative: pixels to crop. */
    int32_t top, left;
    int32_t has_bias;
    /** Side of Winograd's tiles in output pixels: 2, or 0 for direct sums. 2 is allowed only for a
     *  CONV2D of 3 x 3 with stride 1. A backend may refuse 2, or compute direct sums in both
     *  cases. */
    int32_t tile;
    /** Convolutions: distance in pixels between neighbouring elements of a window, >= 1. */
    int32_t dilation_height, dilation_width;
    /** Convolutions: number of groups of channels, which divides `in` and `out`. */
    int64_t groups;
} cgp_op_windows;

#endif
