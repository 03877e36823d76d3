/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c -- proves steps by replays (cgpipe/replay.h). A replay is a run of a second pipeline of
 * the same plan. Its devices are placed on other devices of the plan (plan/memory/replays.h), in
 * the same allocations:
 *
 *     keep      the pipeline's state ──► kept state, hashed
 *     step      the pipeline runs the step and makes evidence
 *     replay    kept state, checked ──► the second pipeline's state; run; make evidence
 *     equal     the second pipeline's state ──► kept state ──► the pipeline's state, checked
 *     not       kept state ──► a third pipeline's state; run; the evidence that two runs have is
 *               right
 *
 * With one device, and for a layout that moves no device, the pipeline itself runs the replay.
 *
 * With several ranks, the second pipeline runs on the same ranks, with other numbers
 * (run/renumbered.h). States pass through the host, piece by piece, and evidence is gathered. */
#include "pipeline/replay.h"

#include <cgpipe/replay.h>

#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/pipeline.h"
#include "pipeline/replay_inputs.h"
#include "pipeline/replay_verdict.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/flips.h"
#include "pipeline/run/injected_faults.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/renumbered.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/evidence.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/saved.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/memory/replays.h"
#include "plan/links.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The sections of the kept state, in this order. */
enum { PARAMETERS, OPTIMIZER, STATES, SECTIONS };

struct cgp__replay {
    cgp_pipeline *pipeline; /* the pipeline whose steps are replayed */
    /* [layouts] pipelines that run the replays; the first one is `pipeline`. NULL: not created. */
    cgp_pipeline *runners[CGP__LAYOUTS];
    cgp__renumbered *views[CGP__LAYOUTS]; /* with several ranks: communicators of the runners */
    int n_devices;
    cgp__nh_key key;
    cgp__hasher *hashers; /* [devices] used by the workers of the device in any layout */
    cgp__hash16 *kept;    /* [devices][SECTIONS] hashes of the state when it was kept; written by
                           * the workers of `pipeline` */
    bool *changed;        /* [devices] set if the kept state has changed; written likewise */
    cgp__evidence evidence[CGP__LAYOUTS];
    cgp__evidence moved;        /* evidence of the state that was moved back */
    cgp_pipeline *linked;       /* with several ranks: the pipeline whose links are open */
    const cgp_pipeline *source; /* argument of the job that moves the state back */
    /* With several ranks: scratch for a piece of a state, and for the evidence of all ranks. */
    char *piece, *gathered;
    bool armed;             /* set if a step was kept and not yet replayed */
    int64_t steps, updates; /* counters before the step */
};

enum { PIECE = 1 << 20 }; /* bytes of a state that are sent between ranks at a time */

/* Return true if the pipeline runs on several ranks. */
static bool spans(const cgp__replay *r) {
    return r->pipeline->n_ranks > 1;
}

/* --- memory --- */

static cgp_status make(cgp__replay *r) {
    const cgp_plan *plan = r->pipeline->plan;
    const int n = r->n_devices = cgp_plan_devices(plan);
    cgp__nh_key_fill(&r->key);
    CGP_TRY(CGP__NEW(r->hashers, n, "replay"));
    CGP_TRY(CGP__NEW(r->kept, n * SECTIONS, "replay"));
    CGP_TRY(CGP__NEW(r->changed, n, "replay"));
    for (int d = 0; d < n; d++)
        CGP_TRY(cgp__hasher_create(&r->hashers[d], &r->key,
                                   !cgp__plan_device(plan, d)->backend->host_addressable));
    for (int k = 0; k < CGP__LAYOUTS; k++)
        CGP_TRY(cgp__evidence_create(&r->evidence[k], plan, r->hashers));
    CGP_TRY(cgp__evidence_create(&r->moved, plan, r->hashers));
    if (!spans(r)) return CGP_OK;
    CGP_TRY(CGP__NEW(r->piece, PIECE, "replay"));
    return CGP__NEW(r->gathered, (size_t)r->pipeline->n_ranks * r->moved.bytes, "replay");
}

