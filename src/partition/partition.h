/* SPDX-License-Identifier: Apache-2.0 */
/* partition.h -- computes the costs of layers from times of kernels. profile.c measures these times
 * on a device; a test may invent them. */
#ifndef CGP_SRC_PARTITION_H
#define CGP_SRC_PARTITION_H

#include <cgpipe/partition.h>

#include "model/backward.h"

/* The kernels of a node in training. */
typedef struct cgp__node_kernels {
    int node;
    bool has[CGP_OP_DIRECTIONS];
    cgp_kernel_spec spec[CGP_OP_DIRECTIONS];
    /* bit k: BACKWARD_INPUT makes dx[k] */
    uint32_t dx;
} cgp__node_kernels;

/* A source of times, in seconds, for the kernels of a node. */
typedef struct cgp__timer {
    cgp_status (*time)(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                       double seconds[CGP_OP_DIRECTIONS]);
    void *self;
} cgp__timer;

/* Set costs[layers] to the costs of all layers. On failure, the costs do not change. */
cgp_status cgp__layer_costs(const cgp_model *model, int64_t samples, cgp__arithmetic arithmetic,
                            const cgp__timer *timer, cgp_layer_cost *costs);

/* Set bytes[layers] to the bytes of each layer's frozen parameters. The member parameter_bytes of a
 * layer's cost includes these bytes. */
void cgp__frozen_bytes(const cgp_model *model, int64_t *bytes);

/* Set costs [layers] as cgp__layer_costs() does, with FLOPs instead of seconds. */
cgp_status cgp__layer_flops_costs(const cgp_model *model, int64_t samples,
                                  cgp__arithmetic arithmetic, cgp_layer_cost *costs);

/* Settings of cgp__profile_kernels(). */
typedef struct cgp__kernel_profile {
    const char *device; /* name of the device, in the form of cgpipe/devices.h; borrowed */
    int64_t samples;    /* number of samples of a micro-batch, 1 to INT32_MAX */
    int threads;
    int repeats; /* number of runs of each kernel; if 1, caches are not flushed before the run */
    cgp__arithmetic arithmetic;
} cgp__kernel_profile;

/* profile.c: measure every layer, kernel by kernel. @retval CGP_EINVAL There is no such device.
 * @retval CGP_ELIMIT An op needs more memory than the machine has. @retval CGP_EDEVICE @retval
 * CGP_ENOMEM */
cgp_status cgp__profile_kernels(const cgp_model *model, const cgp__kernel_profile *options,
                                cgp_layer_cost *costs);

#endif
