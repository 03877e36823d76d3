/* SPDX-License-Identifier: Apache-2.0 */
/* heartbeat.c -- detects failures by heartbeats (Chandra and Toueg 1996, "Unreliable failure
 * detectors for reliable distributed systems"). A thread wakes every cgp__heartbeat_interval(). It
 * sends a heartbeat to every other rank, and reads the heartbeats that have arrived.
 *
 *     rank 0   ─h─────h─────h─────h─────h──         a rank sends no heartbeats if it was killed,
 *     rank 1   ──h─────h──╳                         was stopped by a signal, or is unreachable
 *     rank 0                │◄── timeout ──►│ silent
 *
 * The heartbeat thread also runs while other threads of the process compute, wait for a file, or
 * execute the program's own code. So a silent rank is dead, stopped or unreachable. Only the
 * heartbeat thread uses the requests. `lock` guards the states of the other ranks, which the
 * heartbeat thread receives. */
#include "transport/heartbeat.h"
#include "transport/mpi/world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OVERSLEPT_NS 500000000 /* in ns; longer than the delay with which a runnable thread wakes */
#define LEAVE_NS 100000000     /* in ns; time in which the last heartbeats are sent */

/* The message of a heartbeat. It has ages (ns before sending) instead of times, because the ranks'
 * clocks differ. */
typedef struct heartbeat {
    int64_t ended, end_age, agreements, agreeing_age, process; /* an age of -1: there is no such
                                                                * time */
    int32_t left;
    char host[64];
} heartbeat;

struct cgp__mpi_detector {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool runs, quits;
    int64_t timeout_ns;
    cgp_rank_state *known;         /* [ranks] */
    heartbeat *out, *in;           /* [ranks] */
    MPI_Request *sends, *receives; /* [ranks] persistent requests; each receive is always started */
    char host[64];
};

/* --- heartbeats; called with the lock held --- */

static int64_t age_of(int64_t then_ns, int64_t now) {
    return then_ns <= 0 ? -1 : now > then_ns ? now - then_ns : 0;
}

static int64_t time_of(int64_t age, int64_t now) {
    return age >= 0 ? now - age : 0;
}

static heartbeat heartbeat_of(cgp_communicator *c, bool left, int64_t now) {
    heartbeat h = {.ended = atomic_load(&c->progress.ended_actions),
                   .end_age = age_of(atomic_load(&c->progress.end_ns), now),
                   .agreements = atomic_load(&c->progress.agreed),
                   .agreeing_age = age_of(atomic_load(&c->progress.agreeing_ns), now),
                   .process = getpid(),
                   .left = left};
    memcpy(h.host, c->detector->host, sizeof h.host);
    return h;
}

static cgp_rank_state state_of(const heartbeat *h, int64_t now) {
    cgp_rank_state s = {.heartbeat_ns = now,
                        .ended = h->ended,
                        .end_ns = time_of(h->end_age, now),
                        .agreements = h->agreements,
                        .agreeing_ns = time_of(h->agreeing_age, now),
                        .left = h->left,
                        .process = h->process};
    memcpy(s.host, h->host, sizeof s.host - 1);
    return s;
}

/* Send a heartbeat to each rank, unless the previous heartbeat to that rank is still in flight.
 * Ignore MPI errors, because the calls that send messages report them. */
