/* SPDX-License-Identifier: Apache-2.0 */
/* shared_edges.c -- opens shared edges (shared_edges.h).
 *
 *     sender                                    receiver
 *     export memory and events;                 export events
 *     fill the buffers with a pattern
 *                       ── exchange of handles and reports ──
 *     import events                             import memory and events; compare the pattern;
 *                                               write its complement into the buffers
 *                       ── exchange of reports ──
 *     compare the complement
 *                       ── exchange of reports ──
 *
 * If a report says that a step failed for an edge, the messages of this edge pass through host
 * memory. Each exchange is a gather, so all ranks get the result for every edge. The device work of
 * each step ends before the next exchange, so waiting for a peer's event never blocks. */
#include "pipeline/run/shared_edges.h"

#include "base/json.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/places.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "pipeline/team/team.h"
#include "plan/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN = 64 }; /* the test uses at most this many bytes of a buffer */

/* The message that one end of an edge sends to the other ranks. `ok` says whether this end can
 * share the edge; `why` is the reason if it cannot. `events` are the handles of this end's events.
 * `memory` is the handle of the sender's memory, set only by the sender's end. */
typedef struct report {
    int32_t ok;
    char why[124];
    cgp_shared_handle memory, events[]; /* [buffers] */
} report;

/* The reports of all ends, in the order in which a gather delivers them: by rank, then by link,
 * then sender before receiver. */
typedef struct exchange {
    char *all;
    size_t *at; /* [links][2] offset of the report of each end of each link */
    size_t mine;
} exchange;

static report *report_of(const exchange *x, int l, int side) {
    return (report *)(void *)(x->all + x->at[2 * l + side]);
}

static const cgp__link_plan *link_at(const cgp__executor *executor, int l) {
    return &cgp__plan_links(executor->plan)->list[l];
}

static int device_of(const cgp__link_plan *link, int side) {
    return side == 0 ? link->from : link->to;
}

/* --- exchanges --- */

/* Lay out the reports. Return their total size in bytes. */
static size_t lay_out(const cgp__executor *executor, exchange *x) {
    const cgp__ranks *ranks = executor->ranks;
    size_t end = 0;
    for (int r = 0; r < ranks->n; r++) {
        if (r == ranks->rank) x->mine = end;
        for (int k = 0; k < 2 * cgp__plan_links(executor->plan)->n; k++) {
            const cgp__link_plan *link = link_at(executor, k / 2);
            if (!link->shares ||
                cgp_plan_device_at(executor->plan, device_of(link, k % 2))->rank != r)
                continue;
            x->at[k] = end;
            end += sizeof(report) + (size_t)link->capacity * sizeof(cgp_shared_handle);
        }
    }
    return end;
}

static cgp_status share_reports(const cgp__executor *executor, const exchange *x) {
    const cgp__ranks *ranks = executor->ranks;
    size_t *bytes = cgp__ranks_sizes(ranks);
    memset(bytes, 0, (size_t)ranks->n * sizeof *bytes);
    for (int k = 0; k < 2 * cgp__plan_links(executor->plan)->n; k++) {
        const cgp__link_plan *link = link_at(executor, k / 2);
        if (!link->shares) continue;
        bytes[cgp_plan_device_at(executor->plan, device_of(link, k % 2))->rank] +=
            sizeof(report) + (size_t)link->capacity * sizeof(cgp_shared_handle);
    }
    return cgp__ranks_share_blocks(ranks, x->all + x->mine, x->all);
}

static bool both_ok(const exchange *x, int l) {
    return report_of(x, l, 0)->ok && report_of(x, l, 1)->ok;
}

/* --- steps of a worker --- */

typedef cgp_status step(cgp__worker *worker, const exchange *x, int l, int side);

/* Run a step of the protocol for each edge end on the worker's device, unless the edge has already
 * failed. */
static cgp_status for_ends(cgp__worker *worker, const exchange *x, step *run) {
    for (int k = 0; k < 2 * cgp__plan_links(worker->plan)->n; k++) {
        const cgp__link_plan *link = link_at(worker->executor, k / 2);
        if (!link->shares || device_of(link, k % 2) != worker->index || !both_ok(x, k / 2))
            continue;
        report *r = report_of(x, k / 2, k % 2);
        r->ok = run(worker, x, k / 2, k % 2) == CGP_OK;
        if (!r->ok) cgp__print(r->why, sizeof r->why, "%s", cgp_message());
    }
    return CGP_OK;
}

