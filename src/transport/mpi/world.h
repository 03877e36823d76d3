/* SPDX-License-Identifier: Apache-2.0 */
/* world.h -- the transport `mpi`, a plug-in: ranks are MPI processes. MPI-3 calls only.
 *
 *     entry.c          the plug-in, and the table
 *     communicator.c   MPI's start and end; stop, failures of ranks
 *     heart.c          beats: ranks let each other know that they live
 *     agreements.c     barrier and gather
 *     links.c          messages and releases of edges
 *     checksum.c       of messages, with verify()
 *
 * MPI makes progress inside its calls alone: every wait is a loop of tests, and threads that
 * compute call progress(). All of it takes MPI_THREAD_MULTIPLE, as workers wait on their links
 * beside each other. */
#ifndef CGP_SRC_TRANSPORT_MPI_WORLD_H
#define CGP_SRC_TRANSPORT_MPI_WORLD_H

#include <cgpipe/ext/plugin.h>

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

/* MPICH's MPI_STATUSES_IGNORE is the address 1, to GCC an array of none. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum { CGP__MPI_TEXT = 1024 };

/* The failure of a rank, as it travels. */
typedef struct cgp__mpi_failure {
    int64_t status; /* CGP_OK: none */
    int64_t rank;   /* that failed: the sender, but for a silent one */
    char message[CGP__MPI_TEXT];
} cgp__mpi_failure;

/* How often an end of an edge was opened with the same rank at the other end, which counts the
 * same: messages of an earlier opening are dropped. */
typedef struct cgp__mpi_edge {
    int number, peer;
    bool sends, open;
    int32_t openings;
} cgp__mpi_edge;

typedef struct cgp__mpi_heart cgp__mpi_heart;

struct cgp_communicator {
    /* Of messages, of agreements, of failures and of beats: duplicates, so that no message meets a
     * receive of another kind. */
    MPI_Comm links, agreements, failures, beats;
    int rank, ranks;
    int last_tag;
    bool verify;       /* links that are opened from here on */
    int64_t delay_ns;  /* messages and releases arrive so long after they came; for tests */
    atomic_bool ended; /* stopped, or some rank failed */

    pthread_mutex_t lock; /* of what follows; a leaf, but for MPI's own */
    cgp__mpi_failure own, *others;
    MPI_Request *receives, *sends; /* [ranks] of failures */
    int first; /* the rank whose failure came first, this one's if MPI itself failed; -1: none */
    cgp_link *open; /* all open links */

    /* Of the user thread: agreements, edges. */
    MPI_Request *requests; /* [2 x ranks] */
    cgp__mpi_edge *edges;
    int n_edges, edges_capacity;

    cgp__mpi_heart *heart;
    /* What the next beat says, besides: written by the user thread. */
    _Atomic int64_t ended_actions, end_ns, agreed, agreeing_ns;
};

/* The functions of the library. */
extern const cgp_host *cgp__mpi_host;

#define CGP__MPI_FAIL cgp__mpi_host->fail

extern const cgp_transport cgp__mpi_table; /* entry.c */

/* CGP_OK, or a failure with MPI's text: "mpi: MPI_Send: ...". */
cgp_status cgp__mpi_check(int code, const char *call);

/* --- waits --- */

/* A wait: tests again and again, first without a pause, then with one. */
typedef struct cgp__mpi_wait {
    int64_t start_ns, spin_ns, deadline_ns;
} cgp__mpi_wait;

cgp__mpi_wait cgp__mpi_wait_begin(int64_t spin_ns, int64_t timeout_ns);

/* Pause before the next test; false: the time is over. */
bool cgp__mpi_wait_on(const cgp__mpi_wait *wait);

/* Give a request up, within 0.1 s. If MPI still has it then, the peer is gone, and memory of a
 * message that had begun to arrive may yet be written. */
void cgp__mpi_abandon(MPI_Request *request);

/* Free a request that is not started, or is done; give one up that is on its way. */
void cgp__mpi_drop(MPI_Request *request);

/* --- communicator.c --- */

cgp_status cgp__mpi_create(const void *handle, cgp_communicator **out);
void cgp__mpi_destroy(cgp_communicator *communicator);
int cgp__mpi_rank(const cgp_communicator *communicator);
int cgp__mpi_ranks(const cgp_communicator *communicator);
void cgp__mpi_stop(cgp_communicator *communicator);
void cgp__mpi_fail(cgp_communicator *communicator, cgp_status status, const char *message);
/* MPI failed, with cgp_message(): end this rank, and let the others know. */
void cgp__mpi_break(cgp_communicator *communicator, cgp_status status);
cgp_status cgp__mpi_failure_of(cgp_communicator *communicator, int *rank, char *message,
                               size_t size);

/* A rank sends no beats any more, says the calling thread's message: end this rank, and let the
 * others know. */
void cgp__mpi_lose(cgp_communicator *communicator, int rank);
void cgp__mpi_abort(cgp_communicator *communicator, int code);

/* Let messages go on, and look for failures of other ranks. Threads: any. */
void cgp__mpi_progress(cgp_communicator *communicator);

/* --- heart.c --- */

/* Make the heart, which does not beat yet; let it stop and the others know; free it, which keeps
 * MPI's own if `whole` is false. */
cgp_status cgp__mpi_heart_create(cgp_communicator *communicator);
void cgp__mpi_heart_destroy(cgp_communicator *communicator);

cgp_status cgp__mpi_watch(cgp_communicator *communicator, int64_t timeout_ns);
void cgp__mpi_beat(cgp_communicator *communicator, int64_t ended, int64_t end_ns);
void cgp__mpi_beats(cgp_communicator *communicator, cgp_beat *out);

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

/* Note when messages and releases come in, for links on which nobody waits. Called with the
 * communicator's lock held. */
cgp_status cgp__mpi_note_arrivals(cgp_communicator *communicator);

#endif
