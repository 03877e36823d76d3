/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c -- create, configure and destroy a pipeline. */
#include "pipeline/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define LONGEST_TIMEOUT 1e9 /* seconds; more is none */

cgp_status cgp_pipeline_check_memory(const cgp_plan *plan, int64_t *available) {
    CGP__NEED(plan);
    char needed[32], left[32];
    int64_t planned = 0;
    for (int d = 0; d < plan->n_devices; d++)
        planned += plan->devices[d].info.planned_bytes;
    const int64_t now = cgp__memory_available();
    if (available) *available = now;
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT,
                    "memory: the plan needs %s but the machine has %s available (%s)",
                    cgp_bytes_text(planned, needed, sizeof needed),
                    cgp_bytes_text(now, left, sizeof left), cgp__plan_advice(plan));
}

cgp_status cgp__pipeline_check_process(const cgp_pipeline *pipeline, const char *function) {
    if (pipeline->process == getpid()) return CGP_OK;
    return cgp_fail(
        CGP_ESTATE,
        "%s: pipeline: expected a call of process %ld, which made it, got one of %ld "
        "(after a fork make another one)",
        function, (long)pipeline->process, (long)getpid());
}

cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline) {
    if (pipeline->team.failed)
        return cgp_fail(CGP_ESTATE, "pipeline: has failed and can only be destroyed (%s)",
                        pipeline->team.failure);
    return CGP_OK;
}

static cgp_status build(cgp_pipeline *pipeline, const cgp_plan *plan, uint64_t seed) {
    cgp__executor *executor = &pipeline->executor;
    const cgp__run *run = NULL;
    CGP_TRY(cgp__executor_init(executor, plan, &pipeline->team));
    CGP_TRY(cgp__step_init(&pipeline->step, executor, seed));
    CGP_TRY(cgp_pipeline_check_memory(plan, NULL));
    CGP_TRY(cgp__executor_start(executor));
    CGP_TRY(cgp__team_run_untimed(&pipeline->team, cgp__job_initialize, &pipeline->step.seed));
    return cgp__run_find(executor, plan->batch, plan->inference, &run);
}

cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed) {
    CGP__NEED(out);
    CGP__NEED(plan);
    cgp_pipeline *pipeline = NULL;
    CGP_TRY(CGP__NEW(pipeline, 1, "pipeline"));
    pipeline->process = getpid();
    pipeline->plan = plan;
    pipeline->step.gradient_norm = pipeline->step.norm = NAN;
    cgp__team_init(&pipeline->team, &cgp__watchdog, &pipeline->executor);
    const cgp_status status = build(pipeline, plan, seed);
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
    if (all_idle || !team->stuck_shares_memory)
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
