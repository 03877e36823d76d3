/* test_channel.c -- a channel tells when the other side let go of a buffer, whoever waits.
 *
 *     sender      acquire        post                acquire    (the same buffer again)
 *                 never given      |  given            |  given
 *     receiver                   take     release ─────┘
 */
#include "support.h"

#include "transport/transport.h"

static void times_are_those_of_post_and_release(void **unused) {
    (void)unused;
    enum { BYTES = 64 };
    char memory[BYTES];
    cgp__channel *channel = NULL;
    int64_t given = -1;
    assert_ok(cgp__channel_create(&channel, memory, BYTES, 1));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_those_of_post_and_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
