/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c -- a worker's inner loop: take the next action, wait for its message or buffer, run it, record the times. */
#include "pipeline/run/run.h"
#include "schedule/table.h"

#include <stdio.h>

/* The worker, the action, and where each arena begins for it. */
typedef struct execution {
    cgp__worker *worker;
    const cgp_plan *plan;
    const cgp__run_context *context;
    const cgp__bound_action *bound;
    const cgp__stage_plan *stage;
    char *base[CGP__ARENAS];
} execution;

static execution execution_of(cgp__worker *worker, const cgp__run_context *context,
                              const cgp__bound_action *bound) {
    const cgp_plan *plan = worker->executor->plan;
    const cgp__device_plan *device = &plan->devices[worker->index];
    const cgp__stage_plan *stage = &plan->stages[bound->action.stage];
    execution s = {worker, plan, context, bound, stage, {NULL}};
    s.base[CGP__PARAMETERS] = worker->memory + device->parameters;
    s.base[CGP__GRADIENTS] = worker->memory + device->gradients;
    s.base[CGP__STATE] = worker->memory + device->state;
    s.base[CGP__WORKSPACE] = worker->memory + device->workspace;
    if (bound->input_slot >= 0)
        s.base[CGP__INPUT_SLOT] = worker->memory + stage->input_slots +
                                  bound->input_slot * stage->info.input_slot_bytes;
    if (bound->saved_slot >= 0)
        s.base[CGP__SAVED_SLOT] = worker->memory + stage->saved_slots +
                                  bound->saved_slot * stage->info.saved_slot_bytes;
    return s;
}

/* The address of an operand; NULL: none. */
static void *at(const execution *s, cgp__location place) {
    if (place.arena == CGP__NOWHERE) return NULL;
    const cgp_model *model = s->plan->model;
    const bool host = place.arena == CGP__HOST;
    if (!host && place.arena != CGP__HOST_GRADIENT) return s->base[place.arena] + place.offset;
    const cgp_tensor *tensor = host ? s->context->inputs[place.offset] : s->context->gradient;
    const int value = host ? model->input_values[place.offset] : model->output;
    const int64_t first = s->context->offset + s->bound->first_sample;
    const int64_t bytes = cgp__type_bytes(&model->values[value].type, first);
    return tensor ? (char *)tensor->data + bytes : NULL;
}

static cgp_status run_kernel(const execution *s, const cgp__call *call, cgp__kernel *kernel) {
    const cgp__executor *executor = s->worker->executor;
    const cgp__node *node = &s->plan->model->nodes[call->node];
    double unused;
    cgp__prefetch prefetch[CGP__MAX_PREFETCH];
    cgp__kernel_args args = {
        .y = at(s, call->y),
        .dy = at(s, call->dy),
        .workspace = at(s, call->workspace),
        .first = call->direction == CGP_OP_BACKWARD_WEIGHT ? s->bound->first_weight
                                                           : s->bound->first,
        .accumulator = s->context->training ? at(s, call->accumulator) : NULL,
        .training = s->context->training,
        .recomputing =
            s->bound->program == CGP__RECOMPUTE || s->bound->program == CGP__BACKWARD,
        .deferred = s->plan->deferred_batch_norm,
        .sample = s->bound->first_sample,
        .prefetch = prefetch,
        .n_prefetch = call->n_prefetch,
        .loss = &unused};
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        args.x[k] = at(s, call->x[k]);
        args.dx[k] = at(s, call->dx[k]);
    }
    for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
        args.saved[k] = at(s, call->saved[k]);
    for (int k = 0; k < CGP_OP_MAX_STATE; k++)
        args.state[k] = at(s, call->state[k]);
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++) {
        args.param[k] = at(s, call->param[k]);
        args.dparam[k] = at(s, call->dparam[k]);
    }
    for (int i = 0; i < call->n_prefetch; i++) /* later calls' operands */
        prefetch[i] =
            (cgp__prefetch){at(s, call->prefetch[i].location), call->prefetch[i].bytes};
    if (node->sizes.p > 0 || node->kind == CGP__OP_CUSTOM)
        args.key =
            cgp__rng_derive(s->context->seed, CGP__RNG_DROPOUT, s->context->step, node->id);
    if (node->use.op->is_loss) {
        const cgp_model *model = s->plan->model;
        const int l = call->node - cgp__model_loss(model, 0);
        if (s->context->loss_scales) args.loss_scale = s->context->loss_scales[l];
        if (s->bound->action.kind == CGP_ACTION_F)
            args.loss = &executor->losses[s->bound->action.microbatch * model->n_losses + l];
    }
    return cgp__backend_of(s->worker)->kernel_run(kernel, &args);
}

