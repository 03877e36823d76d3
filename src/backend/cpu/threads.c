/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c -- static partition with work stealing (Blumofe and Leiserson 1999; affinity
 * scheduling, Markatos and LeBlanc 1994), on one OpenMP team for all kernels of a device.
 *
 * A separate thread pool would compete with the OpenMP team of libraries, such as a BLAS in the
 * user's program. After a kernel, both the pool and the team would spin on the device's cores. In
 * one team, a spinning thread takes the next work, no matter whether it comes from a kernel or from
 * the library.
 *
 * A team always has all threads of the device, because libgomp ends threads that a smaller team
 * does not need, and starts new threads for a larger team. Threads inherit the owner's affinity,
 * which includes all T cores. The threads are not pinned one by one: a thread that is started later
 * would inherit the owner's single core.
 *
 * A thread begins with its own partition of the items, which is the same part in each kernel. This
 * gives cache affinity, because that part of the previous kernel's result is still in the thread's
 * own caches. A thread that has finished its partition steals unstarted grains from the others.
 *
 * The thread sanitizer does not see OpenMP's barriers. The counter `taken` therefore also orders
 * the memory accesses of the threads: every thread reads `taken` first, and adds to it after its
 * last range. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "backend/cpu/cpu.h"
#include "backend/cpu/openmp.h"

#include <dlfcn.h>
#include <sched.h>
#include <string.h>

/* Number of spins before a waiting thread yields its core. */
#define SPINS 1000

static void run_partition(const cgp__cpu_parallel_work *w, cgp__cpu_partition *partition) {
    for (;;) {
        const int64_t grain = atomic_fetch_add_explicit(&partition->next, 1, memory_order_relaxed);
        const int64_t begin = grain * w->grain, end = begin + w->grain;
        if (grain >= partition->end) return;
        w->range(w->work, begin, end < w->items ? end : w->items, omp_get_thread_num());
    }
}

/* Run the thread's own partition, then steal from the others. */
static void run_and_steal(void *data) {
    cgp_device *device = data;
    (void)atomic_load_explicit(&device->taken, memory_order_acquire);
    const cgp__cpu_parallel_work w = device->parallel;
    for (int i = 0, of = omp_get_thread_num(); i < device->threads; i++, of++)
        run_partition(&w, &device->partitions[of % device->threads]);
    atomic_fetch_add_explicit(&device->taken, 1, memory_order_acq_rel);
}

/* Divide the grains equally among the threads. */
static void partition_grains(cgp_device *device, int64_t grains) {
    int64_t first = 0;
    for (int i = 0; i < device->threads; i++) {
        cgp__cpu_partition *partition = &device->partitions[i];
        atomic_store_explicit(&partition->next, first, memory_order_relaxed);
        partition->end = first = grains * (i + 1) / device->threads;
    }
}

/* Make eight grains per thread, so that a late thread delays the others by at most an eighth of its
 * work. */
void cgp__cpu_parallel_for(cgp_device *device, int64_t items, int64_t block, cgp__range *range,
                           const void *work) {
    if (items < 1) return;
    if (!cgp__cpu_is_parallel(device->threads, items, block)) {
        range(work, 0, items, 0);
        return;
    }
    const int64_t blocks = cgp__ceil_div(items, block), each = blocks / (8 * device->threads);
    const int64_t grain = block * (each < 1 ? 1 : each);
    device->parallel = (cgp__cpu_parallel_work){range, work, items, grain};
    partition_grains(device, cgp__ceil_div(items, grain));
    atomic_store_explicit(&device->taken, 0, memory_order_release);
    GOMP_parallel(run_and_steal, device, (unsigned)device->threads, 0);
    (void)atomic_load_explicit(&device->taken, memory_order_acquire);
}

typedef struct ordered_work {
    cgp__cpu_item *make, *add;
    const void *work;
    int64_t items;
    /* `taken`: number of items that threads have begun. `added`: number of items whose results are
     * added. */
    _Atomic int64_t *taken, *added;
} ordered_work;

/* Wait until all earlier items are added. The thread with the earliest item is running, so this
 * wait ends. */
static void wait_for(_Atomic int64_t *added, int64_t item) {
    int spins = 0;
    while (atomic_load_explicit(added, memory_order_acquire) != item) {
        if (spins < SPINS)
            spins++;
        else
            sched_yield();
    }
}

/* Run on every thread: process items in order until none is left. */
static void take_items(const void *of, int64_t begin, int64_t end, int thread) {
    const ordered_work *w = of;
    (void)begin;
    (void)end;
    for (;;) {
        const int64_t item = atomic_fetch_add_explicit(w->taken, 1, memory_order_relaxed);
        if (item >= w->items) return;
        w->make(w->work, item, thread);
        wait_for(w->added, item);
        w->add(w->work, item, thread);
        atomic_store_explicit(w->added, item + 1, memory_order_release);
    }
}

void cgp__cpu_parallel_in_order(cgp_device *device, int64_t items, cgp__cpu_item *make,
                                cgp__cpu_item *add, const void *work) {
    _Atomic int64_t taken = 0, added = 0;
    const ordered_work w = {make, add, work, items, &taken, &added};
    cgp__cpu_parallel_for(device, device->threads, 1, take_items, &w);
}

/* omp_pause_resource() is looked up by name, because the OpenMP library may be older than OpenMP
 * 5.0: if a process loads PyTorch's wheels, all of its code uses PyTorch's OpenMP library. */
void cgp__cpu_threads_end(void) {
    void *const found = dlsym(RTLD_DEFAULT, "omp_pause_resource");
    int (*pause)(int kind, int device);
    memcpy(&pause, &found, sizeof pause);
    if (pause) pause(OMP_PAUSE_SOFT, omp_get_initial_device());
}