static void send_all(cgp_communicator *c, bool left) {
    cgp__mpi_detector *d = c->detector;
    const heartbeat now = heartbeat_of(c, left, cgp__mpi_host->now_ns());
    for (int r = 0; r < c->ranks; r++) {
        int gone = 0;
        if (r == c->rank || MPI_Test(&d->sends[r], &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
            !gone)
            continue;
        d->out[r] = now;
        (void)MPI_Start(&d->sends[r]);
    }
}

/* Read the heartbeats that have arrived. */
static void take_all(cgp_communicator *c) {
    cgp__mpi_detector *d = c->detector;
    for (int r = 0; r < c->ranks; r++) {
        int came = 0;
        while (r != c->rank && MPI_Test(&d->receives[r], &came, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
               came) {
            d->known[r] = state_of(&d->in[r], cgp__mpi_host->now_ns());
            if (MPI_Start(&d->receives[r]) != MPI_SUCCESS) break;
        }
    }
}

/* --- the thread --- */

/* Return the rank that has been silent longest; -1: there is no rank to watch. */
static int most_silent(const cgp_communicator *c) {
    const cgp_rank_state *known = c->detector->known;
    int silent = -1;
    for (int r = 0; r < c->ranks; r++) {
        if (known[r].heartbeat_ns > 0 && !known[r].left &&
            (silent < 0 || known[r].heartbeat_ns < known[silent].heartbeat_ns))
            silent = r;
    }
    return silent;
}

/* Add the time in which this process was suspended to the last heartbeat times, so it does not
 * count as silence of other ranks. */
static void oversleep(const cgp_communicator *c, int64_t late_ns) {
    for (int r = 0; r < c->ranks; r++) {
        if (c->detector->known[r].heartbeat_ns > 0) c->detector->known[r].heartbeat_ns += late_ns;
    }
}

/* Sleep until `deadline_ns`, or until stop(). */
static void sleep_until(const cgp_communicator *c, int64_t deadline_ns) {
    cgp__mpi_detector *d = c->detector;
    const struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    while (!d->quits && pthread_cond_timedwait(&d->changed, &d->lock, &deadline) == 0) {
    }
    const int64_t late_ns = cgp__mpi_host->now_ns() - deadline_ns;
    if (late_ns > OVERSLEPT_NS) oversleep(c, late_ns);
}

static void lose(cgp_communicator *c, int rank) {
    const cgp_rank_state *s = &c->detector->known[rank];
    const double seconds = (double)(cgp__mpi_host->now_ns() - s->heartbeat_ns) * 1e-9;
    (void)CGP__MPI_FAIL(CGP_EPEER,
                        "silent for %.1f s (process %lld on host %s was killed, was stopped, or "
                        "cannot be reached)",
                        seconds, (long long)s->process, s->host);
    pthread_mutex_unlock(&c->detector->lock);
    cgp__mpi_lose(c, rank, CGP_EPEER);
    pthread_mutex_lock(&c->detector->lock);
}

static void *detector_main(void *communicator) {
    cgp_communicator *c = communicator;
    cgp__mpi_detector *d = c->detector;
    pthread_mutex_lock(&d->lock);
    while (!d->quits) {
        send_all(c, false);
        take_all(c);
        const int64_t now = cgp__mpi_host->now_ns();
        int64_t next = now + cgp__heartbeat_interval(d->timeout_ns);
        const int silent = most_silent(c);
        const int64_t limit =
            silent < 0 ? INT64_MAX : d->known[silent].heartbeat_ns + d->timeout_ns;
        if (limit <= now && !atomic_load(&c->ended)) lose(c, silent);
        if (limit > now && limit < next) next = limit;
        sleep_until(c, next);
    }
    cgp__mpi_wait_all(c->ranks, d->sends, LEAVE_NS); /* send_all() skips requests that are in
                                                      * flight */
    send_all(c, true);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static cgp_status start(cgp_communicator *c) {
    cgp__mpi_detector *d = c->detector;
    d->quits = false;
    for (int r = 0; r < c->ranks; r++) {
        if (r != c->rank) d->known[r].heartbeat_ns = cgp__mpi_host->now_ns();
    }
    d->runs = pthread_create(&d->thread, NULL, detector_main, c) == 0;
    return d->runs ? CGP_OK
                   : CGP__MPI_FAIL(CGP_ENOMEM, "mpi: the heartbeat thread could not be started");
}

static void stop(cgp__mpi_detector *d) {
    if (!d->runs) return;
    pthread_mutex_lock(&d->lock);
    d->quits = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    d->runs = false;
}

cgp_status cgp__mpi_watch(cgp_communicator *c, int64_t timeout_ns) {
    cgp__mpi_detector *d = c->detector;
    if (c->ranks == 1) return CGP_OK;
    /* A running thread may sleep longer than the new interval, so stop it first. */
    if (timeout_ns != d->timeout_ns) stop(d);
    d->timeout_ns = timeout_ns; /* no lock is needed, because the thread does not run or the value
                                 * does not change */
    return timeout_ns > 0 && !d->runs ? start(c) : CGP_OK;
}

void cgp__mpi_report_progress(cgp_communicator *c, int64_t ended, int64_t end_ns) {
    atomic_store(&c->progress.ended_actions, ended);
    atomic_store(&c->progress.end_ns, end_ns);
}

void cgp__mpi_rank_states(cgp_communicator *c, cgp_rank_state *out) {
    cgp__mpi_detector *d = c->detector;
    pthread_mutex_lock(&d->lock);
    const int64_t now = cgp__mpi_host->now_ns();
    const heartbeat own = heartbeat_of(c, false, now);
    memcpy(out, d->known, (size_t)c->ranks * sizeof *out);
    out[c->rank] = state_of(&own, now);
    pthread_mutex_unlock(&d->lock);
}

/* --- create, destroy --- */

static cgp_status make_requests(cgp_communicator *c) {
    cgp__mpi_detector *d = c->detector;
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        CGP_TRY(cgp__mpi_check(
            MPI_Send_init(&d->out[r], sizeof *d->out, MPI_BYTE, r, 0, c->heartbeats, &d->sends[r]),
            "MPI_Send_init"));
        CGP_TRY(cgp__mpi_check(
            MPI_Recv_init(&d->in[r], sizeof *d->in, MPI_BYTE, r, 0, c->heartbeats, &d->receives[r]),
            "MPI_Recv_init"));
        CGP_TRY(cgp__mpi_check(MPI_Start(&d->receives[r]), "MPI_Start"));
    }
    return CGP_OK;
}

cgp_status cgp__mpi_detector_create(cgp_communicator *c) {
    const size_t n = (size_t)c->ranks;
    const size_t bytes =
        sizeof(cgp__mpi_detector) +
        n * (sizeof(cgp_rank_state) + 2 * sizeof(heartbeat) + 2 * sizeof(MPI_Request));
    cgp__mpi_detector *d = c->detector = calloc(1, bytes);
    if (!d) return CGP__MPI_FAIL(CGP_ENOMEM, "mpi: out of memory (%zu bytes)", bytes);
    d->known = (cgp_rank_state *)(void *)(d + 1);
    d->out = (heartbeat *)(void *)(d->known + n);
    d->in = d->out + n;
    d->sends = (MPI_Request *)(void *)(d->in + n);
    d->receives = d->sends + n;
    for (size_t i = 0; i < 2 * n; i++)
        d->sends[i] = MPI_REQUEST_NULL;
    if (gethostname(d->host, sizeof d->host - 1) != 0) d->host[0] = '\0';
    pthread_condattr_t monotonic; /* the clock of now_ns() */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return make_requests(c);
}

void cgp__mpi_detector_destroy(cgp_communicator *c) {
    cgp__mpi_detector *d = c->detector;
    if (!d) return;
    const bool ran = d->runs;
    stop(d);
    if (atomic_load(&c->ended)) return; /* MPI may still write to the buffers */
    if (ran) cgp__mpi_wait_all(c->ranks, d->sends, LEAVE_NS);
    for (int r = 0; r < c->ranks; r++) {
        cgp__mpi_drop(&d->sends[r]);
        cgp__mpi_drop(&d->receives[r]);
    }
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
    c->detector = NULL;
}
