/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c -- creates, configures and destroys pipelines. */
#include "pipeline/pipeline.h"

#include "pipeline/alive.h"
#include "pipeline/requests.h"
#include "pipeline/crew.h"
#include "pipeline/memory.h"
#include "pipeline/replay.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/clocks.h"
#include "pipeline/run/device.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/places.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/shared_edges.h"
#include "pipeline/run/watchdog.h"
#include "pipeline/sharing.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"
#include "plan/links.h"
#include "plan/memory/devices.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "plan/setup.h"
#include "plugin/find.h"
#include "transport/heartbeat.h"

#define LONGEST_TIMEOUT 1e9 /* in seconds; a timeout of this length or longer means no timeout */

/* A pipeline and its parts, in one allocation. It stays allocated if a worker hangs, because the
 * worker may still touch any of the parts. */
typedef struct whole {
    cgp_pipeline pipeline;
    cgp__ranks ranks;
    cgp__team team;
    cgp__executor executor;
    cgp__step step;
} whole;

/* Create a pipeline and set *out. If memory runs out, leave *out unchanged. */
static cgp_status make(cgp_pipeline **out) {
    whole *w = NULL;
    CGP_TRY(CGP__NEW(w, 1, "pipeline"));
    w->pipeline = (cgp_pipeline){
        .ranks = &w->ranks, .team = &w->team, .executor = &w->executor, .step = &w->step};
    *out = &w->pipeline;
    return CGP_OK;
}

/* Allocate the parts of a pipeline. `owner` is the pipeline whose memory this pipeline shares, or
 * NULL. */
static cgp_status allocate(cgp_pipeline *pipeline, const cgp_plan *plan, uint64_t seed,
                           const cgp_transport *transport, cgp_communicator *communicator,
                           cgp_pipeline *owner) {
    cgp__executor *executor = pipeline->executor;
    pipeline->process = getpid();
    pipeline->plan = plan;
    pipeline->setup = cgp__plan_setup(plan);
    pipeline->model = pipeline->setup->model;
    pipeline->n_ranks = pipeline->setup->ranks * pipeline->setup->replicas;
    pipeline->step->gradient_norm = NAN;
    cgp__team_init(pipeline->team, &cgp__watchdog, executor);
    CGP_TRY(cgp__ranks_init(pipeline->ranks, plan, transport, communicator));
    pipeline->rank = pipeline->ranks->rank;
    CGP_TRY(cgp__executor_init(executor, plan, pipeline->team, pipeline->ranks));
    pipeline->measured = executor->measured;
    CGP_TRY(cgp__step_init(pipeline->step, plan, seed));
    if (owner) executor->owner = owner->executor;
    if (owner) pipeline->step->shared = owner->step->shared;
    if (executor->lender) return CGP_OK; /* the lender has allocated all memory */
    return cgp__memory_check_hardware(plan, pipeline->rank, owner != NULL);
}

/* Unless a rank has failed, exchange the number of bytes that each device has allocated. */
static cgp_status share_bytes(cgp__executor *executor, cgp_status status) {
    const cgp_plan *plan = executor->plan;
    int64_t *bytes = executor->ranks->figures;
    if (!executor->ranks->transport) return status;
    status = cgp__ranks_agree(executor->ranks, status);
    for (int d = 0; d < cgp_plan_devices(plan) && status == CGP_OK; d++)
        bytes[d] = executor->measured[d].bytes;
    if (status == CGP_OK)
        status = cgp__ranks_share_devices(executor->ranks, plan, bytes, sizeof *bytes);
    for (int d = 0; d < cgp_plan_devices(plan) && status == CGP_OK; d++)
        executor->measured[d].bytes = bytes[d];
    return status;
}

/* Compare the plans of all ranks, exchange the placement of ranks, and check the memory. This
 * happens before memory is allocated and kernels are created. */
