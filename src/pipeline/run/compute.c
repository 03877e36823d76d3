/* SPDX-License-Identifier: Apache-2.0 */
/* compute.c -- runs a compute action: enqueues the calls of the action's program one after the
 * other. A call is a kernel or a copy. */
#include "pipeline/run/compute.h"

#include "model/model.h"
#include "pipeline/run/captured_graphs.h"
#include "pipeline/run/exchange.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/kernels.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/queues.h"
#include "pipeline/run/staging.h"
#include "pipeline/run/worker.h"
#include "plan/links.h"
#include "plan/memory/devices.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"

/* Set the operands of a kernel from the locations in the plan. */
static void bind_operands(const cgp__execution *s, const cgp__call *call, cgp_kernel_args *args) {
    args->y = cgp__address(s, call->y);
    args->dy = cgp__address(s, call->dy);
    args->workspace = cgp__address(s, call->workspace);
    args->packed = cgp__address(s, call->packed);
    if (s->context->training) {
        args->accumulator = cgp__address(s, call->accumulator);
        args->log = cgp__address(s, call->log);
        args->log_bytes = cgp__plan_device(s->plan, s->worker->index)->log_bytes;
    }
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        args->x[k] = cgp__address(s, call->x[k]);
        args->dx[k] = cgp__address(s, call->dx[k]);
    }
    for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
        args->saved[k] = cgp__address(s, call->saved[k]);
    for (int k = 0; k < CGP_OP_MAX_STATE; k++)
        args->state[k] = cgp__address(s, call->state[k]);
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++) {
        args->param[k] = cgp__address(s, call->param[k]);
        args->dparam[k] = cgp__address(s, call->dparam[k]);
    }
}

/* Return the device's loss slots. */
static double *losses_of(const cgp__execution *s) {
    const cgp__worker *worker = s->worker;
    const cgp__executor *executor = worker->executor;
    if (worker->backend->host_addressable) return cgp__executor_losses(executor, s->context->run);
    return (double *)(void *)(cgp__worker_at(
        worker, cgp__plan_device(executor->plan, worker->index)->step.losses));
}

/* Return true if a call goes to the device's branch. While kernels are measured, no call goes
 * there, so the calls run one after the other. */
static bool uses_branch(const cgp__execution *s, const cgp__call *call) {
    return call->branch && s->worker->executor->branches && !s->worker->measured->node_times;
}

static cgp_status run_kernel(const cgp__execution *s, int i, const cgp__call *call,
                             cgp_kernel *kernel) {
    const cgp__node *node = &s->setup->model->nodes[call->node];
    const int program = s->variant->program;
    cgp_prefetch prefetch[CGP_MAX_PREFETCH];
    cgp_kernel_args args = {
        .values = s->values,
        .id = node->id,
        .tag = cgp__tag_of(s->captures ? 0 : (int)(s->bound - s->list->actions), i),
        .first = call->direction == CGP_OP_BACKWARD_WEIGHT ? s->variant->first_weight
                                                           : s->variant->first,
        .training = s->context->training,
        .branch = uses_branch(s, call),
        .recomputing = program == CGP__RECOMPUTE || program == CGP__BACKWARD,
        .deferred = s->setup->deferred_batch_norm,
        .prefetch = prefetch,
        .n_prefetch = call->n_prefetch};
    bind_operands(s, call, &args);
    /* Set the addresses of later calls' operands, which the kernel prefetches. */
    for (int k = 0; k < call->n_prefetch; k++)
        prefetch[k] =
            (cgp_prefetch){cgp__address(s, call->prefetch[k].location), call->prefetch[k].bytes};
    if (node->use.op->is_loss) {
        args.loss = call->node - cgp__model_loss(s->setup->model, 0);
        if (s->bound->action.kind == CGP_ACTION_F) args.losses = losses_of(s);
    }
    return s->worker->backend->kernels.run(kernel, &args);
}

/* Copy values, and convert their type if necessary. The caller's data reaches a device with its own
 * memory through staging memory (staging.c). If the type changes, staging copies the data to the
 * workspace first. */
