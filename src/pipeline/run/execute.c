/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c -- the inner loop of a worker, which enqueues one action after the other. */
#include "pipeline/run/execute.h"

#include "model/model.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/compute.h"
#include "pipeline/run/exchange.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/flips.h"
#include "pipeline/run/injected_faults.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/message_hashes.h"
#include "pipeline/run/packings.h"
#include "pipeline/run/queues.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/staging.h"
#include "pipeline/run/transfer.h"
#include "pipeline/run/worker.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "plan/program/program.h"
#include "plan/setup.h"

#include <stdio.h>

static cgp__execution execution_of(cgp__worker *worker, const cgp__run_context *context,
                                   const cgp__bound_action *bound) {
    const cgp_plan *plan = worker->plan;
    const cgp__device_plan *device = cgp__plan_device(plan, worker->index);
    const cgp__list *list = &context->run->lists[worker->index];
    const cgp__variant *variant = &list->variants[bound->variant];
    const cgp__stage_plan *stage = cgp__plan_stage(plan, variant->stage);
    cgp__execution s = {
        worker, plan, cgp__plan_setup(plan), context, list, bound, variant, stage, NULL, {NULL},
        {NULL}, false};
    s.values =
        (const cgp_step_values *)(const void *)(device->backend->host_addressable
                                                    ? worker->executor->rows +
                                                          bound->action.microbatch *
                                                              device->step.row_bytes
                                                    : cgp__worker_at(worker, device->step.values));
    s.base[CGP__PARAMETERS] = worker->parameters;
    s.base[CGP__GRADIENTS] = cgp__gradients_at(worker, variant->buffer);
    s.base[CGP__STATE] = worker->states;
    s.base[CGP__SCRATCH] = cgp__worker_at(worker, device->state);
    s.base[CGP__LOG] = cgp__log_of(worker, worker->ranks->replica);
    s.base[CGP__PACKED] = cgp__worker_at(worker, device->packed);
    s.base[CGP__WORKSPACE] = cgp__worker_at(worker, device->workspace);
    if (variant->input_slot >= 0)
        s.base[CGP__INPUT_SLOT] = cgp__worker_at(worker, device->pool + variant->input_slot);
    if (variant->saved_slot >= 0)
        s.base[CGP__SAVED_SLOT] = cgp__worker_at(worker, device->pool + variant->saved_slot);
    if (variant->gradient_slot >= 0)
        s.base[CGP__GRADIENT_SLOT] = cgp__worker_at(worker, device->pool + variant->gradient_slot);
    return s;
}

/* Set the addresses that are prefetched for the next action. */
static void look_ahead(cgp__execution *s) {
    const cgp__bound_action *next = s->bound + 1;
    const cgp__variant *variant = &s->list->variants[next->variant];
    s->next[0] = next;
    s->next[1] = variant;
    s->next[2] = cgp__plan_stage(s->plan, variant->stage);
    s->next[3] = cgp__plan_device(s->plan, s->worker->index);
}

static void prefetch_next(const cgp__execution *s) {
    for (int k = 0; k < 4; k++) {
        __builtin_prefetch(s->next[k]);
        __builtin_prefetch((const char *)s->next[k] + 64);
    }
}

char *cgp__gradients_at(const cgp__worker *worker, int buffer) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    if (buffer == 0) return worker->gradients;
    return cgp__worker_at(worker, device->partial_gradients +
                                      (buffer - 1) * device->written_gradient_bytes);
}

char *cgp__log_of(const cgp__worker *worker, int replica) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    const int chunks = cgp__plan_setup(worker->plan)->chunks;
    return cgp__worker_at(worker,
                          device->state + device->log + device->log_bytes * chunks * replica);
}

void *cgp__address(const cgp__execution *s, cgp__location location) {
    if (location.arena == CGP__NOWHERE) return NULL;
    const cgp_model *model = s->setup->model;
    const bool host = location.arena == CGP__HOST;
    if (!host && location.arena != CGP__HOST_GRADIENT)
        return s->base[location.arena] + location.offset;
    const cgp_tensor *tensor = (host ? s->context->inputs : s->context->gradients)[location.offset];
    const int value = (host ? model->input_values : model->outputs)[location.offset];
    const int64_t first = s->context->offset + s->bound->first_sample;
    const int64_t bytes = cgp__type_bytes(&model->values[value].type, first);
    return tensor ? (char *)tensor->data + bytes : NULL;
}