static cgp_status agree(cgp_pipeline *pipeline) {
    cgp__ranks *ranks = pipeline->ranks;
    CGP_TRY(cgp__ranks_compare(ranks, pipeline->plan, pipeline->step->seed));
    CGP_TRY(cgp__ranks_exchange_places(ranks));
    if (!pipeline->executor->lender)
        CGP_TRY(cgp__memory_check_hosts(ranks, pipeline->plan, pipeline->executor->owner != NULL));
    return cgp__clocks_read(ranks);
}

static cgp_status build(cgp_pipeline *pipeline) {
    cgp__executor *executor = pipeline->executor;
    const cgp__run *run = NULL;
    CGP_TRY(agree(pipeline));
    cgp_status status = cgp__executor_start(executor);
    if (status == CGP_OK && !executor->owner && !executor->lender)
        status = cgp__team_run_untimed(pipeline->team, cgp__job_initialize, &pipeline->step->seed);
    CGP_TRY(share_bytes(executor, status));
    CGP_TRY(cgp__shared_edges_open(executor));
    /* A transport may write to the buffers of an open link. If they are in borrowed memory, links
     * are open only while this pipeline runs (replay.c). */
    if (!executor->lender || !pipeline->ranks->transport)
        CGP_TRY(cgp__ranks_agree(pipeline->ranks, cgp__link_ends_open(executor)));
    cgp__minibatch full =
        cgp__plan_share(pipeline->plan, pipeline->setup->batch, pipeline->ranks->replica);
    full.forward_only = pipeline->setup->inference;
    return cgp__run_find(executor, full, &run);
}

cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed) {
    return cgp_pipeline_create_on(out, plan, seed, NULL, NULL);
}

cgp_status cgp_transport_find(const cgp_transport **out, const char *name) {
    CGP__NEED(out);
    CGP__NEED(name);
    return cgp__transport_find(name, out);
}

/* Replicas are threads of this process if the plan has no other ranks. */
static cgp_status check_crew(const cgp_plan *plan) {
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp__device_plan *device = cgp__plan_device(plan, d);
        if (!device->backend->host_addressable)
            return cgp_fail(CGP_EINVAL,
                            "device %s: %d replicas in one process need devices that use the "
                            "host's memory (cpu), or a process for each replica",
                            device->info.name, cgp__plan_setup(plan)->replicas);
    }
    return CGP_OK;
}

static void end_crew(cgp__crew *crew, int replicas) {
    bool all_rest = true;
    (void)cgp__crew_request(crew, &(cgp__request){.kind = CGP__REQUEST_REST});
    for (int r = 0; r < replicas; r++)
        all_rest = all_rest && cgp__crew_member(crew, r)->rests;
    (void)cgp__crew_request(crew, &(cgp__request){.kind = CGP__REQUEST_DESTROY, .at = all_rest});
    cgp__crew_destroy(crew);
}

static cgp_status create_replicas(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed) {
    const int replicas = cgp__plan_setup(plan)->replicas;
    const cgp__request call = {.kind = CGP__REQUEST_CREATE, .in = plan, .at = (int64_t)seed};
    cgp__crew *crew = NULL;
    char message[1024];
    CGP_TRY(check_crew(plan));
    CGP_TRY(cgp__crew_create(&crew, replicas, cgp__request_on));
    const cgp_status status = cgp__crew_request(crew, &call);
    if (status == CGP_OK) {
        *out = cgp__crew_member(crew, 0)->pipeline;
        (*out)->crew = crew;
        return CGP_OK;
    }
    snprintf(message, sizeof message, "%s", cgp_message());
    end_crew(crew, replicas);
    return cgp_fail(status, "%s", message);
}

/* An operation may fail on one rank only. So all ranks agree on the result of each such operation
 * before any rank waits for another. */
