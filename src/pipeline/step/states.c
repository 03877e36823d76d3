/* SPDX-License-Identifier: Apache-2.0 */
/* states.c -- handles the state that ops keep across steps: sets initial values, commits changes at
 * the end of a step, and copies states to and from the host.
 *
 *     F of each micro-batch    adds to the accumulator, in the order of the action list
 *     end of a step            commit: state = f(state, accumulator)
 *
 * A step commits nothing if it fails, or if its numbers are not finite (finite.c). */
#include "pipeline/step/states.h"

#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "plan/memory/states.h"
#include "plan/owners.h"
#include "plan/program/program.h"
#include "plan/setup.h"
#include "schedule/gradient_groups.h"

#include <stdlib.h>
#include <string.h>

static int64_t count_of(const cgp__state *state) {
    return cgp_shape_count(&state->info.shape);
}

static size_t bytes_of(const cgp__state *state) {
    return (size_t)count_of(state) * cgp_dtype_bytes(state->info.dtype);
}

void *cgp__state_memory(const cgp__worker *worker, int state) {
    return worker->states + cgp__plan_states(worker->plan)->state[state];
}

static cgp_status initialize(cgp__worker *worker, int s) {
    const cgp__state *state = &worker->model->states[s];
    const cgp_op_state *info = &state->info;
    const int64_t count = count_of(state);
    char *memory = cgp__state_memory(worker, s);
    const int32_t number = (int32_t)info->begin;
    char chunk[4096];
    for (int i = 0; i < 1024; i++)
        memcpy(chunk + 4 * i, info->dtype == CGP_I32 ? (const void *)&number : &info->begin, 4);
    for (int64_t first = 0; first < count; first += 1024) {
        const int64_t n = count - first < 1024 ? count - first : 1024;
        CGP_TRY(cgp__worker_write(worker, memory + 4 * first, chunk, 4 * (size_t)n));
    }
    return CGP_OK;
}

cgp_status cgp__states_initialize(cgp__worker *worker) {
    const cgp_plan *plan = worker->plan;
    for (int s = 0; s < worker->model->n_states; s++) {
        if (cgp__plan_device_of(plan, worker->model->states[s].node) == worker->index)
            CGP_TRY(initialize(worker, s));
    }
    return CGP_OK;
}

/* --- the end of a step --- */

/* Return the arguments of a node's commit, which are also the arguments of the check before the
 * commit. */
static cgp_kernel_args commit_args(const cgp__worker *worker, int i, cgp_kernel_spec *spec) {
    const cgp__setup *setup = cgp__plan_setup(worker->plan);
    const cgp__node *node = &setup->model->nodes[i];
    const int64_t at = cgp__plan_device(worker->plan, worker->index)->state +
                       cgp__plan_states(worker->plan)->accumulator[i];
    const cgp__call call = {.node = i, .direction = CGP_OP_FORWARD};
    cgp_kernel_args args = {.accumulator = cgp__worker_at(worker, at),
                            .training = true,
                            .deferred = setup->deferred_batch_norm};
    for (int k = 0; k < node->use.shapes.n_state; k++)
        args.state[k] = cgp__state_memory(worker, node->first_state + k);
    *spec = cgp__call_spec(setup, &call, setup->microbatch);
    return args;
}

/* Return true if node `i` accumulates changes of its state on the worker's device. */
static bool collects(const cgp__worker *worker, int i) {
    const cgp_plan *plan = worker->plan;
    return cgp__plan_states(plan)->accumulator[i] >= 0 &&
           cgp__plan_device_of(plan, i) == worker->index;
}

static cgp_status commit_node(cgp__worker *worker, int i) {
    cgp_kernel_spec spec;
    const cgp_kernel_args args = commit_args(worker, i, &spec);
    return worker->backend->kernels.commit(worker->device, &spec, &args);
}

