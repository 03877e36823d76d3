/* SPDX-License-Identifier: Apache-2.0 */
/* world.h -- declares the transport `mpi`, a plug-in. Each rank is an MPI process. The plug-in
 * calls only MPI-3 functions.
 *
 *     entry.c          the plug-in, and the table
 *     communicator.c   MPI's start and end, communicators, failures of ranks
 *     heartbeat.c      failure detection by heartbeats
 *     agreements.c     barrier and gather
 *     links.c          messages and releases of edges
 *     checksum.c       checksums of messages, used after verify()
 *
 * MPI makes progress only inside its calls. So every wait is a loop of tests, and threads that
 * compute also call progress(). Workers wait on their links at the same time, which needs
 * MPI_THREAD_MULTIPLE. */
#ifndef CGP_SRC_TRANSPORT_MPI_WORLD_H
#define CGP_SRC_TRANSPORT_MPI_WORLD_H

#include <cgpipe/ext/plugin.h>

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

/* MPICH's MPI_STATUSES_IGNORE is the address 1, which GCC takes for an empty array. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum { CGP__MPI_TEXT = 1024 };

/* The message about the failure of a rank. */
typedef struct cgp__mpi_failure {
    int64_t status; /* CGP_OK: no failure */
    int64_t rank;   /* the failed rank: the sender, or a silent rank */
    char message[CGP__MPI_TEXT];
} cgp__mpi_failure;

/* An end of an edge. `openings` counts how often the end was opened with rank `peer` at the other
 * end. Both ends have the same count, so messages with an older count are dropped. */
typedef struct cgp__mpi_edge {
    int number, peer;
    bool sends, open;
    int32_t openings;
} cgp__mpi_edge;

typedef struct cgp__mpi_detector cgp__mpi_detector;

struct cgp_communicator {
    /* Four duplicates of the program's communicator: for messages, agreements, failures and
     * heartbeats. So no message matches a receive of another kind. */
    MPI_Comm links, agreements, failures, heartbeats;
    int rank, ranks;
    int last_tag;
    bool verify;       /* set if links that are opened from now on verify checksums */
    int64_t delay_ns;  /* injected delay of messages and releases, for tests */
    atomic_bool ended; /* set if the communicator was stopped or a rank failed */

    pthread_mutex_t lock; /* guards the members below; only MPI's own locks are taken while this
                           * lock is held */
    cgp__mpi_failure own, *others;
    MPI_Request *receives, *sends; /* [ranks] requests of failure messages */
    int first; /* the rank whose failure message came first; this rank if MPI failed or a rank is
                * silent; -1: no failure */
    cgp_link *open; /* all open links */

    /* Only the user thread uses these members, for agreements and edges. */
    MPI_Request *requests; /* [2 x ranks] */
    cgp__mpi_edge *edges;
    int n_edges, edges_capacity;

    cgp__mpi_detector *detector;
    /* The progress that the next heartbeat reports. report_progress() and agreements write it. */
    struct {
        _Atomic int64_t ended_actions, end_ns, agreed, agreeing_ns;
    } progress;
};

/* The library's functions for plug-ins. */
extern const cgp_host *cgp__mpi_host;

#define CGP__MPI_FAIL cgp__mpi_host->fail

extern const cgp_transport cgp__mpi_table; /* entry.c */

/* Return CGP_OK if `code` is MPI_SUCCESS. Otherwise return a failure whose message has MPI's text:
 * "mpi: MPI_Send: ...". */
cgp_status cgp__mpi_check(int code, const char *call);

/* --- waits --- */

/* A wait is a loop of tests: first without pauses, then with pauses. */
typedef struct cgp__mpi_wait {
    int64_t start_ns, spin_ns, deadline_ns;
} cgp__mpi_wait;

cgp__mpi_wait cgp__mpi_wait_begin(int64_t spin_ns, int64_t timeout_ns);

/* Pause before the next test, if the spin time is over. Return false after the deadline. */
bool cgp__mpi_wait_on(const cgp__mpi_wait *wait);

/* Wait until `n` requests are done, MPI fails, or the timeout is over. */
void cgp__mpi_wait_all(int n, MPI_Request *requests, int64_t timeout_ns);

/* Cancel a request, and wait at most 0.1 s for its end. If the request is still incomplete after
 * that, the peer has ended. MPI may then still write to the memory of a message that had begun to
 * arrive. */
void cgp__mpi_abandon(MPI_Request *request);

/* Free a request that is not started or is complete. Cancel a request that is in flight. */
void cgp__mpi_drop(MPI_Request *request);

/* --- communicator.c --- */

cgp_status cgp__mpi_create(const void *handle, cgp_communicator **out);
void cgp__mpi_destroy(cgp_communicator *communicator);
int cgp__mpi_rank(const cgp_communicator *communicator);
int cgp__mpi_ranks(const cgp_communicator *communicator);
void cgp__mpi_stop(cgp_communicator *communicator);
void cgp__mpi_fail(cgp_communicator *communicator, cgp_status status, const char *message);
cgp_status cgp__mpi_first_failure(cgp_communicator *communicator, int *rank, char *message,
                                  size_t size);
/* The first function ends this rank because MPI failed. The second function ends this rank because
 * `rank` sends no heartbeats. Both record the failure as if another rank had sent it, and send the
 * failure to the other ranks. The text of the failure is cgp_message() of this thread. */
void cgp__mpi_break(cgp_communicator *communicator, cgp_status status);
void cgp__mpi_lose(cgp_communicator *communicator, int rank, cgp_status status);
void cgp__mpi_abort(cgp_communicator *communicator, int code);

/* Let MPI make progress, and look for failures of other ranks. Threads: any. */
void cgp__mpi_progress(cgp_communicator *communicator);

/* --- heartbeat.c --- */

/* The first function creates the failure detector; cgp__mpi_watch() starts its thread. The second
 * function stops the thread after a last heartbeat, and frees the memory. After a failure the
 * memory is kept, because MPI may still write to it. */
cgp_status cgp__mpi_detector_create(cgp_communicator *communicator);
void cgp__mpi_detector_destroy(cgp_communicator *communicator);

cgp_status cgp__mpi_watch(cgp_communicator *communicator, int64_t timeout_ns);
void cgp__mpi_report_progress(cgp_communicator *communicator, int64_t ended, int64_t end_ns);
void cgp__mpi_rank_states(cgp_communicator *communicator, cgp_rank_state *out);

/* --- agreements.c --- */

cgp_status cgp__mpi_barrier(cgp_communicator *communicator);
cgp_status cgp__mpi_gather(cgp_communicator *communicator, const void *mine, void *all,
                           const size_t *bytes);

/* --- checksum.c: CRC-32C --- */

uint32_t cgp__mpi_checksum(const void *bytes, size_t n);

/* --- links.c --- */

cgp_status cgp__mpi_link_open(cgp_communicator *communicator, const cgp_link_options *options,
                              cgp_link **out);
void cgp__mpi_link_close(cgp_link *link);
bool cgp__mpi_acquire(cgp_link *link, int64_t timeout_ns, cgp_link_message *out);
bool cgp__mpi_take(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out);
void cgp__mpi_post(cgp_link *link, const cgp_link_message *message);
void cgp__mpi_release(cgp_link *link, const cgp_link_message *message);
bool cgp__mpi_waits(cgp_link *link);
void cgp__mpi_verify(cgp_communicator *communicator, bool verify);

/* Record the arrival times of messages and releases for links that no thread uses at the moment.
 * Called with the communicator's lock held. */
cgp_status cgp__mpi_note_arrivals(cgp_communicator *communicator);

#endif