cgp_status cgp_pipeline_create_on(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed,
                                  const cgp_transport *transport, cgp_communicator *communicator) {
    if (transport) CGP__NEED(communicator);
    if (out && plan && !transport && cgp__plan_setup(plan)->replicas > 1 &&
        cgp__plan_setup(plan)->ranks == 1)
        return create_replicas(out, plan, seed);
    cgp_pipeline *pipeline = NULL;
    cgp_status status = !out    ? cgp__missing(__func__, "out")
                        : !plan ? cgp__missing(__func__, "plan")
                                : make(&pipeline);
    if (status == CGP_OK) status = allocate(pipeline, plan, seed, transport, communicator, NULL);
    if (pipeline && pipeline->ranks->reports)
        status = cgp__ranks_agree(pipeline->ranks, status);
    else if (transport)
        transport->failures.fail(communicator, status, cgp_message());
    if (status == CGP_OK) status = build(pipeline);
    if (status == CGP_OK)
        *out = pipeline;
    else
        cgp_pipeline_destroy(pipeline);
    return status;
}

/* Derive the seed of a pipeline that shares memory from the seed of the memory's owner. Both
 * pipelines use the same step numbers, but their dropout masks must differ. */
static uint64_t sharer_seed(cgp_pipeline *owner) {
    const uint64_t key[2] = {owner->step->seed, (uint64_t)++owner->sharers};
    return cgp__hash(key, sizeof key);
}

cgp_status cgp_pipeline_create_sharing(cgp_pipeline **out, const cgp_plan *plan,
                                       cgp_pipeline *owner) {
    CGP__NEED(out);
    CGP__NEED(plan);
    CGP__NEED(owner);
    CGP_TRY(cgp__pipeline_check_process(owner, __func__));
    CGP_TRY(cgp__pipeline_check_alive(owner));
    if (owner->crew)
        return cgp_fail(CGP_EINVAL,
                        "sharing: expected an owner with 1 replica in this process, got %d, whose "
                        "memory is not one",
                        owner->setup->replicas);
    CGP_TRY(cgp__sharing_check(plan, owner->plan));
    cgp_pipeline *pipeline = NULL;
    CGP_TRY(make(&pipeline));
    cgp_status status = allocate(pipeline, plan, sharer_seed(owner), NULL, NULL, owner);
    if (status == CGP_OK) status = build(pipeline);
    if (status == CGP_OK)
        *out = pipeline;
    else
        cgp_pipeline_destroy(pipeline);
    return status;
}

/* Make a pipeline that borrows memory. */
static cgp_status allocate_lent(cgp_pipeline **out, const cgp_pipeline *lender, int layout,
                                const cgp_transport *transport, cgp_communicator *communicator) {
    CGP_TRY(make(out));
    cgp__executor *executor = (*out)->executor;
    executor->lender = lender->executor;
    executor->layout = executor->replay = layout;
    CGP_TRY(allocate(*out, lender->plan, lender->step->seed, transport, communicator, NULL));
    executor->ipc = false; /* the memory's handles are those of the lender's allocations */
    return CGP_OK;
}

cgp_status cgp__pipeline_create_lent(cgp_pipeline **out, const cgp_pipeline *lender, int layout,
                                     const cgp_transport *transport,
                                     cgp_communicator *communicator) {
    cgp_pipeline *pipeline = NULL;
    cgp_status status = allocate_lent(&pipeline, lender, layout, transport, communicator);
    status = cgp__ranks_agree(lender->ranks, status);
    if (status == CGP_OK) status = build(pipeline);
    if (status == CGP_OK)
        *out = pipeline;
    else if (pipeline)
        (void)cgp__pipeline_destroy(pipeline);
    return status;
}