bool cgp__replay_stop(cgp__replay *r) {
    bool idle = true;
    for (int k = 1; r && k < CGP__LAYOUTS; k++) {
        if (r->runners[k] && r->runners[k] != r->pipeline)
            idle = cgp__pipeline_destroy(r->runners[k]) && idle;
        r->runners[k] = NULL;
    }
    return idle;
}

void cgp__replay_free(cgp__replay *r) {
    if (!r) return;
    for (int k = 0; k < CGP__LAYOUTS; k++)
        cgp__evidence_release(&r->evidence[k]);
    cgp__evidence_release(&r->moved);
    for (int d = 0; r->hashers && d < r->n_devices; d++)
        cgp__hasher_release(&r->hashers[d]);
    for (int k = 0; k < CGP__LAYOUTS; k++)
        cgp__renumbered_destroy(r->views[k]);
    free(r->piece);
    free(r->gathered);
    free(r->hashers);
    free(r->kept);
    free(r->changed);
    free(r);
}

/* Return the rank of a device of the plan in a layout. */
static int rank_in(const cgp__replay *r, int layout, int device) {
    const cgp_plan *plan = r->pipeline->plan;
    return cgp_plan_device_at(plan, cgp__plan_layout(plan, layout)->on[device])->rank;
}

/* Make the communicator of a layout, in which the ranks have the numbers of the plan. */
static cgp_status find_view(cgp__replay *r, int layout) {
    const cgp__ranks *ranks = r->pipeline->ranks;
    int *actual = NULL;
    if (r->views[layout]) return CGP_OK;
    cgp_status status = CGP__NEW(actual, ranks->n, "replay");
    for (int d = 0; d < r->n_devices && status == CGP_OK; d++)
        actual[cgp_plan_device_at(r->pipeline->plan, d)->rank] = rank_in(r, layout, d);
    if (status == CGP_OK)
        status = cgp__renumbered_create(&r->views[layout], ranks->transport, ranks->communicator,
                                        actual, layout * cgp__plan_links(r->pipeline->plan)->n);
    free(actual);
    return cgp__ranks_agree(ranks, status);
}

/* Find or create the pipeline that runs layout `layout`. */
static cgp_status find_runner(cgp__replay *r, int layout) {
    cgp_pipeline **runner = &r->runners[layout];
    if (*runner) return CGP_OK;
    if (!cgp__plan_layout(r->pipeline->plan, layout)->moves) {
        *runner = r->pipeline;
        return CGP_OK;
    }
    if (!spans(r)) return cgp__pipeline_create_lent(runner, r->pipeline, layout, NULL, NULL);
    CGP_TRY(find_view(r, layout));
    return cgp__pipeline_create_lent(runner, r->pipeline, layout,
                                     cgp__renumbered_transport(r->views[layout]),
                                     cgp__renumbered_communicator(r->views[layout]));
}

static cgp_status make_replay(cgp__replay **out, cgp_pipeline *pipeline) {
    CGP_TRY(CGP__NEW(*out, 1, "replay"));
    (*out)->pipeline = (*out)->linked = (*out)->runners[0] = pipeline;
    return make(*out);
}

static cgp_status find_replay(cgp_pipeline *pipeline) {
    cgp__replay *r = NULL;
    if (pipeline->replay) return CGP_OK;
    cgp_status status = cgp__ranks_agree(pipeline->ranks, make_replay(&r, pipeline));
    if (status == CGP_OK) status = find_runner(r, 1);
    if (status == CGP_OK)
        pipeline->replay = r;
    else
        cgp__replay_free(r);
    return status;
}

/* --- the workers' part --- */

/* A section of a device's state. */
typedef struct section {
    char *at;
    int64_t bytes;
} section;

static section section_of(const cgp__worker *worker, int k) {
    const cgp_plan_device *info = cgp_plan_device_at(worker->plan, worker->index);
    return k == PARAMETERS  ? (section){worker->parameters, info->parameter_bytes}
           : k == OPTIMIZER ? (section){worker->optimizer, info->optimizer_bytes}
                            : (section){worker->states, info->state_bytes};
}

