/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h -- a pipeline's rank among those that run the plan together, and what they agree on.
 * Calls are collective unless noted: the user threads of all ranks make them in the same order.
 * With one rank they do nothing. */
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
    size_t *bytes;    /* [n] sizes of a gather */
    void *reports;    /* [n] statuses and texts of an agreement */
    int64_t *figures; /* [devices] scratch for exchanges */
    cgp_beat *beats;  /* [n] last heartbeats, under the team's lock */
    /* Valid after cgp__ranks_meet(): */
    cgp__place *places; /* [n] */
    bool *neighbours;   /* [n] this rank, and those that share cores with it */
    bool may_pin;       /* all neighbours may use exactly the same cores */
    cgp_isa isa;        /* for all kernels: the lowest of any rank; NONE: no device has several */
    cgp__clocks *clocks;
};

/* Check that the plan has as many ranks, and describe this rank's place. `transport`: NULL for one
 * rank. */
cgp_status cgp__ranks_init(cgp__ranks *ranks, const cgp_plan *plan, const cgp_transport *transport,
                           cgp_communicator *communicator);
void cgp__ranks_deinit(cgp__ranks *ranks);

static inline bool cgp__ranks_own(const cgp__ranks *ranks, int device) {
    return device >= ranks->first && device < ranks->end;
}

/* Return CGP_OK if no rank has failed; else this rank's own failure, or the first other rank's with
 * its message. CGP_EPEER: a rank could not be reached. */
cgp_status cgp__ranks_agree(const cgp__ranks *ranks, cgp_status status);

/* Do the same, and compare a text of at most 500 bytes. @retval CGP_EINVAL It differs: "<object>:
 * expected the same on all ranks, got <text> on rank 1, <text> on rank 0 (<way out>)". */
cgp_status cgp__ranks_agree_on(const cgp__ranks *ranks, cgp_status status, const char *object,
                               const char *text, const char *way_out);

/* Agree likewise, and set *same to whether the text is the same on all ranks. */
cgp_status cgp__ranks_have_same(const cgp__ranks *ranks, cgp_status status, const char *text,
                                bool *same);

/* Broadcast `bytes` of data from rank `root`. */
cgp_status cgp__ranks_broadcast(const cgp__ranks *ranks, int root, void *data, size_t bytes);

/* Gather per-device data on all ranks: data is [devices] of `bytes` each; each rank fills in its
 * own. */
cgp_status cgp__ranks_share_devices(const cgp__ranks *ranks, const cgp_plan *plan, void *data,
                                    size_t bytes);

/* Gather equal blocks on all ranks: all [n][bytes]; each rank fills in its own. */
cgp_status cgp__ranks_share(const cgp__ranks *ranks, void *all, size_t bytes);

/* Gather the texts of several ranks: *all has one after the other, lengths[n] their lengths. Both
 * are owned by the caller. `mine`: NULL when out of memory. */
cgp_status cgp__ranks_share_text(const cgp__ranks *ranks, const char *mine, char **all,
                                 int64_t **lengths);

/* Compare the plans' hashes, and the seeds. @retval CGP_EINVAL They differ; the message names the
 * rank. */
cgp_status cgp__ranks_compare(const cgp__ranks *ranks, const cgp_plan *plan, uint64_t seed);

/* Exchange heartbeats: send the number of actions that have ended on this rank, and when the last
 * one did. Return when the last action of any rank ended. Not collective. */
int64_t cgp__ranks_exchange_beats(const cgp__ranks *ranks, int64_t ended, int64_t end_ns);

/* Notify the other ranks that this one has failed, with cgp_message(). Not collective. */
void cgp__ranks_fail(const cgp__ranks *ranks, cgp_status status);

#endif
