/* SPDX-License-Identifier: Apache-2.0 */
/* test_transport_ranks.c -- tests agreements, failures and heartbeats of inproc, threads and
 * loopback against the contract in cgpipe/ext/transport.h. */
#include "transports.h"

#include <stdatomic.h>

/* --- agreements --- */

/* Run a user thread on each rank. A thread returns the number of its first wrong round, or 0 if no
 * round was wrong. The test requires 0. */
static void run_on_ranks(void *(*run)(void *)) {
    pthread_t threads[RANKS];
    void *wrong = NULL;
    for (int r = 0; r < n_ranks; r++)
        threads[r] = start(run, ranks[r]);
    for (int r = 0; r < n_ranks; r++) {
        pthread_join(threads[r], &wrong);
        assert_int_equal((intptr_t)wrong, 0);
    }
}

/* In round i, rank r contributes (r + 1) * i % 5 bytes with the value r + 1. Return true if `all`
 * contains the bytes of all ranks in order, followed by a zero. */
static bool is_collected(const unsigned char *all, const size_t *bytes, int n) {
    for (int r = 0; r < n; r++) {
        for (size_t k = 0; k < bytes[r]; k++) {
            if (*all++ != r + 1) return false;
        }
    }
    return *all == 0;
}

/* Gather bytes of all ranks repeatedly. In odd rounds a rank's own bytes are already in the result
 * buffer before the call. */
static void *gather_often(void *argument) {
    cgp_communicator *communicator = argument;
    const int rank = t->rank(communicator);
    const int n = t->ranks(communicator);
    for (intptr_t i = 1; i <= 20; i++) {
        unsigned char apart[5], all[5 * RANKS + 1] = {0}, *mine = i % 2 ? all : apart;
        size_t bytes[RANKS];
        for (int r = 0; r < n; r++) {
            bytes[r] = (size_t)((r + 1) * i % 5);
            if (i % 2 && r < rank) mine += bytes[r];
        }
        memset(mine, rank + 1, bytes[rank]);
        if (t->agreement.gather(communicator, mine, all, bytes) != CGP_OK) return (void *)i;
        if (!is_collected(all, bytes, n)) return (void *)i;
    }
    return NULL;
}

static void gather_collects_what_every_rank_has(void **unused) {
    (void)unused;
    run_on_ranks(gather_often);
}

static atomic_int arrived;

static void *pass_barriers(void *argument) {
    for (intptr_t i = 1; i <= 50; i++) {
        atomic_fetch_add(&arrived, 1);
        if (t->agreement.barrier(argument) != CGP_OK) return (void *)i;
        if (atomic_load(&arrived) < i * n_ranks) return (void *)i;
    }
    return NULL;
}

static void a_barrier_waits_for_every_rank(void **unused) {
    (void)unused;
    atomic_store(&arrived, 0);
    run_on_ranks(pass_barriers);
}

typedef struct waiter {
    cgp_communicator *communicator;
    cgp_status status;
    char message[256];
} waiter;

static void *wait_at_barrier(void *argument) {
    waiter *w = argument;
    w->status = t->agreement.barrier(w->communicator);
    snprintf(w->message, sizeof w->message, "%s", cgp_message());
    return NULL;
}

/* The last rank fails while the other ranks block in a barrier, and the workers of those ranks
 * block in acquire and take. */
