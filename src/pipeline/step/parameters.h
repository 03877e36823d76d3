/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h -- initializes the tensors of parameters, and copies them to and from the host. */
#ifndef CGP_SRC_PIPELINE_STEP_PARAMETERS_H
#define CGP_SRC_PIPELINE_STEP_PARAMETERS_H

#include <cgpipe/parameters.h>

#include "base/base.h"

typedef struct cgp__copy cgp__copy;
typedef struct cgp__shard_part cgp__shard_part;
typedef struct cgp__worker cgp__worker;

/* Numbers that select one of a parameter's tensors: its values or its gradient. Numbers >= 0 select
 * its optimizer states. */
enum { CGP__VALUES = -1, CGP__GRADIENT = -2 };

/* Return the address of the values or the gradient of a parameter's copy. The copy must be on the
 * worker's device. */
float *cgp__copy_data(const cgp__worker *worker, const cgp__copy *copy, int tensor);

/* Return the address of an optimizer state of a part of a copy (plan/memory/shards.h). */
float *cgp__optimizer_data(const cgp__worker *worker, const cgp__shard_part *part, int state);

/* These functions copy a parameter's tensor to the host. Call cgp__parameter_read() only on the
 * owner's rank; it copies only this replica's parts of an optimizer state. cgp__parameter_bring()
 * copies the whole tensor to all ranks, and is collective. */
cgp_status cgp__parameter_read(const cgp_pipeline *pipeline, int parameter, int tensor, float *out);
cgp_status cgp__parameter_bring(const cgp_pipeline *pipeline, int parameter, int tensor,
                                float *out);

/* cgp__parameter_is_here() returns true if a device of this rank has a copy of the parameter.
 * cgp__parameter_write() copies a tensor from the host into all copies on devices of this rank, or
 * only this replica's parts of an optimizer state. */
bool cgp__parameter_is_here(const cgp_pipeline *pipeline, int parameter);
cgp_status cgp__parameter_write(const cgp_pipeline *pipeline, int parameter, int tensor,
                                const float *in);

/* Return CGP_EINVAL if a parameter is frozen. `what` is the name of the missing tensor in the
 * message. */
cgp_status cgp__parameter_check_trained(const cgp_pipeline *pipeline, int parameter,
                                        const char *what);

/* Record that the caller has changed the parameters on this rank's devices. */
void cgp__parameters_changed(const cgp_pipeline *pipeline);

/* The job that sets a device's parameters and states to their initial values. The argument points
 * to the seed, a uint64_t. */
cgp_status cgp__job_initialize(cgp__worker *worker, void *seed);

#endif