static cgp__shared_end *shared_of(const cgp__worker *worker, int l, int side) {
    return worker->executor->ends[2 * l + side].shared;
}

/* Return the host memory for the pattern of buffer `b`. This memory is a part of the link's host
 * memory for messages. */
static unsigned char *host_at(const cgp__worker *worker, int l, int side, int b) {
    const cgp__link_plan *link = link_at(worker->executor, l);
    const int64_t offset = side == 0 ? link->offset : link->receive_offset;
    return (unsigned char *)worker->host + offset + b * PATTERN;
}

static int pattern_bytes(const cgp__worker *worker, int l) {
    return (int)cgp__min(link_at(worker->executor, l)->bytes, PATTERN);
}

/* Copy a pattern between device and host memory. */
static cgp_status copy_pattern(cgp__worker *worker, int l, int side, int b, bool to_device) {
    const cgp__link_plan *link = link_at(worker->executor, l);
    char *at = shared_of(worker, l, side)->memory + b * link->message_bytes;
    const cgp_place there = cgp__device_place(worker, at),
                    here = cgp__host_place(host_at(worker, l, side, b));
    return worker->backend->device.copy(worker->device, side == 0 ? CGP_QUEUE_OUT : CGP_QUEUE_IN,
                                        to_device ? there : here, to_device ? here : there,
                                        (size_t)pattern_bytes(worker, l));
}

/* Return byte `i` of the pattern of buffer `b`. If `reply`, return the complement of this byte. */
static unsigned char pattern(int l, int b, int i, bool reply) {
    const int byte = 1 + (l * 31 + b * 7 + i * 13) % 250;
    return (unsigned char)(reply ? ~byte : byte);
}

/* Write the patterns of all buffers, and record the buffers' events. */
static cgp_status write_patterns(cgp__worker *worker, int l, int side) {
    const cgp_backend_streams *streams = worker->backend->streams;
    for (int b = 0; b < link_at(worker->executor, l)->capacity; b++) {
        for (int i = 0; i < pattern_bytes(worker, l); i++)
            host_at(worker, l, side, b)[i] = pattern(l, b, i, side == 1);
        CGP_TRY(copy_pattern(worker, l, side, b, true));
        CGP_TRY(streams->event_record(worker->device, side == 0 ? CGP_QUEUE_OUT : CGP_QUEUE_IN,
                                      shared_of(worker, l, side)->own[b]));
    }
    return cgp__worker_finish(worker);
}

/* Read the patterns that the peer has written. */
static cgp_status check_patterns(cgp__worker *worker, int l, int side) {
    const cgp_backend_streams *streams = worker->backend->streams;
    const int buffers = link_at(worker->executor, l)->capacity;
    for (int b = 0; b < buffers; b++) {
        CGP_TRY(streams->event_wait(worker->device, side == 0 ? CGP_QUEUE_OUT : CGP_QUEUE_IN,
                                    shared_of(worker, l, side)->peer[b]));
        CGP_TRY(copy_pattern(worker, l, side, b, false));
    }
    CGP_TRY(cgp__worker_finish(worker));
    for (int b = 0; b < buffers; b++) {
        for (int i = 0; i < pattern_bytes(worker, l); i++)
            if (host_at(worker, l, side, b)[i] != pattern(l, b, i, side == 0))
                return cgp_fail(CGP_EDEVICE,
                                "expected the test pattern in buffer %d, got %d for %d", b,
                                host_at(worker, l, side, b)[i], pattern(l, b, i, side == 0));
    }
    return CGP_OK;
}

/* Check in advance whether the edge may be shared. If not, return a failure whose message gives the
 * reason. */
static cgp_status check_hosts(const cgp__worker *worker, const cgp__link_plan *link, int side) {
    const cgp__ranks *ranks = worker->ranks;
    const int peer = cgp_plan_device_at(worker->plan, device_of(link, 1 - side))->rank;
    if (!worker->executor->ipc) return cgp_fail(CGP_EDEVICE, "CGP_IPC is off");
    if (cgp__same_machine(&ranks->places[ranks->rank], &ranks->places[peer])) return CGP_OK;
    return cgp_fail(CGP_EDEVICE, "rank %d is on another host", peer);
}

