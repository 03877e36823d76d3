/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c -- copies between the host and a device with its own memory, through a ring of pieces
 * of planned host memory. The worker fills and empties the pieces, so no queue reads or writes the
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
 * its device. */
#include "pipeline/run/run.h"

#include <string.h>

static const cgp__staging *ring_of(const cgp__worker *worker) {
    return &worker->executor->plan->devices[worker->index].staging;
}

static char *memory_of(const cgp__worker *worker, int64_t i) {
    const cgp__staging *ring = ring_of(worker);
    return worker->host + ring->offset + i % ring->pieces * ring->piece_bytes;
}

void cgp__staging_return(cgp__worker *worker, int64_t end) {
    while (worker->returned < end) {
        const int64_t i = worker->returned++;
        const cgp__piece *piece = &worker->pieces[i % ring_of(worker)->pieces];
        if (piece->to) memcpy(piece->to, memory_of(worker, i), piece->bytes);
    }
}

/* Wait until a piece is free. */
static cgp_status wait_for_piece(cgp__worker *worker) {
    const cgp_backend *backend = cgp__backend_of(worker);
    if (worker->taken - worker->returned < ring_of(worker)->pieces) return CGP_OK;
    if (backend->asynchronous) {
        CGP_TRY(backend->event_record(worker->device, CGP_QUEUE_COMPUTE, worker->ring_end));
        CGP_TRY(cgp__worker_wait(worker, worker->ring_end));
    }
    if (!cgp__is_stopped(worker)) cgp__staging_return(worker, worker->taken);
    return CGP_OK;
}

/* Copy piece by piece between host and device memory. `puts`: to the device. */
static cgp_status copy_pieces(cgp__worker *worker, char *host, char *device, size_t bytes,
                              bool puts) {
    const size_t most = (size_t)ring_of(worker)->piece_bytes;
    for (size_t at = 0; at < bytes; at += most) {
        CGP_TRY(wait_for_piece(worker));
        if (cgp__is_stopped(worker)) return CGP_OK; /* timed out: the plan may be gone */
        const size_t n = bytes - at < most ? bytes - at : most;
        char *memory = memory_of(worker, worker->taken);
        cgp__piece *piece = &worker->pieces[worker->taken++ % ring_of(worker)->pieces];
        const cgp_place here = cgp__host_place(memory),
                        there = cgp__device_place(worker, device + at);
        *piece = (cgp__piece){NULL, n};
        if (puts) memcpy(memory, host + at, n);
        CGP_TRY(cgp__backend_of(worker)->copy(worker->device, CGP_QUEUE_COMPUTE,
                                              puts ? there : here, puts ? here : there, n));
        if (cgp__is_stopped(worker)) return CGP_OK;
        if (!puts) piece->to = host + at;
    }
    return CGP_OK;
}

cgp_status cgp__staging_put(cgp__worker *worker, void *to, const void *from, size_t bytes) {
    return copy_pieces(worker, (char *)(uintptr_t)from, to, bytes, true);
}

cgp_status cgp__staging_get(cgp__worker *worker, void *to, const void *from, size_t bytes) {
    return copy_pieces(worker, to, (char *)(uintptr_t)from, bytes, false);
}
