/* SPDX-License-Identifier: Apache-2.0 */
/* test_transport.c -- the contract of cgpipe/ext/transport.h, tested with inproc and loopback:
 *
 *     sender      acquire        post                acquire    (the same buffer)
 *     released    0                |  post             |  release
 *     receiver                   take     release ─────┘
 *
 * Edge number e leads from rank e to rank e + 1, cyclically; inproc has only one rank. Because
 * cmocka has a macro `fail`, the transport's function is called as (t->failures.fail)(...). */
#include "loopback.h"
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

#include "transport/transport.h"

enum { BYTES = 64, MESSAGES = 300, RANKS = 3, EDGES = 6, FEW = 4 };

static const int64_t spin_ns[] = {0, 1000, 1000000000000};
enum { STRIDE = CGP_LINK_HEADER_BYTES + BYTES }; /* one header and message */
enum { SPINS = sizeof spin_ns / sizeof spin_ns[0] };

static const cgp_transport *t; /* the tested transport */
static cgp_communicator *ranks[RANKS];
static int n_ranks;
static uint64_t seed;

/* Both ends of an edge, with the memory of their buffers. */
typedef struct wire {
    cgp_link *sender, *receiver;
    char *memory[2];
} wire;

static int make_inproc(void **unused) {
    (void)unused;
    t = &cgp__transport_inproc;
    n_ranks = 1;
    assert_ok(cgp__inproc_create(ranks));
    return 0;
}

static int make_loopback(void **unused) {
    (void)unused;
    t = &loopback;
    n_ranks = RANKS;
    assert_ok(loopback_create(RANKS, test_random(&seed), ranks));
    return 0;
}

static int destroy_ranks(void **unused) {
    (void)unused;
    for (int r = 0; r < n_ranks; r++)
        t->communicator_destroy(ranks[r]);
    return 0;
}

/* Return buffer number `i` in the memory of one end of an edge. */
static char *buffer_at(char *memory, int i) {
    return t->copies ? memory + i * STRIDE + CGP_LINK_HEADER_BYTES : memory + i * BYTES;
}

static cgp_communicator *end_of(int edge, bool sends) {
    return ranks[(edge + !sends) % n_ranks];
}

static cgp_link_options options_of(int edge, bool sends, int capacity, char *memory) {
    return (cgp_link_options){.struct_size = sizeof(cgp_link_options),
                              .edge = edge,
                              .sends = sends,
                              .peer = t->rank(end_of(edge, !sends)),
                              .capacity = capacity,
                              .bytes = BYTES,
                              .memory = memory};
}

/* Open both ends of an edge. For even edges, the sender's end is opened and closed first; for odd
 * edges, the receiver's end. */
static wire open_wire(int edge, int capacity, int64_t spin) {
    wire w = {NULL, NULL, {NULL, NULL}};
    for (int k = 0; k < 2; k++) {
        const bool sends = (edge + k) % 2 == 0;
        w.memory[sends] = sends || t->copies ? malloc((size_t)capacity * STRIDE) : NULL;
        cgp_link_options options = options_of(edge, sends, capacity, w.memory[sends]);
        options.spin_ns = spin;
        assert_ok(t->links.open(end_of(edge, sends), &options, sends ? &w.sender : &w.receiver));
    }
    return w;
}

static void close_wire(int edge, wire *w) {
    for (int k = 0; k < 2; k++)
        t->links.close((edge + k) % 2 == 0 ? w->sender : w->receiver);
    free(w->memory[0]);
    free(w->memory[1]);
}

static bool send_number(cgp_link *link, int microbatch, int number) {
    cgp_link_message message;
    if (!t->links.acquire(link, INT64_MAX, &message)) return false;
    memcpy(message.buffer, &number, sizeof number);
    message.microbatch = microbatch;
    message.bytes = sizeof number;
    t->links.post(link, &message);
    return true;
}

static bool take_number(cgp_link *link, int microbatch, int *number) {
    cgp_link_message message;
    if (!t->links.take(link, microbatch, INT64_MAX, &message)) return false;
    memcpy(number, message.buffer, sizeof *number);
    t->links.release(link, &message);
    return message.microbatch == microbatch && message.bytes == sizeof *number;
}

