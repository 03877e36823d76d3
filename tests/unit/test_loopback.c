/* SPDX-License-Identifier: Apache-2.0 */
/* test_loopback.c -- the tests' loopback transport detects callers that break the contract, and its
 * ranks share no memory. */
#include "loopback.h"
#include "support.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

enum { BYTES = 16, CAPACITY = 2, EDGE = 3, FOREVER = 1 };

static const cgp_transport *const t = &loopback;

/* Two ranks, and both ends of an edge from the first rank to the second. */
typedef struct pair {
    cgp_communicator *ranks[2];
    cgp_link *sender, *receiver;
    struct {
        char header[CGP_LINK_HEADER_BYTES];
        unsigned char buffer[BYTES];
    } sent[CAPACITY], received[CAPACITY];
} pair;

static cgp_link_options options_of(pair *p, bool sends) {
    return (cgp_link_options){.struct_size = sizeof(cgp_link_options),
                              .edge = EDGE,
                              .sends = sends,
                              .peer = sends,
                              .capacity = CAPACITY,
                              .bytes = BYTES,
                              .memory = sends ? p->sent : p->received};
}

static cgp_link *open_end(pair *p, bool sends) {
    const cgp_link_options options = options_of(p, sends);
    cgp_link *link = NULL;
    assert_ok(t->links.open(p->ranks[!sends], &options, &link));
    return link;
}

static void open_pair(pair *p) {
    assert_ok(loopback_create(2, 1, p->ranks));
    p->sender = open_end(p, true);
    p->receiver = open_end(p, false);
}

static void close_pair(pair *p) {
    t->links.close(p->sender);
    t->links.close(p->receiver);
    t->communicator_destroy(p->ranks[0]);
    t->communicator_destroy(p->ranks[1]);
}

static cgp_link_message acquired(pair *p) {
    cgp_link_message message;
    assert_true(t->links.acquire(p->sender, INT64_MAX, &message));
    message.microbatch = 0;
    message.bytes = BYTES;
    return message;
}

static cgp_link_message taken(pair *p) {
    cgp_link_message message = acquired(p);
    t->links.post(p->sender, &message);
    assert_true(t->links.take(p->receiver, 0, INT64_MAX, &message));
    return message;
}

/* --- nothing is shared --- */

/* Each rank has its own buffers. The transport overwrites the sender's buffer after post, and the
 * receiver's buffer after release. */
static void ranks_share_no_memory(void **unused) {
    (void)unused;
    pair p;
    open_pair(&p);
    cgp_link_message message = acquired(&p);
    memset(message.buffer, 1, BYTES);
    message.bytes = BYTES / 2;
    t->links.post(p.sender, &message);
    assert_int_equal(p.sent[0].buffer[0], 0xFF);
    assert_true(t->links.take(p.receiver, 0, INT64_MAX, &message));
    assert_ptr_equal(message.buffer, p.received[0].buffer);
    assert_int_equal(p.received[0].buffer[BYTES / 2 - 1], 1);
    assert_int_equal(p.received[0].buffer[BYTES / 2], 0xFF); /* unsent bytes stay poisoned */
    t->links.release(p.receiver, &message);
    assert_int_equal(p.received[0].buffer[0], 0xFF);
    close_pair(&p);
}

/* Messages of one edge arrive in order. Messages of different edges may overtake each other. If two
 * edges carry 100 messages each, some messages do. */
static void edges_overtake_each_other(void **unused) {
    (void)unused;
    pair p;
    int overtaken = 0;
    unsigned char memory[4][CGP_LINK_HEADER_BYTES + BYTES];
    open_pair(&p);
    cgp_link *others[2] = {NULL};
    for (int sends = 0; sends < 2; sends++) {
        cgp_link_options options = options_of(&p, sends);
        options.edge = EDGE + 1;
        options.memory = memory + 2 * sends;
        assert_ok(t->links.open(p.ranks[!sends], &options, &others[sends]));
    }
    for (int i = 0; i < 100; i++) {
        cgp_link_message first, second;
        assert_true(t->links.acquire(p.sender, INT64_MAX, &first));
        assert_true(t->links.acquire(others[1], INT64_MAX, &second));
        first.microbatch = second.microbatch = i;
        first.bytes = second.bytes = 1;
        t->links.post(p.sender, &first);
        t->links.post(others[1], &second);
        assert_true(t->links.take(others[0], i, INT64_MAX, &second));
        assert_true(t->links.take(p.receiver, i, INT64_MAX, &first));
        overtaken += second.released_ns < first.released_ns;
        t->links.release(p.receiver, &first);
        t->links.release(others[0], &second);
    }
    assert_in_range(overtaken, 5, 95);
    t->links.close(others[0]);
    t->links.close(others[1]);
    close_pair(&p);
}

/* --- callers that break the contract --- */

static void post_twice(pair *p) {
    const cgp_link_message message = acquired(p);
    t->links.post(p->sender, &message);
    t->links.post(p->sender, &message);
}

static void post_another_buffer(pair *p) {
    cgp_link_message message = acquired(p);
    message.buffer = (char *)message.buffer + 1;
    t->links.post(p->sender, &message);
}

static void post_too_many_bytes(pair *p) {
    cgp_link_message message = acquired(p);
    message.bytes = BYTES + 1;
    t->links.post(p->sender, &message);
}

static void post_an_event(pair *p) {
    cgp_link_message message = acquired(p);
    message.event = p;
    t->links.post(p->sender, &message);
}

