/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c -- create, configure and destroy a pipeline. */
#include "pipeline/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugin/find.h"

#define LONGEST_TIMEOUT 1e9 /* seconds; more is none */

/* The devices of this rank fit the memory that is there. */
static cgp_status check_memory_here(const cgp__ranks *ranks, const cgp_plan *plan,
                                    int64_t *available) {
    char needed[32], left[32];
    int64_t planned = 0;
    for (int d = ranks->first; d < ranks->end; d++)
        planned += plan->devices[d].info.planned_bytes + plan->devices[d].info.host_bytes;
    const int64_t now = cgp__memory_available();
    if (available) *available = now;
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT,
                    "memory: the plan needs %s but the machine has %s available (%s)",
                    cgp_bytes_text(planned, needed, sizeof needed),
                    cgp_bytes_text(now, left, sizeof left), cgp__plan_advice(plan));
}

cgp_status cgp_pipeline_check_memory(const cgp_plan *plan, int64_t *available) {
    CGP__NEED(plan);
    const cgp__ranks all = {.end = plan->n_devices};
    return check_memory_here(&all, plan, available);
}

static cgp_status allocate(cgp_pipeline *pipeline, const cgp_plan *plan, uint64_t seed,
                           const cgp_transport *transport, cgp_communicator *communicator) {
    cgp__executor *executor = &pipeline->executor;
    CGP_TRY(cgp__executor_init(executor, plan, &pipeline->team, transport, communicator));
    CGP_TRY(cgp__step_init(&pipeline->step, executor, seed));
    return check_memory_here(&executor->ranks, plan, NULL);
}

/* Bytes that the devices of all ranks have allocated, if all ranks could. */
static cgp_status share_bytes(cgp__executor *executor, cgp_status status) {
    const cgp_plan *plan = executor->plan;
    int64_t *bytes = NULL;
    if (!executor->ranks.transport) return status;
    if (status == CGP_OK) status = CGP__NEW(bytes, plan->n_devices, "pipeline");
    status = cgp__ranks_agree(&executor->ranks, status);
    for (int d = 0; d < plan->n_devices && status == CGP_OK; d++)
        bytes[d] = executor->workers[d].bytes;
    if (status == CGP_OK)
        status = cgp__ranks_share_devices(&executor->ranks, plan, bytes, sizeof *bytes);
    for (int d = 0; d < plan->n_devices && status == CGP_OK; d++)
        executor->workers[d].bytes = bytes[d];
    free(bytes);
    return status;
}

static cgp_status build(cgp_pipeline *pipeline) {
    cgp__executor *executor = &pipeline->executor;
    const cgp_plan *plan = pipeline->plan;
    const cgp__run *run = NULL;
    CGP_TRY(cgp__ranks_compare(&executor->ranks, plan));
    cgp_status status = cgp__executor_start(executor);
    if (status == CGP_OK)
        status =
            cgp__team_run_untimed(&pipeline->team, cgp__job_initialize, &pipeline->step.seed);
    CGP_TRY(share_bytes(executor, status));
    return cgp__run_find(executor, plan->batch, plan->inference, &run);
}

cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed) {
    return cgp_pipeline_create_on(out, plan, seed, NULL, NULL);
}

cgp_status cgp_transport_find(const cgp_transport **out, const char *name) {
    CGP__NEED(out);
    CGP__NEED(name);
    return cgp__transport_find(name, out);
}

/* Agree on all that can fail on one rank alone before anything waits for another. */
cgp_status cgp_pipeline_create_on(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed,
                                  const cgp_transport *transport,
                                  cgp_communicator *communicator) {
    CGP__NEED(out);
    CGP__NEED(plan);
    if (transport) CGP__NEED(communicator);
    cgp_pipeline *pipeline = NULL;
    CGP_TRY(CGP__NEW(pipeline, 1, "pipeline"));
    pipeline->process = getpid();
    pipeline->plan = plan;
    pipeline->step.gradient_norm = pipeline->step.norm = NAN;
    cgp__team_init(&pipeline->team, &cgp__watchdog, &pipeline->executor);
    cgp_status status = allocate(pipeline, plan, seed, transport, communicator);
    if (pipeline->executor.ranks.reports)
        status = cgp__ranks_agree(&pipeline->executor.ranks, status);
    else if (transport)
        transport->fail(communicator, status, cgp_message());
    if (status == CGP_OK) status = build(pipeline);
    if (status == CGP_OK)
        *out = pipeline;
    else
        cgp_pipeline_destroy(pipeline);
    return status;
}

void cgp_pipeline_destroy(cgp_pipeline *pipeline) {
    if (!pipeline || pipeline->process != getpid())
        return; /* the workers are those of the parent process */
    cgp__team *team = &pipeline->team;
    const bool all_idle = cgp__team_release(team);
    if (all_idle) cgp__executor_close_links(&pipeline->executor);
    if (all_idle || (!team->stuck_shares_memory && !pipeline->executor.ranks.transport))
        (void)cgp__team_run_untimed(team, cgp__job_destroy_device, NULL);
    cgp__team_stop(team);
    if (!all_idle) return; /* a worker hangs: what it may touch stays (team.c) */
    cgp__executor_deinit(&pipeline->executor);
    cgp__step_deinit(&pipeline->step);
    cgp__team_deinit(team);
    free(pipeline);
}

cgp_status cgp_pipeline_set_timeout(cgp_pipeline *pipeline, double seconds) {
    CGP__PIPELINE(pipeline);
    if (!isfinite(seconds) || seconds < 0)
        return cgp_fail(CGP_EINVAL,
                        "timeout: expected seconds > 0, got %g (0 is for no timeout)", seconds);
    pipeline->team.timeout_ns = seconds < LONGEST_TIMEOUT ? (int64_t)ceil(seconds * 1e9) : 0;
    return CGP_OK;
}

const char *cgp_pipeline_report(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NULL);
    return pipeline->executor.report ? pipeline->executor.report : "";
}
