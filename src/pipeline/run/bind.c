/* SPDX-License-Identifier: Apache-2.0 */
/* bind.c -- action lists for mini-batches of N samples, with slots, samples and kernels filled in; made on first use, then
 * kept. */
#include "pipeline/run/run.h"
#include "plan/actions.h"
#include "plan/memory/slots.h"

#include <limits.h>
#include <stdlib.h>

const cgp__program *cgp__stage_program(const cgp__stage_plan *stage, int program) {
    const cgp__program *const all[CGP__PROGRAMS] = {&stage->forward_nosave, &stage->forward,
                                                    &stage->recompute, &stage->backward};
    return all[program];
}

void cgp__run_destroy(const cgp__executor *executor, cgp__run *run) {
    if (!run) return;
    for (int d = 0; run->lists && d < executor->plan->n_devices; d++)
        free(run->lists[d].actions);
    free(run->lists);
    free(run);
}

/* A run uses at most the planned slots; more is a bug of this library, reported before anything runs. */
static cgp_status check_counts(const cgp_plan *plan, const int *inputs, const int *saved) {
    for (int j = 0; j < plan->n_stages; j++) {
        const cgp_plan_stage *stage = &plan->stages[j].info;
        if (inputs[j] > stage->input_slots || saved[j] > stage->saved_slots)
            return cgp_fail(
                CGP_EDEVICE,
                "stage %d: a list needs %d input and %d saved slots, planned are %d and %d", j,
                inputs[j], saved[j], stage->input_slots, stage->saved_slots);
    }
    return CGP_OK;
}

/* Return the program that F of a micro-batch runs. Without backward nothing needs saving, but a plan that never recomputes
 * has no forward_nosave program and uses forward, with any saved slot. */
static int forward_program(const cgp_plan *plan, const cgp__run *run, bool recomputed) {
    const bool has_forward_nosave = plan->inference || plan->recomputes;
    return has_forward_nosave && (run->forward_only || recomputed) ? CGP__FORWARD_NOSAVE
                                                                   : CGP__FORWARD_SAVED;
}

/* Flags of a list, up to the current action. [stages]: a forward has begun; a backward's input half; its weight half.
 * [stages x chunks]: an R, so the micro-batch's F saves nothing. */
typedef struct marks {
    bool *begun_forward, *begun_input, *begun_weight, *recomputed;
} marks;

static bool *recomputed_mark(const marks *m, const cgp__run *run, const cgp_action *action) {
    return &m->recomputed[(size_t)action->stage * (size_t)run->chunks +
                          (size_t)action->microbatch];
}

static bool first_time(bool *begun) {
    const bool first = !*begun;
    *begun = true;
    return first;
}

/* Bind the range of calls, and the flags that make the first action of its kind write instead of add. */
static void bind_calls(const cgp_plan *plan, cgp__bound_action *bound, const marks *m) {
    const int stage = bound->action.stage;
    const cgp__program *program = cgp__stage_program(&plan->stages[stage], bound->program);
    const bool halves =
        bound->action.kind == CGP_ACTION_I || bound->action.kind == CGP_ACTION_W;
    bound->begin = bound->action.kind == CGP_ACTION_W ? program->n_input : 0;
    bound->end = bound->action.kind == CGP_ACTION_I ? program->n_input : program->n;
    if (bound->action.kind == CGP_ACTION_F) {
        bound->first = first_time(&m->begun_forward[stage]);
    } else if (bound->action.kind == CGP_ACTION_B || halves) {
        if (bound->action.kind != CGP_ACTION_W)
            bound->first = first_time(&m->begun_input[stage]);
        if (bound->action.kind != CGP_ACTION_I)
            bound->first_weight = first_time(&m->begun_weight[stage]);
    }
}

static void bind_action(const cgp_plan *plan, const cgp__run *run, cgp__bound_action *bound,
                        const marks *m) {
    const cgp_action *action = &bound->action;
    bound->first_sample = action->microbatch * plan->microbatch;
    bound->samples = run->samples - bound->first_sample < plan->microbatch
                         ? run->samples - bound->first_sample
                         : plan->microbatch;
    switch (action->kind) {
    case CGP_ACTION_F:
    case CGP_ACTION_SEND_F:
        bound->program = forward_program(plan, run, *recomputed_mark(m, run, action));
        if (bound->program == CGP__FORWARD_SAVED && run->forward_only) bound->saved_slot = 0;
        break;
    case CGP_ACTION_R:
        bound->program = CGP__RECOMPUTE;
        break;
    default:
        bound->program = CGP__BACKWARD; /* also of SEND_B; RECVs have one destination */
        break;
    }
    bind_calls(plan, bound, m);
}

static bool is_forward(cgp_action_kind kind) {
    return kind == CGP_ACTION_F || kind == CGP_ACTION_SEND_F || kind == CGP_ACTION_RECV_F;
}

