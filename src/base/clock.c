/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c -- the clock for events, measurements and deadlines. */
#include "base/base.h"

#include <time.h>

int64_t cgp__now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void cgp__condition_init(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool cgp__wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns) {
    if (deadline_ns == INT64_MAX) return pthread_cond_wait(condition, lock) == 0;
    const struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    return pthread_cond_timedwait(condition, lock, &deadline) == 0;
}
