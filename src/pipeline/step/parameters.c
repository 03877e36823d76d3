/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.c -- initializes parameters, and copies parameters, gradients and optimizer state to
 * and from the host. The workers of the devices that hold these tensors run this work as jobs. */
#include "pipeline/step/parameters.h"

#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/memory/shards.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <stdlib.h>
#include <string.h>

cgp_status cgp__job_initialize(cgp__worker *worker, void *seed) {
    const cgp__parameters *parameters = cgp__plan_parameters(worker->plan);
    float chunk[4096];
    CGP_TRY(cgp__states_initialize(worker));
    for (int c = 0; c < parameters->n_copies; c++) {
        const int p = parameters->copies[c].parameter;
        const cgp__parameter *param = &worker->model->params[p];
        if (parameters->copies[c].device != worker->index) continue;
        float *values = cgp__copy_data(worker, &parameters->copies[c], CGP__VALUES);
        const int64_t count = cgp_shape_count(&param->shape);
        for (int64_t first = 0; first < count; first += 4096) {
            const int64_t n = cgp__min(count - first, 4096);
            cgp__init_fill(&param->init, *(const uint64_t *)seed, p, first, n, chunk);
            CGP_TRY(cgp__worker_write(worker, values + first, chunk, 4 * (size_t)n));
        }
    }
    return CGP_OK;
}

float *cgp__copy_data(const cgp__worker *worker, const cgp__copy *copy, int tensor) {
    return (float *)(void *)(tensor == CGP__GRADIENT ? worker->gradients + copy->gradient
                                                     : worker->parameters + copy->offset);
}

float *cgp__optimizer_data(const cgp__worker *worker, const cgp__shard_part *part, int state) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    return (float *)(void *)(worker->optimizer + state * device->optimizer_state_bytes +
                             part->state);
}

/* Arguments of move_tensor(), which copies a tensor of a parameter between a device's copy of the
 * parameter and the host. */
typedef struct move {
    const cgp__copy *copy;
    int tensor;
    float *out;
    const float *in;
    size_t bytes;
} move;

/* Copy this replica's parts of an optimizer state. */
static cgp_status move_parts(cgp__worker *worker, const move *m) {
    cgp__shard_part part = {.range = {0, 0}};
    while (cgp__shard_part_after(worker->plan, worker->ranks->replica, m->copy, part.range.end,
                                 &part)) {
        float *data = cgp__optimizer_data(worker, &part, m->tensor);
        const int64_t at = part.range.begin / 4;
        const size_t bytes = (size_t)(part.range.end - part.range.begin);
        CGP_TRY(m->out ? cgp__worker_read(worker, m->out + at, data, bytes)
                       : cgp__worker_write(worker, data, m->in + at, bytes));
    }
    return CGP_OK;
}

static cgp_status move_tensor(cgp__worker *worker, void *argument) {
    const move *m = argument;
    if (m->tensor >= 0) return move_parts(worker, m);
    float *data = cgp__copy_data(worker, m->copy, m->tensor);
    if (m->in && m->tensor == CGP__VALUES) ++*worker->changes.count;
    return m->out ? cgp__worker_read(worker, m->out, data, m->bytes)
                  : cgp__worker_write(worker, data, m->in, m->bytes);
}

static size_t bytes_of(const cgp_pipeline *pipeline, int parameter) {
    return 4 * (size_t)cgp_shape_count(&pipeline->model->params[parameter].shape);
}

cgp_status cgp__parameter_read(const cgp_pipeline *pipeline, int parameter, int tensor,
                               float *out) {
    const cgp__copy *owner = cgp__owner_of(pipeline->plan, parameter);
    move m = {owner, tensor, out, NULL, bytes_of(pipeline, parameter)};
    return cgp__executor_run_one(pipeline->executor, owner->device, move_tensor, &m);
}

/* Copy a replica's parts of a tensor from their places in `whole` to `packed`, one after the other,
 * or back if `packs` is false. Return the bytes of the parts. With NULL, only count the bytes. */
static size_t pack_parts(const cgp_plan *plan, int replica, int parameter, char *whole,
                         char *packed, bool packs) {
    const cgp__copy *owner = cgp__owner_of(plan, parameter);
    cgp__shard_part part = {.range = {0, 0}};
    size_t all = 0;
    while (cgp__shard_part_after(plan, replica, owner, part.range.end, &part)) {
        const size_t bytes = (size_t)(part.range.end - part.range.begin);
        if (packed && packs) memcpy(packed + all, whole + part.range.begin, bytes);
        if (packed && !packs) memcpy(whole + part.range.begin, packed + all, bytes);
        all += bytes;
    }
    return all;
}

/* Gather the parts of an optimizer state on all ranks, from the owner's rank in each replica. This
 * rank's parts are in `out`. `packed` is scratch of the same size. */