static cgp_status bind_device(const cgp_plan *plan, const cgp_schedule *schedule, cgp__run *run,
                              int d) {
    int n = 0;
    const cgp_action *actions = cgp_schedule_actions(schedule, d, &n);
    cgp__list *list = &run->lists[d];
    const size_t stages = (size_t)plan->n_stages;
    int *numbers = cgp__calloc(2 * (size_t)n + 2 * stages, sizeof *numbers);
    bool *flags = cgp__calloc(3 * stages + stages * (size_t)run->chunks, sizeof *flags);
    marks m = {0};
    if (flags) m = (marks){flags, flags + stages, flags + 2 * stages, flags + 3 * stages};
    list->actions = cgp__calloc((size_t)n, sizeof *list->actions);
    list->n = n;
    cgp_status status = CGP_OK;
    if (!numbers || !flags || !list->actions)
        status = cgp__no_memory("list", (size_t)n * sizeof *list->actions);
    if (status == CGP_OK)
        status = cgp__plan_slots(plan, schedule, d, numbers, numbers + n, numbers + 2 * n,
                                 numbers + 2 * n + stages);
    if (status == CGP_OK)
        status = check_counts(plan, numbers + 2 * n, numbers + 2 * n + stages);
    for (int i = 0; status == CGP_OK && i < n; i++) {
        if (actions[i].kind == CGP_ACTION_R) *recomputed_mark(&m, run, &actions[i]) = true;
        list->actions[i].action = actions[i];
        list->actions[i].input_slot = numbers[i];
        list->actions[i].saved_slot = numbers[n + i];
    }
    for (int i = 0; status == CGP_OK && i < n; i++)
        bind_action(plan, run, &list->actions[i], &m);
    while (list->n_forward < n && is_forward(actions[list->n_forward].kind))
        list->n_forward++;
    free(flags);
    free(numbers);
    return status;
}

/* The list runs to its end with the planned buffers. */
static cgp_status check_buffers(const cgp_plan *plan, const cgp_schedule *schedule) {
    int *capacity = cgp__calloc((size_t)plan->n_edges, sizeof *capacity);
    if (!capacity) return cgp__no_memory("lists", (size_t)plan->n_edges * sizeof *capacity);
    for (int e = 0; e < plan->n_edges; e++)
        capacity[e] = plan->edges[e].capacity;
    const cgp_schedule_costs costs = {.capacity = capacity};
    cgp_schedule_timeline timeline = {0};
    const cgp_status status = cgp_schedule_simulate(schedule, &costs, &timeline);
    cgp_schedule_timeline_release(&timeline);
    free(capacity);
    return status;
}

static cgp_status make_run(cgp__executor *executor, cgp__run *run) {
    const cgp_plan *plan = executor->plan;
    const int64_t chunks = (run->samples + plan->microbatch - 1) / plan->microbatch;
    if (chunks > INT_MAX / 2)
        return cgp_fail(CGP_EINVAL, "mini-batch: %lld samples are more than a list can hold",
                        (long long)run->samples);
    run->chunks = (int)chunks;
    run->lists = cgp__calloc((size_t)plan->n_devices, sizeof *run->lists);
    if (!run->lists)
        return cgp__no_memory("lists", (size_t)plan->n_devices * sizeof *run->lists);
    cgp_schedule *schedule = NULL;
    CGP_TRY(cgp__plan_make_schedule(plan, run->chunks, run->forward_only, &schedule));
    cgp_status status = check_buffers(plan, schedule);
    for (int d = 0; d < plan->n_devices && status == CGP_OK; d++)
        status = bind_device(plan, schedule, run, d);
    cgp_schedule_destroy(schedule);
    if (status == CGP_OK)
        status = cgp__team_run_untimed(executor->team, cgp__job_bind_kernels, run);
    const int64_t losses = (int64_t)run->chunks * plan->model->n_losses;
    if (status == CGP_OK &&
        (losses > INT_MAX / 2 || !cgp__grow(&executor->losses, &executor->losses_capacity,
                                            (int)losses, sizeof(double))))
        status = cgp__no_memory("losses", (size_t)losses * sizeof(double));
    return status;
}

cgp_status cgp__run_find(cgp__executor *executor, int64_t samples, bool forward_only,
                         const cgp__run **out) {
    for (int i = 0; i < executor->n_runs; i++) {
        if (executor->runs[i]->samples == samples &&
            executor->runs[i]->forward_only == forward_only) {
            *out = executor->runs[i];
            return CGP_OK;
        }
    }
    if (!cgp__grow(&executor->runs, &executor->runs_capacity, executor->n_runs + 1,
                   sizeof *executor->runs))
        return cgp__no_memory("lists", sizeof *executor->runs);
    cgp__run *run = cgp__calloc(1, sizeof *run);
    if (!run) return cgp__no_memory("lists", sizeof *run);
    run->samples = samples;
    run->forward_only = forward_only;
    const cgp_status status = make_run(executor, run);
    if (status != CGP_OK) {
        cgp__run_destroy(executor, run);
        return status;
    }
    executor->runs[executor->n_runs++] = run;
    *out = run;
    return CGP_OK;
}
