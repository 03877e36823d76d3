/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h -- the tensors of parameters: initial values, and copies to and from the host. */
#ifndef CGP_SRC_PIPELINE_STEP_PARAMETERS_H
#define CGP_SRC_PIPELINE_STEP_PARAMETERS_H

#include <cgpipe/parameters.h>

#include "base/base.h"

typedef struct cgp__copy cgp__copy;
typedef struct cgp__worker cgp__worker;

/* Numbers that select one of a parameter's tensors: its values or its gradient. Numbers >= 0 select
 * its optimizer states. */
enum { CGP__VALUES = -1, CGP__GRADIENT = -2 };

/* Return the address, on the worker's device, of a tensor of the device's copy of a parameter. */
float *cgp__copy_data(const cgp__worker *worker, const cgp__copy *copy, int tensor);

/* These functions copy a parameter's tensor to the host: cgp__parameter_read() only on the owner's
 * rank, cgp__parameter_bring() on all ranks. The latter is collective. */
cgp_status cgp__parameter_read(const cgp_pipeline *pipeline, int parameter, int tensor, float *out);
cgp_status cgp__parameter_bring(const cgp_pipeline *pipeline, int parameter, int tensor,
                                float *out);

/* cgp__parameter_is_here() returns true if a device of this rank has a copy of the parameter.
 * cgp__parameter_write() copies a tensor from the host into all copies on devices of this rank. */
bool cgp__parameter_is_here(const cgp_pipeline *pipeline, int parameter);
cgp_status cgp__parameter_write(const cgp_pipeline *pipeline, int parameter, int tensor,
                                const float *in);

/* Return CGP_EINVAL if a parameter is frozen. `what`: the name, for the message, of the tensor that
 * a frozen parameter lacks. */
cgp_status cgp__parameter_check_trained(const cgp_pipeline *pipeline, int parameter,
                                        const char *what);

/* Record that the caller has changed the parameters on this rank's devices. */
void cgp__parameters_changed(const cgp_pipeline *pipeline);

/* The job that sets a device's parameters and states to their initial values. Its argument points
 * to the uint64_t seed. */
cgp_status cgp__job_initialize(cgp__worker *worker, void *seed);

#endif
