/* SPDX-License-Identifier: Apache-2.0 */
/* tied.c -- add up the gradients of tied parameters (several uses), after all lists have ended.
 *
 *     gather    the owner (the first use's device) adds the other uses' buffers to its first, in order of use
 *     scatter   the other devices copy the sum
 *
 * The owner copies a buffer of another device to its own workspace piece by piece, as a message would be, and adds it from
 * there. */
#include "pipeline/step/step.h"

static float *gradient_at(const cgp__executor *executor, int device, int64_t offset) {
    const int64_t gradients = executor->plan->devices[device].gradients;
    return (float *)(void *)(executor->workers[device].memory + gradients + offset);
}

/* The place of another worker's buffer: memory of a device of this backend, or of the host. */
static cgp_place place_of(const cgp__worker *worker, int device, float *buffer) {
    const cgp__executor *executor = worker->executor;
    const bool same = executor->plan->devices[device].backend == cgp__backend_of(worker);
    return (cgp_place){same ? executor->workers[device].device : NULL, buffer};
}

/* Add another device's buffer to one of this worker's, through its workspace. */
static cgp_status add_buffer(const cgp__worker *worker, float *to, cgp_place from,
                             int64_t count) {
    const cgp__device_plan *device = &worker->executor->plan->devices[worker->index];
    float *piece = (float *)(void *)(worker->memory + device->workspace);
    const int64_t capacity = device->info.workspace_bytes / 4;
    for (int64_t at = 0; at < count; at += capacity) {
        const int64_t n = cgp__min(count - at, capacity);
        const cgp_place part = {from.device, (float *)from.at + at};
        CGP_TRY(device->backend->copy(worker->device, CGP_QUEUE_COMPUTE,
                                      cgp__device_place(worker, piece), part, 4 * (size_t)n));
        if (cgp__is_stopped(worker)) return CGP_OK; /* timed out: the plan may be gone */
        CGP_TRY(device->backend->add(worker->device, to + at, piece, n));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return CGP_OK;
}

static cgp_status gather(cgp__worker *worker, int p) {
    const cgp__executor *executor = worker->executor;
    const cgp_plan *plan = executor->plan;
    const cgp__parameter *param = &plan->model->params[p];
    const cgp__copy *owner = cgp__owner_of(plan, p);
    const int64_t count = cgp_shape_count(&param->shape);
    float *sum = gradient_at(executor, owner->device, owner->gradient);
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        const int node = plan->model->uses[u].node, from = cgp__plan_device_of(plan, node);
        float *other = gradient_at(executor, from, plan->use_gradient[u]);
        if (!plan->model->nodes[node].requires_grad || other == sum) continue;
        if (from == owner->device)
            CGP_TRY(cgp__backend_of(worker)->add(worker->device, sum, other, count));
        else
            CGP_TRY(add_buffer(worker, sum, place_of(worker, from, other), count));
        if (cgp__is_stopped(worker)) return CGP_OK; /* as above */
    }
    return CGP_OK;
}

static cgp_status gather_all(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker)) return CGP_OK;
    const cgp_plan *plan = worker->executor->plan;
    for (int p = 0; p < plan->model->n_params; p++) {
        if (cgp__owner_of(plan, p)->device == worker->index && cgp__plan_is_tied(plan, p))
            CGP_TRY(gather(worker, p));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return cgp__worker_finish(worker);
}

static cgp_status scatter_all(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp__executor *executor = worker->executor;
    if (cgp__is_stopped(worker)) return CGP_OK;
    const cgp_plan *plan = executor->plan;
    for (int c = 0; c < plan->n_copies; c++) {
        const cgp__copy *copy = &plan->copies[c];
        const cgp__copy *owner = cgp__owner_of(plan, copy->parameter);
        const cgp__parameter *param = &plan->model->params[copy->parameter];
        if (copy->device != worker->index || copy == owner || !param->requires_grad) continue;
        float *to = gradient_at(executor, copy->device, copy->gradient),
              *sum = gradient_at(executor, owner->device, owner->gradient);
        CGP_TRY(cgp__backend_of(worker)->copy(
            worker->device, CGP_QUEUE_COMPUTE, cgp__device_place(worker, to),
            place_of(worker, owner->device, sum), 4 * (size_t)cgp_shape_count(&param->shape)));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return cgp__worker_finish(worker);
}

cgp_status cgp__tied_sum(cgp__executor *executor) {
    bool any = false;
    for (int p = 0; p < executor->plan->model->n_params; p++)
        any = any || cgp__plan_is_tied(executor->plan, p);
    if (!any) return CGP_OK;
    CGP_TRY(cgp__team_run(executor->team, gather_all, NULL));
    return cgp__team_run(executor->team, scatter_all, NULL);
}
