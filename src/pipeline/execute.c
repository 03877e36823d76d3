/* execute.c -- a worker's inner loop: take the next action, wait for what it needs, run it,
 * note the times. */
#include "pipeline/pipeline.h"

#include <stdio.h>

/* The worker, the action, and where each arena begins for it. */
typedef struct scene {
    cgp__worker *worker;
    const cgp_plan *plan;
    const cgp__run_context *context;
    const cgp__bound_action *bound;
    const cgp__stage_plan *stage;
    char *base[CGP__ARENAS];
} scene;

static void set_scene(scene *s, cgp__worker *worker, const cgp__run_context *context,
                      const cgp__bound_action *bound) {
    const cgp_plan *plan = worker->pipeline->plan;
    const cgp__device_plan *device = &plan->devices[worker->index];
    const cgp__stage_plan *stage = &plan->stages[bound->action.stage];
    *s = (scene){
        .worker = worker, .plan = plan, .context = context, .bound = bound, .stage = stage};
    s->base[CGP__PARAMETERS] = worker->memory + device->parameters;
    s->base[CGP__GRADIENTS] = worker->memory + device->gradients;
    s->base[CGP__WORKSPACE] = worker->memory + device->workspace;
    if (bound->input_slot >= 0)
        s->base[CGP__INPUT_SLOT] = worker->memory + stage->input_slots +
                                   bound->input_slot * stage->info.input_slot_bytes;
    if (bound->saved_slot >= 0)
        s->base[CGP__SAVED_SLOT] = worker->memory + stage->saved_slots +
                                   bound->saved_slot * stage->info.saved_slot_bytes;
}

static void *at(const scene *s, cgp__place place) {
    if (place.arena == CGP__NOWHERE) return NULL;
    if (place.arena != CGP__HOST) return s->base[place.arena] + place.offset;
    const cgp_tensor *tensor = s->context->inputs[place.offset];
    const int value = s->plan->model->input_values[place.offset];
    const int64_t first = s->context->offset + s->bound->first_sample;
    const int64_t bytes = cgp__type_bytes(&s->plan->model->values[value].type, first);
    return tensor ? (char *)tensor->data + bytes : NULL;
}

/* CGP_FAULT asks that this action fails: its first kernel does. */
static bool is_faulty(const cgp_pipeline *pipeline, const cgp_action *action) {
    return pipeline->fault_kind == (int)action->kind &&
           pipeline->fault_stage == action->stage &&
           pipeline->fault_microbatch == action->microbatch;
}

static cgp_status run_kernel(const scene *s, const cgp__call *call, cgp__kernel *kernel) {
    const cgp_pipeline *pipeline = s->worker->pipeline;
    const cgp__node *node = &s->plan->model->nodes[call->node];
    double unused;
    if (is_faulty(pipeline, &s->bound->action))
        return cgp_fail(CGP_EDEVICE, "failed because CGP_FAULT asks for it");
    cgp__kernel_args args = {.y = at(s, call->y),
                             .dy = at(s, call->dy),
                             .workspace = at(s, call->workspace),
                             .first = s->bound->first,
                             .training = s->context->training,
                             .sample = s->bound->first_sample,
                             .loss = &unused,
                             .loss_scale = s->context->loss_scale};
    for (int k = 0; k < CGP__MAX_INPUTS; k++) {
        args.x[k] = at(s, call->x[k]);
        args.dx[k] = at(s, call->dx[k]);
    }
    for (int k = 0; k < CGP__MAX_SAVED; k++)
        args.saved[k] = at(s, call->saved[k]);
    for (int k = 0; k < CGP__MAX_PARAMS; k++) {
        args.param[k] = at(s, call->param[k]);
        args.dparam[k] = at(s, call->dparam[k]);
    }
    if (node->geometry.p > 0)
        args.key = cgp__rng_derive(pipeline->seed, CGP__RNG_DROPOUT, (uint64_t)pipeline->step,
                                   node->id);
    if (node->op->is_loss && s->bound->action.kind == CGP_ACTION_F)
        args.loss = &pipeline->losses[s->bound->action.microbatch];
    return s->plan->devices[s->worker->index].backend->kernel_run(kernel, &args);
}

/* First words of a message: stage, micro-batch, action. */
static cgp_status fail_in_action(const scene *s, const char *layer, const char *op,
                                 const char *message) {
    const cgp_action *action = &s->bound->action;
    char text[32];
    return cgp_fail(CGP_EDEVICE, "stage %d, micro-batch %d, %s: layer %s, %s: %s",
                    action->stage, action->microbatch,
                    cgp_action_text(action, text, sizeof text), layer, op, message);
}

