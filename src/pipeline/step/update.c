/* SPDX-License-Identifier: Apache-2.0 */
/* update.c -- runs the optimizer's update. Each worker updates the copies of parameters on its
 * device or, if the optimizer has shards, the parts of its replica. Before the step, the ranks have
 * agreed on the optimizer's learning rate and corrections (inputs.c), and have compared the
 * learning rates that the program set (settings.c). If the program sets a rate after that, the next
 * step compares it. At the end of the step, the numbers were checked and the norm for clipping was
 * computed (finite.c). */
#include "model/model.h"
#include "optim/optim.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/captured_graphs.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/flips.h"
#include "pipeline/run/injected_faults.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/staging.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/reduce.h"
#include "pipeline/step/step.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/memory/shards.h"
#include "plan/setup.h"

#include <math.h>

/* `values` [1 + groups] change in each step. Copy them to the device, and set *out to their address
 * on the device. */
static cgp_status write_values(cgp__worker *worker, const cgp_update_values *values,
                               const cgp_update_values **out) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    *out = values;
    if (device->backend->host_addressable) return CGP_OK;
    char *to = cgp__worker_at(worker, device->step.update);
    *out = (const cgp_update_values *)(const void *)to;
    const int n = 1 + cgp__plan_setup(worker->plan)->groups.n;
    return cgp__staging_put(worker, to, values, (size_t)n * sizeof *values);
}

/* Return the description of the update of a part of a copy. `what` has the constants of the
 * update. */
static cgp_update update_of(cgp__worker *worker, const cgp__copy *copy, const cgp__shard_part *part,
                            const cgp_update *what) {
    const cgp__setup *setup = cgp__plan_setup(worker->plan);
    const cgp__parameter *param = &setup->model->params[copy->parameter];
    cgp_update update = *what;
    const int group = cgp__group_of(&setup->groups, copy->parameter);
    const double decay = group > 0 ? setup->groups.weight_decay[group - 1] : NAN;
    update.values += group;
    if (!isnan(decay))
        update.weight_decay = decay;
    else if (!param->decays && !setup->optim.decay_all)
        update.weight_decay = 0;
    update.n = (part->range.end - part->range.begin) / 4;
    update.param = cgp__copy_data(worker, copy, CGP__VALUES) + part->range.begin / 4;
    update.grad = cgp__copy_data(worker, copy, CGP__GRADIENT) + part->range.begin / 4;
    for (int s = 0; s < cgp_optim_states(&setup->optim); s++)
        update.state[s] = cgp__optimizer_data(worker, part, s);
    return update;
}

/* A walk over the parts of all copies that a worker updates. Begins with {.worker = worker}. */
typedef struct walk {
    const cgp__worker *worker;
    int c; /* index of the copy */
    cgp__shard_part part;
} walk;

/* Find the next part. Return its copy; NULL: there is none. */
static const cgp__copy *next_part(walk *w) {
    const cgp__worker *worker = w->worker;
    const cgp__parameters *parameters = cgp__plan_parameters(worker->plan);
    for (; w->c < parameters->n_copies; w->c++, w->part.range.end = 0) {
        const cgp__copy *copy = &parameters->copies[w->c];
        if (copy->device == worker->index && worker->model->params[copy->parameter].requires_grad &&
            cgp__shard_part_after(worker->plan, worker->ranks->replica, copy, w->part.range.end,
                                  &w->part))
            return copy;
    }
    return NULL;
}

/* Update the parameters on the worker's device, up to UPDATES parts per launch. `what` points to
 * the constants of the update. */
static cgp_status launch_updates(cgp__worker *worker, const void *what, bool captures) {
    enum { UPDATES = 64 };
    cgp_update updates[UPDATES];
    walk w = {.worker = worker};
    int n = 0;
    (void)captures;
    for (const cgp__copy *copy; (copy = next_part(&w));) {
        if (n == UPDATES) {
            CGP_TRY(worker->backend->kernels.update(worker->device, updates, n));
            if (cgp__is_stopped(worker)) return CGP_OK;
            n = 0;
        }
        updates[n++] = update_of(worker, copy, &w.part, what);
    }
    return n > 0 ? worker->backend->kernels.update(worker->device, updates, n) : CGP_OK;
}

/* Find part number `wanted` among the parts of parameters and optimizer states that an update
 * changes on the worker's device. */
static cgp__flip_search find_updated(const cgp__worker *worker, int wanted) {
    const int states = cgp_optim_states(&cgp__plan_setup(worker->plan)->optim);
    cgp__flip_search found = {.wanted = wanted};
    walk w = {.worker = worker};
    for (const cgp__copy *copy; (copy = next_part(&w));) {
        const int64_t begin = w.part.range.begin, bytes = w.part.range.end - begin;
        cgp__flip_add(&found, cgp__copy_data(worker, copy, CGP__VALUES) + begin / 4, bytes);
        for (int s = 0; s < states; s++)
            cgp__flip_add(&found, cgp__optimizer_data(worker, &w.part, s), bytes);
    }
    return found;
}

/* Flip bits as CGP_FAULT specifies (flips.h). */
static cgp_status flip_updated(cgp__worker *worker) {
    int64_t number;
    for (int from = 0;
         cgp__injected_update_flip(worker->executor, worker->index, &from, &number);) {
        const int n = find_updated(worker, -1).n;
        if (n == 0) continue;
        const cgp__flip_search found = find_updated(worker, cgp__flip_draw(number, n));
        CGP_TRY(cgp__flip_bit(worker, &found, number));
    }
    return CGP_OK;
}

