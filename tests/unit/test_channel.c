/* SPDX-License-Identifier: Apache-2.0 */
/* test_channel.c -- messages between two threads, and the times at which the other side posted or released a buffer:
 *
 *     sender      acquire        post                acquire    (the same buffer)
 *     released    0                |  post             |  release
 *     receiver                   take     release ─────┘
 */
#include "support.h"

#include <pthread.h>

#include "transport/transport.h"

enum { BYTES = 64, MESSAGES = 300 };

static const int64_t spin_ns[] = {0, 1000, 1000000000000};

static void times_are_those_of_post_and_release(void **unused) {
    (void)unused;
    char memory[BYTES];
    cgp__channel *channel = NULL;
    int64_t released_ns = -1;
    assert_ok(cgp__channel_create(&channel, memory, BYTES, 1, 0));
    void *buffer = cgp__channel_acquire(channel, &released_ns);
    assert_ptr_equal(buffer, memory);
    assert_int_equal(released_ns, 0);

    const int64_t before_post = cgp__now_ns();
    cgp__channel_post(channel, buffer, 5);
    const int64_t after_post = cgp__now_ns();
    const void *message = cgp__channel_take(channel, 5, &released_ns);
    assert_ptr_equal(message, memory);
    assert_in_range(released_ns, before_post, after_post);

    const int64_t before_release = cgp__now_ns();
    cgp__channel_release(channel, message);
    const int64_t after_release = cgp__now_ns();
    assert_ptr_equal(cgp__channel_acquire(channel, &released_ns), memory);
    assert_in_range(released_ns, before_release, after_release);
    cgp__channel_destroy(channel);
}

static void *send_all(void *argument) {
    cgp__channel *channel = argument;
    int64_t released_ns;
    for (int i = 0; i < MESSAGES; i++) {
        int *buffer = cgp__channel_acquire(channel, &released_ns);
        if (!buffer) break;
        *buffer = i * i;
        cgp__channel_post(channel, buffer, i);
    }
    return NULL;
}

static void messages_arrive_whether_a_waiter_spins_or_blocks(void **unused) {
    (void)unused;
    for (size_t k = 0; k < sizeof spin_ns / sizeof spin_ns[0]; k++) {
        int memory[2 * BYTES / sizeof(int)];
        cgp__channel *channel = NULL;
        pthread_t sender;
        int64_t released_ns;
        assert_ok(cgp__channel_create(&channel, memory, BYTES, 2, spin_ns[k]));
        assert_int_equal(pthread_create(&sender, NULL, send_all, channel), 0);
        for (int i = 0; i < MESSAGES; i++) {
            const int *message = cgp__channel_take(channel, i, &released_ns);
            assert_non_null(message);
            assert_int_equal(*message, i * i);
            cgp__channel_release(channel, message);
        }
        pthread_join(sender, NULL);
        cgp__channel_destroy(channel);
    }
}

/* With two buffers and no receiver the sender comes as far as its third message. */
static void a_stop_ends_every_wait(void **unused) {
    (void)unused;
    for (size_t k = 0; k < sizeof spin_ns / sizeof spin_ns[0]; k++) {
        int memory[2 * BYTES / sizeof(int)];
        cgp__channel *channel = NULL;
        pthread_t sender;
        int64_t released_ns;
        assert_ok(cgp__channel_create(&channel, memory, BYTES, 2, spin_ns[k]));
        assert_int_equal(pthread_create(&sender, NULL, send_all, channel), 0);
        while (!cgp__channel_waits(channel, true)) {
        }
        cgp__channel_stop(channel);
        pthread_join(sender, NULL);
        assert_null(cgp__channel_take(channel, 0, &released_ns));
        cgp__channel_destroy(channel);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whether_a_waiter_spins_or_blocks),
        cmocka_unit_test(a_stop_ends_every_wait),
        cmocka_unit_test(times_are_those_of_post_and_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