static cgp_status copy_values(const cgp__execution *s, const cgp__call *call) {
    const bool host = call->dy.arena == CGP__HOST || call->dy.arena == CGP__HOST_GRADIENT;
    const cgp_backend *backend = s->worker->backend;
    const int64_t count = call->copy_count * s->variant->samples;
    const void *from = cgp__address(s, call->dy);
    void *to = cgp__address(s, call->dx[0]);
    if (call->dy.arena == CGP__HOST &&
        !cgp__input_is_read(s->worker->executor, (int)call->dy.offset, s->context->with_loss))
        return CGP_OK; /* the tensor of an input that is not read may be NULL */
    if (host && !backend->host_addressable) {
        const bool converts = call->workspace.arena != CGP__NOWHERE;
        void *copy = converts ? cgp__address(s, call->workspace) : to;
        CGP_TRY(cgp__staging_put(s->worker, copy, from,
                                 (size_t)count * cgp_dtype_bytes(call->from_type)));
        if (!converts || cgp__is_stopped(s->worker)) return CGP_OK;
        from = copy;
    }
    return backend->kernels.convert(s->worker->device, call->to_type, to, call->from_type, from,
                                    count);
}

/* Add the caller's gradient of an output to the gradient from the output's uses in the model. */
static cgp_status run_sum(const cgp__execution *s, int i, const cgp__call *call,
                          cgp_kernel *kernel) {
    cgp_kernel_args args = {
        .values = s->values,
        .tag = cgp__tag_of(s->captures ? 0 : (int)(s->bound - s->list->actions), i),
        .first = s->variant->first,
        .training = true};
    bind_operands(s, call, &args);
    return s->worker->backend->kernels.run(kernel, &args);
}

/* Run one call of a program: a copy or a kernel. Skip losses if with_loss is false. */
static cgp_status run_call(const cgp__execution *s, int i, const cgp__call *call,
                           cgp_kernel *kernel) {
    if (call->sums) return run_sum(s, i, call, kernel);
    if (call->node < 0) return copy_values(s, call);
    if (s->setup->model->nodes[call->node].use.op->is_loss && !s->context->with_loss) return CGP_OK;
    return run_kernel(s, i, call, kernel);
}

/* Run a call, and add its time to the time of its node. */
static cgp_status measure_call(const cgp__execution *s, int i, const cgp__call *call,
                               cgp_kernel *kernel) {
    cgp__worker *worker = s->worker;
    const cgp_backend_streams *streams = worker->backend->streams;
    if (call->node < 0 || s->variant->samples != s->setup->microbatch)
        return run_call(s, i, call, kernel);
    cgp_event *const *timer = cgp__kernels_timer(worker);
    int64_t start = cgp__now_ns(), end = 0;
    if (streams) CGP_TRY(streams->event_record(worker->device, CGP_QUEUE_COMPUTE, timer[0]));
    CGP_TRY(run_call(s, i, call, kernel));
    if (streams) {
        CGP_TRY(streams->event_record(worker->device, CGP_QUEUE_COMPUTE, timer[1]));
        CGP_TRY(streams->event_sync(timer[1]));
        start = streams->event_time(timer[0]);
        end = streams->event_time(timer[1]);
    } else {
        end = cgp__now_ns();
    }
    if (cgp__is_stopped(worker)) return CGP_OK; /* the plan may be freed */
    cgp__node_time *time =
        &worker->measured->node_times[call->node * CGP_OP_DIRECTIONS + (int)call->direction];
    time->ns += end - start;
    time->runs++;
    return CGP_OK;
}

