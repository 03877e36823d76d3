/* SPDX-License-Identifier: Apache-2.0 */
/* test_channel.c -- messages between two threads; and a channel tells when the other side let go
 * of a buffer, whoever waits:
 *
 *     sender      acquire        post                acquire    (the same buffer again)
 *                 never given      |  given            |  given
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
    int64_t given = -1;
    assert_ok(cgp__channel_create(&channel, memory, BYTES, 1, 0));
    void *buffer = cgp__channel_acquire(channel, &given);
    assert_ptr_equal(buffer, memory);
    assert_int_equal(given, 0);

    const int64_t before_post = cgp__now_ns();
    cgp__channel_post(channel, buffer, 5);
    const int64_t after_post = cgp__now_ns();
    const void *message = cgp__channel_take(channel, 5, &given);
    assert_ptr_equal(message, memory);
    assert_in_range(given, before_post, after_post);

    const int64_t before_release = cgp__now_ns();
    cgp__channel_release(channel, message);
    const int64_t after_release = cgp__now_ns();
    assert_ptr_equal(cgp__channel_acquire(channel, &given), memory);
    assert_in_range(given, before_release, after_release);
    cgp__channel_destroy(channel);
}

static void *send_all(void *argument) {
    cgp__channel *channel = argument;
    int64_t given;
    for (int i = 0; i < MESSAGES; i++) {
        int *buffer = cgp__channel_acquire(channel, &given);
        if (!buffer) break;
        *buffer = i * i;
        cgp__channel_post(channel, buffer, i);
    }
    return NULL;
}

static void messages_arrive_whether_one_waits_asleep_or_awake(void **unused) {
    (void)unused;
    for (size_t k = 0; k < sizeof spin_ns / sizeof spin_ns[0]; k++) {
        int memory[2 * BYTES / sizeof(int)];
        cgp__channel *channel = NULL;
        pthread_t sender;
        int64_t given;
        assert_ok(cgp__channel_create(&channel, memory, BYTES, 2, spin_ns[k]));
        assert_int_equal(pthread_create(&sender, NULL, send_all, channel), 0);
        for (int i = 0; i < MESSAGES; i++) {
            const int *message = cgp__channel_take(channel, i, &given);
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
        int64_t given;
        assert_ok(cgp__channel_create(&channel, memory, BYTES, 2, spin_ns[k]));
        assert_int_equal(pthread_create(&sender, NULL, send_all, channel), 0);
        while (!cgp__channel_waits(channel, true)) {
        }
        cgp__channel_stop(channel);
        pthread_join(sender, NULL);
        assert_null(cgp__channel_take(channel, 0, &given));
        cgp__channel_destroy(channel);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whether_one_waits_asleep_or_awake),
        cmocka_unit_test(a_stop_ends_every_wait),
        cmocka_unit_test(times_are_those_of_post_and_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
