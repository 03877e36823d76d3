/* SPDX-License-Identifier: Apache-2.0 */
/* partition.h -- how the costs of layers are put together from those of kernels, whoever gives
 * them: a device (profile.c), or a test. */
#ifndef CGP_SRC_PARTITION_H
#define CGP_SRC_PARTITION_H

#include <cgpipe/partition.h>

#include "model/model.h"

/* What a node's kernels are in training, for so many samples. */
typedef struct cgp__node_kernels {
    int node;
    bool has[CGP__DIRECTIONS];
    cgp__kernel_spec spec[CGP__DIRECTIONS];
    uint32_t dx; /* bit k: BACKWARD_INPUT makes dx[k] */
} cgp__node_kernels;

/* Who tells the seconds of a node's kernels, of those that it has. */
typedef struct cgp__timer {
    cgp_status (*time)(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                       double seconds[CGP__DIRECTIONS]);
    void *self;
} cgp__timer;

/* Put together the costs of all layers, [layers]. Unchanged on failure. */
cgp_status cgp__layer_costs(const cgp_model *model, int64_t samples, cgp_dtype type,
                            const cgp__timer *timer, cgp_layer_cost *costs);

#endif
