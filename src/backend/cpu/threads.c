/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c -- one team of threads for all kernels of a device: OpenMP's.
 *
 * Threads of our own would fight with those of a library that uses OpenMP, as a BLAS in the user's
 * program may: after a kernel these spin on the device's cores for a while in case another comes,
 * and ours would do so too. In one team whoever spins is waiting for the next work, of either
 * kind.
 *
 * A team always has all threads of the device: libgomp ends those that a smaller team leaves
 * out and starts new ones for a larger. They inherit the owner's cores, all T of them, and are
 * not pinned one by one, because a thread started later would be on the owner's core alone.
 *
 * The counter of the grains taken is also what orders the memory of the threads as far as the
 * thread sanitizer can see, which knows nothing of OpenMP's barriers: every thread reads it
 * before it looks at anything, and adds to it once more after its last part. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/openmp.h"

static void take_parts(void *data) {
    cgp__device *device = data;
    (void)atomic_load_explicit(&device->taken, memory_order_acquire);
    const cgp__cpu_parallel_work s = device->shared;
    for (;;) {
        const int64_t grain =
            atomic_fetch_add_explicit(&device->taken, 1, memory_order_acq_rel);
        const int64_t begin = grain * s.grain, end = begin + s.grain;
        if (begin >= s.items) return;
        s.part(s.work, begin, end < s.items ? end : s.items, omp_get_thread_num());
    }
}

/* Eight grains for each thread: one that was held up keeps the others waiting for an eighth. */
void cgp__cpu_parallel_for(cgp__device *device, int64_t items, int64_t block,
                           cgp__cpu_part *part, const void *work) {
    if (items < 1) return;
    if (!cgp__cpu_shares(device->threads, items, block)) {
        part(work, 0, items, 0);
        return;
    }
    const int64_t blocks = (items + block - 1) / block, each = blocks / (8 * device->threads);
    device->shared = (cgp__cpu_parallel_work){part, work, items, block * (each < 1 ? 1 : each)};
    atomic_store_explicit(&device->taken, 0, memory_order_release);
    GOMP_parallel(take_parts, device, (unsigned)device->threads, 0);
    (void)atomic_load_explicit(&device->taken, memory_order_acquire);
}

void cgp__cpu_threads_end(void) {
    omp_pause_resource(OMP_PAUSE_SOFT, omp_get_initial_device());
}