bool cgp__pipeline_destroy(cgp_pipeline *pipeline) {
    cgp__team *team = pipeline->team;
    const bool all_idle = cgp__team_release(team);
    if (all_idle) cgp__link_ends_close(pipeline->executor);
    if (all_idle) cgp__shared_edges_close(pipeline->executor);
    if (all_idle || (!team->stuck_shares_memory && !pipeline->ranks->transport))
        (void)cgp__team_run_untimed(team, cgp__job_destroy_device, NULL);
    cgp__team_stop(team);
    if (!all_idle) return false; /* a worker hangs: keep all memory that it may touch (team.c) */
    cgp__executor_deinit(pipeline->executor);
    cgp__ranks_deinit(pipeline->ranks);
    cgp__step_deinit(pipeline->step);
    cgp__team_deinit(team);
    free(pipeline); /* the pipeline is the first member of `whole`, so this frees all parts */
    return true;
}

void cgp_pipeline_destroy(cgp_pipeline *pipeline) {
    if (!pipeline || pipeline->process != getpid())
        return; /* free nothing in a child process: the workers belong to the parent process */
    if (pipeline->crew && !cgp__crew_is_calling(pipeline->crew)) {
        end_crew(pipeline->crew, pipeline->setup->replicas);
        return;
    }
    cgp__replay *replay = pipeline->replay;
    const bool all_idle = cgp__replay_stop(replay);
    if (!all_idle) pipeline->executor->keeps = true;
    if (cgp__pipeline_destroy(pipeline) && all_idle) cgp__replay_free(replay);
}

cgp_rank_info cgp_pipeline_rank(const cgp_pipeline *pipeline, int rank) {
    const cgp_rank_info none = {NULL, NULL};
    CGP__PIPELINE_OR(pipeline, none);
    const cgp__ranks *ranks = pipeline->ranks;
    if (rank < 0 || rank >= ranks->n) return none;
    return (cgp_rank_info){ranks->places[rank].host, ranks->places[rank].cores};
}

const char *cgp_pipeline_isa(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NULL);
    return cgp__isa_name(pipeline->ranks->isa);
}

const char *cgp_pipeline_edge_path(const cgp_pipeline *pipeline, int edge) {
    CGP__PIPELINE_OR(pipeline, NULL);
    const cgp_plan *plan = pipeline->plan;
    if (edge < 0 || edge >= cgp_plan_edges(plan) || !cgp__plan_links(plan)->list[edge].receives)
        return NULL;
    return pipeline->executor->shares[edge] ? "device memory" : "host memory";
}

const char *cgp_pipeline_libm(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NULL);
    const cgp__ranks *ranks = pipeline->ranks;
    return ranks->places[ranks->rank].libm;
}

cgp_status cgp_pipeline_set_timeout(cgp_pipeline *pipeline, double seconds) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_TIMEOUT, .number = seconds);
    if (!isfinite(seconds) || seconds < 0)
        return cgp_fail(CGP_EINVAL, "timeout: expected seconds > 0, got %g (0 is for no timeout)",
                        seconds);
    const cgp__ranks *ranks = pipeline->ranks;
    const int64_t timeout_ns = seconds < LONGEST_TIMEOUT ? (int64_t)ceil(seconds * 1e9) : 0;
    pipeline->team->timeout_ns = timeout_ns;
    if (!ranks->transport) return CGP_OK;
    pipeline->team->look_ns = cgp__heartbeat_interval(timeout_ns);
    CGP_TRY(cgp__ranks_agree(ranks, CGP_OK)); /* wait for all ranks, so that all of them start to
                                               * watch for failures at the same time */
    const cgp_status status =
        cgp__ranks_agree(ranks, ranks->transport->failures.watch(ranks->communicator, timeout_ns));
    if (status != CGP_OK)
        (void)ranks->transport->failures.watch(ranks->communicator, 0); /* the call has failed on
                                                                         * all ranks, so all of them
                                                                         * stop */
    return status;
}

const char *cgp_pipeline_report(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NULL);
    for (int r = 1; pipeline->crew && !pipeline->executor->report && r < pipeline->setup->replicas;
         r++) {
        const char *report = cgp__crew_member(pipeline->crew, r)->pipeline->executor->report;
        if (report) return report;
    }
    return pipeline->executor->report ? pipeline->executor->report : "";
}
