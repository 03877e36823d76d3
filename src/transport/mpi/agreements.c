/* SPDX-License-Identifier: Apache-2.0 */
/* agreements.c -- implements barrier and gather with messages between every two ranks. A rank can
 * abandon a wait for a message if another rank fails. It could not abandon a collective MPI
 * call. */
#include "transport/mpi/world.h"

#include <string.h>

/* Time, in ns, that an agreement polls without a pause. Ranks with their own cores arrive within
 * this time. */
#define SPIN_NS 200000

/* Largest message, in bytes. Larger blocks are sent in several messages, because MPI counts bytes
 * in an int. */
#define LARGEST_PART ((size_t)1 << 30)

static cgp_status end_of_rank(cgp_communicator *c) {
    char message[CGP__MPI_TEXT];
    int rank = c->rank;
    if (cgp__mpi_first_failure(c, &rank, message, sizeof message) != CGP_OK)
        return CGP__MPI_FAIL(CGP_EPEER, "rank %d: %s", rank, message);
    return CGP__MPI_FAIL(CGP_EPEER, "rank %d: %s", c->rank,
                         c->own.status != CGP_OK ? c->own.message : "was stopped");
}

/* Wait for all requests. If a rank fails, cancel the receives, but do not cancel the sends. */
static cgp_status wait_for_all(cgp_communicator *c) {
    const cgp__mpi_wait wait = cgp__mpi_wait_begin(SPIN_NS, INT64_MAX);
    int done = 0;
    for (;;) {
        const bool ended = atomic_load(&c->ended);
        CGP_TRY(cgp__mpi_check(MPI_Testall(2 * c->ranks, c->requests, &done, MPI_STATUSES_IGNORE),
                               "MPI_Testall"));
        if (done) return CGP_OK; /* the requests are done, even if a rank has failed */
        if (ended) break;
        cgp__mpi_progress(c);
        (void)cgp__mpi_wait_on(&wait);
    }
    for (int r = 0; r < c->ranks; r++)
        cgp__mpi_abandon(&c->requests[r]);
    return end_of_rank(c);
}

static size_t part_of(size_t bytes, size_t offset) {
    const size_t left = bytes > offset ? bytes - offset : 0;
    return left < LARGEST_PART ? left : LARGEST_PART;
}

/* Exchange one part of every rank's block; each part begins at `offset` in its block. If `bytes` is
 * NULL, exchange empty messages. */
static cgp_status exchange(cgp_communicator *c, const char *mine, char *all, const size_t *bytes,
                           size_t offset) {
    const size_t own = bytes ? part_of(bytes[c->rank], offset) : 0;
    for (int r = 0; r < c->ranks; r++) {
        const size_t other = bytes ? part_of(bytes[r], offset) : 0;
        if (r != c->rank && (other > 0 || !bytes))
            CGP_TRY(cgp__mpi_check(MPI_Irecv(bytes ? all + offset : NULL, (int)other, MPI_BYTE, r,
                                             0, c->agreements, &c->requests[r]),
                                   "MPI_Irecv"));
        if (r != c->rank && (own > 0 || !bytes))
            CGP_TRY(cgp__mpi_check(MPI_Isend(bytes ? mine + offset : NULL, (int)own, MPI_BYTE, r, 0,
                                             c->agreements, &c->requests[c->ranks + r]),
                                   "MPI_Isend"));
        if (bytes) all += bytes[r];
    }
    return wait_for_all(c);
}

/* Exchange blocks of at most `most` bytes. Record the start and the end for the heartbeats. */
static cgp_status agree(cgp_communicator *c, const char *mine, char *all, const size_t *bytes,
                        size_t most) {
    cgp_status status = CGP_OK;
    if (atomic_load(&c->ended)) return end_of_rank(c);
    atomic_fetch_add(&c->progress.agreed, 1);
    atomic_store(&c->progress.agreeing_ns, cgp__mpi_host->now_ns());
    for (size_t offset = 0; offset < most && status == CGP_OK; offset += LARGEST_PART)
        status = exchange(c, mine, all, bytes, offset);
    atomic_store(&c->progress.agreeing_ns, 0);
    return status;
}

cgp_status cgp__mpi_gather(cgp_communicator *c, const void *mine, void *all, const size_t *bytes) {
    size_t most = 0, before = 0;
    for (int r = 0; r < c->ranks; r++) {
        if (bytes[r] > most) most = bytes[r];
        if (r < c->rank) before += bytes[r];
    }
    char *place = (char *)all + before;
    if (bytes[c->rank] > 0 && mine != place) memmove(place, mine, bytes[c->rank]);
    return agree(c, place, all, bytes, most);
}

cgp_status cgp__mpi_barrier(cgp_communicator *c) {
    return agree(c, NULL, NULL, NULL, 1);
}
