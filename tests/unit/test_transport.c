/* SPDX-License-Identifier: Apache-2.0 */
/* test_transport.c -- tests links of inproc, threads and loopback against the contract in
 * cgpipe/ext/transport.h:
 *
 *     sender      acquire        post                acquire    (the same buffer)
 *     released    0                |  post             |  release
 *     receiver                   take     release ─────┘
 */
#include "transports.h"

static const int64_t spin_ns[] = {0, 1000, 1000000000000};
enum { SPINS = sizeof spin_ns / sizeof spin_ns[0] };

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
    assert_ptr_equal(taken.buffer,
                     buffer_at(w.memory[!t->copies || t == &cgp__transport_threads], 0));
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
 * a receiver takes FEW messages at a time, in random order. The size of a message can be computed
 * from its contents. */
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

/* A take with a time limit ends when the requested message arrives. A different message does not
 * end the wait. */
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
    ON(make, bad_links_are_refused)
/* clang-format on */

int main(void) {
    seed = test_seed();
    const struct CMUnitTest inproc_tests[] = {
        CONTRACT(make_inproc),
        ON(make_inproc, a_message_is_the_senders_buffer_with_its_event),
        ON(make_inproc, the_senders_end_has_the_memory),
        ON(make_inproc, both_ends_have_as_many_buffers_of_as_many_bytes),
    };
    const struct CMUnitTest threads_tests[] = {
        CONTRACT(make_threads),
    };
    const struct CMUnitTest loopback_tests[] = {
        CONTRACT(make_loopback),
    };
    return cmocka_run_group_tests_name("inproc", inproc_tests, NULL, NULL) +
           cmocka_run_group_tests_name("threads", threads_tests, NULL, NULL) +
           cmocka_run_group_tests_name("loopback", loopback_tests, NULL, NULL);
}