bool cgp__fail_in_action(const cgp__worker *worker, const cgp__bound_action *bound,
                         const cgp__variant *variant, int call) {
    const cgp_plan *plan = worker->plan;
    const cgp__program *program =
        &cgp__plan_stage(plan, variant->stage)->programs[variant->program];
    const cgp_action *action = &bound->action;
    char text[32], where[512] = "";
    if (call >= variant->begin && call < variant->end && program->calls[call].node >= 0) {
        const cgp__node *node = &worker->model->nodes[program->calls[call].node];
        snprintf(where, sizeof where, "layer %s, %s: ", worker->model->layers[node->layer],
                 node->use.op->name);
    }
    (void)cgp_fail(CGP_EDEVICE, "stage %d, micro-batch %d, %s: %s%s", action->stage,
                   action->microbatch, cgp_action_text(action, text, sizeof text), where,
                   cgp_message());
    cgp__team *team = worker->executor->team;
    pthread_mutex_lock(&team->lock);
    cgp__team_give_up(team, CGP_EDEVICE);
    pthread_mutex_unlock(&team->lock);
    return false;
}

/* Return the index of the action's first call that runs a kernel; -1: there is none. */
static int first_kernel(const cgp__execution *s) {
    const cgp__program *program = &s->stage->programs[s->variant->program];
    for (int i = s->variant->begin; i < s->variant->end; i++) {
        if (program->calls[i].node >= 0) return i;
    }
    return -1;
}

/* Sleep or fail as CGP_FAULT specifies. The message of a failure names the action's first kernel,
 * if there is one. */
static bool apply_injected_faults(const cgp__execution *s) {
    const cgp_action *action = &s->bound->action;
    if (s->worker->backend->streams && cgp__injected_faults_hold(s->worker->executor, action) &&
        !cgp__in_flight_finish(s->worker, s->list))
        return false;
    atomic_store_explicit(&s->worker->progress.call, 0, memory_order_relaxed);
    if (cgp__injected_faults_apply(s->worker->executor, action) == CGP_OK)
        return !cgp__is_stopped(s->worker);
    return cgp__fail_in_action(s->worker, s->bound, s->variant, first_kernel(s));
}

/* Tell the device to discard the contents of each slot whose last use is this action. */
static bool discard_freed(const cgp__execution *s) {
    const cgp_backend_streams *streams = s->worker->backend->streams;
    const cgp_queue queue = cgp__queue_of(s->bound->action.kind);
    cgp_device *device = s->worker->device;
    const cgp_plan_stage *stage = &s->stage->info;
    cgp_status status = CGP_OK;
    if (streams && s->bound->frees_input)
        status = streams->discard(device, queue, s->base[CGP__INPUT_SLOT],
                                  (size_t)stage->input_slot_bytes);
    if (streams && s->bound->frees_saved && status == CGP_OK)
        status = streams->discard(device, queue, s->base[CGP__SAVED_SLOT],
                                  (size_t)stage->saved_slot_bytes);
    if (streams && s->bound->frees_gradient && status == CGP_OK)
        status = streams->discard(device, queue, s->base[CGP__GRADIENT_SLOT],
                                  (size_t)s->stage->gradient_slot_bytes);
    return status == CGP_OK || cgp__fail_on_device(s, -1);
}

static bool hash_message(const cgp__execution *s) {
    if (!s->worker->executor->messages || cgp__message_hash(s) == CGP_OK) return true;
    return cgp__fail_on_device(s, -1);
}

static bool run_action(const cgp__execution *s) {
    cgp__in_flight *action = cgp__in_flight_begin(s);
    if (!action) return false;
    if (s->worker->executor->faults && !apply_injected_faults(s)) return false;
    if (s->bound->action.edge >= 0)
        return cgp__transfer(s, action) && hash_message(s) && discard_freed(s) &&
               cgp__in_flight_end(s, action);
    if (!cgp__in_flight_start(s, action) || !cgp__compute(s)) return false;
    if (s->worker->executor->faults && cgp__flip_result(s) != CGP_OK)
        return cgp__fail_on_device(s, -1);
    if (s->next[0]) prefetch_next(s);
    return discard_freed(s) && cgp__in_flight_end(s, action);
}

