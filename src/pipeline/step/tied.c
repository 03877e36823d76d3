/* SPDX-License-Identifier: Apache-2.0 */
/* tied.c -- adds up the gradients of tied parameters, after all action lists have ended. A tied
 * parameter has several uses.
 *
 *     gather    the owner, which is the device of the first use, adds the buffers of the other uses
 *               in order
 *     scatter   the other devices copy the sum
 *
 * The owner copies a buffer of another device to its own workspace piece by piece, and adds each
 * piece from there. If the owner cannot read the other device's memory, for example on another
 * rank, the pieces arrive over a link (plan/links.h). All devices process the parameters and their
 * uses in the same order, so devices never wait for each other in a cycle. */
#include "pipeline/step/tied.h"

#include "model/model.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/staging.h"
#include "pipeline/run/transfer.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/parameters.h"
#include "pipeline/run/pieces.h"
#include "plan/links.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/owners.h"

static float *gradient_at(const cgp__executor *executor, int device, int64_t offset) {
    return (float *)(void *)(executor->workers[device].gradients + offset);
}

/* Return the place of another device's buffer. The place is on that device if it has the same
 * backend, otherwise on the host. */
static cgp_place place_of(const cgp__worker *worker, int device, float *buffer) {
    const cgp__executor *executor = worker->executor;
    const bool same = cgp__plan_device(executor->plan, device)->backend == worker->backend;
    return (cgp_place){same ? executor->workers[device].device : NULL, buffer};
}

/* Copy from a cgp_place to the worker's device. If the device has its own memory, data from the
 * host passes through staging memory. */
static cgp_status copy_from(cgp__worker *worker, float *to, cgp_place from, size_t bytes) {
    const cgp_backend *backend = worker->backend;
    if (!from.device && !backend->host_addressable)
        return cgp__staging_put(worker, to, from.at, bytes);
    return backend->device.copy(worker->device, CGP_QUEUE_COMPUTE, cgp__device_place(worker, to),
                                from, bytes);
}

/* Add a buffer of another device to a buffer of this worker, piece by piece through the worker's
 * workspace. */
static cgp_status add_buffer(cgp__worker *worker, float *to, cgp_place from, int64_t count) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    float *piece = (float *)(void *)(cgp__worker_at(worker, device->workspace));
    const int64_t capacity = device->info.workspace_bytes / 4;
    for (int64_t at = 0; at < count; at += capacity) {
        const int64_t n = cgp__min(count - at, capacity);
        const cgp_place part = {from.device, (float *)from.at + at};
        CGP_TRY(copy_from(worker, piece, part, 4 * (size_t)n));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        CGP_TRY(device->backend->kernels.add(worker->device, to + at, piece, n));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return CGP_OK;
}

/* Send a tensor over a link, piece by piece. Pieces in flight have different numbers, as the
 * transport requires of micro-batches. */
static cgp_status send_tensor(cgp__worker *worker, int tie, const float *from, int64_t count) {
    cgp__end *end = &worker->executor->ends[2 * tie];
    const cgp__link_plan *link = &cgp__plan_links(worker->plan)->list[tie];
    for (int64_t at = 0; at < count; at += CGP__TIE_BYTES / 4) {
        const size_t bytes = 4 * (size_t)cgp__min(count - at, CGP__TIE_BYTES / 4);
        cgp_link_message message;
        if (!end->transport->links.acquire(end->link, INT64_MAX, &message))
            return cgp__wait_status(worker, end);
        const cgp_place to = {link->in_host ? NULL : worker->device, message.buffer};
        CGP_TRY(cgp__piece_fill(worker, to, from + at, bytes));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        message.event = NULL;
        message.bytes = (int64_t)bytes;
        message.microbatch = (int)(end->pieces++ % link->capacity);
        end->transport->links.post(end->link, &message);
    }
    return CGP_OK;
}

/* Receive a tensor over a link. If `add`, add the tensor to `to` through the workspace; otherwise
 * copy it to `to`. */
static cgp_status receive_tensor(cgp__worker *worker, int tie, float *to, int64_t count, bool add) {
    const cgp__link_plan *link = &cgp__plan_links(worker->plan)->list[tie];
    cgp__end *end = &worker->executor->ends[2 * tie + 1];
    const bool in_host = link->receives ? link->receives_in_host : true;
    for (int64_t at = 0; at < count; at += CGP__TIE_BYTES / 4) {
        const int64_t n = cgp__min(count - at, CGP__TIE_BYTES / 4);
        cgp_link_message message;
        const int number = (int)(end->pieces++ % link->capacity);
        if (!end->transport->links.take(end->link, number, INT64_MAX, &message))
            return cgp__wait_status(worker, end);
        const cgp_place from = {in_host ? NULL : worker->device, message.buffer};
        CGP_TRY(cgp__piece_drain(worker, to + at, from, n, add));
        if (cgp__is_stopped(worker)) return CGP_OK;
        message.event = NULL;
        end->transport->links.release(end->link, &message);
    }
    return CGP_OK;
}

/* Add the gradient buffer of use `u` to the owner's sum. The owner's worker adds or receives the
 * buffer. If the use's device has a link to the owner, the worker of the use's device sends the
 * buffer. */