/* Merge the statistics of a node, replica by replica. */
static cgp_status merge_node(cgp__worker *worker, int i, int chunks) {
    const cgp_plan *plan = worker->plan;
    const int replicas = cgp__plan_setup(plan)->replicas;
    cgp_kernel_spec spec;
    cgp_kernel_args args = commit_args(worker, i, &spec);
    args.log_bytes = cgp__plan_device(plan, worker->index)->log_bytes;
    args.first = true;
    for (int r = 0; r < replicas && !cgp__is_stopped(worker); r++) {
        const int n =
            cgp__replica_first(r + 1, chunks, replicas) - cgp__replica_first(r, chunks, replicas);
        if (n == 0) continue;
        args.log = cgp__log_of(worker, r) + cgp__plan_states(plan)->log[i];
        CGP_TRY(worker->backend->kernels.merge(worker->device, &spec, &args, n));
        args.first = false;
    }
    return CGP_OK;
}

cgp_status cgp__states_merge(cgp__worker *worker, int chunks) {
    for (int i = 0; i < worker->model->n_nodes; i++) {
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        if (collects(worker, i)) CGP_TRY(merge_node(worker, i, chunks));
    }
    return CGP_OK;
}

cgp_status cgp__states_check(cgp__worker *worker, int *n) {
    for (int i = 0; i < worker->model->n_nodes; i++) {
        if (!collects(worker, i)) continue;
        cgp_kernel_spec spec;
        const cgp_kernel_args args = commit_args(worker, i, &spec);
        int64_t *word = (int64_t *)(void *)&worker->words[(*n)++];
        CGP_TRY(worker->backend->kernels.check_commit(worker->device, &spec, &args, word));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    }
    return CGP_OK;
}

int cgp__states_first_nonfinite(const cgp__worker *worker) {
    const int64_t *words = (const int64_t *)(const void *)worker->fetched;
    for (int i = 0, n = 0; i < worker->model->n_nodes; i++) {
        if (!collects(worker, i)) continue;
        const int64_t k = words[n++];
        if (k >= 0) return worker->model->nodes[i].first_state + (int)k;
    }
    return -1;
}

static cgp_status commit_device(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    for (int i = 0; i < worker->model->n_nodes; i++) {
        if (collects(worker, i)) CGP_TRY(commit_node(worker, i));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return cgp__worker_finish(worker);
}

cgp_status cgp__states_commit(cgp_pipeline *pipeline) {
    if (pipeline->model->n_states == 0) return CGP_OK;
    return cgp__executor_job(pipeline->executor, commit_device, NULL);
}

const float *cgp__state_data(const cgp__worker *worker, int state) {
    const cgp_plan *plan = worker->plan;
    const cgp__state *s = &worker->model->states[state];
    const bool built_in = worker->model->nodes[s->node].kind != CGP_OP_CUSTOM;
    if (!built_in || s->info.dtype != CGP_F32) return NULL;
    if (cgp__plan_device_of(plan, s->node) != worker->index) return NULL;
    return cgp__state_memory(worker, state);
}

/* --- to and from the host: jobs of the worker --- */

static cgp_status check(const cgp_pipeline *pipeline, int state) {
    const int n = pipeline->model->n_states;
    if (state >= 0 && state < n) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "state: the model has %d, got number %d", n, state);
}

/* Arguments of move_state(), which copies a state to `out`, or from `in` if `out` is NULL. */
typedef struct move {
    int state;
    void *out;
    const void *in;
} move;

static cgp_status move_state(cgp__worker *worker, void *argument) {
    const move *m = argument;
    const size_t bytes = bytes_of(&worker->model->states[m->state]);
    char *memory = cgp__state_memory(worker, m->state);
    return m->out ? cgp__worker_read(worker, m->out, memory, bytes)
                  : cgp__worker_write(worker, memory, m->in, bytes);
}

static int device_of(const cgp_pipeline *pipeline, int state) {
    return cgp__plan_device_of(pipeline->plan, pipeline->model->states[state].node);
}

static bool is_here(const cgp_pipeline *pipeline, int state) {
    return cgp__plan_is_on(pipeline->plan, device_of(pipeline, state), pipeline->rank);
}