bool cgp__input_is_read(const cgp_model *model, int k, bool with_loss) {
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        for (int j = 0; j < node->n_inputs && (with_loss || !node->use.op->is_loss); j++) {
            if (node->inputs[j] == model->input_values[k]) return true;
        }
    }
    return false;
}

/* The caller's tensors are f32. */
static void copy_values(const execution *s, const cgp__call *call) {
    const bool host = call->dy.arena == CGP__HOST || call->dy.arena == CGP__HOST_GRADIENT;
    const cgp_dtype type = cgp__plan_activation_type(s->plan);
    if (call->dy.arena == CGP__HOST &&
        !cgp__input_is_read(s->plan->model, (int)call->dy.offset, s->context->with_loss))
        return; /* may be NULL */
    cgp__backend_of(s->worker)->convert(s->worker->device, type, at(s, call->dx[0]),
                                        host ? CGP_F32 : type, at(s, call->dy),
                                        call->copy_count * s->bound->samples);
}

/* Run one call of a program: a copy, or a kernel; skip a loss without with_loss. */
static cgp_status run_call(const execution *s, const cgp__call *call, cgp__kernel *kernel) {
    if (call->node < 0) {
        copy_values(s, call);
        return CGP_OK;
    }
    if (s->plan->model->nodes[call->node].use.op->is_loss && !s->context->with_loss)
        return CGP_OK;
    return run_kernel(s, call, kernel);
}

/* Below, false: the action did not end, because the run was given up, by this worker or by another; then nothing of the caller's
 * may be touched. */

/* Give the run up. Prefix cgp_message() with stage, micro-batch and action, and with layer and op if they are known. */
static bool fail_in_action(const execution *s, const cgp__call *call) {
    const cgp_model *model = s->plan->model;
    const cgp_action *action = &s->bound->action;
    char text[32], place[512] = "";
    if (call && call->node >= 0) {
        const cgp__node *node = &model->nodes[call->node];
        snprintf(place, sizeof place, "layer %s, %s: ", model->layers[node->layer],
                 node->use.op->name);
    }
    (void)cgp_fail(CGP_EDEVICE, "stage %d, micro-batch %d, %s: %s%s", action->stage,
                   action->microbatch, cgp_action_text(action, text, sizeof text), place,
                   cgp_message());
    cgp__team *team = s->worker->executor->team;
    pthread_mutex_lock(&team->lock);
    cgp__team_give_up(team, CGP_EDEVICE);
    pthread_mutex_unlock(&team->lock);
    return false;
}

/* Add the time of a call that began at `start_ns`. */
static void add_time(const execution *s, const cgp__call *call, int64_t start_ns) {
    if (call->node < 0 || s->bound->samples != s->plan->microbatch) return;
    cgp__node_time *time =
        &s->worker->node_times[call->node * CGP__DIRECTIONS + (int)call->direction];
    time->ns += cgp__now_ns() - start_ns;
    time->runs++;
}

static bool compute(const execution *s) {
    cgp__worker *worker = s->worker;
    const cgp__program *program = cgp__stage_program(s->stage, s->bound->program);
    const int first =
        worker->first_call[s->bound->action.stage * CGP__PROGRAMS + s->bound->program];
    cgp__kernel *const *kernels = worker->sets[s->bound->kernels].kernels + first;
    const cgp__call *calls = program->calls;
    const int n = s->bound->end;
    for (int i = s->bound->begin; i < n; i++) {
        atomic_store_explicit(&worker->call, i, memory_order_relaxed);
        const int64_t start_ns = worker->node_times ? cgp__now_ns() : 0;
        const cgp_status status = run_call(s, &calls[i], kernels[i]);
        if (cgp__is_stopped(worker)) return false;
        if (worker->node_times) add_time(s, &calls[i], start_ns);
        if (status != CGP_OK) return fail_in_action(s, &calls[i]);
    }
    atomic_store_explicit(&worker->call, n, memory_order_relaxed);
    return true;
}

