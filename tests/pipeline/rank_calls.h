/* SPDX-License-Identifier: Apache-2.0 */
/* rank_calls.h -- ranks whose calls may differ. (In ranks.c all ranks make the same call.) Each
 * rank is a thread, which notes the status and the message of each of its calls. Afterwards the
 * test's thread compares the notes.
 *
 *     note    0                1            2
 *     rank 0  step: CGP_OK     CGP_EINVAL   ...
 *     rank 1  step: CGP_OK     CGP_EINVAL   ... */
#ifndef CGP_TESTS_RANK_CALLS_H
#define CGP_TESTS_RANK_CALLS_H

#include <pthread.h>

#include "graphs.h"
#include "loopback.h"

enum { MAX_RANKS = 8, MAX_NOTES = 64 };

typedef struct rank {
    int number;
    const cgp_plan *plan;
    uint64_t seed;
    const test_batch *batch;
    const char *directory;
    void (*calls)(struct rank *);
    pthread_t thread;
    cgp_communicator *communicator;
    cgp_pipeline *pipeline;
    int notes;
    cgp_status status[MAX_NOTES];
    char message[MAX_NOTES][1024];
    double loss;
    char sha256[65];
} rank;

static inline void note(rank *r, cgp_status status) {
    if (r->notes == MAX_NOTES) abort();
    r->status[r->notes] = status;
    snprintf(r->message[r->notes++], 1024, "%s", status == CGP_OK ? "" : cgp_message());
}

static inline void note_create(rank *r) {
    note(r, cgp_pipeline_create_on(&r->pipeline, r->plan, r->seed, &loopback, r->communicator));
}

static void *rank_main(void *argument) {
    rank *r = argument;
    r->calls(r);
    cgp_pipeline_destroy(r->pipeline);
    loopback.communicator_destroy(r->communicator);
    return NULL;
}

/* Make n ranks of one plan. */
static inline void make_ranks(rank *ranks, int n, const cgp_plan *plan, const test_batch *batch,
                              void (*calls)(rank *)) {
    cgp_communicator *communicators[MAX_RANKS];
    assert_ok(loopback_create(n, 7, communicators));
    for (int r = 0; r < n; r++)
        ranks[r] = (rank){.number = r,
                          .plan = plan,
                          .seed = 5,
                          .batch = batch,
                          .calls = calls,
                          .communicator = communicators[r]};
}

static inline void run_ranks(rank *ranks, int n) {
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_join(ranks[r].thread, NULL), 0);
    for (int r = 1; r < n; r++)
        assert_int_equal(ranks[r].notes, ranks[0].notes);
}

/* Assert that note `k` of each rank has this status and a message that contains `part`. Rank `by`
 * failed by itself, and the messages of all other ranks begin with the name of rank `by`. If `by`
 * is -1, each rank failed by itself. */
static inline void assert_note(const rank *ranks, int n, int k, cgp_status status, int by,
                               const char *part) {
    char prefix[16];
    snprintf(prefix, sizeof prefix, "rank %d: ", by);
    for (int r = 0; r < n; r++) {
        const char *message = ranks[r].message[k];
        const bool named = strncmp(message, prefix, strlen(prefix)) == 0;
        if (ranks[r].status[k] == status && strstr(message, part) && (by < 0 || named == (r != by)))
            continue;
        print_error("call %d, rank %d: %s (%s), expected %s (%s%s)\n", k, r,
                    cgp_status_name(ranks[r].status[k]), message, cgp_status_name(status),
                    by >= 0 && r != by ? prefix : "", part);
        fail();
    }
}

#endif
