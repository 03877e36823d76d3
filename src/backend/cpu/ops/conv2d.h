/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.h -- convolutions by windows, as CONV2D and CONV_TRANSPOSE2D use them. */
#ifndef CGP_SRC_CPU_CONV2D_H
#define CGP_SRC_CPU_CONV2D_H

#include "backend/cpu/cpu.h"

/* `to` = or += a convolution of x + bias. The spec is that of a CONV2D, of an image [H, W, in] to
 * [OH, OW, out]. */
typedef struct cgp__cpu_convolution {
    const cgp_kernel_spec *spec;
    const void *x;
    const float *weight;
    /* Of each pixel of `to`; NULL: none, as always where `add` is set. */
    const float *bias;
    void *to;
    bool add;
} cgp__cpu_convolution;

/* x [H, W, in] to [OH, OW, out], with CONV2D's workspace of forward. */
void cgp__cpu_convolve(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace);

/* x [OH, OW, out] to [H, W, in], with CONV2D's workspace of BACKWARD_INPUT. */
void cgp__cpu_convolve_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                  void *workspace);

/* dw = or += that of x [H, W, in] and dy [OH, OW, out], with CONV2D's workspace of BACKWARD_WEIGHT.
 * */
void cgp__cpu_convolve_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                              const void *dy, float *dw, bool add, void *workspace);

/* A plain GEMM over pixels, either way. */
static inline bool cgp__cpu_is_pointwise(const cgp_op_attributes *g) {
    return g->kernel_height == 1 && g->kernel_width == 1 && g->stride_height == 1 &&
           g->stride_width == 1 && g->top == 0 && g->left == 0 && g->out_height == g->height &&
           g->out_width == g->width;
}

#endif