/* Copy the rows of a value that this action has computed to the caller's tensor. */
static cgp_status copy_rows(const cgp__execution *s, int value, cgp__location location,
                            const cgp_tensor *tensor) {
    const cgp_backend *backend = s->worker->backend;
    const cgp_op_type *type = &s->setup->model->values[value].type;
    const int64_t count = s->variant->samples * cgp_shape_count(&type->shape);
    char *to =
        (char *)tensor->data + cgp__type_bytes(type, s->context->offset + s->bound->first_sample);
    if (backend->host_addressable)
        return backend->kernels.convert(s->worker->device, type->dtype, to,
                                        cgp__value_type(s->setup, value), cgp__address(s, location),
                                        count);
    return cgp__staging_get(s->worker, to, cgp__address(s, location),
                            (size_t)count * cgp_dtype_bytes(type->dtype));
}

/* Copy to the caller the output rows that this action computed. */
static cgp_status copy_outputs(const cgp__execution *s) {
    const cgp_tensor *const *outputs = s->context->outputs;
    if (!outputs || s->bound->action.kind != CGP_ACTION_F) return CGP_OK;
    for (int k = 0; k < s->setup->model->n_outputs; k++) {
        const cgp__output_plan *output = &cgp__plan_results(s->plan)->outputs[k];
        if (output->stage != s->variant->stage || !outputs[k]) continue;
        CGP_TRY(copy_rows(s, s->setup->model->outputs[k],
                          output->at[s->variant->program == CGP__FORWARD_SAVED], outputs[k]));
        if (cgp__is_stopped(s->worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    }
    return CGP_OK;
}

/* Copy to the caller the rows of input gradients that this action completed. */
static cgp_status copy_input_gradients(const cgp__execution *s) {
    const cgp_tensor *const *gradients = s->context->input_gradients;
    const cgp_action_kind kind = s->bound->action.kind;
    if (!gradients || (kind != CGP_ACTION_B && kind != CGP_ACTION_I)) return CGP_OK;
    for (int k = 0; k < s->setup->model->n_inputs; k++) {
        const cgp__input_gradient *gradient = &cgp__plan_results(s->plan)->input_gradients[k];
        if (gradient->stage != s->variant->stage || !gradients[k]) continue;
        CGP_TRY(copy_rows(s, s->setup->model->input_values[k], gradient->at, gradients[k]));
        if (cgp__is_stopped(s->worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    }
    return CGP_OK;
}

/* On a device with its own memory, copy the per-step constants of the action's micro-batch to the
 * address from which kernels read them. */
static cgp_status copy_row(const cgp__execution *s) {
    const cgp_backend *backend = s->worker->backend;
    const cgp__step_memory *step = &cgp__plan_device(s->plan, s->worker->index)->step;
    if (backend->host_addressable) return CGP_OK;
    char *rows = cgp__worker_at(s->worker, step->rows);
    return backend->device.copy(
        s->worker->device, CGP_QUEUE_COMPUTE, cgp__device_place(s->worker, (void *)s->values),
        cgp__device_place(s->worker, rows + s->bound->action.microbatch * step->row_bytes),
        (size_t)step->row_bytes);
}

/* F overwrites its saved slot and the workspace, so tell the device to discard the contents of
 * both. */
static cgp_status discard_garbage(const cgp__execution *s) {
    const cgp_backend_streams *streams = s->worker->backend->streams;
    cgp_device *device = s->worker->device;
    if (!streams || s->bound->action.kind != CGP_ACTION_F) return CGP_OK;
    const size_t slot = (size_t)s->stage->info.saved_slot_bytes,
                 work = (size_t)cgp_plan_device_at(s->plan, s->worker->index)->workspace_bytes;
    if (s->base[CGP__SAVED_SLOT] && s->variant->program == CGP__FORWARD_SAVED)
        CGP_TRY(streams->discard(device, CGP_QUEUE_COMPUTE, s->base[CGP__SAVED_SLOT], slot));
    return streams->discard(device, CGP_QUEUE_COMPUTE, s->base[CGP__WORKSPACE], work);
}

/* Make queue COMPUTE wait for the branch, if the branch has work. */
static cgp_status join(const cgp__execution *s, int site, bool *forked) {
    const bool joins = *forked && CGP__ON(site);
    (void)site;
    *forked = false;
    return joins ? s->worker->backend->streams->join(s->worker->device) : CGP_OK;
}

/* Prepare the branch for a call. First make COMPUTE wait for the branch's previous call, then make
 * the branch wait for all calls enqueued so far. */
static cgp_status fork_branch(const cgp__execution *s, bool *forked) {
    CGP_TRY(join(s, CGP__SITE_JOIN, forked));
    *forked = true;
    return CGP__ON(CGP__SITE_FORK) ? s->worker->backend->streams->fork(s->worker->device) : CGP_OK;
}

/* Enqueue a call. If kernels are measured, also wait until the call is complete. */
static cgp_status enqueue_call(const cgp__execution *s, int i, const cgp__call *call,
                               cgp_kernel *kernel, bool *forked) {
    if (s->worker->measured->node_times) return measure_call(s, i, call, kernel);
    if (uses_branch(s, call)) CGP_TRY(fork_branch(s, forked));
    return run_call(s, i, call, kernel);
}

/* Do the additions of the binary tree for the gradients of a call. They follow the last micro-batch
 * of a gradient group, if this group is the last operand of the additions. */
static cgp_status add_gradients(const cgp__execution *s, const cgp__call *call) {
    const cgp__worker *worker = s->worker;
    const int buffer = s->variant->buffer;
    for (int p = 0; p < CGP_OP_MAX_PARAMETERS; p++) {
        if (call->dparam[p].arena != CGP__GRADIENTS) continue;
        const int parameter = s->setup->model->nodes[call->node].params[p];
        const int64_t offset = call->dparam[p].offset,
                      n = cgp_shape_count(&s->setup->model->params[parameter].shape);
        for (int k = 0; k < s->variant->additions; k++) {
            float *to = (float *)(void *)(cgp__gradients_at(worker, buffer - k - 1) + offset);
            const char *from = cgp__gradients_at(worker, buffer - k) + offset;
            CGP_TRY(worker->backend->kernels.add(worker->device, to,
                                                 (const float *)(const void *)from, n));
            if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        }
    }
    return CGP_OK;
}

/* After call `i`, exchange the pieces that are complete now. */
static cgp_status exchange_complete(const cgp__execution *s, int i) {
    const int action = (int)(s->bound - s->list->actions);
    int ready = 0;
    while (ready < s->list->n_pieces &&
           (s->list->pieces[ready].action < action ||
            (s->list->pieces[ready].action == action && s->list->pieces[ready].call <= i)))
        ready++;
    return ready > 0 ? cgp__exchange_advance(s->worker, ready) : CGP_OK;
}

/* Call `i` is enqueued. On a device without queues, add its gradients, and exchange the pieces that
 * are complete now. */
static bool follow_call(const cgp__execution *s, int i, const cgp__call *call) {
    cgp__worker *worker = s->worker;
    if (worker->backend->streams) return true;
    if (s->variant->additions > 0 && add_gradients(s, call) != CGP_OK)
        return cgp__fail_on_device(s, i);
    if (cgp__is_stopped(worker)) return false; /* after a timeout, the plan may be freed */
    if (!s->context->reduces || !cgp__exchange_overlaps(worker->backend)) return true;
    if (exchange_complete(s, i) != CGP_OK) return cgp__fail_on_device(s, -1);
    return !cgp__is_stopped(worker);
}

/* Enqueue calls begin .. end - 1. */
static bool run_calls(const cgp__execution *s, int begin, int end) {
    cgp__worker *worker = s->worker;
    const cgp__program *program = &s->stage->programs[s->variant->program];
    cgp_kernel *const *kernels = cgp__kernels_of(worker, s->variant);
    const cgp__call *calls = program->calls;
    bool forked = false;
    for (int i = begin; i < end; i++) {
        atomic_store_explicit(&worker->progress.call, i, memory_order_relaxed);
        const cgp_status status = enqueue_call(s, i, &calls[i], kernels[i], &forked);
        if (cgp__is_stopped(worker)) return false;
        if (status != CGP_OK) return cgp__fail_on_device(s, i);
        if (!follow_call(s, i, &calls[i])) return false;
        if (!s->captures) cgp__worker_progress(worker);
    }
    return join(s, CGP__SITE_END, &forked) == CGP_OK || cgp__fail_on_device(s, -1);
}

/* Add a buffer of partial sums to the buffer below it. Only gradients that calls begin .. end - 1
 * write are added. There is one launch for each sequence of gradients that are contiguous in
 * memory. */
static cgp_status add_partial(const cgp__execution *s, int buffer) {
    const cgp__worker *worker = s->worker;
    const int begin = s->variant->begin, end = s->variant->end;
    char *to = cgp__gradients_at(worker, buffer - 1);
    const char *from = cgp__gradients_at(worker, buffer);
    const cgp__written_gradient *g = s->stage->gradients, *last = g + s->stage->n_gradients;
    while (g < last) {
        const int64_t offset = g->offset;
        int64_t bytes = 0;
        for (; g < last && g->offset == offset + bytes && g->call >= begin && g->call < end; g++)
            bytes += g->bytes;
        if (bytes == 0) {
            g++;
            continue;
        }
        CGP_TRY(worker->backend->kernels.add(worker->device, (float *)(void *)(to + offset),
                                             (const float *)(const void *)(from + offset),
                                             bytes / 4));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    }
    return CGP_OK;
}

/* On a device with queues, do the additions of the binary tree after all calls, because some of
 * the calls may run on the branch. */
static bool add_partials(const cgp__execution *s) {
    const int buffer = s->variant->buffer,
              additions = s->worker->backend->streams ? s->variant->additions : 0;
    for (int k = 0; k < additions; k++) {
        const cgp_status status = add_partial(s, buffer - k);
        if (cgp__is_stopped(s->worker)) return false;
        if (status != CGP_OK) return cgp__fail_on_device(s, -1);
    }
    return true;
}

/* The calls of an action from call `begin` to the last. */
typedef struct rest {
    const cgp__execution *execution;
    int begin;
} rest;

static cgp_status launch_rest(cgp__worker *worker, const void *what, bool captures) {
    const rest *r = what;
    cgp__execution s = *r->execution;
    (void)worker;
    s.captures = captures;
    const bool done = run_calls(&s, r->begin, s.variant->end) && add_partials(&s);
    return done ? CGP_OK : CGP_EDEVICE; /* a failure is already reported */
}

/* Run call `begin`, all later calls and the additions of gradient groups as a captured graph,
 * unless kernels are measured. */
static bool run_rest(const cgp__execution *s, int begin) {
    cgp__worker *worker = s->worker;
    const int end = s->variant->end, i = s->variant->graphs;
    const rest r = {s, begin};
    if (begin == end || i < 0 || worker->measured->node_times)
        return run_calls(s, begin, end) && add_partials(s);
    cgp__captured *captured =
        cgp__captured_run(worker, i, s->context->training, s->context->with_loss);
    const int64_t tag = cgp__tag_of((int)(s->bound - s->list->actions), 0);
    if (cgp__run_captured(worker, captured, tag, launch_rest, &r) != CGP_OK)
        return cgp__fail_on_device(s, -1); /* a failure that is already reported keeps its
                                            * message */
    return !cgp__is_stopped(worker);
}

bool cgp__compute(const cgp__execution *s) {
    const cgp__variant *variant = s->variant;
    const cgp__program *program = &s->stage->programs[variant->program];
    int i = variant->begin;
    if (i < program->n_caller) i = (int)cgp__min(program->n_caller, variant->end);
    if (copy_row(s) != CGP_OK || discard_garbage(s) != CGP_OK) return cgp__fail_on_device(s, -1);
    if (!run_calls(s, variant->begin, i) || !run_rest(s, i)) return false;
    atomic_store_explicit(&s->worker->progress.call, variant->end, memory_order_relaxed);
    if (copy_outputs(s) != CGP_OK || copy_input_gradients(s) != CGP_OK)
        return cgp__fail_on_device(s, -1);
    return !cgp__is_stopped(s->worker);
}