static cgp_status export_end(cgp__worker *worker, const exchange *x, int l, int side) {
    const cgp__link_plan *link = link_at(worker->executor, l);
    const cgp_backend_sharing *sharing = worker->backend->sharing;
    cgp__end *end = &worker->executor->ends[2 * l + side];
    report *r = report_of(x, l, side);
    CGP_TRY(check_hosts(worker, link, side));
    CGP_TRY(CGP__NEW(end->shared, 1, "shared edges"));
    CGP_TRY(CGP__NEW(end->shared->own, link->capacity, "shared edges"));
    CGP_TRY(CGP__NEW(end->shared->peer, link->capacity, "shared edges"));
    for (int b = 0; b < link->capacity; b++)
        CGP_TRY(sharing->event_export(worker->device, &end->shared->own[b], &r->events[b]));
    if (side == 1) return CGP_OK;
    end->shared->memory = cgp__worker_at(worker, link->shared_offset);
    CGP_TRY(sharing->memory_export(worker->device, worker->memory, &r->memory));
    return write_patterns(worker, l, side);
}

static cgp_status import_end(cgp__worker *worker, const exchange *x, int l, int side) {
    const cgp__link_plan *link = link_at(worker->executor, l);
    const cgp_backend_sharing *sharing = worker->backend->sharing;
    cgp__shared_end *shared = shared_of(worker, l, side);
    const report *r = report_of(x, l, 1 - side);
    for (int b = 0; b < link->capacity; b++)
        CGP_TRY(sharing->event_import(worker->device, &r->events[b], &shared->peer[b]));
    if (side == 0) return CGP_OK;
    CGP_TRY(sharing->memory_import(worker->device, &r->memory, &shared->imported));
    shared->memory = (char *)shared->imported + link->shared_offset;
    CGP_TRY(check_patterns(worker, l, side));
    return write_patterns(worker, l, side);
}

static cgp_status check_end(cgp__worker *worker, const exchange *x, int l, int side) {
    (void)x;
    return side == 0 ? check_patterns(worker, l, side) : CGP_OK;
}

static cgp_status job_export(cgp__worker *worker, void *x) {
    return for_ends(worker, x, export_end);
}

static cgp_status job_import(cgp__worker *worker, void *x) {
    return for_ends(worker, x, import_end);
}

static cgp_status job_check(cgp__worker *worker, void *x) {
    return for_ends(worker, x, check_end);
}

/* --- close --- */

static void close_imports(cgp__worker *worker, const cgp__link_plan *link, cgp__end *end) {
    cgp__shared_end *shared = end->shared;
    end->shares = false;
    for (int b = 0; shared->peer && b < link->capacity; b++) {
        if (shared->peer[b]) worker->backend->streams->event_destroy(shared->peer[b]);
        shared->peer[b] = NULL;
    }
    if (shared->imported) worker->backend->sharing->memory_close(worker->device, shared->imported);
    shared->imported = NULL;
}

/* Close the imported memory and events of each unshared end, or of every end if `all`. First wait
 * for the device, because a copy from a failed attempt may still be enqueued. */
static void close_ends(cgp__worker *worker, bool all) {
    (void)cgp__worker_finish(worker);
    for (int k = 0; k < 2 * cgp__plan_links(worker->plan)->n; k++) {
        const cgp__link_plan *link = link_at(worker->executor, k / 2);
        cgp__end *end = &worker->executor->ends[k];
        if (device_of(link, k % 2) == worker->index && end->shared && (all || !end->shares))
            close_imports(worker, link, end);
    }
}

static cgp_status job_close_unshared(cgp__worker *worker, void *unused) {
    (void)unused;
    close_ends(worker, false);
    return CGP_OK;
}

static cgp_status job_close_all(cgp__worker *worker, void *unused) {
    (void)unused;
    close_ends(worker, true);
    return CGP_OK;
}

void cgp__shared_edges_close(cgp__executor *executor) {
    const cgp__ranks *ranks = executor->ranks;
    if (!executor->exports) return;
    (void)cgp__team_run_untimed(executor->team, job_close_all, NULL);
    executor->keeps = ranks->transport->agreement.barrier(ranks->communicator) != CGP_OK;
    if (executor->keeps)
        cgp_log(CGP_LOG_INFO, "pipeline",
                "rank %d: its device memory stays allocated until the process ends: a rank that "
                "may still use it has failed",
                ranks->rank);
}

