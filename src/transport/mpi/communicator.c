/* SPDX-License-Identifier: Apache-2.0 */
/* communicator.c -- starts and ends MPI, creates communicators, and handles failures of ranks.
 *
 * At the beginning, every rank posts a receive for a failure message from every other rank. So a
 * rank that fails only has to send its message. */
#include "transport/mpi/world.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* Longest time, in ns, that fail() waits for its messages to be sent. */
#define LEAVE_NS 200000000

/* Longest time, in ns, that a rank waits after a failure for all other ranks to end too. The wait
 * is needed because a launcher ends all processes as soon as one process exits with a nonzero
 * code. */
#define END_NS 1000000000

/* Tags of messages after a failure. */
enum { FAILURE, END };

/* living: number of communicators that are not destroyed. failed_ones: number of communicators that
 * failed. MPI_Finalize() is called only if both are 0, because otherwise it might wait for other
 * ranks. */
static atomic_int living, failed_ones;

/* --- MPI's start and end --- */

static void finalize(void) {
    int finalized = 0;
    (void)MPI_Finalized(&finalized);
    if (!finalized && atomic_load(&living) == 0 && atomic_load(&failed_ones) == 0)
        (void)MPI_Finalize();
}

/* Start MPI, unless the program has started MPI. Check that MPI supports calls from several threads
 * at the same time. */
static cgp_status initialize(void) {
    int initialized = 0, finalized = 0, provided = 0;
    CGP_TRY(cgp__mpi_check(MPI_Initialized(&initialized), "MPI_Initialized"));
    CGP_TRY(cgp__mpi_check(MPI_Finalized(&finalized), "MPI_Finalized"));
    if (finalized)
        return CGP__MPI_FAIL(CGP_ESTATE, "mpi: MPI_Finalize() was called in this process");
    if (!initialized) {
        CGP_TRY(cgp__mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided),
                               "MPI_Init_thread"));
        if (atexit(finalize) != 0)
            return CGP__MPI_FAIL(CGP_ENOMEM, "mpi: atexit() has no place left");
    }
    CGP_TRY(cgp__mpi_check(MPI_Query_thread(&provided), "MPI_Query_thread"));
    if (provided == MPI_THREAD_MULTIPLE) return CGP_OK;
    return CGP__MPI_FAIL(
        CGP_ESTATE,
        "mpi: expected MPI_THREAD_MULTIPLE, as every device has a thread of its own, got level "
        "%d (call MPI_Init_thread with it, or use an MPI built with it)",
        provided);
}

/* --- communicators --- */

static cgp_status duplicate(MPI_Comm from, MPI_Comm *to) {
    CGP_TRY(cgp__mpi_check(MPI_Comm_dup(from, to), "MPI_Comm_dup"));
    return cgp__mpi_check(MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN),
                          "MPI_Comm_set_errhandler");
}

static cgp_status allocate(cgp_communicator *c) {
    const size_t n = (size_t)c->ranks;
    c->others = calloc(n, sizeof *c->others);
    c->receives = malloc(4 * n * sizeof *c->receives);
    if (!c->others || !c->receives)
        return CGP__MPI_FAIL(CGP_ENOMEM, "mpi: out of memory (%zu bytes)",
                             n * (sizeof *c->others + 4 * sizeof *c->receives));
    c->sends = c->receives + n;
    c->requests = c->receives + 2 * n;
    for (size_t i = 0; i < 4 * n; i++)
        c->receives[i] = MPI_REQUEST_NULL;
    return CGP_OK;
}

/* Post the receives for failure messages. No lock is needed, because no other thread has the
 * communicator yet. */
static cgp_status expect_failures(cgp_communicator *c) {
    for (int r = 0; r < c->ranks; r++) {
        if (r != c->rank)
            CGP_TRY(cgp__mpi_check(MPI_Irecv(&c->others[r], sizeof c->others[r], MPI_BYTE, r,
                                             FAILURE, c->failures, &c->receives[r]),
                                   "MPI_Irecv"));
    }
    return CGP_OK;
}

