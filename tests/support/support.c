/* SPDX-License-Identifier: Apache-2.0 */
/* support.c -- see support.h. */
#include "support.h"

#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

uint64_t test_seed(void) {
    const char *given = getenv("CGP_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t drawn =
        ((uint64_t)now.tv_nsec << 20) ^ (uint64_t)now.tv_sec ^ ((uint64_t)getpid() << 40);
    const uint64_t seed = given ? strtoull(given, NULL, 10) : drawn;
    /* silence warnings, because random batches often have fewer samples than micro-batches */
    cgp_log_set_level(CGP_LOG_ERROR);
    print_message("CGP_TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

int test_scaled(int n) {
    const char *given = getenv("CGP_TEST_SCALE");
    const double scaled = n * (given ? strtod(given, NULL) : 1);
    return scaled < 1 ? 1 : (int)scaled;
}

void test_needs_cpu(void) {
    if (getenv("CGP_TEST_DEVICES")) skip();
}

void test_needs_one_rank(void) {
    if (getenv("CGP_TEST_RANKS")) skip();
}

uint64_t test_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int test_between(uint64_t *state, int low, int high) {
    return low + (int)(test_random(state) % (uint64_t)(high - low + 1));
}

static int count_threads(void) {
    int count = 0;
    DIR *list = opendir("/proc/self/task");
    assert_non_null(list);
    for (struct dirent *item = readdir(list); item; item = readdir(list))
        count += item->d_name[0] != '.';
    closedir(list);
    return count;
}

int test_count_threads(void) {
    const time_t start = time(NULL);
    int count = count_threads();
    while (count > TEST_THREADS && time(NULL) - start < 10) {
        sched_yield();
        count = count_threads();
    }
    return count;
}
