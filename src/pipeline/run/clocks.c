/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.c -- implements clocks.h. One round trip covers all ranks, so the slowest rank determines
 * its duration. */
#include "pipeline/run/clocks.h"

#include "pipeline/run/gathers.h"
#include "pipeline/run/places.h"
#include "pipeline/run/ranks.h"

#include <stdlib.h>
#include <string.h>

#define ROUND_TRIPS 16
#define FRESH_NS (10 * INT64_C(1000000000))

static size_t reading_bytes(int ranks) {
    return sizeof(cgp__reading) + (size_t)ranks * sizeof(int64_t);
}

cgp_status cgp__clocks_create(cgp__clocks **out, int ranks) {
    CGP_TRY(CGP__NEW(*out, 1, "pipeline"));
    cgp__clocks *clocks = *out;
    clocks->first = cgp__calloc(1, reading_bytes(ranks));
    clocks->last = cgp__calloc(1, reading_bytes(ranks));
    if (!clocks->first || !clocks->last) return cgp__no_memory("pipeline", reading_bytes(ranks));
    return CGP__NEW(clocks->times, ranks, "pipeline");
}

void cgp__clocks_destroy(cgp__clocks *clocks) {
    if (!clocks) return;
    free(clocks->first);
    free(clocks->last);
    free(clocks->times);
    free(clocks);
}

void cgp__reading_take(cgp__reading *reading, int ranks, int64_t sent_ns, int64_t received_ns,
                       const int64_t *times) {
    const int64_t half = cgp__ceil_div(received_ns - sent_ns, 2);
    if (half >= reading->uncertainty_ns) return;
    reading->uncertainty_ns = half;
    reading->at_ns = sent_ns + half;
    for (int r = 0; r < ranks; r++)
        reading->offset_ns[r] = times[r] - reading->at_ns;
}

/* Make a round trip: rank 0 broadcasts, and each other rank then reads its clock and sends the
 * time. When rank 0 has received all times, every rank has read its clock. */
static cgp_status round_trip(const cgp__ranks *ranks, cgp__reading *reading) {
    int64_t *times = ranks->clocks->times, start = 0;
    const int64_t sent = cgp__now_ns();
    CGP_TRY(cgp__ranks_broadcast(ranks, 0, &start, sizeof start));
    times[ranks->rank] = cgp__now_ns();
    CGP_TRY(cgp__ranks_share(ranks, times, sizeof *times));
    cgp__reading_take(reading, ranks->n, sent, cgp__now_ns(), times);
    return CGP_OK;
}

/* All ranks use the reading of rank 0, which is broadcast. A rank that shares the clock of rank 0
 * has offset 0. */
cgp_status cgp__clocks_read(const cgp__ranks *ranks) {
    cgp__clocks *clocks = ranks->clocks;
    cgp__reading *reading = clocks->first;
    if (!clocks->differ) return CGP_OK;
    const bool none = clocks->last->at_ns == 0;
    reading->uncertainty_ns = INT64_MAX;
    for (int i = 0; i < ROUND_TRIPS; i++)
        CGP_TRY(round_trip(ranks, reading));
    for (int r = 0; r < ranks->n; r++)
        if (cgp__same_clock(&ranks->places[r], &ranks->places[0])) reading->offset_ns[r] = 0;
    CGP_TRY(cgp__ranks_broadcast(ranks, 0, reading, reading_bytes(ranks->n)));
    clocks->first = clocks->last;
    clocks->last = reading;
    if (none) memcpy(clocks->first, reading, reading_bytes(ranks->n));
    cgp_log(none ? CGP_LOG_INFO : CGP_LOG_DEBUG, "pipeline",
            "clocks of %d ranks: aligned to %.1f us", ranks->n,
            1e-3 * (double)reading->uncertainty_ns);
    return CGP_OK;
}

cgp_status cgp__clocks_refresh(const cgp__ranks *ranks) {
    int64_t due = 0;
    if (!ranks->clocks->differ) return CGP_OK;
    if (ranks->rank == 0) due = cgp__now_ns() - ranks->clocks->last->at_ns > FRESH_NS;
    CGP_TRY(cgp__ranks_broadcast(ranks, 0, &due, sizeof due));
    return due ? cgp__clocks_read(ranks) : CGP_OK;
}

int64_t cgp__clocks_map(const cgp__clocks *clocks, int rank, int64_t ns) {
    if (!clocks->differ || ns == 0) return ns;
    const int64_t first = clocks->first->offset_ns[rank], last = clocks->last->offset_ns[rank];
    const int64_t begin = clocks->first->at_ns + first, end = clocks->last->at_ns + last;
    if (ns <= begin) return ns - first;
    if (ns >= end) return ns - last;
    const double fraction = (double)(ns - begin) / (double)(end - begin);
    return ns - first - (int64_t)(fraction * (double)(last - first));
}
