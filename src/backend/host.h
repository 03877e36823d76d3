/* SPDX-License-Identifier: Apache-2.0 */
/* host.h -- code that backends share if their devices use host memory. It consists of the kernels
 * of custom ops, which call the functions in the op's table, and of some entries of a backend's
 * tables. */
#ifndef CGP_SRC_BACKEND_HOST_H
#define CGP_SRC_BACKEND_HOST_H

#include "backend/kernel.h"

/* A device in host memory. */
typedef struct cgp__host {
    cgp_device *device;
    int threads;
    void (*parallel_for)(cgp_device *device, int64_t items, int64_t block, cgp__range *range,
                         const void *work);
    /* The functions `convert` and `add` of cgp_backend_kernels. */
    cgp_status (*convert)(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                          const void *from, int64_t n);
    cgp_status (*add)(cgp_device *device, float *to, const float *from, int64_t n);
} cgp__host;

int64_t cgp__custom_workspace(const cgp_kernel_spec *spec, int threads);
cgp_status cgp__custom_run(const cgp__host *host, const cgp_kernel_spec *spec,
                           const cgp_kernel_args *args);
/* Entries for a backend's tables; cgpipe/ext/backend.h describes them. */
cgp_status cgp__host_count(int *count);
cgp_status cgp__host_memory(int ordinal, int64_t *bytes);
cgp_status cgp__host_copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                          size_t bytes);
void cgp__host_kernel_destroy(cgp_kernel *kernel);
cgp_status cgp__host_merge(cgp_device *device, const cgp_kernel_spec *spec,
                           const cgp_kernel_args *args, int n);
cgp_status cgp__host_commit(cgp_device *device, const cgp_kernel_spec *spec,
                            const cgp_kernel_args *args);
cgp_status cgp__host_check_commit(cgp_device *device, const cgp_kernel_spec *spec,
                                  const cgp_kernel_args *args, int64_t *index);

/* The library's data for a call, used by cgp_op_random() and cgp_op_parallel_for(). */
struct cgp__op_context {
    const cgp__host *host;
    cgp__rng_key key;
    /* Index of the run's first sample in the mini-batch. */
    int64_t sample;
};

/* Return the op's function for a direction. */
static inline cgp_status (*cgp__op_run_of(const cgp_op *op,
                                          cgp_op_direction direction))(const cgp_op_run *) {
    if (direction == CGP_OP_FORWARD) return op->forward;
    return direction == CGP_OP_BACKWARD_INPUT ? op->backward_input : op->backward_weight;
}

/* Return whether the direction writes dparameters. */
static inline bool cgp__op_makes_parameters(const cgp_op *op, cgp_op_direction direction) {
    return direction == CGP_OP_BACKWARD_WEIGHT ||
           (direction == CGP_OP_BACKWARD_INPUT && op->weight_in_input);
}

#endif