static cgp_status compute(const scene *s) {
    const cgp_action *action = &s->bound->action;
    const cgp_model *model = s->plan->model;
    const cgp__backend *backend = s->plan->devices[s->worker->index].backend;
    const cgp__program *program = cgp__stage_program(s->stage, s->bound->program);
    const int first = s->worker->first_call[action->stage * CGP__PROGRAMS + s->bound->program];
    cgp__kernel *const *kernels = s->worker->sets[s->bound->kernels].kernels + first;
    for (int i = 0; i < program->n; i++) {
        const cgp__call *call = &program->calls[i];
        if (call->node < 0) {
            const size_t bytes = 4 * (size_t)(call->copy_count * s->bound->samples);
            backend->copy(s->worker->device, at(s, call->dx[0]), at(s, call->dy), bytes);
            continue;
        }
        const cgp__node *node = &model->nodes[call->node];
        if (node->op->is_loss && !s->context->with_loss) continue;
        if (run_kernel(s, call, kernels[i]) != CGP_OK)
            return fail_in_action(s, model->layers[node->layer], node->op->name, cgp_message());
    }
    return CGP_OK;
}

/* The rows of the model's output that this action made, to the caller. */
static void give_output(const scene *s) {
    const cgp__place place = s->stage->output[s->bound->program == CGP__FORWARD_SAVED];
    const cgp_tensor *output = s->context->output;
    if (!output || s->bound->action.kind != CGP_ACTION_F || place.arena == CGP__NOWHERE) return;
    const cgp__type *type = &s->plan->model->values[s->plan->model->output].type;
    char *to = (char *)output->data +
               cgp__type_bytes(type, s->context->offset + s->bound->first_sample);
    s->plan->devices[s->worker->index].backend->copy(
        s->worker->device, to, at(s, place), (size_t)cgp__type_bytes(type, s->bound->samples));
}

/* false once the run is stopped. */
static bool transfer(const scene *s, cgp__channel *channel, bool send) {
    const cgp__edge_plan *edge = &s->plan->edges[s->bound->action.edge];
    const cgp__backend *backend = s->plan->devices[s->worker->index].backend;
    const int microbatch = s->bound->action.microbatch;
    void *out = send ? cgp__channel_acquire(channel) : NULL;
    const void *in = send ? NULL : cgp__channel_take(channel, microbatch);
    if (!out && !in) return false;
    for (int i = 0; i < edge->n_parts; i++) {
        const cgp__part *part = &edge->parts[i];
        const size_t bytes = (size_t)(part->sample_bytes * s->bound->samples);
        if (send)
            backend->copy(s->worker->device, (char *)out + part->offset,
                          at(s, part->from[s->bound->program != CGP__LIGHT]), bytes);
        else
            backend->copy(s->worker->device, at(s, part->to), (const char *)in + part->offset,
                          bytes);
    }
    if (send)
        cgp__channel_post(channel, out, microbatch);
    else
        cgp__channel_release(channel, in);
    return true;
}

/* Keep the first error of the run and wake everybody who waits for a message. */
static void stop_run(cgp_pipeline *pipeline, cgp_status status) {
    pthread_mutex_lock(&pipeline->lock);
    if (pipeline->first_status == CGP_OK) {
        pipeline->first_status = status;
        snprintf(pipeline->first_message, sizeof pipeline->first_message, "%s", cgp_message());
    }
    pthread_mutex_unlock(&pipeline->lock);
    for (int e = 0; e < pipeline->plan->n_edges; e++)
        cgp__channel_stop(pipeline->channels[e]);
}

cgp_status cgp__job_run(cgp__worker *worker, void *argument) {
    const cgp__run_context *context = argument;
    cgp_pipeline *pipeline = worker->pipeline;
    const cgp__list *list = &context->run->lists[worker->index];
    worker->trace_start = worker->trace.written;
    for (int i = 0; i < list->n; i++) {
        const cgp__bound_action *bound = &list->actions[i];
        const cgp_action *action = &bound->action;
        scene s;
        set_scene(&s, worker, context, bound);
        const int64_t start = cgp__now_ns();
        if (action->edge >= 0) {
            const bool send =
                action->kind == CGP_ACTION_SEND_F || action->kind == CGP_ACTION_SEND_B;
            if (!transfer(&s, pipeline->channels[action->edge], send))
                return CGP_OK; /* another worker failed and has told why */
        } else {
            const cgp_status status = compute(&s);
            if (status != CGP_OK) {
                stop_run(pipeline, status);
                return CGP_OK; /* reported through first_status */
            }
            give_output(&s);
        }
        cgp__trace_add(&worker->trace, (cgp__event){start, cgp__now_ns(), (int)action->kind,
                                                    action->stage, action->microbatch});
    }
    return CGP_OK;
}
