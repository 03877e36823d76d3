/* SPDX-License-Identifier: Apache-2.0 */
/* setup.h -- the setup of a plan: its model and options, and the values that depend only on
 * them. */
#ifndef CGP_SRC_PLAN_SETUP_H
#define CGP_SRC_PLAN_SETUP_H

#include "plan/groups.h"

#include <cgpipe/plan.h>

typedef struct cgp__setup {
    const cgp_model *model;
    cgp_optim optim; /* the optimizer without its groups, which are in `groups` */
    cgp__groups groups;
    bool inference, external_loss, deferred_batch_norm;
    /* the recomputation mode; if the options ask for `budget`, the mode that the budget search has
     * chosen */
    cgp_recompute recompute;
    /* [nodes] true if backward recomputes the node's value; NULL: the field `recompute` decides.
     * Owned by this struct. */
    bool *recomputed;
    cgp_precision precision;
    cgp_convolution convolution;
    /* True if the schedule has R, because `recompute` needs R or the caller's table has R. Written
     * by plan.c, then by actions.c. */
    bool recomputes;
    /* True if the schedule has I and W. Programs then run all input backward before all weight
     * backward. Written by actions.c. */
    bool splits;
    /* numbers of samples in a mini-batch and in a micro-batch */
    int64_t batch, microbatch;
    /* numbers of micro-batches in a full mini-batch: in all replicas together, and in the replica
     * that has the most */
    int whole_chunks, chunks;
    /* number of ranks of each replica; number of replicas */
    int ranks, replicas;
    /* true if each replica has optimizer state only for its parts of the parameters */
    bool shards;
    /* maximum bytes of a piece of a message, and of a piece of gradients that replicas add */
    int64_t piece_bytes, reduce_bytes;
    /* number of gradient groups of all replicas together; 1 if `inference` */
    int gradient_groups;
} cgp__setup;

/* Return the number of buffers of partial sums of gradients. */
int cgp__setup_partials(const cgp__setup *setup);

/* Return the setup of a plan. */
const cgp__setup *cgp__plan_setup(const cgp_plan *plan);

#endif