/* Read CGP_MPI_DELAY, in seconds. */
static cgp_status find_delay(cgp_communicator *c) {
    const char *text = getenv("CGP_MPI_DELAY");
    char *end = NULL;
    if (!text) return CGP_OK;
    const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    const double seconds = strtod(text, &end);
    uselocale(before);
    if (end == text || *end || !(seconds >= 0 && seconds <= 10))
        return CGP__MPI_FAIL(CGP_EINVAL, "CGP_MPI_DELAY: expected 0 to 10 seconds, got \"%s\"",
                             text);
    c->delay_ns = (int64_t)(1e9 * seconds);
    return CGP_OK;
}

static cgp_status build(cgp_communicator *c, MPI_Comm from) {
    int *last_tag = NULL, is_set = 0;
    CGP_TRY(find_delay(c));
    CGP_TRY(duplicate(from, &c->links));
    CGP_TRY(duplicate(from, &c->agreements));
    CGP_TRY(duplicate(from, &c->failures));
    CGP_TRY(duplicate(from, &c->heartbeats));
    CGP_TRY(cgp__mpi_check(MPI_Comm_rank(c->links, &c->rank), "MPI_Comm_rank"));
    CGP_TRY(cgp__mpi_check(MPI_Comm_size(c->links, &c->ranks), "MPI_Comm_size"));
    CGP_TRY(cgp__mpi_check(MPI_Comm_get_attr(c->links, MPI_TAG_UB, &last_tag, &is_set),
                           "MPI_Comm_get_attr"));
    c->last_tag = is_set ? *last_tag : 32767; /* the smallest bound that MPI permits */
    CGP_TRY(allocate(c));
    CGP_TRY(expect_failures(c));
    return cgp__mpi_detector_create(c);
}

cgp_status cgp__mpi_create(const void *handle, cgp_communicator **out) {
    CGP_TRY(initialize());
    cgp_communicator *c = calloc(1, sizeof *c);
    if (!c) return CGP__MPI_FAIL(CGP_ENOMEM, "mpi: out of memory (%zu bytes)", sizeof *c);
    c->links = c->agreements = c->failures = c->heartbeats = MPI_COMM_NULL;
    c->first = -1;
    pthread_mutex_init(&c->lock, NULL);
    atomic_fetch_add(&living, 1);
    const cgp_status status = build(c, handle ? *(const MPI_Comm *)handle : MPI_COMM_WORLD);
    if (status == CGP_OK)
        *out = c;
    else
        cgp__mpi_destroy(c);
    return status;
}

/* Wait until the other ranks end too. The wait has a time limit, because a rank that was killed
 * never answers. */
static void end_together(cgp_communicator *c) {
    for (int r = 0; r < 2 * c->ranks; r++)
        c->requests[r] = MPI_REQUEST_NULL;
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        (void)MPI_Irecv(NULL, 0, MPI_BYTE, r, END, c->failures, &c->requests[r]);
        (void)MPI_Isend(NULL, 0, MPI_BYTE, r, END, c->failures, &c->requests[c->ranks + r]);
    }
    cgp__mpi_wait_all(2 * c->ranks, c->requests, END_NS);
}

/* MPI_Comm_free() is collective. After a failure, other ranks may have ended, so MPI's objects are
 * not freed then. */