cgp_status cgp__state_move(const cgp_pipeline *pipeline, int state, void *out, const void *in) {
    move m = {state, out, in};
    return cgp__executor_run_one(pipeline->executor, device_of(pipeline, state), move_state, &m);
}

/* Copy a state from the rank that has the state to `out` on all ranks. */
static cgp_status bring(const cgp_pipeline *pipeline, int state, void *out) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__ranks *ranks = pipeline->ranks;
    const int device = device_of(pipeline, state);
    cgp_status status = CGP_OK;
    if (is_here(pipeline, state)) status = cgp__state_move(pipeline, state, out, NULL);
    if (status != CGP_OK) {
        cgp__ranks_fail(ranks, status);
        return status;
    }
    return cgp__ranks_broadcast(ranks, cgp_plan_device_at(plan, device)->rank, out,
                                bytes_of(&pipeline->model->states[state]));
}

cgp_status cgp_pipeline_get_state(cgp_pipeline *pipeline, int state, void *data) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_GET_STATE, .at = state, .out = data);
    if (pipeline->n_ranks == 1) CGP__NEED(data);
    char *unwanted = NULL;
    cgp_status status = check(pipeline, state);
    if (status == CGP_OK && !data)
        status = CGP__NEW(unwanted, bytes_of(&pipeline->model->states[state]), "state");
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status == CGP_OK) status = bring(pipeline, state, data ? data : unwanted);
    free(unwanted);
    return status;
}

/* Check the arguments of a call that sets a state. `data` may be NULL on ranks that do not have the
 * state. */
static cgp_status check_set(const cgp_pipeline *pipeline, int state, const void *data,
                            const char *function) {
    CGP_TRY(check(pipeline, state));
    if (!data && is_here(pipeline, state)) return cgp__missing(function, "data");
    if (!pipeline->step->external_run || pipeline->team->failed) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "state %d: a forward has run with it (cgp_pipeline_backward is due)", state);
}

cgp_status cgp_pipeline_set_state(cgp_pipeline *pipeline, int state, const void *data) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_STATE, .at = state, .in = data);
    const cgp__ranks *ranks = pipeline->ranks;
    cgp_status status = CGP_OK;
    CGP_TRY(cgp__ranks_agree(ranks, check_set(pipeline, state, data, __func__)));
    if (is_here(pipeline, state)) status = cgp__state_move(pipeline, state, NULL, data);
    if (status != CGP_OK) cgp__ranks_fail(ranks, status);
    return status;
}

/* Add all states to the hash. `data` is scratch for the largest state. */
static cgp_status hash_states(const cgp_pipeline *pipeline, cgp__sha256 *hash, char *data) {
    cgp_status status = CGP_OK;
    for (int s = 0; s < pipeline->model->n_states && status == CGP_OK; s++) {
        status = bring(pipeline, s, data);
        if (status == CGP_OK)
            status = cgp__sha256_add(hash, data, bytes_of(&pipeline->model->states[s]));
    }
    if (status != CGP_OK) cgp__ranks_fail(pipeline->ranks, status);
    return status;
}

cgp_status cgp_pipeline_state_sha256(cgp_pipeline *pipeline, char hex[65]) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_STATE_SHA256, .out = hex);
    if (pipeline->n_ranks == 1) CGP__NEED(hex);
    const cgp_model *model = pipeline->model;
    char unwanted[65], *data = NULL;
    size_t largest = 0;
    cgp__sha256 *hash = NULL;
    for (int s = 0; s < model->n_states; s++)
        if (bytes_of(&model->states[s]) > largest) largest = bytes_of(&model->states[s]);
    cgp_status status = cgp__sha256_create(&hash);
    if (status == CGP_OK) status = CGP__NEW(data, largest, "states");
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status == CGP_OK) status = hash_states(pipeline, hash, data);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex ? hex : unwanted);
    free(data);
    cgp__sha256_destroy(hash);
    return status;
}