static void a_failure_ends_the_waits_of_every_rank(void **unused) {
    (void)unused;
    wire full = open_wire(0, 2, 0), empty = open_wire(1, 2, 0);
    const int last = n_ranks - 1;
    waiter waiters[RANKS];
    pthread_t users[RANKS];
    taking receiver = {empty.receiver, INT64_MAX, true};
    const pthread_t sender = start(send_all, full.sender);
    const pthread_t taker = start(take_zero, &receiver);
    for (int r = 0; r < last; r++) {
        waiters[r] = (waiter){.communicator = ranks[r]};
        users[r] = start(wait_at_barrier, &waiters[r]);
    }
    while (!t->links.waits(full.sender) || !t->links.waits(empty.receiver))
        sched_yield();
    (t->failures.fail)(ranks[last], CGP_EIO, "disk: full");
    (t->failures.fail)(ranks[last], CGP_EDEVICE, "a later one");
    pthread_join(sender, NULL);
    pthread_join(taker, NULL);
    assert_false(receiver.taken);
    for (int r = 0; r < last; r++) {
        char message[7] = "";
        int rank = -1;
        pthread_join(users[r], NULL);
        assert_int_equal(waiters[r].status, CGP_EPEER);
        assert_string_equal(waiters[r].message, "rank 2: disk: full");
        assert_int_equal(t->failures.first(ranks[r], &rank, message, sizeof message), CGP_EIO);
        assert_int_equal(rank, last);
        assert_string_equal(message, "disk: ");
    }
    int none = -1;
    char untouched[] = "-";
    assert_int_equal(t->failures.first(ranks[last], &none, untouched, 1),
                     CGP_OK); /* no peer failed */
    assert_int_equal(none, -1);
    assert_string_equal(untouched, "-");
    assert_status(t->agreement.barrier(ranks[last]), CGP_EPEER);
    assert_message("disk: full");
    close_wire(0, &full);
    close_wire(1, &empty);
}

/* All ranks end while each end of an edge holds a message. Returning the buffers must still work,
 * and no call may block. */
static void hand_back(bool fails) {
    cgp_link_message sent, taken, other;
    wire w = open_wire(0, 2, 0);
    assert_true(send_number(w.sender, 0, 7));
    assert_true(t->links.acquire(w.sender, INT64_MAX, &sent));
    assert_true(t->links.take(w.receiver, 0, INT64_MAX, &taken));
    for (int r = 0; r < n_ranks; r++) {
        if (fails)
            (t->failures.fail)(ranks[r], CGP_EIO, "disk full");
        else
            t->failures.stop(ranks[r]);
    }
    sent.microbatch = 1;
    sent.bytes = BYTES;
    t->links.post(w.sender, &sent);
    t->links.release(w.receiver, &taken);
    assert_false(t->links.acquire(w.sender, INT64_MAX, &other));
    assert_false(t->links.take(w.receiver, 1, INT64_MAX, &other));
    assert_false(t->links.waits(w.sender) || t->links.waits(w.receiver));
    t->links.progress(ranks[0]);
    t->failures.stop(ranks[0]);
    (t->failures.fail)(ranks[0], CGP_EIO, "once more");
    assert_status(t->agreement.barrier(ranks[0]), CGP_EPEER);
    close_wire(0, &w);
}

static void what_is_held_at_the_end_is_handed_back(void **unused) {
    (void)unused;
    hand_back(false);
}

static void so_it_is_after_a_failure(void **unused) {
    (void)unused;
    hand_back(true);
}

/* --- heartbeats --- */

enum { LIMIT_NS = 100000000 };

static void watch_all(void) {
    for (int r = 0; r < n_ranks; r++)
        assert_ok(t->failures.watch(ranks[r], LIMIT_NS));
}

/* Wait until rank `by` has received a heartbeat of rank r that reports `ended` completed
 * actions. */
static cgp_rank_state wait_for_heartbeat(int by, int r, int64_t ended) {
    cgp_rank_state known[RANKS];
    const int64_t limit = cgp__now_ns() + 10 * (int64_t)LIMIT_NS;
    do {
        sched_yield();
        t->failures.rank_states(ranks[by], known);
        assert_true(cgp__now_ns() < limit);
    } while (known[r].heartbeat_ns == 0 || known[r].ended != ended);
    return known[r];
}

static void heartbeats_reach_all_ranks(void **unused) {
    (void)unused;
    watch_all();
    for (int r = 0; r < n_ranks && n_ranks > 1; r++)
        t->failures.report_progress(ranks[r], 100 + r, cgp__now_ns());
    for (int by = 0; by < n_ranks; by++) {
        for (int r = 0; r < n_ranks; r++) {
            const cgp_rank_state b = wait_for_heartbeat(by, r, n_ranks > 1 ? 100 + r : 0);
            assert_in_range(b.end_ns, 0, b.heartbeat_ns);
            assert_true(!b.left && b.agreeing_ns == 0);
        }
    }
}

/* --- tests of loopback only, apart from one --- */