static void post_a_micro_batch_twice(pair *p) {
    for (int i = 0; i < 2; i++) {
        const cgp_link_message message = acquired(p);
        t->links.post(p->sender, &message);
    }
    cgp_link_message message;
    (void)t->links.take(p->receiver, FOREVER, INT64_MAX, &message);
}

static void release_twice(pair *p) {
    const cgp_link_message message = taken(p);
    t->links.release(p->receiver, &message);
    t->links.release(p->receiver, &message);
}

static void release_an_event(pair *p) {
    cgp_link_message message = taken(p);
    message.event = p;
    t->links.release(p->receiver, &message);
}

static void acquire_at_the_receivers_end(pair *p) {
    cgp_link_message message;
    (void)t->links.acquire(p->receiver, 0, &message);
}

static void take_at_the_senders_end(pair *p) {
    cgp_link_message message;
    (void)t->links.take(p->sender, 0, 0, &message);
}

static void use_one_end(pair *p) {
    cgp_link_message message;
    t->links.close(p->sender);
    t->links.close(p->receiver);
    p->sender = open_end(p, true);
    (void)t->links.acquire(p->sender, 0, &message);
}

static void open_with_other_bytes(pair *p) {
    t->links.close(p->sender);
    t->links.close(p->receiver);
    cgp_link_options options = options_of(p, false);
    options.bytes = BYTES / 2;
    p->sender = open_end(p, true);
    (void)t->links.open(p->ranks[1], &options, &p->receiver);
}

static void open_to_another_rank(pair *p) {
    t->links.close(p->sender);
    t->links.close(p->receiver);
    cgp_link_options options = options_of(p, false);
    options.peer = 1;
    p->sender = open_end(p, true);
    (void)t->links.open(p->ranks[1], &options, &p->receiver);
}

static void destroy_an_open_rank(pair *p) {
    t->communicator_destroy(p->ranks[0]);
}

static void *wait_for_ever(void *argument) {
    const pair *p = argument;
    cgp_link_message message;
    (void)t->links.take(p->receiver, FOREVER, INT64_MAX, &message);
    return NULL;
}

static void wait_beside(pair *p) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, p), 0);
    while (!t->links.waits(p->receiver))
        sched_yield();
}

static void wait_in_two_threads(pair *p) {
    cgp_link_message message;
    wait_beside(p);
    (void)t->links.take(p->receiver, 0, 0, &message);
}

static void close_under_a_waiter(pair *p) {
    wait_beside(p);
    t->links.close(p->receiver);
}

static void *wait_at_barrier(void *communicator) {
    (void)!t->agreement.barrier(communicator);
    return NULL;
}

static void agree_on_nothing(pair *p) {
    static const size_t bytes[] = {1, 1};
    char all[2] = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_at_barrier, p->ranks[1]), 0);
    (void)!t->agreement.gather(p->ranks[0], all, all, bytes);
    pthread_join(thread, NULL);
}

static const struct {
    void (*run)(pair *p);
    const char *message;
} faults[] = {
    {post_twice, "rank 0, edge 3: post: expected a buffer from acquire, got another"},
    {post_another_buffer, "rank 0, edge 3: post: expected a buffer of this link, got 0x"},
    {post_too_many_bytes, "post: expected at most 16 bytes of a micro-batch >= 0, got 17 of 0"},
    {post_an_event, "rank 0, edge 3: post: expected no event between ranks, got one"},
    {post_a_micro_batch_twice, "rank 1, edge 3: micro-batch 0 came again before it was taken"},
    {release_twice, "rank 1, edge 3: release: expected a buffer from take, got another"},
    {release_an_event, "rank 1, edge 3: release: expected no event between ranks, got one"},
    {acquire_at_the_receivers_end, "acquire: expected the sender's end, got the other"},
    {take_at_the_senders_end, "take: expected the receiver's end, got the other"},
    {use_one_end, "rank 0, edge 3: acquire: unknown to rank 1"},
    {open_with_other_bytes, "expected the other end's 2 buffers of 16 bytes, got 2 of 8"},
    {open_to_another_rank, "expected each other's rank as peer, got 1 and 1"},
    {destroy_an_open_rank, "rank 0, edge 3: is open as its rank is destroyed"},
    {wait_in_two_threads, "rank 1, edge 3: take: another thread waits already"},
    {close_under_a_waiter, "rank 1, edge 3: is closed as a thread waits"},
    {agree_on_nothing, "expected a "},
};

/* Run `run` with a pair of ranks, in a child process whose standard error goes to `output`. */
static void run_fault(void (*run)(pair *p), int output) {
    const struct rlimit none = {0, 0};
    pair p;
    setrlimit(RLIMIT_CORE, &none);
    dup2(output, 2);
    open_pair(&p);
    run(&p);
    _exit(0);
}

static void a_broken_contract_ends_the_process(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        char text[512] = "";
        int pipe_ends[2], status = 0;
        assert_int_equal(pipe(pipe_ends), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) run_fault(faults[i].run, pipe_ends[1]);
        close(pipe_ends[1]);
        for (size_t n = 0; n < sizeof text - 1;) {
            const ssize_t got = read(pipe_ends[0], text + n, sizeof text - 1 - n);
            if (got <= 0) break;
            n += (size_t)got;
        }
        close(pipe_ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!strstr(text, faults[i].message) || !WIFSIGNALED(status))
            print_error("expected \"%s\", got \"%s\"\n", faults[i].message, text);
        assert_non_null(strstr(text, faults[i].message));
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            /* this test forks, so it runs before any thread exists */
            a_broken_contract_ends_the_process),
        cmocka_unit_test(ranks_share_no_memory),
        cmocka_unit_test(edges_overtake_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