void cgp__mpi_destroy(cgp_communicator *c) {
    if (!c) return;
    cgp__mpi_detector_destroy(c); /* the detector's thread may set `ended` until it is destroyed */
    const bool whole = !atomic_load(&c->ended);
    MPI_Comm *comms[] = {&c->links, &c->agreements, &c->failures, &c->heartbeats};
    for (int r = 0; whole && c->receives && r < c->ranks; r++)
        cgp__mpi_abandon(&c->receives[r]);
    for (int i = 0; whole && i < 4; i++) {
        if (*comms[i] != MPI_COMM_NULL) (void)MPI_Comm_free(comms[i]);
    }
    if (!whole) {
        if (c->requests && c->failures != MPI_COMM_NULL) end_together(c);
        atomic_fetch_add(&failed_ones, 1);
    }
    atomic_fetch_sub(&living, 1);
    free(c->edges);
    if (!whole) return; /* MPI may still write to the buffers */
    free(c->others);
    free(c->receives);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int cgp__mpi_rank(const cgp_communicator *c) {
    return c->rank;
}

int cgp__mpi_ranks(const cgp_communicator *c) {
    return c->ranks;
}

/* --- failures --- */

void cgp__mpi_stop(cgp_communicator *c) {
    atomic_store(&c->ended, true);
}

/* Look for a failure message from another rank. The caller holds the lock. */
static void look_for_failures(cgp_communicator *c) {
    int there = 0, r = MPI_UNDEFINED;
    if (MPI_Testany(c->ranks, c->receives, &r, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        !there || r == MPI_UNDEFINED)
        return;
    c->others[r].message[CGP__MPI_TEXT - 1] = '\0';
    if (c->first < 0) c->first = r;
    atomic_store(&c->ended, true);
}

void cgp__mpi_progress(cgp_communicator *c) {
    /* If another thread holds the lock, skip this work: that thread or the next call does it. */
    if (c->ranks == 1 || pthread_mutex_trylock(&c->lock) != 0) return;
    look_for_failures(c);
    const cgp_status status = c->delay_ns > 0 ? cgp__mpi_note_arrivals(c) : CGP_OK;
    pthread_mutex_unlock(&c->lock);
    if (status != CGP_OK) cgp__mpi_break(c, status);
}

/* Send this rank's failure to all other ranks. The caller holds the lock. */
static void tell_others(cgp_communicator *c) {
    for (int r = 0; r < c->ranks; r++) {
        if (r != c->rank)
            (void)MPI_Isend(&c->own, sizeof c->own, MPI_BYTE, r, FAILURE, c->failures,
                            &c->sends[r]);
    }
    cgp__mpi_wait_all(c->ranks, c->sends, LEAVE_NS);
}

static void end_with(cgp_communicator *c, int rank, cgp_status status, const char *message) {
    atomic_store(&c->ended, true);
    pthread_mutex_lock(&c->lock);
    if (c->own.status == CGP_OK) {
        c->own.status = (int64_t)status;
        c->own.rank = rank;
        snprintf(c->own.message, sizeof c->own.message, "%s", message);
        tell_others(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void cgp__mpi_fail(cgp_communicator *c, cgp_status status, const char *message) {
    end_with(c, c->rank, status, message);
}

void cgp__mpi_lose(cgp_communicator *c, int rank, cgp_status status) {
    const char *message = cgp__mpi_host->message();
    pthread_mutex_lock(&c->lock);
    if (c->first < 0) { /* the entry of this rank in `others` is otherwise unused */
        cgp__mpi_failure *found = &c->others[c->rank];
        found->status = (int64_t)status;
        found->rank = rank;
        snprintf(found->message, sizeof found->message, "%s", message);
        c->first = c->rank;
    }
    pthread_mutex_unlock(&c->lock);
    end_with(c, rank, status, message);
}

void cgp__mpi_break(cgp_communicator *c, cgp_status status) {
    cgp__mpi_lose(c, c->rank, status);
}

void cgp__mpi_abort(cgp_communicator *c, int code) {
    (void)MPI_Abort(c->links, code);
}

cgp_status cgp__mpi_first_failure(cgp_communicator *c, int *rank, char *message, size_t size) {
    cgp_status status = CGP_OK;
    pthread_mutex_lock(&c->lock);
    look_for_failures(c);
    if (c->first >= 0) {
        status = (cgp_status)c->others[c->first].status;
        *rank = (int)c->others[c->first].rank;
        snprintf(message, size, "%s", c->others[c->first].message);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}
