/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h -- code that kernels in host memory share: ranges of a parallel_for, the key and
 * threshold of dropout, losses, and checks of specs. */
#ifndef CGP_SRC_BACKEND_KERNEL_H
#define CGP_SRC_BACKEND_KERNEL_H

#include <cgpipe/ext/backend.h>

#include "base/base.h"

/* A function that runs items begin .. end - 1 of a parallel_for. `begin` is a multiple of the block
 * size. `thread` is the number of the thread, 0 for the owner. */
typedef void cgp__range(const void *work, int64_t begin, int64_t end, int thread);

/* Return the dropout threshold: an element is set to zero if its random word is below the
 * threshold. */
static inline uint32_t cgp__dropout_threshold(float p) {
    return (uint32_t)((double)p * 4294967296.0);
}

/* Return the key of an op's dropout in the current step. */
static inline cgp__rng_key cgp__dropout_key(const cgp_kernel_args *args) {
    return cgp__rng_derive(args->values->seed, CGP__RNG_DROPOUT, args->values->step, args->id);
}

/* cgp__loss_scale() returns the loss scale of a loss kernel. cgp__set_loss() writes the kernel's
 * loss slot. */
static inline float cgp__loss_scale(const cgp_kernel_args *args) {
    return cgp_step_loss_scale(args->values, args->loss);
}
static inline void cgp__set_loss(const cgp_kernel_args *args, double loss) {
    if (args->losses) args->losses[args->values->loss_word + args->loss] = loss;
}

/* Check that a spec has one of CGP_OPS, a direction, and 1 or more samples and rows. @retval
 * CGP_EINVAL "BACKEND: expects ..." */
cgp_status cgp__kernel_check(const char *backend, const cgp_kernel_spec *spec);
/* Return CGP_EINVAL. The message says that the op has no kernel for the direction of the spec.
 * cgp__kernel_check() has already accepted the spec. */
cgp_status cgp__kernel_missing(const char *backend, const cgp_kernel_spec *spec);

#endif
