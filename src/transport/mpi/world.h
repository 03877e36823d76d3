/* SPDX-License-Identifier: Apache-2.0 */
/* world.h -- declares the transport `mpi`, a plug-in. Ranks are MPI processes. The plug-in makes
 * only MPI-3 calls.
 *
 *     entry.c          the plug-in, and the table
 *     communicator.c   MPI's start and end, communicators, failures of ranks
 *     heartbeat.c      failure detection by heartbeats
 *     agreements.c     barrier and gather
 *     links.c          messages and releases of edges
 *     checksum.c       checksums of messages, after verify()
 *
 * MPI makes progress only inside its calls. So every wait is a loop of tests, and threads that
 * compute call progress(). This needs MPI_THREAD_MULTIPLE, because workers wait on their links at
 * the same time. */
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

/* The failure of a rank, as it is sent. */
typedef struct cgp__mpi_failure {
    int64_t status; /* CGP_OK: none */
    int64_t rank;   /* the failed rank: the sender, or a silent rank */
    char message[CGP__MPI_TEXT];
} cgp__mpi_failure;

/* The number of times that an end of an edge was opened with the same rank at the other end. Both
 * ends have the same count, so a message with an older count is dropped. */
typedef struct cgp__mpi_edge {
    int number, peer;
    bool sends, open;
    int32_t openings;
} cgp__mpi_edge;

typedef struct cgp__mpi_detector cgp__mpi_detector;

struct cgp_communicator {
    /* Duplicates of the program's communicator for messages, agreements, failures and heartbeats,
     * so that no message matches a receive of another kind. */
    MPI_Comm links, agreements, failures, heartbeats;
    int rank, ranks;
    int last_tag;
    bool verify;       /* links that are opened later verify checksums */
    int64_t delay_ns;  /* delay of the arrival of messages and releases, for tests */
    atomic_bool ended; /* the communicator was stopped, or a rank failed */

    pthread_mutex_t lock; /* guards the members below; only MPI's own locks are taken while this
                           * lock is held */
    cgp__mpi_failure own, *others;
    MPI_Request *receives, *sends; /* [ranks] of failures */
    int first; /* the rank whose failure came first; this rank if MPI itself failed; -1: none */
    cgp_link *open; /* all open links */

    /* Used only by the user thread, for agreements and edges. */
    MPI_Request *requests; /* [2 x ranks] */
    cgp__mpi_edge *edges;
    int n_edges, edges_capacity;

    cgp__mpi_detector *detector;
    /* Sent with the next heartbeat. report_progress() and agreements write it. */
    struct {
        _Atomic int64_t ended_actions, end_ns, agreed, agreeing_ns;
    } progress;
};

/* The library's functions for plug-ins. */
extern const cgp_host *cgp__mpi_host;

#define CGP__MPI_FAIL cgp__mpi_host->fail

extern const cgp_transport cgp__mpi_table; /* entry.c */

/* Return CGP_OK, or a failure with MPI's text: "mpi: MPI_Send: ...". */
cgp_status cgp__mpi_check(int code, const char *call);

/* --- waits --- */

/* A wait is a loop of tests: first without pauses, then with pauses. */
typedef struct cgp__mpi_wait {
    int64_t start_ns, spin_ns, deadline_ns;
} cgp__mpi_wait;

cgp__mpi_wait cgp__mpi_wait_begin(int64_t spin_ns, int64_t timeout_ns);

/* Pause before the next test. Return false if the time is over. */
bool cgp__mpi_wait_on(const cgp__mpi_wait *wait);

/* Wait until n requests are done, MPI fails, or the time is over. */
void cgp__mpi_wait_all(int n, MPI_Request *requests, int64_t timeout_ns);

/* Cancel a request, waiting at most 0.1 s. If the request is still incomplete after that, the peer
 * has ended. In that case MPI may still write to the memory of a message that had begun to
 * arrive. */
void cgp__mpi_abandon(MPI_Request *request);

/* Free a request that is not started or is done; cancel a request that is in flight. */
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
/* End this rank because MPI failed, or because `rank` sends no heartbeats. Record the failure like
 * a failure that another rank sent, with cgp_message() of this thread. Send it to the other
 * ranks. */
void cgp__mpi_break(cgp_communicator *communicator, cgp_status status);
void cgp__mpi_lose(cgp_communicator *communicator, int rank, cgp_status status);
void cgp__mpi_abort(cgp_communicator *communicator, int code);

/* Let MPI make progress, and look for failures of other ranks. Threads: any. */
void cgp__mpi_progress(cgp_communicator *communicator);

/* --- heartbeat.c --- */

/* Create the failure detector; cgp__mpi_watch() starts its thread. To destroy it, stop the thread
 * after a last heartbeat, and free the memory. After a failure the memory stays, because MPI may
 * still write to it. */
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

/* Record when messages and releases arrive, for links on which no thread waits. Called with the
 * communicator's lock held. */
cgp_status cgp__mpi_note_arrivals(cgp_communicator *communicator);

#endif