static cgp_status gather_use(cgp__worker *worker, int u, int64_t count, float *sum) {
    const cgp__executor *executor = worker->executor;
    const cgp_plan *plan = executor->plan;
    const cgp__use *use = &executor->model->uses[u];
    const int64_t offset = cgp__plan_parameters(plan)->use_gradient[u];
    const int owner = cgp__owner_of(plan, use->parameter)->device;
    const int from = cgp__plan_device_of(plan, use->node);
    const int tie = cgp__plan_tie(plan, from, owner);
    if (tie >= 0 && from == worker->index)
        return send_tensor(worker, tie, gradient_at(executor, from, offset), count);
    if (owner != worker->index) return CGP_OK;
    if (tie >= 0) return receive_tensor(worker, tie, sum, count, true);
    float *other = gradient_at(executor, from, offset);
    if (other == sum) return CGP_OK;
    if (from == owner) return worker->backend->kernels.add(worker->device, sum, other, count);
    return add_buffer(worker, sum, place_of(worker, from, other), count);
}

static cgp_status gather(cgp__worker *worker, int p) {
    const cgp_model *model = worker->model;
    const cgp__parameter *param = &model->params[p];
    const cgp__copy *owner = cgp__owner_of(worker->plan, p);
    float *sum = owner->device == worker->index
                     ? gradient_at(worker->executor, owner->device, owner->gradient)
                     : NULL;
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        if (!model->nodes[model->uses[u].node].requires_grad) continue;
        CGP_TRY(gather_use(worker, u, cgp_shape_count(&param->shape), sum));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    }
    return CGP_OK;
}

static cgp_status gather_all(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker)) return CGP_OK;
    for (int p = 0; p < worker->model->n_params; p++) {
        if (cgp__is_tied(cgp__plan_parameters(worker->plan), worker->model, p))
            CGP_TRY(gather(worker, p));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return cgp__worker_finish(worker);
}

/* Copy the sum from the owner to `copy`, the parameter's copy on another device. That device's
 * worker copies or receives the sum. If the owner has a link to that device, the owner's worker
 * sends the sum. */
static cgp_status scatter(cgp__worker *worker, const cgp__copy *copy, const cgp__copy *owner) {
    const cgp__executor *executor = worker->executor;
    const int64_t count = cgp_shape_count(&executor->model->params[copy->parameter].shape);
    const int tie = cgp__plan_tie(executor->plan, owner->device, copy->device);
    if (tie >= 0 && owner->device == worker->index)
        return send_tensor(worker, tie, gradient_at(executor, owner->device, owner->gradient),
                           count);
    if (copy->device != worker->index) return CGP_OK;
    float *to = gradient_at(executor, copy->device, copy->gradient);
    if (tie >= 0) return receive_tensor(worker, tie, to, count, false);
    return copy_from(
        worker, to,
        place_of(worker, owner->device, gradient_at(executor, owner->device, owner->gradient)),
        4 * (size_t)count);
}

static cgp_status scatter_all(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker)) return CGP_OK;
    const cgp__parameters *parameters = cgp__plan_parameters(worker->plan);
    for (int c = 0; c < parameters->n_copies; c++) {
        const cgp__copy *copy = &parameters->copies[c];
        const cgp__copy *owner = cgp__owner_of(worker->plan, copy->parameter);
        if (copy == owner || !worker->model->params[copy->parameter].requires_grad) continue;
        CGP_TRY(scatter(worker, copy, owner));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return cgp__worker_finish(worker);
}

static bool any_tied(const cgp__executor *executor) {
    bool any = false;
    for (int p = 0; p < executor->model->n_params; p++)
        any = any || cgp__is_tied(cgp__plan_parameters(executor->plan), executor->model, p);
    return any;
}

cgp_status cgp__tied_sum(cgp__executor *executor, bool exchanged) {
    if (!any_tied(executor)) return CGP_OK;
    CGP_TRY(cgp__executor_run_all(executor, gather_all, NULL));
    if (exchanged) return cgp__executor_run_all(executor, scatter_all, NULL);
    return cgp__executor_job(executor, scatter_all, NULL);
}

/* Set the gradient buffer of use `u` to zero if the buffer is on the worker's device and does not
 * hold the owner's sum. */
static cgp_status separate(cgp__worker *worker, int u) {
    static const float zeros[4096];
    const cgp__use *use = &worker->model->uses[u];
    const cgp__copy *owner = cgp__owner_of(worker->plan, use->parameter);
    const int64_t offset = cgp__plan_parameters(worker->plan)->use_gradient[u],
                  count = cgp_shape_count(&worker->model->params[use->parameter].shape);
    if (cgp__plan_device_of(worker->plan, use->node) != worker->index ||
        (owner->device == worker->index && owner->gradient == offset))
        return CGP_OK;
    float *gradient = gradient_at(worker->executor, worker->index, offset);
    for (int64_t at = 0; at < count; at += 4096)
        CGP_TRY(cgp__worker_write(worker, gradient + at, zeros,
                                  4 * (size_t)cgp__min(count - at, 4096)));
    return CGP_OK;
}

static cgp_status separate_all(cgp__worker *worker, void *unused) {
    (void)unused;
    for (int u = 0; u < worker->model->n_uses; u++) {
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        if (worker->model->nodes[worker->model->uses[u].node].requires_grad)
            CGP_TRY(separate(worker, u));
    }
    return CGP_OK;
}

cgp_status cgp__tied_separate(cgp__executor *executor) {
    return any_tied(executor) ? cgp__executor_job(executor, separate_all, NULL) : CGP_OK;
}
