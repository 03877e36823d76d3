/* SPDX-License-Identifier: Apache-2.0 */
/* executor.c -- creates and frees workers, and runs their action lists. */
#include "pipeline/run/executor.h"

#include "model/model.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/captured_graphs.h"
#include "pipeline/run/device.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/injected_faults.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/shared_edges.h"
#include "pipeline/run/worker.h"
#include "pipeline/team/team.h"
#include "plan/links.h"
#include "plan/memory/devices.h"
#include "plan/owners.h"
#include "plan/setup.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>

static bool reads(const cgp__node *node, int value) {
    for (int j = 0; j < node->n_inputs; j++) {
        if (node->inputs[j] == value) return true;
    }
    return false;
}

/* Find the model inputs that nodes of this rank read, once without the loss nodes and once with
 * them. */
static void find_reads(cgp__executor *executor) {
    const cgp_model *model = executor->model;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (!cgp__ranks_own(executor->ranks, cgp__plan_device_of(executor->plan, i))) continue;
        for (int k = 0; k < model->n_inputs; k++) {
            if (!reads(node, model->input_values[k])) continue;
            executor->reads[2 * k] |= !node->use.op->is_loss;
            executor->reads[2 * k + 1] = true;
        }
    }
}

/* Read an environment variable that is either on (the default) or off. */
static cgp_status read_switch(const char *name, bool *on) {
    const char *text = getenv(name);
    *on = !text || strcmp(text, "off") != 0;
    if (!text || !*on || strcmp(text, "on") == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expects on or off, got \"%s\"", name, text);
}

cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team,
                              cgp__ranks *ranks) {
    executor->plan = plan;
    executor->model = cgp__plan_setup(plan)->model;
    executor->team = team;
    executor->ranks = ranks;
    CGP_TRY(CGP__NEW(executor->workers, cgp_plan_devices(plan), "pipeline"));
    CGP_TRY(CGP__NEW(executor->measured, cgp_plan_devices(plan), "pipeline"));
    CGP_TRY(CGP__NEW(executor->ends, 2 * cgp__plan_links(plan)->n, "pipeline"));
    CGP_TRY(CGP__NEW(executor->shares, cgp__plan_links(plan)->n, "pipeline"));
    CGP_TRY(CGP__NEW(executor->reads, 2 * executor->model->n_inputs, "pipeline"));
    find_reads(executor);
    CGP_TRY(read_switch("CGP_GRAPHS", &executor->captures));
    CGP_TRY(read_switch("CGP_IPC", &executor->ipc));
    CGP_TRY(read_switch("CGP_BRANCH", &executor->branches));
    return cgp__injected_faults_read(executor);
}

static cgp_status start_workers(cgp__executor *executor) {
    const cgp__ranks *ranks = executor->ranks;
    CGP_TRY(cgp__team_reserve(executor->team, ranks->end - ranks->first));
    for (int d = ranks->first; d < ranks->end; d++) {
        cgp__worker *worker = &executor->workers[d];
        worker->executor = executor;
        worker->plan = executor->plan;
        worker->model = executor->model;
        worker->ranks = ranks;
        worker->backend = cgp__plan_device(executor->plan, d)->backend;
        worker->measured = &executor->measured[d];
        worker->index = d;
        worker->timed = &executor->team->threads[d - ranks->first].timed;
        worker->stopped = &executor->team->stopped;
    }
    for (int d = ranks->first; d < ranks->end; d++)
        CGP_TRY(cgp__team_add(executor->team, &executor->workers[d], d));
    return CGP_OK;
}

cgp_status cgp__executor_start(cgp__executor *executor) {
    cgp_status status = start_workers(executor);
    if (status == CGP_OK)
        status = cgp__team_run_untimed(executor->team, cgp__job_create_device, NULL);
    status = cgp__ranks_agree(executor->ranks, status);
    if (status == CGP_OK)
        status = cgp__team_run_untimed(executor->team, cgp__job_create_memory, NULL);
    return status;
}

void cgp__executor_deinit(cgp__executor *executor) {
    if (executor->inproc) cgp__transport_inproc.communicator_destroy(executor->inproc);
    cgp__runs_destroy(executor);
    for (int d = 0; executor->measured && d < cgp_plan_devices(executor->plan); d++)
        cgp__measured_release(&executor->measured[d]);
    cgp__injected_faults_destroy(executor);
    free(executor->report);
    free(executor->diagnosis);
    free(executor->reads);
    free(executor->losses);
    free(executor->rows);
    free(executor->ends);
    free(executor->shares);
    free(executor->measured);
    free(executor->workers);
}

double *cgp__executor_losses(const cgp__executor *executor, const cgp__run *run) {
    return executor->losses + (int64_t)run->minibatch.first * executor->model->n_losses;
}

/* Write the rows of per-step constants. */
static void fill_rows(cgp__executor *executor, const cgp__run_context *context) {
    const cgp_plan *plan = executor->plan;
    const int64_t row_bytes = cgp__plan_device(plan, 0)->step.row_bytes;
    const int losses = executor->model->n_losses, first = context->run->minibatch.first;
    for (int i = 0; i < context->run->minibatch.chunks; i++) {
        cgp_step_values *row = (cgp_step_values *)(void *)(executor->rows + i * row_bytes);
        *row = (cgp_step_values){context->seed, context->step,
                                 (first + i) * cgp_plan_microbatch(plan), (int64_t)i * losses};
        if (context->loss_scales)
            memcpy(row + 1, context->loss_scales, (size_t)losses * sizeof(float));
    }
}

void cgp__executor_skip(cgp__executor *executor) {
    pthread_mutex_lock(&executor->team->lock);
    for (int d = 0; d < cgp_plan_devices(executor->plan); d++)
        executor->measured[d].trace_start = cgp__trace_written(&executor->measured[d].trace);
    pthread_mutex_unlock(&executor->team->lock);
}

cgp_status cgp__executor_run(cgp__executor *executor, const cgp__run_context *context) {
    fill_rows(executor, context);
    pthread_mutex_lock(&executor->team->lock); /* take the lock, because another thread may read
                                                * these fields (cgp__diagnosis_of()) */
    executor->context = *context;
    executor->run_start_ns = cgp__now_ns();
    for (int d = 0; d < cgp_plan_devices(executor->plan); d++)
        executor->measured[d].trace_start = cgp__trace_written(&executor->measured[d].trace);
    pthread_mutex_unlock(&executor->team->lock);
    return cgp__executor_job(executor, cgp__job_run, &executor->context);
}