/* If a rank sends no heartbeats, all other ranks stop waiting. */
static void a_silent_rank_has_failed(void **unused) {
    (void)unused;
    waiter w = {.communicator = ranks[2]};
    char message[64] = "";
    int rank = -1;
    watch_all();
    for (int r = 1; r < n_ranks; r++)
        (void)wait_for_heartbeat(0, r, 0);
    const pthread_t user = start(wait_at_barrier, &w);
    loopback_mute(ranks[1]);
    const int64_t limit = cgp__now_ns() + 20 * (int64_t)LIMIT_NS;
    while (t->failures.first(ranks[0], &rank, message, sizeof message) == CGP_OK)
        assert_true(cgp__now_ns() < limit);
    pthread_join(user, NULL);
    assert_int_equal(rank, 1);
    assert_memory_equal(message, "silent for 0.", 13);
    assert_int_equal(w.status, CGP_EPEER);
    assert_memory_equal(w.message, "rank 1: silent for 0.", 21);
}

static void a_rank_that_watches_no_more_is_not_silent(void **unused) {
    (void)unused;
    int rank = -1;
    watch_all();
    (void)wait_for_heartbeat(0, 1, 0);
    assert_ok(t->failures.watch(ranks[1], 0));
    for (const int64_t until = cgp__now_ns() + 2 * (int64_t)LIMIT_NS; cgp__now_ns() < until;)
        sched_yield();
    assert_int_equal(t->failures.first(ranks[0], &rank, NULL, 0), CGP_OK);
}

static void a_stop_is_of_one_rank(void **unused) {
    (void)unused;
    int number = -1;
    wire stopped = open_wire(0, 1, 0), other = open_wire(1, 1, 0);
    t->failures.stop(ranks[0]);
    assert_false(send_number(stopped.sender, 0, 0));
    assert_true(send_number(other.sender, 0, 5));
    assert_true(take_number(other.receiver, 0, &number));
    assert_int_equal(number, 5);
    close_wire(0, &stopped);
    close_wire(1, &other);
}

/* Rank 2 fails first, then rank 1. Rank 2 may receive rank 1's failure before or after rank 0 does.
 * In any case, rank 0 keeps reporting the failure of rank 2. */
static void the_first_failure_of_another_rank_stays(void **unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        cgp_communicator *c[RANKS];
        char message[32] = "";
        int rank = -1;
        assert_ok(loopback_create(RANKS, test_random(&seed), c));
        (t->failures.fail)(c[2], CGP_EIO, "first");
        while (t->failures.first(c[0], &rank, message, sizeof message) == CGP_OK)
            sched_yield();
        (t->failures.fail)(c[1], CGP_EDEVICE, "second");
        while (t->failures.first(c[2], &rank, message, sizeof message) == CGP_OK)
            sched_yield();
        assert_int_equal(rank, 1);
        assert_int_equal(t->failures.first(c[0], &rank, message, sizeof message), CGP_EIO);
        assert_int_equal(rank, 2);
        assert_string_equal(message, "first");
        for (int r = 0; r < RANKS; r++)
            t->communicator_destroy(c[r]);
    }
}

/* clang-format off */
#define CONTRACT(make) \
    ON(make, gather_collects_what_every_rank_has), \
    ON(make, a_barrier_waits_for_every_rank), \
    ON(make, a_failure_ends_the_waits_of_every_rank), \
    ON(make, what_is_held_at_the_end_is_handed_back), \
    ON(make, so_it_is_after_a_failure), \
    ON(make, heartbeats_reach_all_ranks)
/* clang-format on */

int main(void) {
    seed = test_seed();
    const struct CMUnitTest inproc_tests[] = {
        CONTRACT(make_inproc),
    };
    const struct CMUnitTest threads_tests[] = {
        CONTRACT(make_threads),
        ON(make_threads, a_stop_is_of_one_rank),
    };
    const struct CMUnitTest loopback_tests[] = {
        CONTRACT(make_loopback),
        ON(make_loopback, a_stop_is_of_one_rank),
        ON(make_loopback, a_silent_rank_has_failed),
        ON(make_loopback, a_rank_that_watches_no_more_is_not_silent),
        ON(make_loopback, the_first_failure_of_another_rank_stays),
    };
    return cmocka_run_group_tests_name("inproc", inproc_tests, NULL, NULL) +
           cmocka_run_group_tests_name("threads", threads_tests, NULL, NULL) +
           cmocka_run_group_tests_name("loopback", loopback_tests, NULL, NULL);
}
