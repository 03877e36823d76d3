/* SPDX-License-Identifier: Apache-2.0 */
/* device_tensors.c -- checks the caller's tensors that lie in the memory of a device.
 *
 * A backend can find out whether an address lies in the memory of its hardware. If a tensor lies
 * there, staging (staging.c) copies the tensor's data within device memory. */
#include "pipeline/step/device_tensors.h"

#include <cgpipe/parameters.h>

#include "model/model.h"
#include "op/op.h"
#include "pipeline/alive.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "plan/owners.h"
#include "plan/program/program.h"

#include <stdio.h>

/* Return a worker of this rank whose backend recognizes an address as device memory; NULL: there is
 * none. */
static const cgp__worker *find_owner(const cgp__executor *executor, const void *address) {
    const cgp_backend *asked = NULL;
    for (int d = executor->ranks->first; d < executor->ranks->end; d++) {
        const cgp__worker *worker = cgp__executor_worker(executor, d);
        if (worker->backend == asked) continue;
        if (cgp__is_device_memory(worker, address)) return worker;
        asked = worker->backend;
    }
    return NULL;
}

/* Check that a device of this rank can read and write a tensor. If the tensor is in device memory,
 * the device must have the same backend. */
static cgp_status check_tensor(const cgp__executor *executor, const char *what, const char *name,
                               const cgp_tensor *tensor, int device) {
    const cgp__worker *owner = find_owner(executor, tensor->data);
    const cgp_backend *backend = cgp__executor_worker(executor, device)->backend;
    if (!owner || owner->backend == backend) return CGP_OK;
    return cgp_fail(
        CGP_EINVAL, "%s %s: expected host memory, which device %s uses, got memory of a %s device",
        what, name, cgp_plan_device_at(executor->plan, device)->name, owner->backend->name);
}

/* Return true if the host reads input `k` to sum up the weights of a loss. */
static bool is_weights(const cgp_model *model, int k) {
    for (int i = cgp__model_loss(model, 0); i < model->n_nodes; i++) {
        const cgp__node *loss = &model->nodes[i];
        if (loss->kind != CGP_OP_CUSTOM && cgp__op_find(loss->kind)->sum_weights &&
            loss->n_inputs > 2 && loss->inputs[2] == model->input_values[k])
            return true;
    }
    return false;
}

cgp_status cgp__check_device_input(const cgp__executor *executor, int k, const cgp_tensor *tensor) {
    const cgp_model *model = executor->model;
    const cgp__worker *owner = find_owner(executor, tensor->data);
    if (!owner) return CGP_OK;
    if (tensor->dtype == CGP_I32)
        return cgp_fail(CGP_EINVAL,
                        "input %s: expected integers in host memory, where their range is "
                        "checked, got memory of a %s device",
                        model->inputs[k], owner->backend->name);
    if (is_weights(model, k))
        return cgp_fail(CGP_EINVAL,
                        "input %s: expected weights of a loss in host memory, where they are added "
                        "up, got memory of a %s device",
                        model->inputs[k], owner->backend->name);
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        const int device = cgp__plan_device_of(executor->plan, i);
        if (!cgp__ranks_own(executor->ranks, device)) continue;
        for (int j = 0; j < node->n_inputs; j++)
            if (node->inputs[j] == model->input_values[k])
                CGP_TRY(check_tensor(executor, "input", model->inputs[k], tensor, device));
    }
    return CGP_OK;
}

cgp_status cgp__check_device_output(const cgp__executor *executor, const char *name, int k,
                                    const cgp_tensor *tensor) {
    const int stage = cgp_plan_output_stage(executor->plan, k);
    char number[16];
    snprintf(number, sizeof number, "%d", k);
    return check_tensor(executor, name, number, tensor,
                        cgp_plan_stage_at(executor->plan, stage)->device);
}

cgp_status cgp__check_device_gradient(const cgp__executor *executor, int k,
                                      const cgp_tensor *tensor) {
    const char *name = executor->model->inputs[k];
    const int stage = cgp__plan_results(executor->plan)->input_gradients[k].stage;
    if (stage < 0)
        return !find_owner(executor, tensor->data)
                   ? CGP_OK
                   : cgp_fail(CGP_EINVAL,
                              "gradient of input %s: expected host memory, because no "
                              "stage computes it, got device memory",
                              name);
    const int device = cgp_plan_stage_at(executor->plan, stage)->device;
    if (!cgp__ranks_own(executor->ranks, device)) return CGP_OK;
    return check_tensor(executor, "gradient of input", name, tensor, device);
}

void *cgp_pipeline_stream(const cgp_pipeline *pipeline, int device) {
    CGP__PIPELINE_OR(pipeline, NULL);
    if (device < 0 || device >= cgp_plan_devices(pipeline->plan) ||
        !cgp__plan_is_on(pipeline->plan, device, pipeline->rank))
        return NULL;
    const cgp__worker *worker = cgp__executor_worker(pipeline->executor, device);
    const cgp_backend_streams *streams = worker->backend->streams;
    return streams && streams->handle ? streams->handle(worker->device, CGP_QUEUE_COMPUTE) : NULL;
}
