/* SPDX-License-Identifier: Apache-2.0 */
/* executor.c -- creates and frees workers and links, and runs their lists. */
#include "pipeline/run/run.h"

#include <stdlib.h>
#include <string.h>

/* A blocked thread takes 50 us or more to wake, often longer than the message it waits for. Where
 * every device has cores of its own, a waiter spins this long before it blocks. */
#define SPIN_NS 20000000

static bool reads(const cgp__node *node, int value) {
    for (int j = 0; j < node->n_inputs; j++) {
        if (node->inputs[j] == value) return true;
    }
    return false;
}

/* Find the inputs that nodes of this rank read, without losses and with them. */
static void find_reads(cgp__executor *executor) {
    const cgp_model *model = executor->plan->model;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (!cgp__ranks_own(&executor->ranks, cgp__plan_device_of(executor->plan, i))) continue;
        for (int k = 0; k < model->n_inputs; k++) {
            if (!reads(node, model->input_values[k])) continue;
            executor->reads[2 * k] |= !node->use.op->is_loss;
            executor->reads[2 * k + 1] = true;
        }
    }
}

cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team,
                              const cgp_transport *transport, cgp_communicator *communicator) {
    executor->plan = plan;
    executor->team = team;
    CGP_TRY(cgp__ranks_init(&executor->ranks, plan, transport, communicator));
    CGP_TRY(CGP__NEW(executor->workers, plan->n_devices, "pipeline"));
    CGP_TRY(CGP__NEW(executor->ends, plan->n_links, "pipeline"));
    CGP_TRY(CGP__NEW(executor->reads, 2 * plan->model->n_inputs, "pipeline"));
    find_reads(executor);
    CGP_TRY(cgp__recordings_read(&executor->records));
    return cgp__injected_faults_read(executor);
}

static cgp_status start_workers(cgp__executor *executor) {
    const cgp__ranks *ranks = &executor->ranks;
    CGP_TRY(cgp__team_reserve(executor->team, ranks->end - ranks->first));
    for (int d = 0; d < executor->plan->n_devices; d++) {
        executor->workers[d].executor = executor;
        executor->workers[d].index = d;
    }
    for (int d = ranks->first; d < ranks->end; d++)
        CGP_TRY(cgp__team_add(executor->team, &executor->workers[d], d));
    return CGP_OK;
}

/* Return whether the threads of all devices have cores of their own. */
static bool all_have_cores(const cgp__executor *executor) {
    for (int d = executor->ranks.first; d < executor->ranks.end; d++) {
        const cgp__worker *worker = &executor->workers[d];
        if (!cgp__backend_of(worker)->has_cores(worker->device)) return false;
    }
    return true;
}

/* Return the buffers of a link's end: the sender's, or, between ranks, the receiver's own. */
static char *buffers_of(const cgp__executor *executor, const cgp__link_plan *link, bool sends) {
    const bool own = !sends && link->receives;
    const cgp__worker *worker = &executor->workers[own ? link->to : link->holder];
    const bool in_host = own ? link->receives_in_host : link->in_host;
    const int64_t offset = own ? link->receive_offset : link->offset;
    return in_host ? worker->host + offset : cgp__worker_at(worker, offset);
}

static cgp_status open_end(cgp__executor *executor, int l, bool sends, int64_t spin_ns) {
    const cgp_plan *plan = executor->plan;
    const cgp__link_plan *link = &plan->links[l];
    const cgp__ranks *ranks = &executor->ranks;
    cgp__end *end = &executor->ends[l][sends ? 0 : 1];
    if (!cgp__ranks_own(ranks, sends ? link->from : link->to)) return CGP_OK;
    end->transport = link->receives ? ranks->transport : &cgp__transport_inproc;
    end->communicator = link->receives ? ranks->communicator : executor->inproc;
    end->memory = buffers_of(executor, link, sends);
    const cgp_link_options options = {
        .struct_size = sizeof options,
        .edge = l,
        .sends = sends,
        .peer = link->receives ? plan->devices[sends ? link->to : link->from].info.rank : 0,
        .capacity = link->capacity,
        .bytes = link->bytes,
        .memory = sends || link->receives ? end->memory : NULL,
        .spin_ns = spin_ns};
    return end->transport->link_open(end->communicator, &options, &end->link);
}

