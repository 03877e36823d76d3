/* SPDX-License-Identifier: Apache-2.0 */
/* message_hashes.c -- implements message_hashes.h. */
#include "pipeline/run/message_hashes.h"

#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/worker.h"
#include "plan/messages.h"
#include "plan/program/program.h"
#include "schedule/kinds.h"

cgp_status cgp__message_hash(const cgp__execution *s) {
    cgp__worker *worker = s->worker;
    const cgp__message_hashes *all = worker->executor->messages;
    const cgp__hasher *hasher = &all->hashers[worker->index];
    const cgp_action *action = &s->bound->action;
    const cgp__edge_plan *edge = cgp__plan_edge(s->plan, action->edge);
    const bool sends = cgp__is_send(action->kind);
    const bool saved = s->variant->program != CGP__FORWARD_NOSAVE;
    if (worker->backend->streams) CGP_TRY(cgp__worker_finish(worker));
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    CGP_TRY(cgp__hasher_begin(hasher));
    for (int i = 0; i < edge->n_parts; i++) {
        const cgp__part *part = &edge->parts[i];
        const char *at = cgp__address(s, sends ? part->from[saved] : part->to);
        CGP_TRY(cgp__hasher_add(worker, hasher, at, false,
                                (size_t)(part->sample_bytes * s->variant->samples)));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return cgp__hasher_end(hasher,
                           cgp__message_hash_at(all, action->edge, action->microbatch, !sends));
}
