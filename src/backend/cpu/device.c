/* SPDX-License-Identifier: Apache-2.0 */
/* device.c -- a CPU device: its owner thread and its memory.
 *
 * OpenMP stores a number of threads for each calling thread (threads.c), so the owner thread sets
 * its number when it creates the device. OpenMP's threads inherit the owner's affinity. To pin a
 * device of T threads, the owner therefore sets its own affinity to T consecutive cores. The first
 * kernel starts the threads. When the device is destroyed, GCC's OpenMP library ends them, but in
 * LLVM's library they sleep until the next device uses them. */
#define _GNU_SOURCE
#include "backend/cpu/cpu.h"
#include "backend/cpu/openmp.h"
#include "backend/device_names.h"
#include "backend/registry.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

struct cgp__cpu_thread {
    pthread_t owner;
    int omp_threads;
    bool pinned, confined;
    cpu_set_t cores;
};

/* --- the owner thread --- */

/* Return whether the hardware thread `core` is the first of its physical core. Return true if the
 * system has no topology files. */
static bool is_first_sibling(int core) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             core);
    return cgp__read_number(path, core) == core;
}

/* Return the first core of a device, or -1 to leave it unpinned. A device takes consecutive cores,
 * one per thread, if this process may use enough cores and no two of them share a physical core. If
 * the process has only one device, the device is not pinned, so that two programs may share a
 * machine. */
static int core_of(const cgp_device_options *o) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (o->count <= 1 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        CPU_COUNT(&allowed) < o->count * o->threads)
        return -1;
    int first = 0;
    while (!CPU_ISSET(first, &allowed))
        first++;
    for (int core = first; core < first + o->count * o->threads; core++) {
        if (core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed) || !is_first_sibling(core)) return -1;
    }
    return first + o->index * o->threads;
}

/* Return whether the process has one device and exactly as many cores as that device has threads.
 * If so, the launcher has pinned the process. */
static bool is_confined(const cgp_device_options *o) {
    cpu_set_t allowed;
    return o->count == 1 && sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
           CPU_COUNT(&allowed) == o->threads;
}

static cgp_status pin(struct cgp__cpu_thread *thread, int threads, int core) {
    if (core < 0) return CGP_OK;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (int i = core; i < core + threads && i < CPU_SETSIZE; i++)
        CPU_SET(i, &cores);
    int error = pthread_getaffinity_np(pthread_self(), sizeof thread->cores, &thread->cores);
    if (!error) error = pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    if (error)
        return cgp_fail(CGP_EINVAL, "cpu: expects a core of this machine, got %d (%s)", core,
                        strerror(error));
    thread->pinned = true;
    return CGP_OK;
}

static cgp_status start(cgp_device *device, const cgp_device_options *options, int core) {
    device->thread->owner = pthread_self();
    device->thread->omp_threads = omp_get_max_threads();
    CGP_TRY(cgp__cpu_isa_choose(device, options->isa));
    CGP_TRY(pin(device->thread, device->threads, core));
    omp_set_num_threads(device->threads);
    if (omp_get_proc_bind() != OMP_PROC_BIND_FALSE)
        cgp_log(CGP_LOG_WARN, "cpu",
                "OpenMP binds every device to the same core, which halves the speed "
                "(unset OMP_PROC_BIND and OMP_PLACES)");
    return CGP_OK;
}

cgp_status cgp__cpu_device_create(cgp_device **out, const cgp_device_options *options) {
    const int threads = options->threads, core = core_of(options);
    if (threads < 1) return cgp_fail(CGP_EINVAL, "cpu: expects 1 or more threads, got %d", threads);
    CGP_TRY(cgp__device_check_ordinal(&cgp__backend_cpu, options));
    const size_t bytes = (size_t)threads * sizeof(cgp__cpu_partition);
    cgp_device *device = cgp__calloc(1, sizeof *device);
    struct cgp__cpu_thread *thread = cgp__calloc(1, sizeof *thread);
    cgp__cpu_partition *partitions = aligned_alloc(_Alignof(cgp__cpu_partition), bytes);
    if (!device || !thread || !partitions) {
        free(partitions);
        free(thread);
        free(device);
        return cgp__no_memory("cpu: device", sizeof *device + sizeof *thread + bytes);
    }
    device->threads = threads;
    device->thread = thread;
    device->partitions = partitions;
    thread->confined = is_confined(options);
    device->l2_bytes = cgp__max(sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
    const cgp_status status = start(device, options, core);
    if (status != CGP_OK) {
        cgp__cpu_device_destroy(device);
        return status;
    }
    cgp_log(CGP_LOG_INFO, "cpu", "device of %d threads, core %d, kernels for x86-64-%s", threads,
            core, device->kernels->isa);
    *out = device;
    return CGP_OK;
}

bool cgp__cpu_has_cores(const cgp_device *device) {
    return device->thread->pinned || device->thread->confined;
}

/* If the calling thread is the owner, restore its affinity and its number of OpenMP threads. */
void cgp__cpu_device_destroy(cgp_device *device) {
    if (!device) return;
    struct cgp__cpu_thread *thread = device->thread;
    if (pthread_equal(thread->owner, pthread_self())) {
        if (device->threads > 1) cgp__cpu_threads_end();
        if (thread->pinned)
            pthread_setaffinity_np(pthread_self(), sizeof thread->cores, &thread->cores);
        omp_set_num_threads(thread->omp_threads);
    }
    free(device->partitions);
    free(thread);
    free(device);
}

/* --- memory --- */

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Map `bytes` bytes (whole pages) at an address that is a multiple of a huge page's size, and unmap
 * the surplus. */
static void *map_aligned(size_t bytes) {
    const size_t capacity = bytes + HUGE_PAGE;
    char *begin = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return NULL;
    const size_t head = round_up((uintptr_t)begin, HUGE_PAGE) - (uintptr_t)begin;
    if (head) munmap(begin, head);
    if (capacity - head > bytes) munmap(begin + head + bytes, capacity - head - bytes);
    return begin + head;
}

/* Linux overcommits memory and kills the process that touches too much of it, so check what is
 * available first. */
cgp_status cgp__cpu_memory_create(cgp_device *device, size_t bytes, void **out) {
    (void)device;
    if (bytes > SIZE_MAX / 4) return cgp__no_memory("cpu: device memory", bytes);
    const size_t page = page_bytes(), capacity = round_up(bytes ? bytes : 1, page);
    if (capacity > HUGE_PAGE && (int64_t)capacity > cgp__memory_available())
        return cgp__no_memory("cpu: device memory", bytes);
    char *memory = map_aligned(capacity);
    if (!memory) return cgp__no_memory("cpu: device memory", bytes);
    madvise(memory, capacity, MADV_HUGEPAGE); /* a hint; the call may fail */
    for (size_t i = 0; i < capacity; i += page)
        ((volatile char *)memory)[i] = 0; /* new pages are zero; a write makes them resident */
    *out = memory;
    return CGP_OK;
}

void cgp__cpu_memory_destroy(cgp_device *device, void *memory, size_t bytes) {
    (void)device;
    if (memory) munmap(memory, round_up(bytes ? bytes : 1, page_bytes()));
}
