/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c -- implements exchange.h: all-reduce of gradients over replicas by recursive halving
 * and doubling (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication
 * Operations in MPICH").
 *
 * At level k, replica r halves its current part of a piece. It sends one half to replica r xor 2^k,
 * receives the other half from that replica, and adds the received half to its own. In the tree of
 * gradient groups, this sum is the node above the two replicas. So each part of the gradients is
 * added in the same order as without replicas. Example: four replicas, and the quarters a b c d of
 * a piece:
 *
 *     replica     0             1             2             3
 *     before      a0 b0 c0 d0   a1 b1 c1 d1   a2 b2 c2 d2   a3 b3 c3 d3
 *     level 0     a01 b01       c01 d01       a23 b23       c23 d23
 *     level 1     a0123         c0123         b0123         d0123
 *     doubling    level 1, then level 0: every replica gets a0123 b0123 c0123 d0123
 *
 * So each piece passes through 4 log2 R steps:
 *
 *     send half 0, receive half 0, send half 1, ..., receive double 1, send double 0, receive
 *     double 0
 *
 * Each step has a link of its own, or one end of a link, and processes the pieces in their order. A
 * piece enters a step when it has left the step before. So it does not matter when a replica makes
 * its steps, and the worker makes those that need no wait between the kernels of its actions. After
 * its last action, it waits for the first step of the earliest piece that is not done. The peer
 * makes its end of that step without waiting for a later one, so no two replicas wait for each
 * other.
 *
 * A replica without micro-batches has no gradients. The contents of its buffers are neither sent
 * nor added; received data replace them. The sums overwrite the gradient buffers of all uses. The
 * padding between tensors is added too, but is never read. */
#include "pipeline/run/exchange.h"

#include "pipeline/run/executor.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/pieces.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/transfer.h"
#include "pipeline/run/worker.h"
#include "plan/links.h"
#include "plan/memory/devices.h"
#include "plan/memory/shards.h"
#include "plan/setup.h"
#include "schedule/gradient_groups.h"

enum { MOST_LEVELS = 10 };
_Static_assert(1 << MOST_LEVELS == CGP__MAX_GRADIENT_GROUPS, "the most replicas");

struct cgp__exchange {
    cgp__exchange_options options;
    int64_t untied;            /* bytes of the section of untied pieces */
    int levels, link;          /* link: index of the device's first link to other replicas */
    int pieces, ready;         /* number of pieces, and number of pieces that are ready */
    int done[4 * MOST_LEVELS]; /* number of pieces that have left each step */
};

/* A step of a piece, and the result of an attempt to make it. */
typedef struct step {
    int level;
    bool is_untied, doubles, sends;
    cgp__byte_range own, other; /* the halves of the part that the level divides */
} step;

typedef enum outcome { DONE, WOULD_WAIT, FAILED } outcome;

cgp_status cgp__exchange_create(cgp__worker *worker) {
    const cgp__setup *setup = cgp__plan_setup(worker->plan);
    if (setup->replicas == 1) return CGP_OK;
    CGP_TRY(CGP__NEW(worker->exchange, 1, "worker"));
    worker->exchange->levels = cgp__shard_levels(setup);
    worker->exchange->link = cgp__plan_exchange(worker->plan, worker->index);
    return CGP_OK;
}

void cgp__exchange_begin(cgp__worker *worker, const cgp__exchange_options *options) {
    cgp__exchange *x = worker->exchange;
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    x->options = *options;
    x->untied = cgp__min(device->untied_bytes, options->end);
    x->pieces = cgp__shard_pieces(cgp__plan_setup(worker->plan), x->untied, options->end);
    x->ready = 0;
    for (int k = 0; k < 4 * x->levels; k++)
        x->done[k] = 0;
}

void cgp__exchange_begin_gradients(cgp__worker *worker, int chunks, bool complete) {
    cgp__exchange_begin(
        worker, &(cgp__exchange_options){
                    .memory = worker->gradients,
                    .end = cgp__plan_device(worker->plan, worker->index)->written_gradient_bytes,
                    .halves = true,
                    .doubles_untied = complete,
                    .doubles_other = true,
                    .chunks = chunks});
}

/* --- messages --- */

/* Send bytes `part` of the exchange's memory over link `l`, and wait at most `timeout_ns`. Messages
 * in flight on a link have different numbers, as micro-batches do. */
static outcome send_part(cgp__worker *worker, int l, cgp__byte_range part, int64_t timeout_ns,
                         cgp_status *status) {
    cgp__end *end = &worker->executor->ends[2 * l];
    const cgp__link_plan *link = &cgp__plan_links(worker->plan)->list[l];
    const char *from = worker->exchange->options.memory + part.begin;
    cgp_link_message message;
    if (part.begin == part.end) return DONE;
    if (!end->transport->links.acquire(end->link, timeout_ns, &message)) return WOULD_WAIT;
    if (cgp__is_stopped(worker)) return FAILED; /* after a timeout, the plan may be freed */
    const cgp_place to = {link->in_host ? NULL : worker->device, message.buffer};
    message.event = NULL;
    message.bytes = part.end - part.begin;
    message.microbatch = (int)(end->pieces++ % link->capacity);
    *status = cgp__piece_fill(worker, to, (const float *)(const void *)from, (size_t)message.bytes);
    if (*status != CGP_OK || cgp__is_stopped(worker)) return FAILED;
    end->transport->links.post(end->link, &message);
    return DONE;
}

/* Receive bytes `part` over link `l`, and wait at most `timeout_ns`. If `add`, add them to the
 * exchange's memory; otherwise replace the memory. */
static outcome receive_part(cgp__worker *worker, int l, cgp__byte_range part, bool add,
                            int64_t timeout_ns, cgp_status *status) {
    cgp__end *end = &worker->executor->ends[2 * l + 1];
    const cgp__link_plan *link = &cgp__plan_links(worker->plan)->list[l];
    char *to = worker->exchange->options.memory + part.begin;
    const int number = (int)(end->pieces % link->capacity);
    cgp_link_message message;
    if (part.begin == part.end) return DONE;
    if (!end->transport->links.take(end->link, number, timeout_ns, &message)) return WOULD_WAIT;
    end->pieces++;
    atomic_store(&worker->progress.part_ns, cgp__now_ns());
    if (cgp__is_stopped(worker)) return FAILED;
    const cgp_place from = {link->receives_in_host ? NULL : worker->device, message.buffer};
    *status = cgp__piece_drain(worker, (float *)(void *)to, from, (part.end - part.begin) / 4, add);
    if (*status != CGP_OK || cgp__is_stopped(worker)) return FAILED;
    message.event = NULL;
    end->transport->links.release(end->link, &message);
    return DONE;
}

/* --- steps --- */

/* Return true if the tree node above `replica` that covers 2^level replicas has a micro-batch. */
static bool has_any(const cgp__worker *worker, int replica, int level) {
    const int first = replica >> level << level, chunks = worker->exchange->options.chunks,
              replicas = cgp__plan_setup(worker->plan)->replicas;
    return cgp__replica_first(first + (1 << level), chunks, replicas) >
           cgp__replica_first(first, chunks, replicas);
}

/* Return step `k` of a piece. */
static step step_of(const cgp__worker *worker, int piece, int k) {
    const cgp__exchange *x = worker->exchange;
    step s = {.doubles = k >= 2 * x->levels, .sends = k % 2 == 0};
    s.level = s.doubles ? 2 * x->levels - 1 - k / 2 : k / 2;
    s.own = cgp__shard_piece(cgp__plan_setup(worker->plan), x->untied, x->options.end, piece);
    s.is_untied = s.own.begin < x->untied;
    for (int level = 0; level <= s.level; level++)
        cgp__shard_divide(s.own, worker->ranks->replica, level, &s.own, &s.other);
    return s;
}

/* Make a step of halving: send the other half, or add the received half to this replica's half. */
static outcome halve(cgp__worker *worker, const step *s, int64_t timeout_ns, cgp_status *status) {
    const int replica = worker->ranks->replica, l = worker->exchange->link + 2 * s->level;
    const bool here = has_any(worker, replica, s->level),
               there = has_any(worker, replica ^ 1 << s->level, s->level);
    if (s->sends) return here ? send_part(worker, l, s->other, timeout_ns, status) : DONE;
    return there ? receive_part(worker, l, s->own, here, timeout_ns, status) : DONE;
}

/* Make step `k` of a piece, and wait at most `timeout_ns`. */
static outcome make_step(cgp__worker *worker, int piece, int k, int64_t timeout_ns,
                         cgp_status *status) {
    const cgp__exchange *x = worker->exchange;
    const step s = step_of(worker, piece, k);
    const int l = x->link + 2 * s.level + 1;
    if (!s.doubles) return x->options.halves ? halve(worker, &s, timeout_ns, status) : DONE;
    if (s.is_untied ? !x->options.doubles_untied : !x->options.doubles_other) return DONE;
    return s.sends ? send_part(worker, l, s.own, timeout_ns, status)
                   : receive_part(worker, l, s.other, false, timeout_ns, status);
}

/* Return the number of pieces that may enter step `k`. */
static int entered(const cgp__exchange *x, int k) {
    return k == 0 ? x->ready : x->done[k - 1];
}

/* Make all steps that need no wait. Set *any if there was one. */
static cgp_status make_steps(cgp__worker *worker, bool *any) {
    cgp__exchange *x = worker->exchange;
    cgp_status status = CGP_OK;
    for (int k = 0; k < 4 * x->levels; k++) {
        outcome result = DONE;
        while (x->done[k] < entered(x, k) && result == DONE) {
            result = make_step(worker, x->done[k], k, 0, &status);
            if (result == FAILED) return status;
            x->done[k] += result == DONE;
            *any = *any || result == DONE;
        }
    }
    return CGP_OK;
}

/* Wait for the first step of the earliest piece that is not done. */
static cgp_status make_earliest(cgp__worker *worker) {
    cgp__exchange *x = worker->exchange;
    int k = 4 * x->levels - 1;
    cgp_status status = CGP_OK;
    while (k > 0 && x->done[k - 1] == x->done[k])
        k--;
    const step s = step_of(worker, x->done[k], k);
    const cgp__end *end =
        &worker->executor->ends[2 * (x->link + 2 * s.level + s.doubles) + !s.sends];
    atomic_store(&worker->progress.exchanges, true);
    const outcome result = make_step(worker, x->done[k], k, INT64_MAX, &status);
    atomic_store(&worker->progress.exchanges, false);
    x->done[k] += result == DONE;
    return result == WOULD_WAIT ? cgp__wait_status(worker, end) : status;
}

cgp_status cgp__exchange_advance(cgp__worker *worker, int ready) {
    bool any = false;
    worker->exchange->ready = ready;
    return make_steps(worker, &any);
}

cgp_status cgp__exchange_finish(cgp__worker *worker) {
    cgp__exchange *x = worker->exchange;
    x->ready = x->pieces;
    while (x->done[4 * x->levels - 1] < x->pieces && !cgp__is_stopped(worker)) {
        bool any = false;
        CGP_TRY(make_steps(worker, &any));
        if (!any && !cgp__is_stopped(worker)) CGP_TRY(make_earliest(worker));
    }
    return CGP_OK;
}

/* The buffers of a link hold half a piece, so larger blocks are exchanged part by part. */
cgp_status cgp__exchange_blocks(cgp__worker *worker, int level, const cgp__exchange_block *block) {
    const int l = worker->exchange->link + 2 * level;
    const int64_t most = cgp__plan_links(worker->plan)->list[l].bytes;
    for (int64_t at = 0; at < block->bytes && !cgp__is_stopped(worker); at += most) {
        const int64_t n = cgp__min(most, block->bytes - at), own = block->own + at,
                      other = block->other + at;
        cgp_status status = CGP_OK;
        outcome result = send_part(worker, l, (cgp__byte_range){own, own + n}, INT64_MAX, &status);
        if (result == WOULD_WAIT) return cgp__wait_status(worker, &worker->executor->ends[2 * l]);
        if (result == FAILED) return status;
        result =
            receive_part(worker, l, (cgp__byte_range){other, other + n}, false, INT64_MAX, &status);
        if (result == WOULD_WAIT)
            return cgp__wait_status(worker, &worker->executor->ends[2 * l + 1]);
        if (result == FAILED) return status;
    }
    return CGP_OK;
}
