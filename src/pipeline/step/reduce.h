/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h -- adds the gradients of replicas. */
#ifndef CGP_SRC_PIPELINE_STEP_REDUCE_H
#define CGP_SRC_PIPELINE_STEP_REDUCE_H

#include "base/base.h"

typedef struct cgp__executor cgp__executor;
typedef struct cgp__minibatch cgp__minibatch;

/* Replace the gradients of every replica with the sum over all replicas, added in the tree of
 * gradient groups. `minibatch` is the share of this rank's replica. If there is only one replica,
 * do nothing. Collective. */
cgp_status cgp__reduce(cgp__executor *executor, const cgp__minibatch *minibatch);

#endif
