/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h -- processes windows over images row by row, for pools and UPSAMPLE.
 *
 *     large side   height x width           the pixels
 *     small side   out_height x out_width   one pixel for each window */
#ifndef CGP_SRC_CPU_POOL_H
#define CGP_SRC_CPU_POOL_H

#include "backend/cpu/cpu.h"

typedef struct cgp__cpu_pooling {
    const cgp_kernel *kernel;
    const cgp_kernel_args *args;
    cgp_op_windows attributes;
    const void *from;
    void *to;
    bool mean, add;
    /* True: the result is on the large side. */
    bool to_large;
    /* The kernel that computes one row of `to`. */
    void (*row)(const cgp__cpu_pool *pool, void *to, int64_t row);
} cgp__cpu_pooling;

/* Return the pooling from x to y, or from dy to dx, with the kernel's attributes. These functions
 * set `mean`; the caller sets `row`. */
cgp__cpu_pooling cgp__cpu_pooling_forward(const cgp_kernel *kernel, const cgp_kernel_args *args);
cgp__cpu_pooling cgp__cpu_pooling_backward(const cgp_kernel *kernel, const cgp_kernel_args *args);

int64_t cgp__cpu_pooling_workspace(const cgp_kernel_spec *spec, int threads);
cgp_status cgp__cpu_pooling_run(const cgp__cpu_pooling *windows);

#endif
