/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.c -- makes and compares the evidence of steps (evidence.h). Each worker hashes what its
 * device has. Unlike a digest, evidence has the tensors of every copy of a parameter. */
#include "pipeline/step/evidence.h"

#include "model/model.h"
#include "optim/optim.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "plan/memory/parameters.h"
#include "plan/memory/shards.h"
#include "plan/messages.h"
#include "plan/owners.h"
#include "plan/placement.h"
#include "plan/program/program.h"
#include "plan/setup.h"

#include <stdlib.h>
#include <string.h>

/* --- memory --- */

static int parts_of(const cgp_plan *plan) {
    return 1 + cgp_optim_states(&cgp__plan_setup(plan)->optim);
}

/* Return the place of `count` values of `size` bytes in the evidence's memory. Until the memory is
 * allocated, only count the bytes. */
static void *take(cgp__evidence *e, size_t *used, int64_t count, size_t size) {
    char *at = e->data ? e->data + *used : NULL;
    *used += (size_t)count * size;
    return at;
}

/* Set the addresses of all arrays; doubles come first, because they need alignment. Return the
 * number of bytes. */
static size_t lay_out(cgp__evidence *e, const cgp_plan *plan) {
    const cgp_model *model = cgp__plan_setup(plan)->model;
    const int64_t copies = cgp__plan_parameters(plan)->n_copies * (int64_t)parts_of(plan),
                  messages = 2 * (int64_t)cgp_plan_edges(plan) * e->messages.chunks;
    size_t used = 0;
    e->losses = take(e, &used, model->n_losses, sizeof *e->losses);
    e->squares = take(e, &used, model->n_params, sizeof *e->squares);
    e->messages.hashes = take(e, &used, messages, sizeof *e->messages.hashes);
    e->uses = take(e, &used, model->n_uses, sizeof *e->uses);
    e->gradients = take(e, &used, model->n_params, sizeof *e->gradients);
    e->states = take(e, &used, model->n_states, sizeof *e->states);
    e->copies = take(e, &used, copies, sizeof *e->copies);
    return used;
}

cgp_status cgp__evidence_create(cgp__evidence *e, const cgp_plan *plan,
                                const cgp__hasher *hashers) {
    e->messages.hashers = hashers;
    e->messages.chunks = cgp__plan_setup(plan)->chunks;
    e->bytes = lay_out(e, plan);
    CGP_TRY(CGP__NEW(e->data, e->bytes, "replay"));
    (void)lay_out(e, plan);
    return CGP_OK;
}

void cgp__evidence_release(cgp__evidence *e) {
    free(e->data);
}

void cgp__evidence_begin(const cgp_pipeline *pipeline, cgp__evidence *evidence) {
    pipeline->step->evidence = evidence;
    pipeline->executor->messages = evidence ? &evidence->messages : NULL;
}

/* --- the worker's part --- */

static bool is_tied(const cgp_plan *plan, const cgp_model *model, int p) {
    return cgp__is_tied(cgp__plan_parameters(plan), model, p);
}

static size_t bytes_of(const cgp_model *model, int p) {
    return 4 * (size_t)cgp_shape_count(&model->params[p].shape);
}

static cgp_status hash(cgp__worker *worker, const cgp__evidence *e, const void *data, size_t bytes,
                       cgp__hash16 out) {
    return cgp__hasher_run(worker, &e->messages.hashers[worker->index], data, false, bytes, out);
}

static cgp_status hash_uses(cgp__worker *worker, void *argument) {
    const cgp__evidence *e = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp_plan *plan = worker->plan;
    const cgp_model *model = worker->model;
    for (int u = 0; u < model->n_uses && !cgp__is_stopped(worker); u++) {
        const cgp__use *use = &model->uses[u];
        if (!model->nodes[use->node].requires_grad || !is_tied(plan, model, use->parameter) ||
            model->params[use->parameter].frozen ||
            cgp__plan_device_of(plan, use->node) != worker->index)
            continue;
        const char *at = worker->gradients + cgp__plan_parameters(plan)->use_gradient[u];
        CGP_TRY(hash(worker, e, at, bytes_of(model, use->parameter), e->uses[u]));
    }
    return CGP_OK;
}

static cgp_status hash_copy(cgp__worker *worker, const cgp__evidence *e, int c) {
    const cgp_plan *plan = worker->plan;
    const cgp__copy *copy = &cgp__plan_parameters(plan)->copies[c];
    const size_t bytes = bytes_of(worker->model, copy->parameter);
    const int n = parts_of(plan);
    cgp__hash16 *out = e->copies + (int64_t)c * n;
    cgp__shard_part all;
    CGP_TRY(hash(worker, e, cgp__copy_data(worker, copy, CGP__VALUES), bytes, out[0]));
    if (worker->model->params[copy->parameter].frozen) return CGP_OK;
    if (!cgp__shard_part_after(plan, 0, copy, 0, &all)) return CGP_OK;
    for (int s = 0; s < n - 1 && !cgp__is_stopped(worker); s++)
        CGP_TRY(hash(worker, e, cgp__optimizer_data(worker, &all, s), bytes, out[1 + s]));
    return CGP_OK;
}

