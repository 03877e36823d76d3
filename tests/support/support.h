/* SPDX-License-Identifier: Apache-2.0 */
/* support.h -- shared by all tests: cmocka's includes, status assertions that print the message,
 * seeds drawn anew. */
#ifndef CGP_TESTS_SUPPORT_H
#define CGP_TESTS_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cgpipe/base.h>

/* The call succeeds; if not, its message is printed. */
#define assert_ok(call) assert_status((call), CGP_OK)

#define assert_status(call, expected)                                                              \
    do {                                                                                           \
        const cgp_status status_ = (call);                                                         \
        if (status_ != (expected)) {                                                               \
            print_error("%s: %s (%s), expected %s\n", #call, cgp_status_name(status_),             \
                        cgp_message(), cgp_status_name(expected));                                 \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* The last message contains `part`. */
#define assert_message(part)                                                                       \
    do {                                                                                           \
        if (!strstr(cgp_message(), (part))) {                                                      \
            print_error("message \"%s\" does not contain \"%s\"\n", cgp_message(), (part));        \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* A seed for this run: the environment variable CGP_TEST_SEED, or drawn anew. Printed, so that
 * a failure can be repeated. */
uint64_t test_seed(void);

/* A number of random cases: n, times CGP_TEST_SCALE (default 1), at least 1. */
int test_scaled(int n);

/* Skip a test that is about the cpu, where CGP_TEST_DEVICES names another backend (devices.c). */
void test_needs_cpu(void);
/* Skip a test that looks into the only rank, where CGP_TEST_RANKS asks for several (ranks.c). */
void test_needs_one_rank(void);

/* The next number of a test's own generator (splitmix64); in [low, high] for test_between. */
uint64_t test_random(uint64_t *state);
int test_between(uint64_t *state, int low, int high);

/* How many threads the process has. One that was joined is there a moment longer, until the
 * kernel has cleared it away: waits while there are more than TEST_THREADS, 10 s at most. */
int test_count_threads(void);

/* Threads of a process without workers: the test's own, and one of the thread sanitizer's once
 * there were others. */
#ifdef TEST_TSAN
enum { TEST_THREADS = 2 };
#else
enum { TEST_THREADS = 1 };
#endif

#endif
