/* SPDX-License-Identifier: Apache-2.0 */
/* cores.c -- prints, as JSON, the distance between two cores that this process may use. The member
 * round_trip_ns is the time of a round trip of a cache line that both cores write alternately. It
 * is the median of 21 runs. If the process has only one core, round_trip_ns is null.
 *
 * The round trip takes about 50 ns if both cores share a last-level cache, and several times as
 * much otherwise. A virtual machine may move to other cores, which changes the gain of a second
 * thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TRIPS = 2000, RUNS = 21 };

static _Alignas(128) _Atomic int turn;
static int cores[2];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stay_on(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* Wait until `turn` is `begin`, then `begin` + 2, `begin` + 4, and so on below `end`. After each
 * wait, store the next number. */
static void play(int begin, int end) {
    for (int i = begin; i < end; i += 2) {
        while (atomic_load_explicit(&turn, memory_order_acquire) != i)
            continue;
        atomic_store_explicit(&turn, i + 1, memory_order_release);
    }
}

static void *answer(void *unused) {
    (void)unused;
    stay_on(cores[1]);
    play(1, 2 * TRIPS * RUNS);
    return NULL;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Find the first two allowed cores; return whether there are two. */
static int find_cores(void) {
    cpu_set_t allowed;
    int found = 0;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed)) cores[found++] = core;
    return found == 2;
}

int main(void) {
    double seconds[RUNS];
    pthread_t other;
    if (!find_cores() || pthread_create(&other, NULL, answer, NULL) != 0) {
        printf("{\"round_trip_ns\": null}\n");
        return 0;
    }
    stay_on(cores[0]);
    for (int run = 0; run < RUNS; run++) {
        const double start = now();
        play(2 * TRIPS * run, 2 * TRIPS * (run + 1));
        seconds[run] = (now() - start) / TRIPS;
    }
    pthread_join(other, NULL);
    qsort(seconds, RUNS, sizeof seconds[0], compare);
    printf("{\"round_trip_ns\": %.0f}\n", 1e9 * seconds[RUNS / 2]);
    return 0;
}