static cgp_status update_device(cgp__worker *worker, void *argument) {
    const cgp__step *step = argument;
    cgp_update update = step->update;
    if (cgp__is_stopped(worker)) return CGP_OK;
    CGP_TRY(write_values(worker, step->update_values, &update.values));
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    ++*worker->changes.count;
    CGP_TRY(cgp__run_captured(worker, cgp__captured_job(worker, CGP__CAPTURED_UPDATE), 0,
                              launch_updates, &update));
    if (cgp__is_stopped(worker)) return CGP_OK;
    if (worker->executor->faults) CGP_TRY(flip_updated(worker));
    if (cgp__is_stopped(worker)) return CGP_OK;
    CGP_TRY(cgp__worker_finish(worker));
    return cgp__reduce_parameters(worker);
}

/* Return the learning rate of group `g`; groups count from 1. If the caller has set a rate for the
 * group, return that rate. Otherwise return the group's planned rate times the LR schedule's
 * factor. If the group has no planned rate, return the rate of the parameters in no group. */
static double group_lr(const cgp_pipeline *pipeline, int g) {
    const cgp__step *step = pipeline->step;
    const double planned = pipeline->setup->groups.lr[g - 1];
    if (!isnan(step->lr[g])) return step->lr[g];
    return isnan(planned) ? step->update_values[0].lr : planned * step->lr_factor;
}

/* Set the values that change with each update. If there are several ranks, the exchange of the step
 * has delivered the values of rank 0. If there is one rank, compute the values here, because
 * another pipeline that shares the gradients may have run the step. */
static void set_values(cgp_pipeline *pipeline) {
    const cgp_optim *optim = &pipeline->setup->optim;
    cgp__step *step = pipeline->step;
    const double scale = step->shared->scale;
    cgp_update_values *values = step->update_values;
    if (pipeline->n_ranks == 1) {
        values[0] = cgp__optim_values(optim, step->shared->updates + 1);
        step->lr_factor = cgp__lr_factor(&optim->schedule, step->shared->updates + 1);
    }
    if (!isnan(step->lr[0])) values[0].lr = step->lr[0];
    values[0].gradient_scale = scale;
    if (optim->clip_norm > 0) /* scale gradients like clip_grad_norm_() of PyTorch */
        values[0].gradient_scale *=
            fmin(1, optim->clip_norm / (scale * step->gradient_norm + 1e-6));
    for (int g = 1; g <= pipeline->setup->groups.n; g++) {
        values[g] = values[0];
        values[g].lr = group_lr(pipeline, g);
    }
}

cgp_status cgp_optim_step(cgp_pipeline *pipeline) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_OPTIM_STEP);
    cgp__step *step = pipeline->step;
    cgp__shared *shared = step->shared;
    CGP_TRY(cgp__step_check_training(pipeline));
    if (!shared->update_due || step->external_run)
        return cgp_fail(CGP_ESTATE, "optimizer: has no new gradients (%s is due)",
                        cgp__step_due(pipeline));
    CGP_TRY(cgp__accumulate_close(pipeline));
    shared->update_due = false;
    step->gradient_norm = shared->norm;
    if (shared->refusal[0]) return cgp_fail(CGP_ESTATE, "%s", shared->refusal);
    step->update = (cgp_update){.n = 0};
    cgp__optim_constants(&pipeline->setup->optim, &step->update);
    set_values(pipeline);
    CGP_TRY(cgp__executor_job(pipeline->executor, update_device, step));
    ++shared->updates;
    return CGP_OK;
}

static cgp_status set_lr(cgp_pipeline *pipeline, int at, double lr) {
    if (lr < 0 || isinf(lr))
        return cgp_fail(CGP_EINVAL, "lr: a finite number of 0 or more is expected, got %g", lr);
    pipeline->step->lr[at] = lr;
    return CGP_OK;
}

cgp_status cgp_pipeline_set_lr(cgp_pipeline *pipeline, double lr) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_LR, .number = lr);
    return set_lr(pipeline, 0, lr);
}

cgp_status cgp_pipeline_set_group_lr(cgp_pipeline *pipeline, int group, double lr) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_GROUP_LR, .at = group, .number = lr);
    const int n = pipeline->setup->groups.n;
    if (group < 0 || group >= n)
        return cgp_fail(CGP_EINVAL, "parameter group: the plan has %d, got number %d", n, group);
    return set_lr(pipeline, 1 + group, lr);
}

cgp_status cgp_pipeline_set_updates(cgp_pipeline *pipeline, int64_t updates) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_UPDATES, .at = updates);
    CGP_TRY(cgp__step_check_idle(pipeline));
    if (updates < 0)
        return cgp_fail(CGP_EINVAL, "updates: a number of 0 or more is expected, got %lld",
                        (long long)updates);
    if (pipeline->step->shared->update_due)
        return cgp_fail(CGP_ESTATE,
                        "pipeline: gradients wait for their update (cgp_optim_step is due)");
    pipeline->step->shared->updates = updates;
    return CGP_OK;
}

double cgp_pipeline_gradient_norm(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NAN);
    return pipeline->step->gradient_norm;
}

int64_t cgp_pipeline_updates(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, 0);
    return pipeline->step->shared->updates;
}
