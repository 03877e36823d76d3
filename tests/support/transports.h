/* SPDX-License-Identifier: Apache-2.0 */
/* transports.h -- communicators and edges of the transports inproc, threads and loopback. Tests use
 * them to check the contract in cgpipe/ext/transport.h.
 *
 * Edge number e leads from rank e to rank e + 1, cyclically; inproc has only one rank. Because
 * cmocka has a macro `fail`, the transport's function is called as (t->failures.fail)(...). */
#ifndef CGP_TESTS_TRANSPORTS_H
#define CGP_TESTS_TRANSPORTS_H

#include "loopback.h"
#include "support.h"

#include <pthread.h>

#include "transport/transport.h"

enum { BYTES = 64, MESSAGES = 300, RANKS = 3, EDGES = 6, FEW = 4 };
enum { STRIDE = CGP_LINK_HEADER_BYTES + BYTES }; /* one header and message */

static const cgp_transport *t; /* the tested transport */
static cgp_communicator *ranks[RANKS];
static int n_ranks;
static uint64_t seed;

/* Both ends of an edge, with the memory of their buffers. */
typedef struct wire {
    cgp_link *sender, *receiver;
    char *memory[2];
} wire;

static inline int make_inproc(void **unused) {
    (void)unused;
    t = &cgp__transport_inproc;
    n_ranks = 1;
    assert_ok(cgp__inproc_create(ranks));
    return 0;
}

static inline int make_threads(void **unused) {
    (void)unused;
    t = &cgp__transport_threads;
    n_ranks = RANKS;
    assert_ok(cgp__threads_create(RANKS, ranks));
    return 0;
}

static inline int make_loopback(void **unused) {
    (void)unused;
    t = &loopback;
    n_ranks = RANKS;
    assert_ok(loopback_create(RANKS, test_random(&seed), ranks));
    return 0;
}

static inline int destroy_ranks(void **unused) {
    (void)unused;
    for (int r = 0; r < n_ranks; r++)
        t->communicator_destroy(ranks[r]);
    return 0;
}

/* Return buffer number `i` in the memory of one end of an edge. */
static inline char *buffer_at(char *memory, int i) {
    return t->copies ? memory + i * STRIDE + CGP_LINK_HEADER_BYTES : memory + i * BYTES;
}

static inline cgp_communicator *end_of(int edge, bool sends) {
    return ranks[(edge + !sends) % n_ranks];
}

static inline cgp_link_options options_of(int edge, bool sends, int capacity, char *memory) {
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
static inline wire open_wire(int edge, int capacity, int64_t spin) {
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

static inline void close_wire(int edge, wire *w) {
    for (int k = 0; k < 2; k++)
        t->links.close((edge + k) % 2 == 0 ? w->sender : w->receiver);
    free(w->memory[0]);
    free(w->memory[1]);
}

static inline bool send_number(cgp_link *link, int microbatch, int number) {
    cgp_link_message message;
    if (!t->links.acquire(link, INT64_MAX, &message)) return false;
    memcpy(message.buffer, &number, sizeof number);
    message.microbatch = microbatch;
    message.bytes = sizeof number;
    t->links.post(link, &message);
    return true;
}

static inline bool take_number(cgp_link *link, int microbatch, int *number) {
    cgp_link_message message;
    if (!t->links.take(link, microbatch, INT64_MAX, &message)) return false;
    memcpy(number, message.buffer, sizeof *number);
    t->links.release(link, &message);
    return message.microbatch == microbatch && message.bytes == sizeof *number;
}

static inline void *send_all(void *link) {
    for (int i = 0; i < MESSAGES; i++) {
        if (!send_number(link, i, i * i)) break;
    }
    return NULL;
}

static inline pthread_t start(void *(*run)(void *), void *argument) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, argument), 0);
    return thread;
}

typedef struct taking {
    cgp_link *link;
    int64_t timeout_ns;
    bool taken;
} taking;

static inline void *take_zero(void *argument) {
    taking *a = argument;
    cgp_link_message message;
    a->taken = t->links.take(a->link, 0, a->timeout_ns, &message);
    return NULL;
}

/* A test that runs with the communicators of `make`. */
#define ON(make, test) cmocka_unit_test_setup_teardown(test, make, destroy_ranks)

#endif
