/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.h -- aligns the clocks of ranks on several hosts by Cristian's algorithm. The monotonic
 * clock of each host has its own origin and drifts by some parts per million. Two readings map the
 * times of all ranks to the clock of rank 0:
 *
 *     rank 0   sent ─────────────────── received     offset of r = t - (sent + received) / 2
 *                   ╲                 ╱              error at most (received - sent) / 2
 *     rank r         ╲────── t ──────╱
 *
 *     offset                      .last
 *                        .  '            linear between the readings, constant outside
 *              first.  '
 *
 * Each reading uses the shortest of 16 round trips. Source: Cristian 1989, "Probabilistic clock
 * synchronization". */
#ifndef CGP_SRC_PIPELINE_CLOCKS_H
#define CGP_SRC_PIPELINE_CLOCKS_H

#include "base/base.h"

typedef struct cgp__ranks cgp__ranks;

typedef struct cgp__reading {
    int64_t at_ns;          /* middle of the round trip, on rank 0's clock */
    int64_t uncertainty_ns; /* error bound of the offsets: half of the round trip */
    int64_t offset_ns[];    /* [ranks] time on the rank's clock minus time on rank 0's clock */
} cgp__reading;

typedef struct cgp__clocks {
    bool differ;                /* if false, all ranks share a clock, and there are no readings */
    cgp__reading *first, *last; /* first->at_ns <= last->at_ns */
    int64_t *times;             /* [ranks] scratch: the clock of each rank in one round trip */
} cgp__clocks;

/* Create the clocks. Even after a failure, *out may be set, so pass it to cgp__clocks_destroy(),
 * which accepts NULL. */
cgp_status cgp__clocks_create(cgp__clocks **out, int ranks);
void cgp__clocks_destroy(cgp__clocks *clocks);

/* Read the clocks of all ranks. The previous last reading becomes the first reading, and the new
 * reading becomes the last. Collective. */
cgp_status cgp__clocks_read(const cgp__ranks *ranks);

/* Read the clocks if, on rank 0's clock, the last reading is over 10 s old. Collective. */
cgp_status cgp__clocks_refresh(const cgp__ranks *ranks);

/* Store a round trip in the reading if it is the shortest round trip so far. Set uncertainty_ns to
 * INT64_MAX before the first round trip. */
void cgp__reading_take(cgp__reading *reading, int ranks, int64_t sent_ns, int64_t received_ns,
                       const int64_t *times);

/* Map a time of a rank's clock to rank 0's clock. The time 0 means no time and stays 0. */
int64_t cgp__clocks_map(const cgp__clocks *clocks, int rank, int64_t ns);

/* Return the maximum error, in ns, of a mapped time that lies between the two readings. */
static inline int64_t cgp__clocks_uncertainty(const cgp__clocks *clocks) {
    return clocks->differ ? cgp__max(clocks->first->uncertainty_ns, clocks->last->uncertainty_ns)
                          : 0;
}

#endif
