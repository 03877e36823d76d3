/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c -- copies between the host and a device with its own memory, through a ring of pieces
 * of planned host memory. The worker fills and empties the pieces. So no queue reads or writes the
 * caller's memory, and no copy blocks the host.
 *
 *     put    host ── memcpy ──► piece ── COMPUTE ──► device      the source may change on return
 *     get    device ── COMPUTE ──► piece ── memcpy ──► host      arrives when the piece is returned
 *
 *     pieces      0  1  2  3  4  5 ..      number i is at i modulo the ring's size
 *     returned    ──────┘
 *     in use            2  3  4
 *     taken       ───────────────┘
 *
 * Pieces are returned when the action that took them is complete, or when the worker has waited for
 * its device. If the caller's data is in device memory, the device copies this data directly,
 * without pieces. */
#include "pipeline/run/staging.h"

#include "pipeline/run/worker.h"
#include "plan/memory/devices.h"

#include <stdlib.h>
#include <string.h>

/* A piece in use. `to` is the host address to which the bytes of the piece go. If `to` is NULL, the
 * bytes came from the host. */
typedef struct piece {
    char *to;
    size_t bytes;
} piece;

/* A ring of pieces. Pieces are numbered in the order in which they are taken; pieces `returned` ..
 * `taken` - 1 are in use. */
struct cgp__ring {
    int64_t taken, returned;
    cgp_event *end; /* the worker waits for this event if all pieces are in use; NULL: the device is
                     * synchronous */
    piece pieces[];
};

static const cgp__staging *plan_of(const cgp__worker *worker) {
    return &cgp__plan_device(worker->plan, worker->index)->staging;
}

cgp_status cgp__staging_create(cgp__worker *worker) {
    const size_t pieces = (size_t)plan_of(worker)->pieces;
    if (pieces == 0) return CGP_OK;
    const size_t bytes = sizeof *worker->ring + pieces * sizeof *worker->ring->pieces;
    worker->ring = cgp__calloc(1, bytes);
    if (!worker->ring) return cgp__no_memory("worker", bytes);
    if (!worker->backend->streams) return CGP_OK;
    return worker->backend->streams->event_create(worker->device, &worker->ring->end);
}

void cgp__staging_destroy(cgp__worker *worker) {
    if (worker->ring && worker->ring->end)
        worker->backend->streams->event_destroy(worker->ring->end);
    free(worker->ring);
    worker->ring = NULL;
}

static char *memory_of(const cgp__worker *worker, int64_t i) {
    const cgp__staging *plan = plan_of(worker);
    return worker->host + plan->offset + i % plan->pieces * plan->piece_bytes;
}

int64_t cgp__staging_taken(const cgp__worker *worker) {
    return worker->ring ? worker->ring->taken : 0;
}

void cgp__staging_return(cgp__worker *worker, int64_t end) {
    struct cgp__ring *ring = worker->ring;
    while (ring && ring->returned < end) {
        const int64_t i = ring->returned++;
        const piece *p = &ring->pieces[i % plan_of(worker)->pieces];
        if (p->to) memcpy(p->to, memory_of(worker, i), p->bytes);
    }
}

void cgp__staging_drop(cgp__worker *worker) {
    if (worker->ring) worker->ring->returned = worker->ring->taken;
}

/* Wait until a piece is free. */
static cgp_status wait_for_piece(cgp__worker *worker) {
    const cgp_backend *backend = worker->backend;
    const struct cgp__ring *ring = worker->ring;
    if (ring->taken - ring->returned < plan_of(worker)->pieces) return CGP_OK;
    if (backend->streams) {
        CGP_TRY(backend->streams->event_record(worker->device, CGP_QUEUE_COMPUTE, ring->end));
        CGP_TRY(cgp__worker_wait(worker, ring->end));
    }
    if (!cgp__is_stopped(worker)) cgp__staging_return(worker, ring->taken);
    return CGP_OK;
}

/* Copy piece by piece between host and device memory. If `puts`, copy to the device; otherwise, to
 * the host. */
static cgp_status copy_pieces(cgp__worker *worker, char *host, char *device, size_t bytes,
                              bool puts) {
    struct cgp__ring *ring = worker->ring;
    const size_t most = (size_t)plan_of(worker)->piece_bytes;
    for (size_t at = 0; at < bytes; at += most) {
        CGP_TRY(wait_for_piece(worker));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        const size_t n = bytes - at < most ? bytes - at : most;
        char *memory = memory_of(worker, ring->taken);
        piece *p = &ring->pieces[ring->taken++ % plan_of(worker)->pieces];
        const cgp_place here = cgp__host_place(memory),
                        there = cgp__device_place(worker, device + at);
        *p = (piece){NULL, n};
        if (puts) memcpy(memory, host + at, n);
        CGP_TRY(worker->backend->device.copy(worker->device, CGP_QUEUE_COMPUTE, puts ? there : here,
                                             puts ? here : there, n));
        if (cgp__is_stopped(worker)) return CGP_OK;
        if (!puts) p->to = host + at;
    }
    return CGP_OK;
}

/* Copy within device memory. */
static cgp_status copy_there(cgp__worker *worker, void *to, const void *from, size_t bytes) {
    return worker->backend->device.copy(worker->device, CGP_QUEUE_COMPUTE,
                                        cgp__device_place(worker, to),
                                        cgp__device_place(worker, (void *)(uintptr_t)from), bytes);
}

cgp_status cgp__staging_put(cgp__worker *worker, void *to, const void *from, size_t bytes) {
    if (cgp__is_device_memory(worker, from)) return copy_there(worker, to, from, bytes);
    return copy_pieces(worker, (char *)(uintptr_t)from, to, bytes, true);
}

cgp_status cgp__staging_get(cgp__worker *worker, void *to, const void *from, size_t bytes) {
    if (cgp__is_device_memory(worker, to)) return copy_there(worker, to, from, bytes);
    return copy_pieces(worker, to, (char *)(uintptr_t)from, bytes, false);
}