static void *send_all(void *link) {
    for (int i = 0; i < MESSAGES; i++) {
        if (!send_number(link, i, i * i)) break;
    }
    return NULL;
}

static pthread_t start(void *(*run)(void *), void *argument) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, argument), 0);
    return thread;
}

/* --- messages --- */

static void times_are_those_of_post_and_release(void **unused) {
    (void)unused;
    wire w = open_wire(0, 1, 0);
    cgp_link_message message, taken, again;
    assert_true(t->links.acquire(w.sender, INT64_MAX, &message));
    assert_ptr_equal(message.buffer, buffer_at(w.memory[true], 0));
    assert_int_equal(message.microbatch, -1);
    assert_int_equal(message.released_ns, 0);

    message.microbatch = 5;
    message.bytes = BYTES;
    const int64_t before_post = cgp__now_ns();
    t->links.post(w.sender, &message);
    int64_t after = cgp__now_ns();
    assert_true(t->links.take(w.receiver, 5, INT64_MAX, &taken));
    if (t->copies) after = cgp__now_ns(); /* a copying transport reports the time of arrival */
    assert_ptr_equal(taken.buffer, buffer_at(w.memory[!t->copies], 0));
    assert_in_range(taken.released_ns, before_post, after);

    const int64_t before_release = cgp__now_ns();
    t->links.release(w.receiver, &taken);
    after = cgp__now_ns();
    assert_true(t->links.acquire(w.sender, INT64_MAX, &again));
    if (t->copies) after = cgp__now_ns();
    assert_ptr_equal(again.buffer, buffer_at(w.memory[true], 0));
    assert_in_range(again.released_ns, before_release, after);
    close_wire(0, &w);
}

static void messages_arrive_whether_a_waiter_spins_or_blocks(void **unused) {
    (void)unused;
    for (int k = 0; k < SPINS; k++) {
        int number = -1;
        wire w = open_wire(k, 2, spin_ns[k]);
        const pthread_t sender = start(send_all, w.sender);
        for (int i = 0; i < MESSAGES; i++) {
            assert_true(take_number(w.receiver, i, &number));
            assert_int_equal(number, i * i);
        }
        pthread_join(sender, NULL);
        close_wire(k, &w);
    }
}

static void messages_are_matched_by_micro_batch(void **unused) {
    (void)unused;
    static const int taken[FEW] = {2, 0, 3, 1};
    wire w = open_wire(1, FEW, 0);
    int number = -1;
    for (int i = 0; i < FEW; i++)
        assert_true(send_number(w.sender, i, 10 + i));
    for (int i = 0; i < FEW; i++) {
        assert_true(take_number(w.receiver, taken[i], &number));
        assert_int_equal(number, 10 + taken[i]);
    }
    close_wire(1, &w);
}

/* One end of an edge, with its own thread; edges connect three ranks. A sender has FEW buffers, so
 * a receiver takes FEW messages at a time, in random order. A message's size can be computed from
 * its contents. */
typedef struct end {
    cgp_link *link;
    int edge;
    uint64_t random;
    int wrong; /* number of lost or wrong messages */
} end;

static void *send_lengths(void *argument) {
    end *e = argument;
    for (int i = 0; i < MESSAGES; i++) {
        cgp_link_message message;
        if (!t->links.acquire(e->link, INT64_MAX, &message)) break;
        message.microbatch = i;
        message.bytes = test_between(&e->random, 1, BYTES);
        memset(message.buffer, (int)(e->edge * 7 + i + message.bytes) & 0xFF,
               (size_t)message.bytes);
        t->links.post(e->link, &message);
    }
    return NULL;
}

static bool is_whole(int edge, int microbatch, const cgp_link_message *message) {
    const unsigned char *bytes = message->buffer;
    const int expected = (int)(edge * 7 + microbatch + message->bytes) & 0xFF;
    for (int64_t k = 0; k < message->bytes; k++) {
        if (bytes[k] != expected) return false;
    }
    return message->bytes >= 1 && message->microbatch == microbatch;
}

