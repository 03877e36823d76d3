/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h -- the kernels of a worker's stages, for micro-batches of each size. */
#ifndef CGP_SRC_PIPELINE_RUN_KERNELS_H
#define CGP_SRC_PIPELINE_RUN_KERNELS_H

#include <cgpipe/ext/backend.h>

typedef struct cgp__variant cgp__variant;
typedef struct cgp__worker cgp__worker;

/* Tell the worker's device which kernels the plan needs. Call it before memory is allocated. */
cgp_status cgp__kernels_prepare(cgp__worker *worker);

/* These functions create and free the worker's kernels. Call the second function before the device
 * is destroyed. */
cgp_status cgp__kernels_create(cgp__worker *worker);
void cgp__kernels_destroy(cgp__worker *worker);

/* The job that binds a run's action list to kernels. Its argument is a cgp__run. */
cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *run);

/* Return the kernels of a bound instance's program, one for each call of the program. */
cgp_kernel *const *cgp__kernels_of(const cgp__worker *worker, const cgp__variant *variant);

/* Return the two events at the start and the end of a measured kernel, or NULL if the device is
 * synchronous. */
cgp_event *const *cgp__kernels_timer(const cgp__worker *worker);

#endif