/* Return the address of a kept section. The worker belongs to the pipeline that has the memory. */
static char *kept_at(const cgp__worker *worker, int k) {
    int64_t at = cgp__plan_device(worker->plan, worker->index)->kept;
    for (int i = 0; i < k; i++)
        at += section_of(worker, i).bytes;
    return cgp__worker_at(worker, at);
}

static cgp_status copy(const cgp__worker *worker, char *to, const cgp__worker *source, char *from,
                       int64_t bytes) {
    if (bytes == 0) return CGP_OK;
    return worker->backend->device.copy(worker->device, CGP_QUEUE_COMPUTE,
                                        cgp__device_place(worker, to),
                                        cgp__device_place(source, from), (size_t)bytes);
}

static cgp_status hash_section(cgp__worker *worker, const cgp__replay *r, const char *at, int k,
                               cgp__hash16 out) {
    return cgp__hasher_run(worker, &r->hashers[worker->index], at, false,
                           (size_t)section_of(worker, k).bytes, out);
}

static unsigned char *kept_hash(const cgp__worker *worker, const cgp__replay *r, int k) {
    return r->kept[worker->index * SECTIONS + k];
}

static cgp_status keep(cgp__worker *worker, void *argument) {
    const cgp__replay *r = argument;
    for (int k = 0; k < SECTIONS; k++) {
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        const section s = section_of(worker, k);
        CGP_TRY(hash_section(worker, r, s.at, k, kept_hash(worker, r, k)));
        if (cgp__is_stopped(worker)) return CGP_OK;
        CGP_TRY(copy(worker, kept_at(worker, k), worker, s.at, s.bytes));
    }
    return cgp__is_stopped(worker) ? CGP_OK : cgp__worker_finish(worker);
}

static cgp__flip_search find_kept(const cgp__worker *worker, int wanted) {
    cgp__flip_search found = {.wanted = wanted};
    for (int k = 0; k < SECTIONS; k++)
        cgp__flip_add(&found, kept_at(worker, k), section_of(worker, k).bytes);
    return found;
}

/* Flip bits of the kept state as CGP_FAULT specifies (flips.h). */
static cgp_status flip_kept(cgp__worker *worker, const cgp__replay *r) {
    int64_t number;
    for (int from = 0;
         cgp__injected_kept_flip(worker->executor, worker->index, r->steps, &from, &number);) {
        const int n = find_kept(worker, -1).n;
        if (n == 0) continue;
        const cgp__flip_search found = find_kept(worker, cgp__flip_draw(number, n));
        CGP_TRY(cgp__flip_bit(worker, &found, number));
    }
    return CGP_OK;
}

/* Check the kept state before its use. */
static cgp_status check_kept(cgp__worker *worker, void *argument) {
    const cgp__replay *r = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    if (worker->executor->faults) CGP_TRY(flip_kept(worker, r));
    for (int k = 0; k < SECTIONS; k++) {
        cgp__hash16 now;
        if (cgp__is_stopped(worker)) return CGP_OK;
        CGP_TRY(hash_section(worker, r, kept_at(worker, k), k, now));
        if (memcmp(now, kept_hash(worker, r, k), sizeof now) != 0) r->changed[worker->index] = true;
    }
    return CGP_OK;
}

/* No backward writes the gradient of a parameter that no loss depends on. Set the gradient to zero,
 * as in new memory. */
static cgp_status clear_gradients(cgp__worker *worker) {
    static const float zeros[4096];
    const cgp__parameters *parameters = cgp__plan_parameters(worker->plan);
    for (int c = 0; c < parameters->n_copies; c++) {
        const cgp__copy *to = &parameters->copies[c];
        const cgp__parameter *param = &worker->model->params[to->parameter];
        const int64_t count = cgp_shape_count(&param->shape);
        if (to->device != worker->index || param->requires_grad || to->gradient < 0) continue;
        float *gradient = cgp__copy_data(worker, to, CGP__GRADIENT);
        for (int64_t at = 0; at < count; at += 4096)
            CGP_TRY(cgp__worker_write(worker, gradient + at, zeros,
                                      4 * (size_t)cgp__min(count - at, 4096)));
    }
    return CGP_OK;
}