static void *receive_lengths(void *argument) {
    end *e = argument;
    for (int first = 0; first < MESSAGES; first += FEW) {
        const int turn = test_between(&e->random, 0, FEW - 1);
        const bool backward = test_between(&e->random, 0, 1);
        for (int k = 0; k < FEW; k++) {
            const int i = first + ((backward ? FEW - 1 - k : k) + turn) % FEW;
            cgp_link_message message;
            const bool taken = t->links.take(e->link, i, INT64_MAX, &message);
            e->wrong += !taken || !is_whole(e->edge, i, &message);
            if (taken) t->links.release(e->link, &message);
        }
    }
    return NULL;
}

static void many_edges_carry_their_own_messages(void **unused) {
    (void)unused;
    wire wires[EDGES];
    end ends[EDGES][2];
    pthread_t threads[EDGES][2];
    for (int e = 0; e < EDGES; e++) {
        wires[e] = open_wire(e, FEW, spin_ns[e % 2]);
        ends[e][0] = (end){wires[e].receiver, e, test_random(&seed), 0};
        ends[e][1] = (end){wires[e].sender, e, test_random(&seed), 0};
    }
    for (int e = 0; e < EDGES; e++) {
        threads[e][0] = start(receive_lengths, &ends[e][0]);
        threads[e][1] = start(send_lengths, &ends[e][1]);
    }
    for (int e = 0; e < EDGES; e++) {
        pthread_join(threads[e][0], NULL);
        pthread_join(threads[e][1], NULL);
        assert_int_equal(ends[e][0].wrong, 0);
        close_wire(e, &wires[e]);
    }
}

/* --- waits --- */

static void a_sender_waits_for_a_release(void **unused) {
    (void)unused;
    for (int k = 0; k < SPINS; k++) {
        wire w = open_wire(0, 2, spin_ns[k]);
        cgp_link_message message = {.microbatch = 7}, taken;
        assert_true(send_number(w.sender, 0, 0));
        assert_true(send_number(w.sender, 1, 0));
        assert_false(t->links.acquire(w.sender, 0, &message));
        assert_int_equal(message.microbatch, 7); /* a failed acquire leaves `message` unchanged */
        assert_true(t->links.take(w.receiver, 1, INT64_MAX, &taken));
        assert_false(t->links.acquire(w.sender, 1000, &message));
        t->links.release(w.receiver, &taken);
        assert_true(t->links.acquire(w.sender, INT64_MAX, &message));
        assert_ptr_equal(message.buffer, buffer_at(w.memory[true], 1));
        assert_false(t->links.acquire(w.sender, 0, &message));
        close_wire(0, &w);
    }
}

static void a_wait_without_a_message_ends_in_time(void **unused) {
    (void)unused;
    static const int64_t timeouts[] = {0, 1, 300000};
    for (int k = 0; k < SPINS; k++) {
        wire w = open_wire(2, 1, spin_ns[k]);
        for (int i = 0; i < 3; i++) {
            cgp_link_message message;
            const int64_t start_ns = cgp__now_ns();
            assert_false(t->links.take(w.receiver, 0, timeouts[i], &message));
            assert_true(cgp__now_ns() - start_ns >= timeouts[i]);
            assert_false(t->links.waits(w.receiver));
        }
        close_wire(2, &w);
    }
}

typedef struct taking {
    cgp_link *link;
    int64_t timeout_ns;
    bool taken;
} taking;

static void *take_zero(void *argument) {
    taking *a = argument;
    cgp_link_message message;
    a->taken = t->links.take(a->link, 0, a->timeout_ns, &message);
    return NULL;
}

/* A take with a time limit ends when its message arrives. A different message does not end the
 * wait. */
static void a_wait_with_a_limit_ends_with_its_message(void **unused) {
    (void)unused;
    for (int k = 0; k < SPINS; k++) {
        wire w = open_wire(1, 2, spin_ns[k]);
        taking a = {w.receiver, 1000000000000, false};
        const pthread_t receiver = start(take_zero, &a);
        while (!t->links.waits(w.receiver))
            sched_yield();
        assert_false(t->links.waits(w.sender));
        assert_true(send_number(w.sender, 1, 0));
        assert_true(send_number(w.sender, 0, 0));
        pthread_join(receiver, NULL);
        assert_true(a.taken);
        assert_false(t->links.waits(w.receiver));
        close_wire(1, &w);
    }
}

/* With two buffers and no receiver, a sender blocks at its third message until a stop ends the
 * wait. */