static cgp_status hash_gradients(cgp__worker *worker, const cgp__evidence *e) {
    const cgp__parameters *parameters = cgp__plan_parameters(worker->plan);
    for (int t = 0; t < parameters->n_trained && !cgp__is_stopped(worker); t++) {
        const int p = parameters->trained[t];
        const cgp__copy *owner = cgp__owner_of(worker->plan, p);
        if (owner->device == worker->index)
            CGP_TRY(hash(worker, e, cgp__copy_data(worker, owner, CGP__GRADIENT),
                         bytes_of(worker->model, p), e->gradients[p]));
    }
    return CGP_OK;
}

static cgp_status hash_results(cgp__worker *worker, void *argument) {
    const cgp__evidence *e = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp_plan *plan = worker->plan;
    const cgp_model *model = worker->model;
    if (!e->states_only) CGP_TRY(hash_gradients(worker, e));
    for (int s = 0; s < model->n_states && !cgp__is_stopped(worker); s++) {
        const cgp__state *state = &model->states[s];
        if (cgp__plan_device_of(plan, state->node) == worker->index)
            CGP_TRY(hash(worker, e, cgp__state_memory(worker, s),
                         (size_t)cgp_shape_count(&state->info.shape) *
                             cgp_dtype_bytes(state->info.dtype),
                         e->states[s]));
    }
    const cgp__parameters *parameters = cgp__plan_parameters(plan);
    for (int c = 0; c < parameters->n_copies && !cgp__is_stopped(worker); c++)
        if (parameters->copies[c].device == worker->index) CGP_TRY(hash_copy(worker, e, c));
    return CGP_OK;
}

cgp_status cgp__evidence_add_uses(cgp_pipeline *pipeline) {
    return cgp__executor_job(pipeline->executor, hash_uses, pipeline->step->evidence);
}

cgp_status cgp__evidence_add_results(cgp_pipeline *pipeline, cgp__evidence *e, bool states_only) {
    const cgp__step *step = pipeline->step;
    e->states_only = states_only;
    e->refused = step->shared->refusal[0] != '\0';
    if (!states_only) {
        memcpy(e->losses, step->step_sums, (size_t)pipeline->model->n_losses * sizeof(double));
        memset(e->squares, 0, (size_t)pipeline->model->n_params * sizeof(double));
        if (pipeline->setup->optim.clip_norm > 0)
            memcpy(e->squares, step->squares, (size_t)pipeline->model->n_params * sizeof(double));
    }
    return cgp__executor_job(pipeline->executor, hash_results, e);
}

/* --- comparison --- */

/* A walk over the values of the evidence of a run and of another run. */
typedef struct walk {
    const cgp_plan *plan;
    const cgp__evidence *a, *b;
    cgp__difference first; /* the first difference so far */
} walk;

static int stage_of(const cgp_plan *plan, int node) {
    const int device = cgp__plan_device_of(plan, node);
    const cgp_plan_device *info = cgp_plan_device_at(plan, device);
    for (int k = 0; k < info->stages; k++) {
        const cgp__stage_plan *stage = cgp__plan_stage(plan, info->stage_list[k]);
        if (node >= stage->first_node && node < stage->first_node + stage->n_nodes)
            return info->stage_list[k];
    }
    return -1;
}

enum { LAST = 1 << 20 }; /* a place after all others */

/* Places in the order of the data. Forward of stage j has place 2j, its messages arrive at 2j + 1;
 * backward follows in the same way. */
static int forward_of(int stage) {
    return 2 * stage;
}

static int backward_of(const cgp_plan *plan, int stage) {
    const int n = cgp_plan_stages(plan);
    return 2 * n + 2 * (n - 1 - stage);
}

static int reduction_of(const cgp_plan *plan) {
    return 4 * cgp_plan_stages(plan);
}

/* Compare a value of both runs. */
static void compare(walk *w, cgp__difference d, const void *a, const void *b, size_t bytes) {
    if (memcmp(a, b, bytes) == 0) return;
    if (w->first.kind != CGP__DIFFERS_NOT && w->first.order <= d.order) return;
    d.at = (size_t)((const char *)a - w->a->data);
    d.bytes = bytes;
    w->first = d;
}

static void compare_hashes(walk *w, cgp__difference d, const cgp__hash16 *a, const cgp__hash16 *b,
                           int64_t i) {
    compare(w, d, a[i], b[i], sizeof *a);
}

