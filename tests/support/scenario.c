/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.c -- see scenario.h. */
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <time.h>

#include "checkpoints.h"

static shortage place; /* the allocation that fails */
static bool reported;  /* an API call has reported the failure */
static int complaints;

void note(outcome *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t capacity = sizeof out->text - out->used;
    const int n = vsnprintf(out->text + out->used, capacity, format, args);
    va_end(args);
    out->used += n > 0 && (size_t)n < capacity ? (size_t)n : 0;
}

static void complain(const char *format, ...) CGP_PRINTF(1, 2);

static void complain(const char *format, ...) {
    const char *function = shortage_function();
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_error("thread %d, call %d (%s), %s: %s\n", place.thread, place.number,
                function ? function : "not met", place.lasting ? "lasting" : "once", text);
    complaints++;
}

/* --- API calls --- */

static bool is_clean(cgp_status status) {
    const char *message = cgp_message(), *colon = strstr(message, ": ");
    if (!colon || colon == message) return false;
    if (status == CGP_EIO) return strstr(message, strerror(ENOMEM)); /* a file call failed */
    return status == CGP_ENOMEM &&
           (strstr(message, "memory") || strstr(message, "thread could not be started"));
}

bool scenario_came_short(const char *call, cgp_status status) {
    if (status == CGP_OK || !shortage_function()) return false;
    if (!is_clean(status)) complain("%s: %s: \"%s\"", call, cgp_status_name(status), cgp_message());
    reported = true;
    return !place.lasting;
}

/* --- running a scenario --- */

/* Counts of everything that a run of a scenario can leak. */
typedef struct footprint {
    shortage_alive alive;
    int tasks, descriptors, temporaries;
} footprint;

static footprint measure(void) {
    return (footprint){shortage_count_alive(), test_count_threads(),
                       count_names("/proc/self/fd", ""),
                       count_names(run, ".cgpipe-") + count_names(test_directory, ".cgpipe-")};
}

static cgp_status play(scenario *act, shortage chosen, outcome *out) {
    remove_tree(run);
    place = chosen;
    reported = false;
    *out = (outcome){.used = 0};
    shortage_begin(chosen);
    const cgp_status status = act(out);
    shortage_end();
    return status;
}

static void check_footprint(const footprint *before) {
    /* If a directory could not be listed, it stays until the next cleaning. So clean here. */
    const char *function = shortage_function();
    const bool listing =
        function && (strstr(function, "opendir") || strcmp(function, "readdir") == 0);
    if (place.lasting || listing) assert_ok(cgp_checkpoint_clean(run));
    const footprint now = measure();
    const shortage_alive *a = &before->alive, *b = &now.alive;
    if (memcmp(a, b, sizeof *a) != 0)
        complain("leaks %lld blocks, %lld mapped bytes, %lld streams, %lld threads",
                 (long long)(b->blocks - a->blocks), (long long)(b->mapped_bytes - a->mapped_bytes),
                 (long long)(b->streams - a->streams), (long long)(b->threads - a->threads));
    if (now.tasks > TEST_THREADS || now.descriptors != before->descriptors)
        complain("%d threads and %d descriptors before, %d and %d now", TEST_THREADS,
                 before->descriptors, now.tasks, now.descriptors);
    if (now.temporaries) complain("%d temporary files are left", now.temporaries);
}

/* Run the scenario, and make the allocation `chosen` fail. Return true if the run succeeded and no
 * API call reported the failure. */
static bool check_place(scenario *act, shortage chosen, const outcome *expected,
                        const footprint *before) {
    outcome got;
    const cgp_status status = play(act, chosen, &got);
    if (!shortage_function()) complain("there was no such call this time");
    if (status == CGP_OK && strcmp(got.text, expected->text) != 0)
        complain("got\n%sexpected\n%s", got.text, expected->text);
    if (status != CGP_OK && !reported) complain("not reported as a shortage: %s", cgp_message());
    if (status != CGP_OK && !chosen.lasting)
        complain("does not work when tried again: %s", cgp_message());
    check_footprint(before);
    return status == CGP_OK && !reported;
}

/* Return true if the environment variable CGP_TEST_PLACE is unset or names this allocation. */
static bool is_asked_for(const char *name, int thread, int number) {
    const char *given = getenv("CGP_TEST_PLACE");
    char asked[128];
    snprintf(asked, sizeof asked, "%s:%d:%d", name, thread, number);
    return !given || strcmp(given, asked) == 0;
}

void scenario_check(const char *name, scenario *act) {
    outcome expected, again;
    int calls[SHORTAGE_THREADS], total = 0, unnoticed = 0;
    /* By default a random half of the allocations is tested; CGP_TEST_SCALE=2 tests all. */
    const int drawn = 2000 / test_scaled(1000), stride = drawn > 1 ? drawn : 1;
    uint64_t random = stride > 1 ? test_seed() : 0;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    complaints = 0;
    /* the first run initialises libraries */
    assert_ok(play(act, (shortage){.thread = -1}, &expected));
    const footprint before = measure();
    assert_ok(play(act, (shortage){.thread = -1}, &again));
    for (int t = 0; t < SHORTAGE_THREADS; t++)
        total += calls[t] = shortage_asked(t);
    check_footprint(&before);
    assert_string_equal(expected.text, again.text);
    for (int t = 0; t < SHORTAGE_THREADS; t++) {
        for (int i = 0; i < calls[t] && complaints < 20; i++) {
            if (!is_asked_for(name, t, i) || test_between(&random, 1, stride) != 1) continue;
            unnoticed += check_place(act, (shortage){.thread = t, .number = i}, &expected, &before);
            (void)check_place(act, (shortage){.thread = t, .number = i, .lasting = true}, &expected,
                              &before);
        }
    }
    assert_ok(play(act, (shortage){.thread = -1}, &again));
    assert_string_equal(expected.text, again.text);
    clock_gettime(CLOCK_MONOTONIC, &end);
    print_message("%s: %d allocations, %d not needed, %.1f s\n", name, total, unnoticed,
                  (double)(end.tv_sec - start.tv_sec) +
                      1e-9 * (double)(end.tv_nsec - start.tv_nsec));
    assert_int_equal(complaints, 0);
}

int scenario_set_up(void **state) {
    cgp_log_set_level(CGP_LOG_ERROR);
    shortage_init();
    if (test_make_directory(state)) return -1;
    snprintf(run, sizeof run, "%s/run", test_directory);
    return 0;
}

int scenario_tear_down(void **state) {
    (void)state;
    remove_tree(test_directory);
    return 0;
}
