/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h -- exchanges between replicas, other than that of a step's gradients. */
#ifndef CGP_SRC_PIPELINE_STEP_REDUCE_H
#define CGP_SRC_PIPELINE_STEP_REDUCE_H

#include "base/base.h"

typedef struct cgp__executor cgp__executor;
typedef struct cgp__minibatch cgp__minibatch;
typedef struct cgp__worker cgp__worker;

/* Gather the statistics of batch norms over the replicas, and merge them. `minibatch` is the share
 * of this rank's replica. If there is only one replica, or no batch norm, do nothing.
 * Collective. */
cgp_status cgp__reduce_statistics(cgp__executor *executor, const cgp__minibatch *minibatch);

/* Complete the gradients after a step that has left parts of them on the replicas. Collective. */
cgp_status cgp__reduce_complete(cgp__executor *executor);

/* Send the parts of parameters that this replica has updated to the other replicas, and receive
 * their parts. The worker's part of a job; if replicas do not divide the update, do nothing. */
cgp_status cgp__reduce_parameters(cgp__worker *worker);

#endif