static void compare_messages(walk *w, int e) {
    const cgp_plan_edge edge = cgp_plan_edge_at(w->plan, e);
    const cgp__message_hashes *a = &w->a->messages, *b = &w->b->messages;
    for (int i = 0; i < a->chunks; i++) {
        for (int received = 0; received < 2; received++) {
            const int stage = received ? edge.to : edge.from;
            const int sent =
                edge.from < edge.to ? forward_of(edge.from) : backward_of(w->plan, edge.from);
            const cgp__difference d = {.kind = received ? CGP__DIFFERS_MESSAGE_RECEIVED
                                                        : CGP__DIFFERS_MESSAGE_SENT,
                                       .index = e,
                                       .microbatch = i,
                                       .stage = stage,
                                       .device = cgp_plan_stage_at(w->plan, stage)->device,
                                       .order = sent + received};
            compare(w, d, cgp__message_hash_at(a, e, i, received),
                    cgp__message_hash_at(b, e, i, received), sizeof(cgp__hash16));
        }
    }
}

/* Return a difference in a stage that runs `node`. */
static cgp__difference in_stage(const walk *w, cgp__difference_kind kind, int index, int node) {
    const int stage = stage_of(w->plan, node);
    return (cgp__difference){.kind = kind,
                             .index = index,
                             .microbatch = -1,
                             .stage = stage,
                             .device = cgp__plan_device_of(w->plan, node),
                             .order = kind == CGP__DIFFERS_USE_GRADIENT
                                          ? backward_of(w->plan, stage)
                                          : forward_of(stage)};
}

static void compare_stages(walk *w) {
    const cgp_model *model = cgp__plan_setup(w->plan)->model;
    for (int l = 0; l < model->n_losses; l++)
        compare(w, in_stage(w, CGP__DIFFERS_LOSS, l, cgp__model_loss(model, l)), &w->a->losses[l],
                &w->b->losses[l], sizeof(double));
    for (int u = 0; u < model->n_uses; u++) {
        const cgp__use *use = &model->uses[u];
        const cgp__difference d = in_stage(w, CGP__DIFFERS_USE_GRADIENT, use->parameter, use->node);
        if (is_tied(w->plan, model, use->parameter))
            compare_hashes(w, d, w->a->uses, w->b->uses, u);
        else if (model->nodes[use->node].requires_grad)
            compare_hashes(w, d, w->a->gradients, w->b->gradients, use->parameter);
    }
}

/* Return the place of a state or parameter. If only one of the runs was refused, all of them
 * differ, so they come last. */
static int order_of_results(const walk *w, int order) {
    return w->a->refused == w->b->refused ? order : order + LAST;
}

static void compare_states(walk *w) {
    const cgp_model *model = cgp__plan_setup(w->plan)->model;
    for (int s = 0; s < model->n_states; s++) {
        cgp__difference d = in_stage(w, CGP__DIFFERS_STATE, s, model->states[s].node);
        d.order = order_of_results(w, d.order);
        compare_hashes(w, d, w->a->states, w->b->states, s);
    }
}

static void compare_sums(walk *w) {
    const cgp__parameters *parameters = cgp__plan_parameters(w->plan);
    for (int t = 0; t < parameters->n_trained; t++) {
        const int p = parameters->trained[t];
        cgp__difference d = {.kind = CGP__DIFFERS_GRADIENT_SUM,
                             .index = p,
                             .microbatch = -1,
                             .stage = -1,
                             .device = cgp__owner_of(w->plan, p)->device,
                             .order = reduction_of(w->plan)};
        compare_hashes(w, d, w->a->gradients, w->b->gradients, p);
        d.kind = CGP__DIFFERS_SQUARES;
        d.order++;
        compare(w, d, &w->a->squares[p], &w->b->squares[p], sizeof(double));
    }
}

static void compare_copies(walk *w) {
    const cgp__parameters *parameters = cgp__plan_parameters(w->plan);
    const int n = parts_of(w->plan);
    for (int64_t i = 0; i < (int64_t)parameters->n_copies * n; i++) {
        const cgp__copy *copy = &parameters->copies[i / n];
        const int part = (int)(i % n);
        const cgp__difference d = {.kind =
                                       part ? CGP__DIFFERS_OPTIMIZER_STATE : CGP__DIFFERS_PARAMETER,
                                   .index = copy->parameter,
                                   .microbatch = -1,
                                   .part = part - 1,
                                   .stage = -1,
                                   .device = copy->device,
                                   .order = order_of_results(w, reduction_of(w->plan) + 2)};
        compare_hashes(w, d, w->a->copies, w->b->copies, i);
    }
}

cgp__difference cgp__evidence_compare(const cgp_plan *plan, const cgp__evidence *a,
                                      const cgp__evidence *b, bool states_only) {
    walk w = {.plan = plan, .a = a, .b = b, .first = {.kind = CGP__DIFFERS_NOT, .stage = -1}};
    for (int e = 0; e < cgp_plan_edges(plan) && !states_only; e++)
        compare_messages(&w, e);
    if (!states_only) compare_stages(&w);
    compare_states(&w);
    if (!states_only) compare_sums(&w);
    compare_copies(&w);
    return w.first;
}

bool cgp__evidence_same_at(const cgp__evidence *a, const cgp__evidence *b,
                           const cgp__difference *d) {
    return memcmp(a->data + d->at, b->data + d->at, d->bytes) == 0;
}
