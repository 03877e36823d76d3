/* SPDX-License-Identifier: Apache-2.0 */
/* support.h -- shared by all tests. This header includes cmocka. It has macros that define tests,
 * assertions that check a status and print the message, and functions that draw random numbers. */
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
 * the source file. */
#define TEST_CASE(name) TEST_DEFINE(name, unused_state, cmocka_unit_test(name))

/* Define a function that runs as several tests. Each argument after `name` is cmocka's struct of
 * one of these tests, with its own `*state`. */
#define TEST_CASES(name, ...) TEST_DEFINE(name, state, __VA_ARGS__)

#define TEST_DEFINE(name, parameter, ...)                                                          \
    static void name(void **parameter);                                                            \
    __attribute__((constructor)) static void add_##name(void) {                                    \
        const struct CMUnitTest added[] = {__VA_ARGS__};                                           \
        for (size_t i = 0; i < sizeof added / sizeof added[0]; i++)                                \
            test_add(__LINE__, &added[i]);                                                         \
    }                                                                                              \
    static void name(__attribute__((unused)) void **parameter)

/* Set optional functions to run before and after all tests of a program, and before and after each
 * test, as in TEST_GROUP(.before = test_empty_before); */
#define TEST_GROUP(...) const test_group test_program = {__VA_ARGS__}

typedef struct test_group {
    CMFixtureFunction set_up, tear_down, before, after;
} test_group;

extern const test_group test_program;

/* Add a test. Tests run in the order of `line`. */
void test_add(int line, const struct CMUnitTest *test);

/* Run the tests that were added; return the number of failures. A test program that does not define
 * main() only calls this function. */
int test_run(void);

/* --- assertions --- */

/* Assert that a call returns CGP_OK; if it does not, print the call's message. */
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

/* Return the seed of this run: the environment variable CGP_TEST_SEED, or a random number. The seed
 * is printed, so that a failure can be repeated. */
uint64_t test_seed(void);

/* Return how many random cases a test must run: `n` times the environment variable CGP_TEST_SCALE
 * (default 1), but at least 1. */
int test_scaled(int n);

/* Skip a test of the cpu backend if CGP_TEST_DEVICES names another backend (devices.c). */
void test_needs_cpu(void);
/* Skip a test that works only with a single rank if CGP_TEST_RANKS asks for several ranks
 * (ranks.c). */
void test_needs_one_rank(void);

/* test_random() returns the next number of a random generator (splitmix64). test_between() returns
 * a random number from `low` to `high`, both included. */
uint64_t test_random(uint64_t *state);
int test_between(uint64_t *state, int low, int high);

/* Count the threads of the process. The kernel lists a joined thread for a short time. So, while
 * there are more than TEST_THREADS threads, this function waits for at most 10 s. */
int test_count_threads(void);

/* Number of threads of a process without workers: the main thread, and one more under the thread
 * sanitizer. */
#ifdef TEST_TSAN
enum { TEST_THREADS = 2 };
#else
enum { TEST_THREADS = 1 };
#endif

#endif