static void a_stop_ends_every_wait(void **unused) {
    (void)unused;
    wire full[SPINS], empty[SPINS];
    taking receivers[SPINS];
    pthread_t threads[SPINS][2];
    cgp_link_message message;
    for (int k = 0; k < SPINS; k++) {
        full[k] = open_wire(k, 2, spin_ns[k]);
        empty[k] = open_wire(SPINS + k, 2, spin_ns[k]);
        receivers[k] = (taking){empty[k].receiver, k ? 1000000000000 : INT64_MAX, true};
        threads[k][0] = start(send_all, full[k].sender);
        threads[k][1] = start(take_zero, &receivers[k]);
        while (!t->links.waits(full[k].sender) || !t->links.waits(empty[k].receiver))
            sched_yield();
    }
    for (int r = 0; r < n_ranks; r++)
        t->failures.stop(ranks[r]);
    for (int k = 0; k < SPINS; k++) {
        pthread_join(threads[k][0], NULL);
        pthread_join(threads[k][1], NULL);
        assert_false(receivers[k].taken);
        assert_false(t->links.take(full[k].receiver, 0, INT64_MAX, &message));
        assert_false(t->links.acquire(empty[k].sender, INT64_MAX, &message));
        close_wire(k, &full[k]);
        close_wire(SPINS + k, &empty[k]);
    }
    wire later = open_wire(0, 1, 0);
    assert_false(t->links.acquire(later.sender, INT64_MAX, &message));
    assert_false(t->links.take(later.receiver, 0, INT64_MAX, &message));
    close_wire(0, &later);
    assert_status(t->agreement.barrier(ranks[0]), CGP_EPEER);
    assert_message("rank 0: was stopped");
}

/* --- links --- */

static void an_edge_opens_again_once_both_ends_are_closed(void **unused) {
    (void)unused;
    int number = -1;
    for (int i = 0; i < 3; i++) {
        wire w = open_wire(4, 1 + i, 0);
        assert_true(send_number(w.sender, i, i));
        if (i != 1) assert_true(take_number(w.receiver, i, &number)); /* closing loses message 1 */
        close_wire(4, &w);
    }
    assert_int_equal(number, 2);
}

static void assert_refused(cgp_link_options options, const char *message) {
    cgp_link *link = NULL;
    assert_status(t->links.open(end_of(2, options.sends), &options, &link), CGP_EINVAL);
    assert_message(t->name);
    assert_message(message);
    assert_null(link);
}

static void bad_links_are_refused(void **unused) {
    (void)unused;
    char memory[STRIDE];
    const cgp_link_options good = options_of(2, true, 1, memory);
    cgp_link_options o = good;
    o.edge = -1;
    assert_refused(o, "expected an edge >= 0, got -1");
    o = good, o.peer = -1;
    assert_refused(o, "edge 2: expected a peer below");
    o = good, o.peer = n_ranks;
    assert_refused(o, "edge 2: expected a peer below");
    o = good, o.capacity = 0;
    assert_refused(o, "edge 2: expected 1 or more buffers of 1 or more bytes, got 0 of 64");
    o = good, o.bytes = 0;
    assert_refused(o, "edge 2: expected 1 or more buffers of 1 or more bytes, got 1 of 0");
    o = good, o.memory = NULL;
    assert_refused(o, "edge 2: expected buffers, got NULL");
    wire w = open_wire(2, 1, 0);
    assert_refused(good, "edge 2: expected one sender, got another");
    assert_refused(options_of(2, false, 1, memory), "edge 2: expected one receiver, got another");
    assert_true(send_number(w.sender, 0, 0)); /* the open link still works */
    close_wire(2, &w);
    t->links.close(NULL);
    t->communicator_destroy(NULL);
}

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

/* In round i, rank r contributes (r + 1) i % 5 bytes with the value r + 1. Return true if `all` has
 * the bytes of all ranks in order, followed by a zero. */
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

/* --- tests of inproc only --- */

