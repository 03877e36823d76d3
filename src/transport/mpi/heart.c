/* SPDX-License-Identifier: Apache-2.0 */
/* heart.c -- heartbeats: a thread wakes every cgp_beat_interval(), sends a heartbeat to each other
 * rank, and reads those that came in.
 *
 *     rank 0   ─b─────b─────b─────b─────b──         a rank that was killed, was stopped by a
 *     rank 1   ──b─────b──╳                         signal, or cannot be reached sends none
 *     rank 0                │◄── timeout ──►│ silent
 *
 * The thread also runs while the others compute, wait for a file, or execute the program's own
 * code. So a silent rank is dead, stopped or unreachable. The thread's requests are its own; `lock`
 * guards what it found out. */
#include "transport/mpi/world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OVERSLEPT_NS 500000000 /* a runnable thread is scheduled sooner */
#define LEAVE_NS 100000000     /* time for the last heartbeats to leave */

/* A heartbeat as it is sent. Times are ages, because the ranks' clocks differ. */
typedef struct pulse {
    int64_t ended, end_age, agreements, agreeing_age, process; /* ages -1: none */
    int32_t left;
    char host[64];
} pulse;

struct cgp__mpi_heart {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool runs, quits;
    int64_t timeout_ns;
    cgp_beat *known;               /* [ranks] */
    pulse *out, *in;               /* [ranks] */
    MPI_Request *sends, *receives; /* [ranks] persistent; the receives are started */
    char host[64];
};

/* --- heartbeats; called with the lock held --- */

static int64_t age_of(int64_t then_ns, int64_t now) {
    return then_ns > 0 ? now - then_ns : -1;
}

static int64_t time_of(int64_t age, int64_t now) {
    return age >= 0 ? now - age : 0;
}

static pulse pulse_of(cgp_communicator *c, bool left) {
    const int64_t now = cgp__mpi_host->now_ns();
    pulse p = {.ended = atomic_load(&c->ended_actions),
               .end_age = age_of(atomic_load(&c->end_ns), now),
               .agreements = atomic_load(&c->agreed),
               .agreeing_age = age_of(atomic_load(&c->agreeing_ns), now),
               .process = getpid(),
               .left = left};
    memcpy(p.host, c->heart->host, sizeof p.host);
    return p;
}

/* Send a heartbeat to each rank to which the last one has left. Errors of MPI are reported by the
 * calls that send messages. */
