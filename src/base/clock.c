/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c -- one clock for events and measurements. */
#include "base/base.h"

#include <time.h>

int64_t cgp__now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