void cgp__shared_edges_destroy_events(const cgp__worker *worker) {
    for (int k = 0; k < 2 * cgp__plan_links(worker->plan)->n; k++) {
        const cgp__link_plan *link = link_at(worker->executor, k / 2);
        cgp__end *end = &worker->executor->ends[k];
        cgp__shared_end *shared = end->shared;
        if (device_of(link, k % 2) != worker->index || !shared) continue;
        for (int b = 0; shared->own && b < link->capacity; b++)
            if (shared->own[b] && !worker->executor->keeps)
                worker->backend->streams->event_destroy(shared->own[b]);
        free(shared->own);
        free(shared->peer);
        free(shared);
        end->shared = NULL;
    }
}

/* --- open --- */

static bool any_shares(const cgp__executor *executor) {
    for (int l = 0; l < cgp__plan_links(executor->plan)->n; l++)
        if (link_at(executor, l)->shares) return true;
    return false;
}

/* Return true if an edge can still be shared. */
static bool any_ok(const cgp__executor *executor, const exchange *x) {
    for (int l = 0; l < cgp__plan_links(executor->plan)->n; l++)
        if (link_at(executor, l)->shares && both_ok(x, l)) return true;
    return false;
}

/* Write the outcome of an edge to both ends, and log it on the receiver's rank. */
static void conclude(cgp__executor *executor, const exchange *x, int l) {
    const cgp_plan *plan = executor->plan;
    const cgp__link_plan *link = link_at(executor, l);
    const cgp_plan_device *from = cgp_plan_device_at(plan, link->from),
                          *to = cgp_plan_device_at(plan, link->to);
    const bool shares = both_ok(x, l);
    executor->shares[l] = shares;
    for (int side = 0; side < 2; side++)
        executor->ends[2 * l + side].shares =
            shares && cgp__ranks_own(executor->ranks, device_of(link, side));
    if (to->rank != executor->ranks->rank) return;
    if (shares)
        cgp_log(CGP_LOG_INFO, "pipeline",
                "edge %d: rank %d copies from the memory of device %s on rank %d", l, to->rank,
                from->name, from->rank);
    else
        cgp_log(CGP_LOG_INFO, "pipeline",
                "edge %d: messages of rank %d to rank %d pass through host memory: %s", l,
                from->rank, to->rank, report_of(x, l, report_of(x, l, 0)->ok)->why);
}

static cgp_status open_all(cgp__executor *executor, exchange *x, size_t bytes) {
    static cgp__job *const jobs[] = {job_export, job_import, job_check};
    memset(x->all, 0, bytes);
    for (int k = 0; k < 2 * cgp__plan_links(executor->plan)->n; k++)
        if (link_at(executor, k / 2)->shares) report_of(x, k / 2, k % 2)->ok = true;
    for (int i = 0; i < 3; i++) {
        (void)cgp__team_run_untimed(executor->team, jobs[i], x);
        CGP_TRY(share_reports(executor, x));
        /* This value is equal on all ranks. */
        executor->exports = executor->exports || any_ok(executor, x);
    }
    for (int l = 0; l < cgp__plan_links(executor->plan)->n; l++)
        if (link_at(executor, l)->shares) conclude(executor, x, l);
    return cgp__team_run_untimed(executor->team, job_close_unshared, NULL);
}

cgp_status cgp__shared_edges_open(cgp__executor *executor) {
    exchange x = {NULL, NULL, 0};
    size_t bytes = 0;
    if (!executor->ranks->transport || !any_shares(executor)) return CGP_OK;
    cgp_status status = CGP__NEW(x.at, 2 * cgp__plan_links(executor->plan)->n, "shared edges");
    if (status == CGP_OK) bytes = lay_out(executor, &x);
    if (status == CGP_OK) status = CGP__NEW(x.all, bytes, "shared edges");
    status = cgp__ranks_agree(executor->ranks, status);
    if (status == CGP_OK) status = open_all(executor, &x, bytes);
    free(x.all);
    free(x.at);
    return status;
}