static void send_all(cgp_communicator *c, bool left) {
    cgp__mpi_heart *h = c->heart;
    const pulse now = pulse_of(c, left);
    for (int r = 0; r < c->ranks; r++) {
        int gone = 0;
        if (r == c->rank || MPI_Test(&h->sends[r], &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
            !gone)
            continue;
        h->out[r] = now;
        (void)MPI_Start(&h->sends[r]);
    }
}

static void take_all(cgp_communicator *c) {
    cgp__mpi_heart *h = c->heart;
    for (int r = 0; r < c->ranks; r++) {
        int came = 0;
        while (r != c->rank && MPI_Test(&h->receives[r], &came, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
               came) {
            const pulse *p = &h->in[r];
            const int64_t now = cgp__mpi_host->now_ns();
            h->known[r] = (cgp_beat){.heard_ns = now,
                                     .ended = p->ended,
                                     .end_ns = time_of(p->end_age, now),
                                     .agreements = p->agreements,
                                     .agreeing_ns = time_of(p->agreeing_age, now),
                                     .left = p->left,
                                     .process = p->process};
            memcpy(h->known[r].host, p->host, sizeof p->host - 1);
            if (MPI_Start(&h->receives[r]) != MPI_SUCCESS) break;
        }
    }
}

/* --- the thread --- */

/* Return the rank that has been silent for longest; -1: none. */
static int most_silent(const cgp_communicator *c) {
    const cgp_beat *known = c->heart->known;
    int silent = -1;
    for (int r = 0; r < c->ranks; r++) {
        if (known[r].heard_ns > 0 && !known[r].left &&
            (silent < 0 || known[r].heard_ns < known[silent].heard_ns))
            silent = r;
    }
    return silent;
}

/* This process slept too, so do not count that time as the others' silence. */
static void oversleep(const cgp_communicator *c, int64_t late_ns) {
    for (int r = 0; r < c->ranks; r++) {
        if (c->heart->known[r].heard_ns > 0) c->heart->known[r].heard_ns += late_ns;
    }
}

/* Sleep until `deadline_ns`, or until stop(). */
static void sleep_until(const cgp_communicator *c, int64_t deadline_ns) {
    cgp__mpi_heart *h = c->heart;
    const struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    while (!h->quits && pthread_cond_timedwait(&h->changed, &h->lock, &deadline) == 0) {
    }
    const int64_t late_ns = cgp__mpi_host->now_ns() - deadline_ns;
    if (late_ns > OVERSLEPT_NS) oversleep(c, late_ns);
}

/* Wait until the heartbeats have left. */
static void leave(const cgp_communicator *c) {
    const cgp__mpi_wait wait = cgp__mpi_wait_begin(0, LEAVE_NS);
    int gone = 0;
    while (MPI_Testall(c->ranks, c->heart->sends, &gone, MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
           !gone && cgp__mpi_wait_on(&wait)) {
    }
}

static void lose(cgp_communicator *c, int rank) {
    const cgp_beat *b = &c->heart->known[rank];
    const double seconds = (double)(cgp__mpi_host->now_ns() - b->heard_ns) * 1e-9;
    (void)CGP__MPI_FAIL(CGP_EPEER,
                        "silent for %.1f s (process %lld on host %s was killed, was stopped, or "
                        "cannot be reached)",
                        seconds, (long long)b->process, b->host);
    pthread_mutex_unlock(&c->heart->lock);
    cgp__mpi_lose(c, rank);
    pthread_mutex_lock(&c->heart->lock);
}

static void *heart_main(void *communicator) {
    cgp_communicator *c = communicator;
    cgp__mpi_heart *h = c->heart;
    pthread_mutex_lock(&h->lock);
    while (!h->quits) {
        send_all(c, false);
        take_all(c);
        const int64_t now = cgp__mpi_host->now_ns();
        int64_t next = now + cgp_beat_interval(h->timeout_ns);
        const int silent = most_silent(c);
        const int64_t limit = silent < 0 ? INT64_MAX : h->known[silent].heard_ns + h->timeout_ns;
        if (limit <= now && !atomic_load(&c->ended)) lose(c, silent);
        if (limit > now && limit < next) next = limit;
        sleep_until(c, next);
    }
    leave(c); /* send_all() skips a rank whose last heartbeat has not left */
    send_all(c, true);
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static cgp_status start(cgp_communicator *c) {
    cgp__mpi_heart *h = c->heart;
    h->quits = false;
    for (int r = 0; r < c->ranks; r++) {
        if (r != c->rank) h->known[r].heard_ns = cgp__mpi_host->now_ns();
    }
    h->runs = pthread_create(&h->thread, NULL, heart_main, c) == 0;
    return h->runs ? CGP_OK
                   : CGP__MPI_FAIL(CGP_ENOMEM, "mpi: the thread of the beats could not be started");
}

static void stop(cgp__mpi_heart *h) {
    if (!h->runs) return;
    pthread_mutex_lock(&h->lock);
    h->quits = true;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    h->runs = false;
}

cgp_status cgp__mpi_watch(cgp_communicator *c, int64_t timeout_ns) {
    cgp__mpi_heart *h = c->heart;
    if (c->ranks == 1) return CGP_OK;
    if (timeout_ns != h->timeout_ns) stop(h); /* its sleep may be longer than the new limit */
    h->timeout_ns = timeout_ns;               /* there is no thread, or the value is the same */
    return timeout_ns > 0 && !h->runs ? start(c) : CGP_OK;
}

void cgp__mpi_beat(cgp_communicator *c, int64_t ended, int64_t end_ns) {
    atomic_store(&c->ended_actions, ended);
    atomic_store(&c->end_ns, end_ns);
}

void cgp__mpi_beats(cgp_communicator *c, cgp_beat *out) {
    cgp__mpi_heart *h = c->heart;
    pthread_mutex_lock(&h->lock);
    memcpy(out, h->known, (size_t)c->ranks * sizeof *out);
    cgp_beat *own = &out[c->rank];
    *own = (cgp_beat){.heard_ns = cgp__mpi_host->now_ns(),
                      .ended = atomic_load(&c->ended_actions),
                      .end_ns = atomic_load(&c->end_ns),
                      .agreements = atomic_load(&c->agreed),
                      .agreeing_ns = atomic_load(&c->agreeing_ns),
                      .process = getpid()};
    memcpy(own->host, h->host, sizeof own->host);
    pthread_mutex_unlock(&h->lock);
}

/* --- create, destroy --- */

static cgp_status make_requests(cgp_communicator *c) {
    cgp__mpi_heart *h = c->heart;
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        CGP_TRY(cgp__mpi_check(
            MPI_Send_init(&h->out[r], sizeof *h->out, MPI_BYTE, r, 0, c->beats, &h->sends[r]),
            "MPI_Send_init"));
        CGP_TRY(cgp__mpi_check(
            MPI_Recv_init(&h->in[r], sizeof *h->in, MPI_BYTE, r, 0, c->beats, &h->receives[r]),
            "MPI_Recv_init"));
        CGP_TRY(cgp__mpi_check(MPI_Start(&h->receives[r]), "MPI_Start"));
    }
    return CGP_OK;
}

cgp_status cgp__mpi_heart_create(cgp_communicator *c) {
    const size_t n = (size_t)c->ranks;
    const size_t bytes = sizeof(cgp__mpi_heart) +
                         n * (sizeof(cgp_beat) + 2 * sizeof(pulse) + 2 * sizeof(MPI_Request));
    cgp__mpi_heart *h = c->heart = calloc(1, bytes);
    if (!h) return CGP__MPI_FAIL(CGP_ENOMEM, "mpi: out of memory (%zu bytes)", bytes);
    h->known = (cgp_beat *)(void *)(h + 1);
    h->out = (pulse *)(void *)(h->known + n);
    h->in = h->out + n;
    h->sends = (MPI_Request *)(void *)(h->in + n);
    h->receives = h->sends + n;
    for (size_t i = 0; i < 2 * n; i++)
        h->sends[i] = MPI_REQUEST_NULL;
    if (gethostname(h->host, sizeof h->host - 1) != 0) h->host[0] = '\0';
    pthread_condattr_t monotonic; /* the clock of now_ns() */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return make_requests(c);
}

void cgp__mpi_heart_destroy(cgp_communicator *c) {
    cgp__mpi_heart *h = c->heart;
    if (!h) return;
    const bool ran = h->runs;
    stop(h);
    if (atomic_load(&c->ended)) return; /* MPI may still write to the buffers */
    if (ran) leave(c);
    for (int r = 0; r < c->ranks; r++) {
        cgp__mpi_drop(&h->sends[r]);
        cgp__mpi_drop(&h->receives[r]);
    }
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
    c->heart = NULL;
}
