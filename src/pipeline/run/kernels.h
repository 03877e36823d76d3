/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h -- the kernels of a worker's stages, for micro-batches of each size. */
#ifndef CGP_SRC_PIPELINE_RUN_KERNELS_H
#define CGP_SRC_PIPELINE_RUN_KERNELS_H

#include <cgpipe/ext/backend.h>

typedef struct cgp__variant cgp__variant;
typedef struct cgp__worker cgp__worker;

/* Announce the kernels of the plan to the worker's device, before memory is allocated. */
cgp_status cgp__kernels_prepare(cgp__worker *worker);

/* Make and free the worker's kernels. Call destroy before the device is destroyed. */
cgp_status cgp__kernels_create(cgp__worker *worker);
void cgp__kernels_destroy(cgp__worker *worker);

/* The job that binds a run's list to kernels. Argument: cgp__run. */
cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *run);

/* Return the kernels of a bound instance's program, one for each of its calls. */
cgp_kernel *const *cgp__kernels_of(const cgp__worker *worker, const cgp__variant *variant);

/* Return two events that time a measured kernel: its start and end. NULL if the device is
 * synchronous. */
cgp_event *const *cgp__kernels_timer(const cgp__worker *worker);

#endif