/* The worker's state has changed. */
static cgp_status loaded(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    ++*worker->changes.count;
    return clear_gradients(worker);
}

/* Copy the kept state to a worker of any layout on this rank. */
static cgp_status load(cgp__worker *worker, void *argument) {
    const cgp__replay *r = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp__worker *keeper = cgp__executor_worker(r->pipeline->executor, worker->index);
    for (int k = 0; k < SECTIONS; k++) {
        const section s = section_of(worker, k);
        CGP_TRY(copy(worker, s.at, keeper, kept_at(keeper, k), s.bytes));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    CGP_TRY(cgp__worker_finish(worker));
    return loaded(worker, NULL);
}

/* Copy the state of the source's worker to the place of the kept state. */
static cgp_status take(cgp__worker *worker, void *argument) {
    const cgp__replay *r = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp__worker *from = cgp__executor_worker(r->source->executor, worker->index);
    for (int k = 0; k < SECTIONS; k++) {
        const section s = section_of(from, k);
        CGP_TRY(copy(worker, kept_at(worker, k), from, s.at, s.bytes));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return cgp__worker_finish(worker);
}

/* --- states between ranks --- */

/* With several ranks, close the links of the pipeline that ran last, and open the links of another
 * one. Their buffers are in the same memory, which a transport may use while a link is open.
 * Collective. */
static cgp_status link_to(cgp__replay *r, cgp_pipeline *runner) {
    const cgp__ranks *ranks = r->pipeline->ranks;
    if (!spans(r) || r->linked == runner) return CGP_OK;
    cgp__link_ends_close(r->linked->executor);
    r->linked = runner;
    CGP_TRY(cgp__ranks_agree(ranks, CGP_OK)); /* both ends of all links are closed */
    return cgp__ranks_agree(ranks, cgp__link_ends_open(runner->executor));
}

/* A piece of a section that is copied between a worker and the host. */
typedef struct piece {
    char *host;
    int section;
    int64_t at;
    size_t bytes;
    bool kept, writes;
} piece;

static cgp_status copy_piece(cgp__worker *worker, void *argument) {
    const piece *p = argument;
    char *at = p->at + (p->kept ? kept_at(worker, p->section) : section_of(worker, p->section).at);
    return p->writes ? cgp__worker_write(worker, at, p->host, p->bytes)
                     : cgp__worker_read(worker, p->host, at, p->bytes);
}

/* Copy a piece of device d from the rank that has the device in layout `from`, to the rank that has
 * it in layout `to`. In layout 0, the state is the kept state. */
static cgp_status move_piece(const cgp__replay *r, int from, int to, int d, piece *p) {
    const cgp__ranks *ranks = r->pipeline->ranks;
    const cgp_pipeline *source = r->runners[from], *target = r->runners[to];
    cgp_status status = CGP_OK;
    p->kept = from == 0;
    p->writes = false;
    if (cgp__ranks_own(source->ranks, d))
        status = cgp__executor_run_one(source->executor, d, copy_piece, p);
    if (status == CGP_OK)
        status = cgp__ranks_broadcast(ranks, rank_in(r, from, d), p->host, p->bytes);
    p->kept = to == 0;
    p->writes = true;
    if (status == CGP_OK && cgp__ranks_own(target->ranks, d))
        status = cgp__executor_run_one(target->executor, d, copy_piece, p);
    if (status != CGP_OK) cgp__ranks_fail(ranks, status);
    return status;
}

static int64_t section_bytes(const cgp_plan *plan, int d, int k) {
    const cgp_plan_device *info = cgp_plan_device_at(plan, d);
    return k == PARAMETERS  ? info->parameter_bytes
           : k == OPTIMIZER ? info->optimizer_bytes
                            : info->state_bytes;
}

/* Copy the states of all devices between layouts. Collective. */
static cgp_status move_states(const cgp__replay *r, int from, int to) {
    for (int d = 0; d < r->n_devices; d++) {
        for (int k = 0; k < SECTIONS; k++) {
            const int64_t bytes = section_bytes(r->pipeline->plan, d, k);
            for (int64_t at = 0; at < bytes; at += PIECE) {
                piece p = {.host = r->piece,
                           .section = k,
                           .at = at,
                           .bytes = (size_t)cgp__min(bytes - at, PIECE)};
                CGP_TRY(move_piece(r, from, to, d, &p));
            }
        }
    }
    return CGP_OK;
}

/* Copy the kept state to the runner of a layout. */
static cgp_status load_states(cgp__replay *r, int layout) {
    cgp_pipeline *runner = r->runners[layout];
    if (!spans(r) || runner == r->pipeline) return cgp__executor_job(runner->executor, load, r);
    CGP_TRY(cgp__ranks_agree(r->pipeline->ranks, move_states(r, 0, layout)));
    return cgp__executor_job(runner->executor, loaded, r);
}

/* Copy the state of the runner of layout 1 to the place of the kept state. */
static cgp_status take_states(cgp__replay *r) {
    r->source = r->runners[1];
    if (spans(r)) return cgp__ranks_agree(r->pipeline->ranks, move_states(r, 1, 0));
    return cgp__executor_job(r->pipeline->executor, take, r);
}

/* Give all ranks the evidence of all ranks. A value that a rank does not have is zero there. */
static cgp_status share_evidence(const cgp__replay *r, const cgp__evidence *e) {
    const cgp__ranks *ranks = r->pipeline->ranks;
    if (!spans(r)) return CGP_OK;
    memcpy(r->gathered + (size_t)ranks->rank * e->bytes, e->data, e->bytes);
    CGP_TRY(cgp__ranks_share(ranks, r->gathered, e->bytes));
    for (int q = 0; q < ranks->n; q++)
        for (size_t i = 0; i < e->bytes; i++)
            e->data[i] = (char)(e->data[i] | r->gathered[(size_t)q * e->bytes + i]);
    return CGP_OK;
}

/* Hash the results of a runner's step, and share the evidence. */
static cgp_status close_evidence(cgp__replay *r, cgp_pipeline *runner, cgp__evidence *e,
                                 bool states_only) {
    CGP_TRY(cgp__evidence_add_results(runner, e, states_only));
    return cgp__executor_exchanged(r->pipeline->executor, share_evidence(r, e));
}

/* --- runs --- */

static cgp_status fail_kept(const cgp__replay *r, cgp_replay_result *out) {
    int d = 0;
    while (!r->changed[d])
        d++;
    return cgp__replay_kept_differs(r->pipeline, r->updates + 1, d, out);
}

/* Give a pipeline the settings and counters with which the step began. */
static void set_counters(const cgp__replay *r, cgp_pipeline *runner) {
    const cgp__step *from = r->pipeline->step;
    cgp__step *to = runner->step;
    to->steps = r->steps;
    to->shared->updates = r->updates;
    to->shared->update_due = to->shared->has_gradients = false;
    if (runner == r->pipeline) return;
    to->seed = from->seed;
    memcpy(to->lr, from->lr, (size_t)(1 + r->pipeline->setup->groups.n) * sizeof *to->lr);
    memcpy(to->accumulation.targets, from->accumulation.targets,
           (size_t)r->pipeline->model->n_losses * sizeof *to->accumulation.targets);
    runner->team->timeout_ns = r->pipeline->team->timeout_ns;
    runner->team->look_ns = r->pipeline->team->look_ns;
}

static cgp_status run_step(cgp_pipeline *runner, const cgp_tensor *const *inputs, int n_inputs) {
    CGP_TRY(cgp_pipeline_step(runner, inputs, n_inputs, NULL));
    if (runner->step->shared->refusal[0]) {
        runner->step->shared->update_due = false; /* the step is refused, as a result */
        return CGP_OK;
    }
    return cgp_optim_step(runner);
}

/* Run the step from the kept state in a layout, and make its evidence. */
static cgp_status run_layout(cgp__replay *r, int layout, const cgp_tensor *const *inputs,
                             int n_inputs) {
    CGP_TRY(find_runner(r, layout));
    cgp_pipeline *runner = r->runners[layout];
    const int before = runner->executor->replay;
    CGP_TRY(link_to(r, runner));
    CGP_TRY(load_states(r, layout));
    set_counters(r, runner);
    memset(r->evidence[layout].data, 0, r->evidence[layout].bytes);
    cgp__evidence_begin(runner, &r->evidence[layout]);
    runner->executor->replay = layout;
    const cgp_status status = run_step(runner, inputs, n_inputs);
    runner->executor->replay = before;
    cgp__evidence_begin(runner, NULL);
    CGP_TRY(status);
    return close_evidence(r, runner, &r->evidence[layout], false);
}

/* Run the step a third time, and fail with the device that was wrong. */
static cgp_status decide(cgp__replay *r, const cgp__difference *d, const cgp_tensor *const *inputs,
                         int n_inputs, cgp_replay_result *out) {
    char why[512];
    cgp__replay_result_set(r->pipeline, d, -1, out);
    if (cgp_plan_devices(r->pipeline->plan) == 1)
        return cgp__replay_differs(
            r->pipeline, r->updates + 1, d, -1,
            "one device ran both, so which run was wrong is not known (more devices)");
    if (run_layout(r, 2, inputs, n_inputs) != CGP_OK) {
        snprintf(why, sizeof why, "the second replay failed (%.400s)", cgp_message());
        return cgp__replay_differs(r->pipeline, r->updates + 1, d, -1, why);
    }
    const cgp__evidence *e = r->evidence;
    const int run = cgp__evidence_same_at(&e[1], &e[2], d)   ? 0
                    : cgp__evidence_same_at(&e[0], &e[2], d) ? 1
                                                             : -1;
    cgp__replay_result_set(r->pipeline, d, run, out);
    return cgp__replay_differs(r->pipeline, r->updates + 1, d, run,
                               "three runs have three results, so the device is not known");
}

/* Move the state after the step from the runner of the replay back to the pipeline. */
static cgp_status move_back(cgp__replay *r, cgp_replay_result *out) {
    cgp_pipeline *pipeline = r->pipeline;
    if (r->runners[1] == pipeline) return CGP_OK;
    memset(r->moved.data, 0, r->moved.bytes);
    CGP_TRY(take_states(r));
    CGP_TRY(link_to(r, pipeline));
    CGP_TRY(load_states(r, 0));
    CGP_TRY(close_evidence(r, pipeline, &r->moved, true));
    const cgp__difference d =
        cgp__evidence_compare(pipeline->plan, &r->evidence[0], &r->moved, true);
    pipeline->step->shared->has_gradients = false;
    if (d.kind == CGP__DIFFERS_NOT) return CGP_OK;
    return cgp__replay_moved_differs(pipeline, r->updates + 1, &d, out);
}

static bool any_changed(const cgp__replay *r) {
    bool any = false;
    for (int d = 0; d < r->n_devices; d++)
        any = any || r->changed[d];
    return any;
}

static cgp_status prove(cgp__replay *r, const cgp_tensor *const *inputs, int n_inputs,
                        cgp_replay_result *out) {
    cgp_pipeline *pipeline = r->pipeline;
    CGP_TRY(close_evidence(r, pipeline, &r->evidence[0], false));
    CGP_TRY(cgp__executor_job(pipeline->executor, check_kept, r));
    CGP_TRY(
        cgp__ranks_share_devices(pipeline->ranks, pipeline->plan, r->changed, sizeof *r->changed));
    if (any_changed(r)) return fail_kept(r, out);
    CGP_TRY(run_layout(r, 1, inputs, n_inputs));
    const cgp__difference d =
        cgp__evidence_compare(pipeline->plan, &r->evidence[0], &r->evidence[1], false);
    if (d.kind != CGP__DIFFERS_NOT) return decide(r, &d, inputs, n_inputs, out);
    return move_back(r, out);
}

/* --- public calls --- */

/* Prove a step with the inputs of all ranks. */
static cgp_status prove_shared(cgp__replay *r, const cgp_tensor *const *inputs,
                               cgp_replay_result *out) {
    cgp__replay_inputs s = {.n = 0};
    cgp_status status = cgp__replay_inputs_share(r->pipeline, inputs, &s);
    if (status == CGP_OK) status = prove(r, s.list, s.n, out);
    cgp__replay_inputs_release(&s);
    return status;
}

static cgp_status check_keep(const cgp_pipeline *pipeline) {
    CGP_TRY(cgp__step_check_training(pipeline));
    if (!cgp__plan_layout(pipeline->plan, 0)->on)
        return cgp_fail(CGP_ESTATE, "replay: the plan reserves no memory (plan with `replay`)");
    if (pipeline->executor->owner)
        return cgp_fail(CGP_ESTATE, "replay: the pipeline shares another pipeline's memory (keep "
                                    "the step of its owner)");
    if (pipeline->step->accumulation.on)
        return cgp_fail(CGP_ESTATE, "replay: steps accumulate (cgp_pipeline_set_accumulation)");
    if (pipeline->step->shared->update_due)
        return cgp_fail(CGP_ESTATE, "replay: gradients wait for their update (cgp_optim_step is "
                                    "due)");
    return CGP_OK;
}

cgp_status cgp_pipeline_keep_step(cgp_pipeline *pipeline) {
    CGP__PIPELINE(pipeline);
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, check_keep(pipeline)));
    CGP_TRY(find_replay(pipeline));
    cgp__replay *r = pipeline->replay;
    r->steps = pipeline->step->steps;
    r->updates = pipeline->step->shared->updates;
    memset(r->changed, 0, (size_t)cgp_plan_devices(pipeline->plan) * sizeof *r->changed);
    memset(r->evidence[0].data, 0, r->evidence[0].bytes);
    CGP_TRY(cgp__executor_job(pipeline->executor, keep, r));
    cgp__evidence_begin(pipeline, &r->evidence[0]);
    r->armed = true;
    return CGP_OK;
}

