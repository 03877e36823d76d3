/* SPDX-License-Identifier: Apache-2.0 */
/* support.h -- shared by all tests: cmocka's includes, the definition of a test, status assertions
 * that print the message, random seeds. */
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

/* --- tests --- */

/* Define a test, as in TEST_CASE(sums_are_exact) { ... }. A program runs its tests in the order of
 * its source. */
#define TEST_CASE(name) TEST_DEFINE(name, unused_state, cmocka_unit_test(name))

/* Define a function that runs as several tests. The other arguments are cmocka's structs of these
 * tests, each with its own `*state`. */
#define TEST_CASES(name, ...) TEST_DEFINE(name, state, __VA_ARGS__)

#define TEST_DEFINE(name, parameter, ...)                                                          \
    static void name(void **parameter);                                                            \
    __attribute__((constructor)) static void add_##name(void) {                                    \
        const struct CMUnitTest added[] = {__VA_ARGS__};                                           \
        for (size_t i = 0; i < sizeof added / sizeof added[0]; i++)                                \
            test_add(__LINE__, &added[i]);                                                         \
    }                                                                                              \
    static void name(__attribute__((unused)) void **parameter)

/* Optional functions before and after all tests of a program, and before and after each, as in
 * TEST_GROUP(.before = test_empty_before); */
#define TEST_GROUP(...) const test_group test_program = {__VA_ARGS__}

typedef struct test_group {
    CMFixtureFunction set_up, tear_down, before, after;
} test_group;

extern const test_group test_program;

/* Add a test, whose place in the order is `line`. */
void test_add(int line, const struct CMUnitTest *test);

/* Run the tests that were added; return the number of failures. A program without main() does only
 * this. */
int test_run(void);

/* --- assertions --- */

/* Assert that the call succeeds; print its message if not. */
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

/* Assert that the last message contains `part`. */
#define assert_message(part)                                                                       \
    do {                                                                                           \
        if (!strstr(cgp_message(), (part))) {                                                      \
            print_error("message \"%s\" does not contain \"%s\"\n", cgp_message(), (part));        \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* --- random numbers --- */

/* Return the seed of this run: the environment variable CGP_TEST_SEED, or a random number. It is
 * printed, so that a failure can be repeated. */
uint64_t test_seed(void);

/* Return a number of random cases: n times CGP_TEST_SCALE (default 1), at least 1. */
int test_scaled(int n);

/* Skip a test of the cpu backend if CGP_TEST_DEVICES names another backend (devices.c). */
void test_needs_cpu(void);
/* Skip a test that inspects its only rank if CGP_TEST_RANKS asks for several (ranks.c). */
void test_needs_one_rank(void);

/* Return the next number of a test's generator (splitmix64); test_between() scales it to [low,
 * high]. */
uint64_t test_random(uint64_t *state);
int test_between(uint64_t *state, int low, int high);

/* Count the threads of the process. The kernel lists a joined thread for a moment longer, so this
 * waits at most 10 s while there are more than TEST_THREADS. */
int test_count_threads(void);

/* Number of threads of a process without workers: the test's own, and one more under the thread
 * sanitizer. */
#ifdef TEST_TSAN
enum { TEST_THREADS = 2 };
#else
enum { TEST_THREADS = 1 };
#endif

#endif