static cgp_status open_links(cgp__executor *executor) {
    const int64_t spin_ns = all_have_cores(executor) ? SPIN_NS : 0;
    CGP_TRY(cgp__inproc_create(&executor->inproc));
    for (int l = 0; l < executor->plan->n_links; l++) {
        CGP_TRY(open_end(executor, l, true, spin_ns));
        CGP_TRY(open_end(executor, l, false, spin_ns));
    }
    return CGP_OK;
}

cgp_status cgp__executor_start(cgp__executor *executor) {
    cgp_status status = start_workers(executor);
    if (status == CGP_OK)
        status = cgp__team_run_untimed(executor->team, cgp__job_create_device, NULL);
    return status == CGP_OK ? open_links(executor) : status;
}

cgp_status cgp__executor_run_one(const cgp__executor *executor, int device, cgp__job *job,
                                 void *argument) {
    return cgp__team_run_one(executor->team, device - executor->ranks.first, job, argument);
}

cgp_status cgp__executor_exchanged(cgp__executor *executor, cgp_status status) {
    if (status != CGP_OK) cgp__team_fail(executor->team);
    return status;
}

cgp_status cgp__executor_job(cgp__executor *executor, cgp__job *job, void *argument) {
    const cgp_status status = cgp__team_run(executor->team, job, argument);
    return cgp__executor_exchanged(executor, cgp__ranks_agree(&executor->ranks, status));
}

void cgp__executor_close_links(cgp__executor *executor) {
    for (int k = 0; executor->ends && k < 2 * executor->plan->n_links; k++) {
        cgp__end *end = &executor->ends[k / 2][k % 2];
        if (end->link) end->transport->link_close(end->link);
        end->link = NULL;
    }
}

void cgp__executor_deinit(cgp__executor *executor) {
    if (executor->inproc) cgp__transport_inproc.communicator_destroy(executor->inproc);
    for (int i = 0; i < executor->n_runs; i++)
        cgp__run_destroy(executor, executor->runs[i]);
    for (int d = 0; executor->workers && d < executor->plan->n_devices; d++) {
        if (cgp__ranks_own(&executor->ranks, d)) continue; /* device.c frees it */
        cgp__trace_release(&executor->workers[d].trace);
        free(executor->workers[d].node_times);
    }
    cgp__ranks_deinit(&executor->ranks);
    free(executor->report);
    free(executor->diagnosis);
    free(executor->reads);
    free(executor->faults);
    free(executor->losses);
    free(executor->rows);
    free(executor->runs);
    free(executor->ends);
    free(executor->workers);
}

/* Write the rows of per-step constants. */
static void fill_rows(cgp__executor *executor, const cgp__run_context *context) {
    const cgp_plan *plan = executor->plan;
    const int64_t row_bytes = plan->devices[0].step.row_bytes;
    const int losses = plan->model->n_losses;
    for (int i = 0; i < context->run->minibatch.chunks; i++) {
        cgp_step_values *row = (cgp_step_values *)(void *)(executor->rows + i * row_bytes);
        *row = (cgp_step_values){context->seed, context->step, i * plan->microbatch,
                                 (int64_t)i * losses};
        if (context->loss_scales)
            memcpy(row + 1, context->loss_scales, (size_t)losses * sizeof(float));
    }
}

cgp_status cgp__executor_run(cgp__executor *executor, const cgp__run_context *context) {
    fill_rows(executor, context);
    pthread_mutex_lock(&executor->team->lock); /* cgp__diagnosis_of() reads these */
    executor->context = *context;
    executor->run_start_ns = cgp__now_ns();
    for (int d = 0; d < executor->plan->n_devices; d++)
        executor->workers[d].trace_start = cgp__trace_written(&executor->workers[d].trace);
    pthread_mutex_unlock(&executor->team->lock);
    return cgp__executor_job(executor, cgp__job_run, &executor->context);
}
