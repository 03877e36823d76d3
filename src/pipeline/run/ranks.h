/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h -- a pipeline's rank among the ranks that run the plan together. If there are R replicas,
 * P ranks run the plan in each replica: rank r P + p is the plan's rank p in replica r. Agreements
 * include the ranks of all replicas. Data that are equal in all replicas are taken from replica 0,
 * where a rank and the plan's rank have the same number. */
#ifndef CGP_SRC_PIPELINE_RANKS_H
#define CGP_SRC_PIPELINE_RANKS_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/transport.h>
#include <cgpipe/plan.h>

typedef struct cgp__clocks cgp__clocks;
typedef struct cgp__place cgp__place;
typedef struct cgp__ranks cgp__ranks;

/* Written by the caller's thread. */
struct cgp__ranks {
    const cgp_transport *transport; /* transport between the ranks; NULL: there is only one rank */
    cgp_communicator *communicator;
    int rank, n;
    int replica, base;      /* this rank's replica, and the lowest rank of this replica */
    int first, end;         /* this rank has the devices first .. end - 1 */
    size_t *bytes;          /* [n] block sizes of a gather, in bytes */
    void *reports;          /* [n] reports of an agreement (agreements.c) */
    int64_t *figures;       /* [devices] scratch for exchanges */
    cgp_rank_state *states; /* [n] each rank's last heartbeat, protected by the team's lock */
    /* Valid after cgp__ranks_exchange_places(): */
    cgp__place *places; /* [n] */
    bool *neighbours;   /* [n] set if the rank is this rank or shares cores with this rank */
    bool may_pin;       /* set if all neighbours may use exactly the same cores */
    cgp_isa isa;        /* lowest instruction set among all ranks, used for all kernels; NONE: each
                         * device has only one set of kernels */
    cgp__clocks *clocks;
};

/* Check that the plan and the transport have the same number of ranks, and find the place of this
 * rank (places.h). `transport` is NULL if there is only one rank. */
cgp_status cgp__ranks_init(cgp__ranks *ranks, const cgp_plan *plan, const cgp_transport *transport,
                           cgp_communicator *communicator);
void cgp__ranks_deinit(cgp__ranks *ranks);

static inline bool cgp__ranks_own(const cgp__ranks *ranks, int device) {
    return device >= ranks->first && device < ranks->end;
}

/* Return the rank of a device in this rank's replica. */
static inline int cgp__ranks_with(const cgp__ranks *ranks, const cgp_plan *plan, int device) {
    return ranks->base + cgp_plan_device_at(plan, device)->rank;
}

/* Report this rank's progress and read the progress of other ranks. Progress is the number of
 * actions that have ended, and the time at which the last action ended. Return the latest of these
 * times over all ranks. Not collective. */
int64_t cgp__ranks_exchange_progress(const cgp__ranks *ranks, int64_t ended, int64_t end_ns);

#endif
