/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c -- create, configure and destroy a pipeline. */
#include "pipeline/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugin/find.h"

#define LONGEST_TIMEOUT 1e9 /* seconds; more is none */

/* Devices of a plan that one host has: `begin` .. `end` - 1. */
typedef struct block {
    int begin, end;
} block;

/* Bytes of the host's memory that they need: all of a device that shares it, of others what they need besides. */
static int64_t host_bytes(const cgp_plan *plan, block devices) {
    int64_t bytes = 0;
    for (int d = devices.begin; d < devices.end; d++) {
        bytes += plan->devices[d].info.host_bytes;
        if (plan->devices[d].backend->host_addressable)
            bytes += plan->devices[d].info.planned_bytes;
    }
    return bytes;
}

static cgp_status check_host(const cgp_plan *plan, block devices, int64_t *available) {
    char needed[32], left[32];
    const int64_t planned = host_bytes(plan, devices), now = cgp__memory_available();
    if (available) *available = now;
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT,
                    "memory: the plan needs %s but the machine has %s available (%s)",
                    cgp_bytes_text(planned, needed, sizeof needed),
                    cgp_bytes_text(now, left, sizeof left), cgp__plan_advice(plan));
}

/* Check the memory of the hardware that device d is on, for all devices on it; at the first of them. */
static cgp_status check_hardware(const cgp_plan *plan, block devices, int d) {
    const cgp__device_plan *first = &plan->devices[d];
    char needed[32], left[32];
    int64_t planned = 0, now = 0;
    for (int e = devices.begin; e < devices.end; e++) {
        const cgp__device_plan *device = &plan->devices[e];
        if (device->backend != first->backend || device->info.ordinal != first->info.ordinal)
            continue;
        if (e < d) return CGP_OK;
        planned += device->info.planned_bytes;
    }
    CGP_TRY(first->backend->memory(first->info.ordinal, &now));
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT, "memory: the plan needs %s but %s %d has %s available (%s)",
                    cgp_bytes_text(planned, needed, sizeof needed), first->backend->name,
                    first->info.ordinal, cgp_bytes_text(now, left, sizeof left),
                    cgp__plan_advice(plan));
}

static cgp_status check_devices(const cgp_plan *plan, block devices) {
    for (int d = devices.begin; d < devices.end; d++) {
        if (!plan->devices[d].backend->host_addressable)
            CGP_TRY(check_hardware(plan, devices, d));
    }
    return CGP_OK;
}

/* The devices of the rank after another. */
static block next_rank(const cgp_plan *plan, block before) {
    block next = {before.end, before.end};
    while (next.end < plan->n_devices &&
           plan->devices[next.end].info.rank == plan->devices[next.begin].info.rank)
        next.end++;
    return next;
}

cgp_status cgp_pipeline_check_memory(const cgp_plan *plan, int64_t *available) {
    CGP__NEED(plan);
    block most = next_rank(plan, (block){0, 0});
    for (block rank = most; rank.begin < rank.end; rank = next_rank(plan, rank))
        if (host_bytes(plan, rank) > host_bytes(plan, most)) most = rank;
    CGP_TRY(check_host(plan, most, available));
    for (block rank = next_rank(plan, (block){0, 0}); rank.begin < rank.end;
         rank = next_rank(plan, rank))
        CGP_TRY(check_devices(plan, rank));
    return CGP_OK;
}

static cgp_status allocate(cgp_pipeline *pipeline, const cgp_plan *plan, uint64_t seed,
                           const cgp_transport *transport, cgp_communicator *communicator) {
    cgp__executor *executor = &pipeline->executor;
    pipeline->process = getpid();
    pipeline->plan = plan;
    pipeline->step.gradient_norm = pipeline->step.norm = NAN;
    cgp__team_init(&pipeline->team, &cgp__watchdog, executor);
    CGP_TRY(cgp__executor_init(executor, plan, &pipeline->team, transport, communicator));
    CGP_TRY(cgp__step_init(&pipeline->step, executor, seed));
    const block own = {executor->ranks.first, executor->ranks.end};
    CGP_TRY(check_host(plan, own, NULL));
    return check_devices(plan, own);
}

/* Bytes that the devices of all ranks have allocated, if all ranks could. */
static cgp_status share_bytes(cgp__executor *executor, cgp_status status) {
    const cgp_plan *plan = executor->plan;
    int64_t *bytes = executor->ranks.figures;
    if (!executor->ranks.transport) return status;
    status = cgp__ranks_agree(&executor->ranks, status);
    for (int d = 0; d < plan->n_devices && status == CGP_OK; d++)
        bytes[d] = executor->workers[d].bytes;
    if (status == CGP_OK)
        status = cgp__ranks_share_devices(&executor->ranks, plan, bytes, sizeof *bytes);
    for (int d = 0; d < plan->n_devices && status == CGP_OK; d++)
        executor->workers[d].bytes = bytes[d];
    return status;
}

static cgp_status build(cgp_pipeline *pipeline) {
    cgp__executor *executor = &pipeline->executor;
    const cgp_plan *plan = pipeline->plan;
    const cgp__run *run = NULL;
    CGP_TRY(cgp__ranks_compare(&executor->ranks, plan, pipeline->step.seed));
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
    if (transport) CGP__NEED(communicator);
    cgp_pipeline *pipeline = NULL;
    cgp_status status = !out    ? cgp__missing(__func__, "out")
                        : !plan ? cgp__missing(__func__, "plan")
                                : CGP__NEW(pipeline, 1, "pipeline");
    if (status == CGP_OK) status = allocate(pipeline, plan, seed, transport, communicator);
    if (pipeline && pipeline->executor.ranks.reports)
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
    const cgp__ranks *ranks = &pipeline->executor.ranks;
    const int64_t timeout_ns = seconds < LONGEST_TIMEOUT ? (int64_t)ceil(seconds * 1e9) : 0;
    pipeline->team.timeout_ns = timeout_ns;
    if (!ranks->transport) return CGP_OK;
    pipeline->team.look_ns = cgp_beat_interval(timeout_ns);
    CGP_TRY(cgp__ranks_agree(ranks, CGP_OK)); /* to begin together */
    return ranks->transport->watch(ranks->communicator, timeout_ns);
}

const char *cgp_pipeline_report(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NULL);
    return pipeline->executor.report ? pipeline->executor.report : "";
}
