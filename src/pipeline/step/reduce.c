/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c -- all-reduce of gradients over replicas by recursive halving and doubling (Thakur,
 * Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH").
 *
 * At level k, replica r halves its current part of the gradients. It sends one half to replica r
 * xor 2^k, receives the other half from that replica, and adds the received half to its own. In the
 * tree of gradient groups, this sum is the node above the two replicas. So each part of the
 * gradients is added in the same order as without replicas. Example: four replicas, and the
 * quarters a b c d of a piece:
 *
 *     replica     0             1             2             3
 *     before      a0 b0 c0 d0   a1 b1 c1 d1   a2 b2 c2 d2   a3 b3 c3 d3
 *     level 0     a01 b01       c01 d01       a23 b23       c23 d23
 *     level 1     a0123         c0123         b0123         d0123
 *     doubling    level 1, then level 0: every replica gets a0123 b0123 c0123 d0123
 *
 * A replica without micro-batches has no gradients. The contents of its buffers are neither sent
 * nor added; received data replace them. The sums overwrite the gradient buffers of all uses. The
 * padding between tensors is added too, but is never read.
 *
 * If the optimizer has shards (plan/memory/shards.h), a replica updates the part of each piece that
 * it has after halving. Doubling then distributes the updated parameters instead of the gradients.
 * The gradients of tied parameters are doubled before, because their uses must still be added.
 *
 * The statistics of batch norms are not added. All replicas gather the statistics of each
 * micro-batch by recursive doubling, and merge them in the order of the whole mini-batch. */
#include "pipeline/step/reduce.h"

#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/transfer.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/pieces.h"
#include "pipeline/step/states.h"
#include "plan/links.h"
#include "plan/list.h"
#include "plan/memory/devices.h"
#include "plan/memory/shards.h"
#include "plan/setup.h"
#include "schedule/gradient_groups.h"

enum { MOST_LEVELS = 10 };
_Static_assert(1 << MOST_LEVELS == CGP__MAX_GRADIENT_GROUPS, "the most replicas");

typedef cgp__byte_range range;

/* The piece that a worker reduces. */
typedef struct piece {
    cgp__worker *worker;
    char *at;
    int replica, replicas, chunks; /* chunks: micro-batches of the whole mini-batch */
    int link;                      /* index of the device's first link to other replicas; level k
                                    * uses link + k */
} piece;

/* Return true if the tree node above `replica` that covers 2^level replicas has a micro-batch. */
static bool has_any(const piece *p, int replica, int level) {
    const int first = replica >> level << level;
    return cgp__replica_first(first + (1 << level), p->chunks, p->replicas) >
           cgp__replica_first(first, p->chunks, p->replicas);
}

/* Send a part of the piece. Parts in flight on a link have different numbers, as micro-batches
 * do. */
static cgp_status send_part(const piece *p, int level, range part) {
    cgp__worker *worker = p->worker;
    const int l = p->link + level;
    cgp__end *end = &worker->executor->ends[2 * l];
    cgp_link_message message;
    if (part.begin == part.end) return CGP_OK;
    atomic_store(&worker->progress.exchanges, true);
    const bool acquired = end->transport->links.acquire(end->link, INT64_MAX, &message);
    atomic_store(&worker->progress.exchanges, false);
    if (!acquired) return cgp__wait_status(worker, end);
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp__link_plan *link = &cgp__plan_links(worker->plan)->list[l];
    const cgp_place to = {link->in_host ? NULL : worker->device, message.buffer};
    message.event = NULL;
    message.bytes = part.end - part.begin;
    message.microbatch = (int)(end->pieces++ % link->capacity);
    CGP_TRY(cgp__piece_fill(worker, to, (const float *)(const void *)(p->at + part.begin),
                            (size_t)message.bytes));
    if (cgp__is_stopped(worker)) return CGP_OK;
    end->transport->links.post(end->link, &message);
    return CGP_OK;
}

/* Receive a part of the piece. If `add`, add the received part to the gradients; otherwise replace
 * the gradients. */
static cgp_status receive_part(const piece *p, int level, range part, bool add) {
    cgp__worker *worker = p->worker;
    const int l = p->link + level;
    cgp__end *end = &worker->executor->ends[2 * l + 1];
    const int64_t bytes = part.end - part.begin;
    cgp_link_message message;
    if (bytes == 0) return CGP_OK;
    const cgp__link_plan *link = &cgp__plan_links(worker->plan)->list[l];
    const int number = (int)(end->pieces++ % link->capacity);
    atomic_store(&worker->progress.exchanges, true);
    const bool taken = end->transport->links.take(end->link, number, INT64_MAX, &message);
    atomic_store(&worker->progress.exchanges, false);
    if (!taken) return cgp__wait_status(worker, end);
    atomic_store(&worker->progress.part_ns, cgp__now_ns());
    if (cgp__is_stopped(worker)) return CGP_OK;
    const cgp_place from = {link->receives_in_host ? NULL : worker->device, message.buffer};
    CGP_TRY(cgp__piece_drain(worker, (float *)(void *)(p->at + part.begin), from, bytes / 4, add));
    if (cgp__is_stopped(worker)) return CGP_OK;
    message.event = NULL;
    end->transport->links.release(end->link, &message);
    return CGP_OK;
}

/* Exchange halves at a level, and add the received half. */
static cgp_status halve(const piece *p, int level, range own, range other) {
    const bool here = has_any(p, p->replica, level),
               there = has_any(p, p->replica ^ 1 << level, level);
    if (here) CGP_TRY(send_part(p, level, other));
    return there ? receive_part(p, level, own, here) : CGP_OK;
}

/* Reduce a piece: add its parts by halving, or distribute them by doubling, or both. */
static cgp_status reduce_piece(const piece *p, int64_t bytes, bool halves, bool doubles) {
    range whole[MOST_LEVELS + 1] = {{0, bytes}}, other[MOST_LEVELS];
    int levels = 0;
    for (; 1 << levels < p->replicas; levels++) {
        cgp__shard_divide(whole[levels], p->replica, levels, &whole[levels + 1], &other[levels]);
        if (halves) CGP_TRY(halve(p, levels, whole[levels + 1], other[levels]));
        if (cgp__is_stopped(p->worker)) return CGP_OK;
    }
    while (doubles && levels-- > 0) {
        CGP_TRY(send_part(p, levels, whole[levels + 1]));
        CGP_TRY(receive_part(p, levels, other[levels], false));
        if (cgp__is_stopped(p->worker)) return CGP_OK;
    }
    return CGP_OK;
}

/* --- statistics --- */

/* Exchange blocks of equal size with the peer of a level, in parts that the buffers can hold. */
static cgp_status exchange_block(const piece *p, int level, int64_t own, int64_t other,
                                 int64_t bytes) {
    const int64_t most = cgp__plan_links(p->worker->plan)->list[p->link + level].bytes;
    for (int64_t at = 0; at < bytes && !cgp__is_stopped(p->worker); at += most) {
        const int64_t n = cgp__min(most, bytes - at);
        CGP_TRY(send_part(p, level, (range){own + at, own + at + n}));
        CGP_TRY(receive_part(p, level, (range){other + at, other + at + n}, false));
    }
    return CGP_OK;
}

/* Gather the logs of all replicas of a device: recursive doubling. */
static cgp_status gather_log(const piece *p, int64_t replica_bytes) {
    for (int level = 0; 1 << level < p->replicas && !cgp__is_stopped(p->worker); level++) {
        const int64_t first = p->replica >> level << level, bytes = replica_bytes << level;
        CGP_TRY(exchange_block(p, level, first * replica_bytes,
                               (first ^ 1 << level) * replica_bytes, bytes));
    }
    return CGP_OK;
}

/* Gather and merge the statistics of a device. */
static cgp_status reduce_statistics(piece p) {
    cgp__worker *worker = p.worker;
    const int64_t bytes = cgp__plan_device(worker->plan, worker->index)->log_bytes *
                          cgp__plan_setup(worker->plan)->chunks;
    if (bytes == 0) return CGP_OK;
    p.at = cgp__log_of(worker, 0);
    CGP_TRY(gather_log(&p, bytes));
    if (cgp__is_stopped(worker)) return CGP_OK;
    return cgp__states_merge(worker, p.chunks);
}

/* --- a device --- */

/* Reduce a section of a device's memory, piece by piece. */
static cgp_status reduce_section(piece p, char *memory, range section, bool halves, bool doubles) {
    const int64_t most = cgp__plan_setup(p.worker->plan)->reduce_bytes;
    for (int64_t at = section.begin; at < section.end && !cgp__is_stopped(p.worker); at += most) {
        p.at = memory + at;
        CGP_TRY(reduce_piece(&p, cgp__min(most, section.end - at), halves, doubles));
    }
    return CGP_OK;
}

static piece piece_of(cgp__worker *worker) {
    return (piece){.worker = worker,
                   .replica = worker->ranks->replica,
                   .replicas = cgp__plan_setup(worker->plan)->replicas,
                   .link = cgp__plan_exchange(worker->plan, worker->index)};
}

/* What cgp__reduce() is called with. */
typedef struct reduction {
    int chunks;
    bool complete;
} reduction;

/* Reduce the gradients of a device, first the untied ones. */
static cgp_status reduce_device(cgp__worker *worker, void *argument) {
    const reduction *r = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    const range untied = {0, device->untied_bytes},
                tied = {untied.end, device->written_gradient_bytes};
    piece p = piece_of(worker);
    p.chunks = r->chunks;
    CGP_TRY(reduce_section(p, worker->gradients, untied, true, r->complete));
    if (cgp__is_stopped(worker)) return CGP_OK;
    CGP_TRY(reduce_section(p, worker->gradients, tied, true, true));
    if (cgp__is_stopped(worker)) return CGP_OK;
    return reduce_statistics(p);
}

cgp_status cgp__reduce(cgp__executor *executor, const cgp__minibatch *minibatch, bool complete) {
    if (cgp__plan_setup(executor->plan)->replicas == 1) return CGP_OK;
    reduction r = {cgp__whole_chunks(minibatch), complete};
    return cgp__executor_job(executor, reduce_device, &r);
}

static cgp_status complete_device(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const range untied = {0, cgp__plan_device(worker->plan, worker->index)->untied_bytes};
    return reduce_section(piece_of(worker), worker->gradients, untied, false, true);
}

cgp_status cgp__reduce_complete(cgp__executor *executor) {
    return cgp__executor_job(executor, complete_device, NULL);
}

cgp_status cgp__reduce_parameters(cgp__worker *worker) {
    if (cgp__is_stopped(worker) || !cgp__plan_setup(worker->plan)->shards) return CGP_OK;
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    const range untied = {0, device->untied_bytes}, other = {untied.end, device->trained_bytes};
    const piece p = piece_of(worker);
    CGP_TRY(reduce_section(p, worker->parameters, untied, false, true));
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    return reduce_section(p, worker->parameters, other, false, true);
}
