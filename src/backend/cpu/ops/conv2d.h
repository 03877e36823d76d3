/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.h -- convolutions by windows, for CONV2D and CONV_TRANSPOSE2D. */
#ifndef CGP_SRC_CPU_CONV2D_H
#define CGP_SRC_CPU_CONV2D_H

#include "backend/convolution.h"
#include "backend/cpu/cpu.h"

/* The arguments of a convolution. `to` is set to the convolution of x plus bias, or the convolution
 * is added to `to`. `spec` is a CONV2D from an image [H, W, in] to [OH, OW, out]. */
typedef struct cgp__cpu_convolution {
    const cgp_kernel_spec *spec;
    const void *x;
    const float *weight;
    /* Bias, added to each pixel of `to`; NULL: no bias. Always NULL if `add` is set. */
    const float *bias;
    void *to;
    bool add;
} cgp__cpu_convolution;

/* Convolve x [H, W, in] to [OH, OW, out]. This needs the workspace of CONV2D for FORWARD. */
void cgp__cpu_convolve(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace);

/* Convolve x [OH, OW, out] to [H, W, in]. This needs the workspace of CONV2D for BACKWARD_INPUT. */
void cgp__cpu_convolve_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                  void *workspace);

/* Set dw to the weight's gradient from x [H, W, in] and dy [OH, OW, out], or add the gradient. This
 * needs the workspace of CONV2D for BACKWARD_WEIGHT. */
void cgp__cpu_convolve_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                              const void *dy, float *dw, bool add, void *workspace);

/* Return the bytes of workspace of one of the three functions; the direction of the spec selects
 * the function. */
int64_t cgp__cpu_convolve_bytes(const cgp_kernel_spec *spec, int threads);

/* Run a pointwise CONV2D or CONV_TRANSPOSE2D as a LINEAR. cgp__cpu_pointwise_workspace() returns
 * the size in bytes of the workspace that this LINEAR needs. */
cgp_status cgp__cpu_run_pointwise(const cgp_kernel *kernel, const cgp_kernel_args *args);
int64_t cgp__cpu_pointwise_workspace(const cgp_kernel_spec *spec, int threads);

#endif
