/* SPDX-License-Identifier: Apache-2.0 */
/* executor.c -- the life of workers and links, and one run of their lists. */
#include "pipeline/run/run.h"

#include <stdlib.h>
#include <string.h>

/* A blocked thread takes 50 us or more to wake, often longer than the message it waits for. Where every device has cores of
 * its own, a waiter spins this long before it blocks. */
#define SPIN_NS 20000000

cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team) {
    executor->plan = plan;
    executor->team = team;
    CGP_TRY(CGP__NEW(executor->workers, plan->n_devices, "pipeline"));
    CGP_TRY(CGP__NEW(executor->ends, plan->n_edges, "pipeline"));
    return cgp__injected_faults_read(executor);
}

static cgp_status start_workers(cgp__executor *executor) {
    CGP_TRY(cgp__team_reserve(executor->team, executor->plan->n_devices));
    for (int d = 0; d < executor->plan->n_devices; d++) {
        executor->workers[d].executor = executor;
        executor->workers[d].index = d;
        CGP_TRY(cgp__team_add(executor->team, &executor->workers[d]));
    }
    return CGP_OK;
}

/* Return whether the threads of all devices have cores of their own. */
static bool all_have_cores(const cgp__executor *executor) {
    for (int d = 0; d < executor->plan->n_devices; d++) {
        const cgp__worker *worker = &executor->workers[d];
        if (!cgp__backend_of(worker)->has_cores(worker->device)) return false;
    }
    return true;
}

static cgp_status open_links(cgp__executor *executor) {
    const cgp_plan *plan = executor->plan;
    const int64_t spin_ns = all_have_cores(executor) ? SPIN_NS : 0;
    CGP_TRY(cgp__inproc_create(&executor->inproc));
    for (int k = 0; k < 2 * plan->n_edges; k++) {
        const cgp__edge_plan *edge = &plan->edges[k / 2];
        const cgp__worker *sender =
            &executor->workers[plan->stages[edge->edge.from].info.device];
        cgp__end *end = &executor->ends[k / 2][k % 2];
        end->transport = &cgp__transport_inproc;
        end->communicator = executor->inproc;
        end->memory = (edge->in_host ? sender->host : sender->memory) + edge->offset;
        const cgp_link_options options = {.struct_size = sizeof options,
                                          .edge = k / 2,
                                          .sends = k % 2 == 0,
                                          .capacity = edge->capacity,
                                          .bytes = edge->bytes,
                                          .memory = k % 2 == 0 ? end->memory : NULL,
                                          .spin_ns = spin_ns};
        CGP_TRY(end->transport->link_open(end->communicator, &options, &end->link));
    }
    return CGP_OK;
}

cgp_status cgp__executor_start(cgp__executor *executor) {
    CGP_TRY(start_workers(executor));
    CGP_TRY(cgp__team_run_untimed(executor->team, cgp__job_create_device, NULL));
    return open_links(executor);
}

void cgp__executor_deinit(cgp__executor *executor) {
    for (int k = 0; executor->ends && k < 2 * executor->plan->n_edges; k++) {
        const cgp__end *end = &executor->ends[k / 2][k % 2];
        if (end->link) end->transport->link_close(end->link);
    }
    if (executor->inproc) cgp__transport_inproc.communicator_destroy(executor->inproc);
    for (int i = 0; i < executor->n_runs; i++)
        cgp__run_destroy(executor, executor->runs[i]);
    free(executor->report);
    free(executor->faults);
    free(executor->losses);
    free(executor->rows);
    free(executor->runs);
    free(executor->ends);
    free(executor->workers);
}

/* Write the rows of step values. */
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
    executor->context = *context;
    fill_rows(executor, context);
    executor->run_start_ns = cgp__now_ns();
    for (int d = 0; d < executor->plan->n_devices; d++)
        executor->workers[d].trace_start = cgp__trace_written(&executor->workers[d].trace);
    const cgp_status status = cgp__team_run(executor->team, cgp__job_run, &executor->context);
    if (status != CGP_OK) cgp__team_fail(executor->team);
    return status;
}