void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end) {
    const cgp__list *list = &context->run->lists[device];
    *begin = context->part == CGP__BACKWARD_PART ? list->n_forward : 0;
    *end = context->part == CGP__FORWARD_PART ? list->n_forward : list->n;
}

/* Copy the rows of per-step constants to a device with its own memory. */
static cgp_status write_rows(cgp__worker *worker, const cgp__run *run) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    if (device->backend->host_addressable) return CGP_OK;
    return cgp__staging_put(worker, cgp__worker_at(worker, device->step.rows),
                            worker->executor->rows,
                            (size_t)run->minibatch.chunks * (size_t)device->step.row_bytes);
}

/* Copy the sums of losses back to the host. */
static cgp_status read_losses(cgp__worker *worker, const cgp__run_context *context) {
    const cgp_plan *plan = worker->plan;
    const cgp__device_plan *device = cgp__plan_device(plan, worker->index);
    const int losses = context->run->minibatch.chunks * worker->model->n_losses;
    if (device->backend->host_addressable || !context->with_loss || losses == 0 ||
        cgp_plan_stage_at(plan, cgp_plan_stages(plan) - 1)->device != worker->index)
        return CGP_OK;
    return cgp__worker_read(worker, cgp__executor_losses(worker->executor, context->run),
                            cgp__worker_at(worker, device->step.losses),
                            (size_t)losses * sizeof(double));
}

static bool run_actions(cgp__worker *worker, const cgp__run_context *context) {
    const cgp__list *list = &context->run->lists[worker->index];
    int begin, end;
    cgp__run_range(context, worker->index, &begin, &end);
    cgp__queues_reset(worker, begin);
    for (int i = begin; i < end; i++) {
        cgp__execution s = execution_of(worker, context, &list->actions[i]);
        if (i + 1 < end) look_ahead(&s);
        if (!run_action(&s)) return false;
    }
    return cgp__in_flight_finish(worker, list);
}

static void begin_exchange(cgp__worker *worker, const cgp__run_context *context) {
    if (context->reduces)
        cgp__exchange_begin_gradients(worker, cgp__whole_chunks(&context->run->minibatch),
                                      context->completes);
}

static cgp_status finish_exchange(cgp__worker *worker) {
    const cgp_status status = cgp__exchange_finish(worker);
    worker->measured->exchange_end_ns = cgp__now_ns();
    return status;
}

cgp_status cgp__job_exchange(cgp__worker *worker, void *argument) {
    if (cgp__is_stopped(worker)) return CGP_OK;
    begin_exchange(worker, argument);
    return finish_exchange(worker);
}

/* Run an action list. All enqueued work completes before this job ends, even after a failure. So
 * after the job, the device touches neither the plan nor the caller's memory. After a timeout,
 * however, the caller does not wait for this job. If a hanging device shares the host's memory and
 * later resumes, it may still access the caller's tensors of this run. */
cgp_status cgp__job_run(cgp__worker *worker, void *argument) {
    /* copy the context, because the caller may change it while this worker hangs */
    const cgp__run_context context = *(const cgp__run_context *)argument;
    const cgp_backend *backend = worker->backend;
    if (cgp__is_stopped(worker)) return CGP_OK;
    CGP_TRY(write_rows(worker, context.run));
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    CGP_TRY(cgp__pack_parameters(worker));
    if (cgp__is_stopped(worker)) return CGP_OK;
    begin_exchange(worker, &context);
    if (run_actions(worker, &context)) {
        if (context.reduces) CGP_TRY(finish_exchange(worker));
        return cgp__is_stopped(worker) ? CGP_OK : read_losses(worker, &context);
    }
    if (backend->streams) (void)backend->streams->finish(worker->device);
    cgp__staging_drop(worker); /* drop data that has not arrived; the caller gets none after a
                                * failure */
    return CGP_OK;             /* the failure is reported through first_status */
}
