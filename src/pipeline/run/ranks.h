/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h -- a pipeline's rank among those that run the plan together, and what they agree on.
 * Calls are collective unless they say otherwise: the user threads of all ranks make them in the
 * same order. With one rank they do nothing. */
#ifndef CGP_SRC_PIPELINE_RANKS_H
#define CGP_SRC_PIPELINE_RANKS_H

#include "base/trace.h"
#include "pipeline/run/clocks.h"
#include "pipeline/run/places.h"
#include "plan/plan.h"
#include "transport/transport.h"

typedef struct cgp__executor cgp__executor;

struct cgp__ranks {
    const cgp_transport *transport; /* NULL: one rank */
    cgp_communicator *communicator;
    int rank, n;
    int first, end;   /* the devices of this rank */
    size_t *bytes;    /* [n] of a gather */
    void *reports;    /* [n] of an agreement */
    int64_t *figures; /* [devices] on their way to all ranks */
    cgp_beat *beats;  /* [n] under the team's lock */
    /* From cgp__ranks_meet() on: */
    cgp__place *places; /* [n] */
    bool *neighbours;   /* [n] this rank, and those that share cores with it */
    bool may_pin;       /* the neighbours may use the same cores */
    cgp_isa isa; /* of all kernels, the lowest that a rank has; NONE: no device has several */
    cgp__clocks *clocks;
};

/* Check that the plan is of as many ranks, and find this one's place. `transport`: NULL for one. */
cgp_status cgp__ranks_init(cgp__ranks *ranks, const cgp_plan *plan, const cgp_transport *transport,
                           cgp_communicator *communicator);
void cgp__ranks_deinit(cgp__ranks *ranks);

static inline bool cgp__ranks_own(const cgp__ranks *ranks, int device) {
    return device >= ranks->first && device < ranks->end;
}

/* Return `status` if no rank has failed: this rank's own failure, or that of the first other one,
 * with its message. CGP_EPEER: a rank could not be asked. */
cgp_status cgp__ranks_agree(const cgp__ranks *ranks, cgp_status status);

/* Do the same, and compare a text of at most 500 bytes. @retval CGP_EINVAL It differs: "<object>:
 * expected the same on all ranks, got <text> on rank 1, <text> on rank 0 (<way out>)". */
cgp_status cgp__ranks_agree_on(const cgp__ranks *ranks, cgp_status status, const char *object,
                               const char *text, const char *way_out);

/* Agree likewise, and find out whether such a text is the same on all ranks. */
cgp_status cgp__ranks_have_same(const cgp__ranks *ranks, cgp_status status, const char *text,
                                bool *same);

/* Bring `bytes` of data from one rank to all. */
cgp_status cgp__ranks_broadcast(const cgp__ranks *ranks, int root, void *data, size_t bytes);

/* Bring what ranks have of their devices to all: data is [devices] of `bytes` each. */
cgp_status cgp__ranks_share_devices(const cgp__ranks *ranks, const cgp_plan *plan, void *data,
                                    size_t bytes);

/* Bring equal blocks together: all [n][bytes], of which this rank's is filled in. */
cgp_status cgp__ranks_share(const cgp__ranks *ranks, void *all, size_t bytes);

/* Bring the texts of several ranks together: *all has one behind the other, lengths[n] their
 * lengths; both are owned by the caller. `mine`: NULL when out of memory. */
cgp_status cgp__ranks_share_text(const cgp__ranks *ranks, const char *mine, char **all,
                                 int64_t **lengths);

/* Compare the plans' hashes, and the seeds. @retval CGP_EINVAL They differ; the message names the
 * rank. */
cgp_status cgp__ranks_compare(const cgp__ranks *ranks, const cgp_plan *plan, uint64_t seed);

/* Let the others' beats come: send the number of actions that have ended here, and when the last
 * one did; return when the last one of any rank did. Not collective. */
int64_t cgp__ranks_exchange_beats(const cgp__ranks *ranks, int64_t ended, int64_t end_ns);

/* Let the others know that this rank has failed, with cgp_message(). Not collective. */
void cgp__ranks_fail(const cgp__ranks *ranks, cgp_status status);

#endif