static cgp_status check_replay(const cgp_pipeline *pipeline) {
    const cgp__replay *r = pipeline->replay;
    const cgp__step *step = pipeline->step;
    CGP_TRY(cgp__step_check_training(pipeline));
    if (!r || !r->armed)
        return cgp_fail(CGP_ESTATE, "replay: no step was kept (cgp_pipeline_keep_step is due)");
    if (step->steps != r->steps + 1 || step->shared->update_due)
        return cgp_fail(CGP_ESTATE,
                        "replay: expected one step after cgp_pipeline_keep_step (%s is "
                        "due)",
                        step->shared->update_due ? "cgp_optim_step" : "cgp_pipeline_step");
    return CGP_OK;
}

cgp_status cgp_pipeline_replay_step(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                    int n_inputs, cgp_replay_result *result) {
    CGP__PIPELINE(pipeline);
    if (pipeline->n_ranks == 1) CGP__NEED(inputs);
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, check_replay(pipeline)));
    cgp_replay_result found = {false, -1, -1, -1, -1, -1};
    pipeline->replay->armed = false;
    cgp__evidence_begin(pipeline, NULL);
    const cgp_status status = spans(pipeline->replay)
                                  ? prove_shared(pipeline->replay, inputs, &found)
                                  : prove(pipeline->replay, inputs, n_inputs, &found);
    if (status != CGP_OK && status != CGP_EDIFFERS)
        (void)cgp_fail(status, "replay of step %lld: %s", (long long)pipeline->replay->updates + 1,
                       cgp_message());
    if (status != CGP_OK && !pipeline->team->failed) cgp__team_fail(pipeline->team);
    if (result) *result = found;
    return status;
}
