/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c -- one team of threads for all kernels of a device: OpenMP's.
 *
 * A thread pool of our own would compete with OpenMP libraries, such as a BLAS in the user's program: after a kernel both pools
 * spin on the device's cores for a while in case another comes. In one team a spinning thread waits for the next work of either
 * kind.
 *
 * A team always has all threads of the device: libgomp ends those that a smaller team leaves out and starts new ones for a
 * larger. They inherit the owner's cores, all T of them, and are not pinned one by one, because a thread started later
 * would be on the owner's core alone.
 *
 * The thread sanitizer does not see OpenMP's barriers. The counter of grains therefore also orders the threads' memory: every
 * thread reads it first, and adds to it once more after its last range. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "backend/cpu/cpu.h"
#include "backend/cpu/openmp.h"

#include <dlfcn.h>
#include <string.h>

static void take_ranges(void *data) {
    cgp_device *device = data;
    (void)atomic_load_explicit(&device->taken, memory_order_acquire);
    const cgp__cpu_parallel_work w = device->parallel;
    for (;;) {
        const int64_t grain =
            atomic_fetch_add_explicit(&device->taken, 1, memory_order_acq_rel);
        const int64_t begin = grain * w.grain, end = begin + w.grain;
        if (begin >= w.items) return;
        w.range(w.work, begin, end < w.items ? end : w.items, omp_get_thread_num());
    }
}

/* Eight grains for each thread: a late one delays the others by an eighth at most. */
void cgp__cpu_parallel_for(cgp_device *device, int64_t items, int64_t block, cgp__range *range,
                           const void *work) {
    if (items < 1) return;
    if (!cgp__cpu_is_parallel(device->threads, items, block)) {
        range(work, 0, items, 0);
        return;
    }
    const int64_t blocks = (items + block - 1) / block, each = blocks / (8 * device->threads);
    device->parallel =
        (cgp__cpu_parallel_work){range, work, items, block * (each < 1 ? 1 : each)};
    atomic_store_explicit(&device->taken, 0, memory_order_release);
    GOMP_parallel(take_ranges, device, (unsigned)device->threads, 0);
    (void)atomic_load_explicit(&device->taken, memory_order_acquire);
}

/* Found by name, as the library may be older than OpenMP 5.0: in a process of PyTorch's wheels theirs serves all. */
void cgp__cpu_threads_end(void) {
    void *const found = dlsym(RTLD_DEFAULT, "omp_pause_resource");
    int (*pause)(int kind, int device);
    memcpy(&pause, &found, sizeof pause);
    if (pause) pause(OMP_PAUSE_SOFT, omp_get_initial_device());
}