static cgp_status gather_parts(const cgp_pipeline *pipeline, int parameter, float *out,
                               char *packed) {
    const cgp_plan *plan = pipeline->plan;
    const int ranks = pipeline->setup->ranks,
              owner = cgp_plan_device_at(plan, cgp__owner_of(plan, parameter)->device)->rank;
    size_t *bytes = cgp__ranks_sizes(pipeline->ranks), first = 0;
    for (int r = 0; r < pipeline->n_ranks; r++) {
        bytes[r] =
            r % ranks == owner ? pack_parts(plan, r / ranks, parameter, NULL, NULL, true) : 0;
        if (r < pipeline->rank) first += bytes[r];
    }
    if (pipeline->rank % ranks == owner)
        (void)pack_parts(plan, pipeline->ranks->replica, parameter, (char *)out, packed + first,
                         true);
    CGP_TRY(cgp__ranks_share_blocks(pipeline->ranks, packed + first, packed));
    for (int replica = 0; replica < pipeline->setup->replicas; replica++)
        packed += pack_parts(plan, replica, parameter, (char *)out, packed, false);
    return CGP_OK;
}

/* Bring a tensor whose parts are on different replicas. `out` has this rank's parts. */
static cgp_status bring_parts(const cgp_pipeline *pipeline, int parameter, float *out) {
    char *packed = NULL;
    cgp_status status = CGP__NEW(packed, bytes_of(pipeline, parameter), "optimizer state");
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status == CGP_OK) status = gather_parts(pipeline, parameter, out, packed);
    free(packed);
    return status;
}

cgp_status cgp__parameter_bring(const cgp_pipeline *pipeline, int parameter, int tensor,
                                float *out) {
    const cgp_plan *plan = pipeline->plan;
    const int owner = cgp__owner_of(plan, parameter)->device;
    cgp_status status = CGP_OK;
    if (cgp__plan_is_on(plan, owner, pipeline->rank))
        status = cgp__parameter_read(pipeline, parameter, tensor, out);
    if (status != CGP_OK) {
        cgp__ranks_fail(pipeline->ranks, status);
        return status;
    }
    if (tensor >= 0 && pipeline->setup->shards) return bring_parts(pipeline, parameter, out);
    return cgp__ranks_broadcast(pipeline->ranks, cgp_plan_device_at(plan, owner)->rank, out,
                                bytes_of(pipeline, parameter));
}

cgp_status cgp__parameter_write(const cgp_pipeline *pipeline, int parameter, int tensor,
                                const float *in) {
    const cgp__parameters *parameters = cgp__plan_parameters(pipeline->plan);
    const int *first = &parameters->first_copy[parameter];
    for (int c = first[0]; c < first[1]; c++) {
        const cgp__copy *copy = &parameters->copies[c];
        move m = {copy, tensor, NULL, in, bytes_of(pipeline, parameter)};
        if (cgp__plan_is_on(pipeline->plan, copy->device, pipeline->rank))
            CGP_TRY(cgp__executor_run_one(pipeline->executor, copy->device, move_tensor, &m));
    }
    return CGP_OK;
}

void cgp__parameters_changed(const cgp_pipeline *pipeline) {
    for (int d = 0; d < cgp_plan_devices(pipeline->plan); d++)
        if (cgp__plan_is_on(pipeline->plan, d, pipeline->rank))
            ++*cgp__executor_worker(pipeline->executor, d)->changes.count;
}

bool cgp__parameter_is_here(const cgp_pipeline *pipeline, int parameter) {
    const cgp__parameters *parameters = cgp__plan_parameters(pipeline->plan);
    const int *first = &parameters->first_copy[parameter];
    for (int c = first[0]; c < first[1]; c++)
        if (cgp__plan_is_on(pipeline->plan, parameters->copies[c].device, pipeline->rank))
            return true;
    return false;
}

static cgp_status check_parameter(const cgp_pipeline *pipeline, int parameter) {
    const int n = pipeline->model->n_params;
    if (parameter >= 0 && parameter < n) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "parameter: expected 0 to %d, got %d", n - 1, parameter);
}

cgp_status cgp__parameter_check_trained(const cgp_pipeline *pipeline, int parameter,
                                        const char *what) {
    const cgp__parameter *param = &pipeline->model->params[parameter];
    if (!param->frozen) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: parameter %s is frozen and has none", what, param->name);
}

static cgp_status check_state(const cgp_pipeline *pipeline, int parameter, int state) {
    const int states = pipeline->setup->inference ? 0 : cgp_optim_states(&pipeline->setup->optim);
    CGP_TRY(check_parameter(pipeline, parameter));
    if (state >= 0 && state < states)
        return cgp__parameter_check_trained(pipeline, parameter, "optimizer state");
    return cgp_fail(CGP_EINVAL, "optimizer state: the optimizer has %d, got number %d", states,
                    state);
}

/* Copy a tensor to the caller's memory on each rank where `data` is not NULL. `status` is the
 * result of earlier checks. */
static cgp_status get_tensor(cgp_pipeline *pipeline, cgp_status status, int parameter, int tensor,
                             float *data) {
    float *unwanted = NULL;
    if (status == CGP_OK && !data)
        status = CGP__NEW(unwanted, cgp_shape_count(&pipeline->model->params[parameter].shape),
                          "parameter");
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status == CGP_OK)
        status = cgp__parameter_bring(pipeline, parameter, tensor, data ? data : unwanted);
    free(unwanted);
    return status;
}

