/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h -- adds the gradients of replicas, and exchanges updated parameters. */
#ifndef CGP_SRC_PIPELINE_STEP_REDUCE_H
#define CGP_SRC_PIPELINE_STEP_REDUCE_H

#include "base/base.h"

typedef struct cgp__executor cgp__executor;
typedef struct cgp__minibatch cgp__minibatch;
typedef struct cgp__worker cgp__worker;

/* Replace the gradients of every replica with the sum over all replicas, added in the tree of
 * gradient groups. `minibatch` is the share of this rank's replica. If not `complete`, a replica
 * gets the sums of untied gradients only for the parts of parameters that it updates. If there is
 * only one replica, do nothing. Collective. */
cgp_status cgp__reduce(cgp__executor *executor, const cgp__minibatch *minibatch, bool complete);

/* Complete the gradients after a reduction that was not complete. Collective. */
cgp_status cgp__reduce_complete(cgp__executor *executor);

/* Send the parts of parameters that this replica has updated to the other replicas, and receive
 * their parts. The worker's part of a job; if replicas do not divide the update, do nothing. */
cgp_status cgp__reduce_parameters(cgp__worker *worker);

#endif
