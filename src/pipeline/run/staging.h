/* SPDX-License-Identifier: Apache-2.0 */
/* staging.h -- copies between the host and a device with its own memory. The copies run on queue
 * COMPUTE, through a ring of pieces of planned host memory. Only the worker calls these functions.
 * If the device shares the host's memory, its worker has no ring and takes no pieces. */
#ifndef CGP_SRC_PIPELINE_RUN_STAGING_H
#define CGP_SRC_PIPELINE_RUN_STAGING_H

#include "base/base.h"

typedef struct cgp__worker cgp__worker;

/* These functions create and free the worker's ring, if the plan has staging memory for the device.
 * Call the second function before the device is destroyed. */
cgp_status cgp__staging_create(cgp__worker *worker);
void cgp__staging_destroy(cgp__worker *worker);

/* put: copy from the host; the source may change when the call returns. get: copy to the host; the
 * data arrives when the action is complete, or in cgp__worker_finish(). The caller's memory may
 * also be device memory (cgp__is_device_memory()). A source in device memory may change only when
 * the action is complete. */
cgp_status cgp__staging_put(cgp__worker *worker, void *to, const void *from, size_t bytes);
cgp_status cgp__staging_get(cgp__worker *worker, void *to, const void *from, size_t bytes);

/* Return the number of pieces taken so far. */
int64_t cgp__staging_taken(const cgp__worker *worker);

/* Return the pieces with numbers below `end` to the ring. Queue COMPUTE must have finished with
 * these pieces. Data for the host is copied to its destination. */
void cgp__staging_return(cgp__worker *worker, int64_t end);

/* Return all pieces to the ring. Data for the host is discarded. */
void cgp__staging_drop(cgp__worker *worker);

#endif
