/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c -- the fake CUDA runtime: streams. A stream is a thread with a list of work items:
 * events (events.c), copies and launches. The NULL stream runs in the caller's thread. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "work.h"

typedef cgp__shim_work work;

struct CUstream_st {
    struct CUstream_st *next; /* next in the list of all streams */
    int device;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    work *first, **end;
    bool busy, stopped;
    cudaStream_t branches[CGP__SHIM_BRANCHES]; /* streams for branches of graphs launched here */
    uint64_t random, seeds; /* `random` is used for delays, `seeds` for launches */
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static cudaStream_t streams;
static uint64_t n_streams; /* number of streams created so far */

/* --- work --- */

static void delay(uint64_t *random) {
    const int64_t limit = cgp__shim_get_delay();
    if (limit == 0) return;
    const int64_t ns = (int64_t)(cgp__shim_random(random) % (uint64_t)limit);
    struct timespec left = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void run_work(int device, const work *w) {
    cudaError_t error = cgp__shim_failure(device);
    if (error == cudaSuccess && !w->always) error = cgp__shim_next_work();
    if (error == cudaSuccess || w->always) {
        const cudaError_t own = w->run(w->payload);
        if (error == cudaSuccess) error = own;
    }
    if (error != cudaSuccess) cgp__shim_fail_device(device, error);
}

static void *serve(void *of) {
    cudaStream_t s = of;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->stopped)
            pthread_cond_wait(&s->changed, &s->lock);
        work *w = s->first;
        if (!w) break;
        s->first = w->next;
        if (!s->first) s->end = &s->first;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        delay(&s->random);
        run_work(s->device, w);
        free(w);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void wait_until_empty(cudaStream_t s) {
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

int cgp__shim_device_of(cudaStream_t stream) {
    return stream ? stream->device : cgp__shim_current_device();
}

work *cgp__shim_make_work(cgp__shim_run *run, bool always, const void *payload, size_t bytes) {
    work *w = malloc(sizeof *w + bytes);
    if (!w) return NULL;
    w->next = NULL;
    w->run = run;
    w->bytes = bytes;
    w->always = always;
    memcpy(w->payload, payload, bytes);
    return w;
}

cudaError_t cgp__shim_enqueue(cudaStream_t stream, work *w) {
    const int device = cgp__shim_device_of(stream);
    if (device != cgp__shim_current_device()) {
        free(w);
        return cudaErrorInvalidResourceHandle;
    }
    if (!stream) {
        run_work(device, w);
        free(w);
        return cgp__shim_failure(device);
    }
    pthread_mutex_lock(&stream->lock);
    *stream->end = w;
    stream->end = &w->next;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

cudaError_t cgp__shim_add(cudaStream_t stream, cgp__shim_run *run, bool always, const void *payload,
                          size_t bytes) {
    const bool captures = cgp__shim_captures(stream);
    if ((captures && always) || !stream) CGP__SHIM_TRY(cgp__shim_refuse_capture());
    work *w = cgp__shim_make_work(run, always, payload, bytes);
    if (!w) return cudaErrorMemoryAllocation;
    return captures ? cgp__shim_capture(stream, w) : cgp__shim_enqueue(stream, w);
}

/* --- streams --- */

static cudaStream_t new_stream(int device) {
    cudaStream_t s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->device = device;
    s->end = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_mutex_lock(&streams_lock);
    s->random = s->seeds = ++n_streams;
    const bool started = pthread_create(&s->thread, NULL, serve, s) == 0;
    if (started) {
        s->next = streams;
        streams = s;
    }
    pthread_mutex_unlock(&streams_lock);
    if (started) return s;
    free(s);
    return NULL;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != cudaStreamNonBlocking) return cgp__shim_leave(cudaErrorInvalidValue);
    cudaStream_t s = new_stream(cgp__shim_current_device());
    if (!s) return cgp__shim_leave(cudaErrorMemoryAllocation);
    *stream = s;
    cgp__shim_count_object(1);
    return cudaSuccess;
}

cudaStream_t cgp__shim_branch_of(cudaStream_t stream, int i) {
    if (i == 0) return stream;
    cudaStream_t *branch = &stream->branches[i - 1];
    if (!*branch) *branch = new_stream(stream->device);
    return *branch;
}

static void free_stream(cudaStream_t stream) {
    pthread_mutex_lock(&streams_lock);
    for (cudaStream_t *at = &streams; *at; at = &(*at)->next) {
        if (*at != stream) continue;
        *at = stream->next;
        break;
    }
    pthread_mutex_unlock(&streams_lock);
    pthread_mutex_lock(&stream->lock);
    stream->stopped = true; /* the thread ends when the list is empty */
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const int device = stream->device;
    cudaStream_t branches[CGP__SHIM_BRANCHES];
    memcpy(branches, stream->branches, sizeof branches);
    cgp__shim_drop_capture(stream);
    free_stream(stream);
    for (int i = 0; i < CGP__SHIM_BRANCHES; i++) {
        if (branches[i]) free_stream(branches[i]);
    }
    cgp__shim_count_object(-1);
    return cgp__shim_leave(cgp__shim_enter_on(device));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    if (stream) wait_until_empty(stream); /* also after a failure */
    return cgp__shim_leave(cgp__shim_enter_on(cgp__shim_device_of(stream)));
}

void cgp__shim_drain(int device) {
    pthread_mutex_lock(&streams_lock);
    for (cudaStream_t s = streams; s; s = s->next) {
        if (s->device == device) wait_until_empty(s);
    }
    pthread_mutex_unlock(&streams_lock);
}

/* --- copies --- */

typedef struct copying {
    void *to;
    const void *from;
    size_t bytes;
    int value;
} copying;

static cudaError_t run_copy(const void *payload) {
    const copying *c = payload;
    memcpy(c->to, c->from, c->bytes);
    return cudaSuccess;
}

static cudaError_t run_set(const void *payload) {
    const copying *c = payload;
    memset(c->to, c->value, c->bytes);
    return cudaSuccess;
}

/* Enqueue a copy. The fake is stricter than CUDA: a copy of pageable memory fails, because in CUDA
 * the host would have to wait for the copy. */
static cudaError_t add_copy(cudaStream_t stream, const copying *c, int to, int from) {
    if (c->bytes == 0) return cudaSuccess;
    if (to == CGP__SHIM_PAGEABLE || from == CGP__SHIM_PAGEABLE) return cudaErrorInvalidValue;
    return cgp__shim_add(stream, run_copy, false, c, sizeof *c);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    const copying c = {memory, NULL, bytes, value};
    CGP__SHIM_TRY(cgp__shim_enter());
    if (bytes == 0) return cudaSuccess;
    if (cgp__shim_owner(memory, bytes) == CGP__SHIM_PAGEABLE)
        return cgp__shim_leave(cudaErrorInvalidValue);
    return cgp__shim_leave(cgp__shim_add(stream, run_set, false, &c, sizeof c));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const copying c = {to, from, bytes, 0};
    const int to_owner = cgp__shim_owner(to, bytes), from_owner = cgp__shim_owner(from, bytes);
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    CGP__SHIM_TRY(cgp__shim_enter());
    if (bytes > 0 && kind != cudaMemcpyDefault &&
        (to_device != (to_owner >= 0) || from_device != (from_owner >= 0)))
        return cgp__shim_leave(cudaErrorInvalidValue);
    return cgp__shim_leave(add_copy(stream, &c, to_owner, from_owner));
}

/* Copy between devices without peer access, through host memory. */
static cudaError_t run_staged_copy(const void *payload) {
    const copying *c = payload;
    void *staging = malloc(c->bytes);
    if (!staging) return cudaErrorMemoryAllocation;
    memcpy(staging, c->from, c->bytes);
    memcpy(c->to, staging, c->bytes);
    free(staging);
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    const copying c = {to, from, bytes, 0};
    const int here = cgp__shim_current_device(), peer = here == to_device ? from_device : to_device;
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    CGP__SHIM_TRY(cgp__shim_enter());
    if (bytes == 0) return cudaSuccess;
    if (cgp__shim_owner(to, bytes) != to_device || cgp__shim_owner(from, bytes) != from_device)
        return cgp__shim_leave(cudaErrorInvalidValue);
    const bool direct = here == peer || cgp__shim_peer_enabled(here, peer);
    return cgp__shim_leave(
        cgp__shim_add(stream, direct ? run_copy : run_staged_copy, false, &c, sizeof c));
}

/* --- launches --- */

typedef struct grid_run {
    dim3 grid, block;
    uint64_t seed;
    cgp__shim_thread *thread;
    size_t shared;
    _Alignas(16) char arguments[];
} grid_run;

static cudaError_t run_grid(const void *payload) {
    const grid_run *g = payload;
    cgp__shim_run_grid(g->grid, g->block, cgp__shim_get_settings()->order, g->seed, g->thread,
                       g->shared, g->arguments);
    return cudaSuccess;
}

/* Return whether sizes of grid and block are within the limits of all devices since sm_30. */
static bool launchable(dim3 grid, dim3 block) {
    return block.x >= 1 && block.y >= 1 && block.z >= 1 && block.x <= CGP__SHIM_MAX_BLOCK &&
           block.y <= CGP__SHIM_MAX_BLOCK && block.z <= 64 &&
           (uint64_t)block.x * block.y * block.z <= CGP__SHIM_MAX_BLOCK && grid.x >= 1 &&
           grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
           grid.z <= 65535;
}

cudaError_t cgp__shim_launch(cudaStream_t stream, dim3 grid, dim3 block,
                             const cgp__shim_kernel *kernel, const void *arguments, size_t bytes) {
    enum { MAX_ARGUMENTS = 4096 }; /* CUDA's limit */
    _Alignas(16) char packed[sizeof(grid_run) + MAX_ARGUMENTS];
    grid_run *g = (grid_run *)(void *)packed;
    CGP__SHIM_TRY(cgp__shim_enter());
    if (!launchable(grid, block)) return cgp__shim_leave(cudaErrorInvalidConfiguration);
    if (bytes > MAX_ARGUMENTS || !cgp__shim_shared_allowed(kernel->function, kernel->shared))
        return cgp__shim_leave(cudaErrorInvalidValue);
    *g = (grid_run){grid, block, stream ? cgp__shim_random(&stream->seeds) : 1, kernel->thread,
                    kernel->shared};
    memcpy(g->arguments, arguments, bytes);
    cgp__shim_note_launch(cgp__shim_device_of(stream));
    return cgp__shim_leave(cgp__shim_add(stream, run_grid, false, packed, sizeof *g + bytes));
}