static void a_message_is_the_senders_buffer_with_its_event(void **unused) {
    (void)unused;
    int ready, copied;
    wire w = open_wire(0, 1, 0);
    cgp_link_message message;
    assert_true(t->links.acquire(w.sender, 0, &message));
    assert_null(message.event);
    message.microbatch = 3;
    message.bytes = 48;
    message.event = &ready;
    t->links.post(w.sender, &message);
    assert_true(t->links.take(w.receiver, 3, 0, &message));
    assert_ptr_equal(message.buffer, buffer_at(w.memory[true], 0));
    assert_int_equal(message.microbatch, 3);
    assert_int_equal(message.bytes, 48);
    assert_ptr_equal(message.event, &ready);
    message.event = &copied;
    t->links.release(w.receiver, &message);
    assert_true(t->links.acquire(w.sender, 0, &message));
    assert_ptr_equal(message.event, &copied);
    assert_int_equal(message.bytes, 48);
    close_wire(0, &w);
}

static void the_senders_end_has_the_memory(void **unused) {
    (void)unused;
    char memory[3 * STRIDE];
    cgp_link *ends[2] = {NULL};
    cgp_link_message message;
    cgp_link_options receiver = options_of(1, false, 3, NULL);
    cgp_link_options sender = options_of(1, true, 3, memory);
    assert_ok(t->links.open(ranks[0], &receiver, &ends[0]));
    assert_ok(t->links.open(ranks[0], &sender, &ends[1]));
    for (int i = 0; i < 3; i++) {
        assert_true(t->links.acquire(ends[1], 0, &message));
        assert_ptr_equal(message.buffer, memory + i * BYTES);
    }
    assert_false(t->links.acquire(ends[1], 0, &message));
    t->links.close(ends[1]);
    t->links.close(ends[0]);
}

static void both_ends_have_as_many_buffers_of_as_many_bytes(void **unused) {
    (void)unused;
    char memory[3 * STRIDE];
    for (int sends = 0; sends < 2; sends++) {
        cgp_link *first = NULL;
        cgp_link_options other = options_of(1, !sends, 2, sends ? NULL : memory);
        const cgp_link_options good = options_of(1, sends, 2, sends ? memory : NULL);
        assert_ok(t->links.open(ranks[0], &good, &first));
        other.capacity = 3;
        assert_refused(other, "expected 2 buffers of 64 bytes as at the other end, got 3 of 64");
        other.capacity = 1;
        assert_refused(other, "expected 2 buffers of 64 bytes as at the other end, got 1 of 64");
        other.capacity = 2, other.bytes = 32;
        assert_refused(other, "expected 2 buffers of 64 bytes as at the other end, got 2 of 32");
        t->links.close(first);
    }
}

/* --- tests of loopback only --- */

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

/* Rank 2 fails first, then rank 1. Rank 0 may receive rank 1's failure before or after rank 2
 * receives it, but keeps reporting rank 2's failure. */
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

#define ON(make, test) cmocka_unit_test_setup_teardown(test, make, destroy_ranks)
/* clang-format off */
#define CONTRACT(make) \
    ON(make, times_are_those_of_post_and_release), \
    ON(make, messages_arrive_whether_a_waiter_spins_or_blocks), \
    ON(make, messages_are_matched_by_micro_batch), \
    ON(make, many_edges_carry_their_own_messages), \
    ON(make, a_sender_waits_for_a_release), \
    ON(make, a_wait_without_a_message_ends_in_time), \
    ON(make, a_wait_with_a_limit_ends_with_its_message), \
    ON(make, a_stop_ends_every_wait), \
    ON(make, an_edge_opens_again_once_both_ends_are_closed), \
    ON(make, bad_links_are_refused), \
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
        ON(make_inproc, a_message_is_the_senders_buffer_with_its_event),
        ON(make_inproc, the_senders_end_has_the_memory),
        ON(make_inproc, both_ends_have_as_many_buffers_of_as_many_bytes),
    };
    const struct CMUnitTest loopback_tests[] = {
        CONTRACT(make_loopback),
        ON(make_loopback, a_stop_is_of_one_rank),
        ON(make_loopback, a_silent_rank_has_failed),
        ON(make_loopback, a_rank_that_watches_no_more_is_not_silent),
        ON(make_loopback, the_first_failure_of_another_rank_stays),
    };
    return cmocka_run_group_tests_name("inproc", inproc_tests, NULL, NULL) +
           cmocka_run_group_tests_name("loopback", loopback_tests, NULL, NULL);
}
