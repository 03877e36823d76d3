/* SPDX-License-Identifier: Apache-2.0 */
/* executor.c -- the life of workers and channels, and one run of their lists. */
#include "pipeline/run/run.h"

#include <stdlib.h>

/* A blocked thread takes 50 us or more to wake, often longer than the message it waits for. Where every device has cores of
 * its own, a waiter spins this long before it blocks. */
#define SPIN_NS 20000000

cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team) {
    executor->plan = plan;
    executor->team = team;
    CGP_TRY(CGP__NEW(executor->workers, plan->n_devices, "pipeline"));
    CGP_TRY(CGP__NEW(executor->channels, plan->n_edges, "pipeline"));
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

static cgp_status create_channels(cgp__executor *executor) {
    const cgp_plan *plan = executor->plan;
    const int64_t spin_ns = cgp__devices_have_cores(plan) ? SPIN_NS : 0;
    for (int e = 0; e < plan->n_edges; e++) {
        const cgp__edge_plan *edge = &plan->edges[e];
        char *memory =
            executor->workers[plan->stages[edge->edge.from].info.device].memory + edge->offset;
        CGP_TRY(cgp__channel_create(&executor->channels[e], memory, edge->bytes, edge->capacity,
                                    spin_ns));
    }
    return CGP_OK;
}

cgp_status cgp__executor_start(cgp__executor *executor) {
    CGP_TRY(start_workers(executor));
    CGP_TRY(cgp__team_run_untimed(executor->team, cgp__job_create_device, NULL));
    return create_channels(executor);
}

void cgp__executor_deinit(cgp__executor *executor) {
    for (int e = 0; executor->channels && e < executor->plan->n_edges; e++)
        cgp__channel_destroy(executor->channels[e]);
    for (int i = 0; i < executor->n_runs; i++)
        cgp__run_destroy(executor, executor->runs[i]);
    free(executor->report);
    free(executor->faults);
    free(executor->losses);
    free(executor->runs);
    free(executor->channels);
    free(executor->workers);
}

cgp_status cgp__executor_run(cgp__executor *executor, const cgp__run_context *context) {
    executor->context = *context;
    executor->run_start_ns = cgp__now_ns();
    for (int d = 0; d < executor->plan->n_devices; d++)
        executor->workers[d].trace_start = cgp__trace_written(&executor->workers[d].trace);
    const cgp_status status = cgp__team_run(executor->team, cgp__job_run, &executor->context);
    if (status != CGP_OK) cgp__team_fail(executor->team);
    return status;
}