/* Copy the caller's tensor to all copies of the parameter. Each rank writes the copies on its
 * devices. `status` is the result of earlier checks. */
static cgp_status set_tensor(cgp_pipeline *pipeline, cgp_status status, int parameter, int tensor,
                             const float *data, const char *function) {
    const cgp__ranks *ranks = pipeline->ranks;
    if (status == CGP_OK && !data && cgp__parameter_is_here(pipeline, parameter))
        status = cgp__missing(function, "data");
    CGP_TRY(cgp__ranks_agree(ranks, status));
    status = cgp__parameter_write(pipeline, parameter, tensor, data);
    if (status != CGP_OK) cgp__ranks_fail(ranks, status);
    return status;
}

cgp_status cgp_pipeline_get_parameter(cgp_pipeline *pipeline, int parameter, float *data) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_GET_PARAMETER, .at = parameter,
                         .out = data);
    if (pipeline->n_ranks == 1) CGP__NEED(data);
    return get_tensor(pipeline, check_parameter(pipeline, parameter), parameter, CGP__VALUES, data);
}

static cgp_status check_set(const cgp_pipeline *pipeline, int parameter) {
    CGP_TRY(check_parameter(pipeline, parameter));
    if (!pipeline->step->external_run || pipeline->team->failed) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "parameter %d: a forward has run with it (cgp_pipeline_backward is due)",
                    parameter);
}

cgp_status cgp_pipeline_set_parameter(cgp_pipeline *pipeline, int parameter, const float *data) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_PARAMETER, .at = parameter, .in = data);
    return set_tensor(pipeline, check_set(pipeline, parameter), parameter, CGP__VALUES, data,
                      __func__);
}

static cgp_status check_gradient(const cgp_pipeline *pipeline, int parameter) {
    CGP_TRY(check_parameter(pipeline, parameter));
    CGP_TRY(cgp__parameter_check_trained(pipeline, parameter, "gradient"));
    CGP_TRY(cgp__step_check_training(pipeline));
    if (cgp__step_has_gradients(pipeline->step)) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "gradient: there is none yet (%s is due)", cgp__step_due(pipeline));
}

cgp_status cgp_pipeline_get_gradient(cgp_pipeline *pipeline, int parameter, float *data) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_GET_GRADIENT, .at = parameter, .out = data);
    if (pipeline->n_ranks == 1) CGP__NEED(data);
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, check_gradient(pipeline, parameter)));
    CGP_TRY(cgp__accumulate_complete(pipeline));
    return get_tensor(pipeline, CGP_OK, parameter, CGP__GRADIENT, data);
}

cgp_status cgp_pipeline_get_optimizer_state(cgp_pipeline *pipeline, int parameter, int state,
                                            float *data) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_GET_OPTIMIZER_STATE, .at = parameter,
                         .of = state, .out = data);
    if (pipeline->n_ranks == 1) CGP__NEED(data);
    return get_tensor(pipeline, check_state(pipeline, parameter, state), parameter, state, data);
}

cgp_status cgp_pipeline_set_optimizer_state(cgp_pipeline *pipeline, int parameter, int state,
                                            const float *data) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_OPTIMIZER_STATE, .at = parameter,
                         .of = state, .in = data);
    return set_tensor(pipeline, check_state(pipeline, parameter, state), parameter, state, data,
                      __func__);
}

/* Add all parameters to the hash. `data` is scratch for the largest parameter. */
static cgp_status hash_parameters(const cgp_pipeline *pipeline, cgp__sha256 *hash, float *data) {
    cgp_status status = CGP_OK;
    for (int p = 0; p < pipeline->model->n_params && status == CGP_OK; p++) {
        status = cgp__parameter_bring(pipeline, p, CGP__VALUES, data);
        if (status == CGP_OK) status = cgp__sha256_add(hash, data, bytes_of(pipeline, p));
    }
    if (status != CGP_OK) cgp__ranks_fail(pipeline->ranks, status);
    return status;
}

cgp_status cgp_pipeline_weights_sha256(cgp_pipeline *pipeline, char hex[65]) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_WEIGHTS_SHA256, .out = hex);
    if (pipeline->n_ranks == 1) CGP__NEED(hex);
    char unwanted[65];
    float *data = NULL;
    int64_t largest = 0;
    cgp__sha256 *hash = NULL;
    for (int p = 0; p < pipeline->model->n_params; p++)
        largest = cgp__max(largest, cgp_shape_count(&pipeline->model->params[p].shape));
    cgp_status status = cgp__sha256_create(&hash);
    if (status == CGP_OK) status = CGP__NEW(data, largest, "weights");
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status == CGP_OK) status = hash_parameters(pipeline, hash, data);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex ? hex : unwanted);
    free(data);
    cgp__sha256_destroy(hash);
    return status;
}
