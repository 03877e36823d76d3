/* SPDX-License-Identifier: Apache-2.0 */
/* bind.c -- binds the devices' action lists to mini-batches of N samples on first use, and keeps
 * the bound lists for later runs. A bound list has the slots, samples and kernels of each
 * action. */
#include "pipeline/run/bind.h"

#include "model/model.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/kernels.h"
#include "pipeline/run/ranks.h"
#include "pipeline/team/team.h"
#include "plan/actions.h"
#include "plan/memory/devices.h"
#include "plan/messages.h"

#include <limits.h>
#include <stdlib.h>

struct cgp__runs {
    cgp__run **runs; /* [n] one run for each kind of mini-batch */
    int n, capacity;
};

static void destroy(const cgp__executor *executor, cgp__run *run) {
    if (!run) return;
    for (int d = 0; run->lists && d < cgp_plan_devices(executor->plan); d++)
        cgp__list_release(&run->lists[d]);
    free(run->lists);
    cgp_schedule_destroy(run->schedule);
    free(run);
}

void cgp__runs_destroy(cgp__executor *executor) {
    struct cgp__runs *all = executor->runs;
    for (int i = 0; all && i < all->n; i++)
        destroy(executor, all->runs[i]);
    if (all) free(all->runs);
    free(all);
    executor->runs = NULL;
}

/* Check by simulation that the schedule completes with the planned buffers. */
static cgp_status check_buffers(const cgp_plan *plan, const cgp_schedule *schedule) {
    int *capacity = cgp__calloc((size_t)cgp_plan_edges(plan), sizeof *capacity);
    if (!capacity) return cgp__no_memory("lists", (size_t)cgp_plan_edges(plan) * sizeof *capacity);
    for (int e = 0; e < cgp_plan_edges(plan); e++)
        capacity[e] = cgp__plan_edge(plan, e)->capacity;
    const cgp_schedule_costs costs = {.capacity = capacity};
    cgp_schedule_timeline timeline = {0};
    const cgp_status status = cgp_schedule_simulate(schedule, &costs, &timeline);
    cgp_schedule_timeline_release(&timeline);
    free(capacity);
    return status;
}

/* Reserve space for the losses of the whole mini-batch, and for the per-step constants of the run's
 * micro-batches. */
static cgp_status grow_tables(cgp__executor *executor, const cgp__minibatch *m) {
    const cgp_plan *plan = executor->plan;
    const int64_t losses = (int64_t)cgp__whole_chunks(m) * executor->model->n_losses,
                  rows = m->chunks * cgp__plan_device(plan, 0)->step.row_bytes;
    if (losses > INT_MAX / 2 || rows > INT_MAX / 2 ||
        !cgp__grow(&executor->losses, &executor->losses_capacity, (int)losses,
                   sizeof *executor->losses) ||
        !cgp__grow(&executor->rows, &executor->rows_capacity, (int)rows, 1))
        return cgp__no_memory("losses", (size_t)losses * sizeof(double) + (size_t)rows);
    return CGP_OK;
}

/* Make a run on this rank. The caller then agrees on the status with the other ranks. After a
 * failure, *out may be NULL or incomplete, and the caller destroys it. */
static cgp_status make_run(cgp__executor *executor, cgp__minibatch minibatch, cgp__run **out) {
    const cgp_plan *plan = executor->plan;
    if (!executor->runs) CGP_TRY(CGP__NEW(executor->runs, 1, "lists"));
    struct cgp__runs *all = executor->runs;
    if (!cgp__grow(&all->runs, &all->capacity, all->n + 1, sizeof *all->runs))
        return cgp__no_memory("lists", sizeof *all->runs);
    CGP_TRY(CGP__NEW(*out, 1, "lists"));
    cgp__run *run = *out;
    cgp__minibatch *m = &run->minibatch;
    *m = minibatch;
    const int64_t chunks = cgp__ceil_div(m->samples, cgp_plan_microbatch(plan));
    if (chunks > INT_MAX / 2)
        return cgp_fail(CGP_EINVAL, "mini-batch: %lld samples are more than a list can hold",
                        (long long)m->samples);
    m->chunks = (int)chunks;
    run->lists = cgp__calloc((size_t)cgp_plan_devices(plan), sizeof *run->lists);
    if (!run->lists)
        return cgp__no_memory("lists", (size_t)cgp_plan_devices(plan) * sizeof *run->lists);
    if (m->chunks == 0) return grow_tables(executor, m); /* a replica without micro-batches */
    CGP_TRY(cgp__plan_make_schedule(plan, m->chunks, m->forward_only, &run->schedule));
    cgp_status status = check_buffers(plan, run->schedule);
    for (int d = executor->ranks->first; d < executor->ranks->end && status == CGP_OK; d++)
        status = cgp__plan_bind(plan, run->schedule, *m, d, &run->lists[d]);
    if (status == CGP_OK)
        status = cgp__team_run_untimed(executor->team, cgp__job_bind_kernels, run);
    return status == CGP_OK ? grow_tables(executor, m) : status;
}

cgp_status cgp__run_find(cgp__executor *executor, cgp__minibatch minibatch, const cgp__run **out) {
    for (int i = 0; executor->runs && i < executor->runs->n; i++) {
        const cgp__minibatch *m = &executor->runs->runs[i]->minibatch;
        if (m->samples == minibatch.samples && m->of_samples == minibatch.of_samples &&
            m->forward_only == minibatch.forward_only && m->adds == minibatch.adds) {
            *out = executor->runs->runs[i];
            return CGP_OK;
        }
    }
    cgp__run *run = NULL;
    const cgp_status status =
        cgp__ranks_agree(executor->ranks, make_run(executor, minibatch, &run));
    if (status != CGP_OK) {
        destroy(executor, run);
        return status;
    }
    executor->runs->runs[executor->runs->n++] = run;
    *out = run;
    return CGP_OK;
}