/* Copy the rows of the model's output that this action made to the caller. */
static void copy_output(const execution *s) {
    const cgp__location place = s->stage->output[s->bound->program == CGP__FORWARD_SAVED];
    const cgp_tensor *output = s->context->output;
    if (!output || s->bound->action.kind != CGP_ACTION_F || place.arena == CGP__NOWHERE) return;
    const int value = s->plan->model->output;
    const cgp_op_type *type = &s->plan->model->values[value].type;
    char *to = (char *)output->data +
               cgp__type_bytes(type, s->context->offset + s->bound->first_sample);
    cgp__backend_of(s->worker)->convert(s->worker->device, type->dtype, to,
                                        cgp__plan_value_type(s->plan, value), at(s, place),
                                        s->bound->samples * cgp_shape_count(&type->shape));
}

static bool transfer(const execution *s, cgp__channel *channel, cgp__event *event) {
    const cgp__edge_plan *edge = &s->plan->edges[s->bound->action.edge];
    const cgp__backend *backend = cgp__backend_of(s->worker);
    const int microbatch = s->bound->action.microbatch;
    const bool send = cgp__is_send(s->bound->action.kind);
    void *out = send ? cgp__channel_acquire(channel, &event->released_ns) : NULL;
    const void *in = send ? NULL : cgp__channel_take(channel, microbatch, &event->released_ns);
    event->ready_ns = cgp__now_ns();
    if (!out && !in) return false;
    for (int i = 0; i < edge->n_parts; i++) {
        const cgp__part *part = &edge->parts[i];
        const size_t bytes = (size_t)(part->sample_bytes * s->bound->samples);
        if (send)
            backend->copy(s->worker->device, (char *)out + part->offset,
                          at(s, part->from[s->bound->program != CGP__FORWARD_NOSAVE]), bytes);
        else
            backend->copy(s->worker->device, at(s, part->to), (const char *)in + part->offset,
                          bytes);
        if (cgp__is_stopped(s->worker)) return false;
    }
    if (send)
        cgp__channel_post(channel, out, microbatch);
    else
        cgp__channel_release(channel, in);
    return true;
}

/* Sleep or fail by CGP_FAULT; a failure names the action's first kernel, if it has one. */
static bool apply_injected_faults(const execution *s) {
    const cgp_action *action = &s->bound->action;
    atomic_store_explicit(&s->worker->call, 0, memory_order_relaxed);
    if (cgp__injected_faults_apply(s->worker, action) == CGP_OK)
        return !cgp__is_stopped(s->worker);
    const cgp__call *calls = cgp__stage_program(s->stage, s->bound->program)->calls;
    const bool any = action->edge < 0 && s->bound->begin < s->bound->end;
    return fail_in_action(s, any ? calls + s->bound->begin : NULL);
}

static bool run_action(const execution *s, cgp__event *event) {
    const cgp__executor *executor = s->worker->executor;
    const cgp_action *action = &s->bound->action;
    if (executor->n_faults > 0 && !apply_injected_faults(s)) return false;
    if (action->edge >= 0) return transfer(s, executor->channels[action->edge], event);
    if (!compute(s)) return false;
    copy_output(s);
    return !cgp__is_stopped(s->worker);
}

void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end) {
    const cgp__list *list = &context->run->lists[device];
    *begin = context->part == CGP__BACKWARD_PART ? list->n_forward : 0;
    *end = context->part == CGP__FORWARD_PART ? list->n_forward : list->n;
}

cgp_status cgp__job_run(cgp__worker *worker, void *argument) {
    const cgp__run_context context = *(const cgp__run_context *)argument;
    const cgp__bound_action *actions = context.run->lists[worker->index].actions;
    int begin, end;
    cgp__run_range(&context, worker->index, &begin, &end);
    if (cgp__is_stopped(worker)) return CGP_OK;
    for (int i = begin; i < end; i++) {
        const cgp_action *action = &actions[i].action;
        const execution s = execution_of(worker, &context, &actions[i]);
        const int64_t start = cgp__now_ns();
        cgp__event event = {.start_ns = start,
                            .ready_ns = start,
                            .kind = (int)action->kind,
                            .stage = action->stage,
                            .microbatch = action->microbatch};
        if (!run_action(&s, &event)) return CGP_OK; /* reported through first_status */
        event.end_ns = cgp__now_ns();
        cgp__trace_add(&worker->trace, event);
    }
    return CGP_OK;
}
