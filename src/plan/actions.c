/* SPDX-License-Identifier: Apache-2.0 */
/* actions.c -- makes a plan's table, lowers it to a schedule, and counts the slots and buffers that
 * the schedule needs.
 *
 *     placement    the device of each stage, before the stages are made
 *     table        compute actions, made after the stages, because generators may need costs of F,
 *                  I and W
 *     schedule     the table with recomputations and transfers, checked */
#include "plan/actions.h"

#include <stdlib.h>

#include "model/model.h"
#include "plan/memory/slots.h"
#include "plan/plan.h"
#include "schedule/gradient_groups.h"
#include "schedule/table.h"

/* --- placement --- */

/* Validate the user's table and copy it. */
static cgp_status use_table(cgp_plan *plan, const cgp_plan_options *o) {
    const cgp_schedule *table = o->table;
    if (o->inference)
        return cgp_fail(CGP_EINVAL, "schedule %s: expected no table for inference, got one",
                        table->name);
    if (o->schedule || o->virtual_stages || o->group || o->in_flight)
        return cgp_fail(CGP_EINVAL,
                        "schedule %s: expected no other schedule, virtual_stages, group "
                        "or in_flight beside a table",
                        table->name);
    if (o->stages != table->devices)
        return cgp_fail(CGP_EINVAL, "stages: expected %d, the devices of schedule %s, got %d",
                        table->devices, table->name, o->stages);
    if (plan->setup.chunks != table->chunks)
        return cgp_fail(CGP_EINVAL,
                        "schedule %s: has %d micro-batches, but %lld samples in %d chunks are "
                        "%d of %lld (another batch or number of chunks)",
                        table->name, table->chunks, (long long)o->batch, o->chunks,
                        plan->setup.chunks, (long long)plan->setup.microbatch);
    cgp_schedule *copy = cgp__copy_lowered(table);
    if (!copy) return CGP_ENOMEM;
    cgp_status status = cgp_schedule_check(copy, NULL);
    cgp_schedule_destroy(copy);
    CGP_TRY(status);
    if (!cgp__has_backward(table))
        return cgp_fail(CGP_EINVAL, "schedule %s: expected a backward to train with, got none",
                        table->name);
    if (plan->setup.gradient_groups > 1 && !cgp__schedule_backward_ascends(table))
        return cgp_fail(CGP_EINVAL,
                        "schedule %s: does not run the backward of each stage in ascending order "
                        "of micro-batch, which %d gradient groups need (1 group, or another "
                        "schedule)",
                        table->name, plan->setup.gradient_groups);
    if (!cgp__schedule_ascends(table))
        cgp_log(CGP_LOG_WARN, "plan",
                "schedule %s does not run the micro-batches of each stage in ascending order: "
                "its results equal those of others up to rounding only",
                table->name);
    plan->setup.splits = cgp__has_kind(table, CGP_ACTION_I);
    plan->setup.recomputes = plan->setup.recomputes || cgp__has_kind(table, CGP_ACTION_R);
    return cgp__schedule_part(&plan->actions.table, table, plan->setup.chunks);
}

const char *cgp__schedule_name_of(const cgp_plan_options *o) {
    if (o->schedule) return o->schedule;
    return o->inference ? "forward-only" : o->external_loss ? "gpipe" : "1f1b";
}

/* Make a table with the generator's placement. cgp_schedule_create() rejects an unknown schedule
 * name and suggests the nearest known name. */
static cgp_status use_generator(cgp_plan *plan, const cgp_plan_options *o) {
    const cgp_schedule_info *info = cgp_schedule_info_find(cgp__schedule_name_of(o));
    if (info && info->has_backward && o->inference)
        return cgp_fail(CGP_EINVAL,
                        "schedule: expected none or forward-only for inference, got \"%s\"",
                        info->name);
    if (info && !info->has_backward && !o->inference)
        return cgp_fail(CGP_EINVAL,
                        "schedule: expected one with a backward to train with, got \"%s\" "
                        "(gpipe or 1f1b)",
                        info->name);
    cgp_schedule_options options = cgp_schedule_options_default();
    options.virtual_stages = o->virtual_stages;
    if (info && o->virtual_stages == 0) options.virtual_stages = info->virtual_stages;
    if (info) options.placement = info->placement;
    plan->setup.splits = info && info->splits_backward;
    return cgp_schedule_create(&plan->actions.table,
                               info ? "forward-only" : cgp__schedule_name_of(o), o->stages, 1,
                               &options);
}

int cgp_plan_options_gradient_groups(const cgp_plan_options *options) {
    CGP__NEED_OR(options, 0);
    const int replicas = options->replicas;
    int groups = 1;
    while (replicas > 1 && 2 * groups <= 8 && options->chunks % (2 * groups) == 0)
        groups *= 2;
    while (groups < replicas && groups < CGP__MAX_GRADIENT_GROUPS)
        groups *= 2;
    return groups;
}

int cgp_plan_options_stages(const cgp_plan_options *options) {
    CGP__NEED_OR(options, 0);
    const cgp_plan_options *o = options;
    if (o->table) return o->table->stages;
    const cgp_schedule_info *info = cgp_schedule_info_find(cgp__schedule_name_of(o));
    const int v = o->virtual_stages ? o->virtual_stages : info ? info->virtual_stages : 1;
    return o->stages * v;
}

cgp_status cgp__place_stages(cgp_plan *plan, const cgp_plan_options *o) {
    const int layers = plan->setup.model->n_layers;
    if (o->stages < 1 || o->stages > layers)
        return cgp_fail(CGP_EINVAL, "stages: expected 1 to %d (the number of layers), got %d",
                        layers, o->stages);
    CGP_TRY(o->table ? use_table(plan, o) : use_generator(plan, o));
    const int stages = cgp_schedule_stages(plan->actions.table);
    if (stages <= layers) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "stages: expected at most %d (the number of layers) on all devices, got %d "
                    "on %d",
                    layers, stages, cgp_schedule_devices(plan->actions.table));
}

/* --- table --- */

/* Return the FLOPs of each stage as an array [6][stages]. The six rows are F, I, W, R, the addition
 * of partial sums after I, and the addition of partial sums after W. */
static double *stage_costs(const cgp_plan *plan) {
    const size_t n = (size_t)plan->placement.n_stages;
    double *costs = cgp__calloc(6 * n, sizeof *costs);
    for (size_t j = 0; costs && j < n; j++) {
        const cgp_plan_stage *stage = &plan->placement.stages[j].info;
        costs[j] = stage->forward_flops;
        costs[n + j] = stage->backward_flops - stage->weight_flops;
        costs[2 * n + j] = stage->weight_flops;
        costs[3 * n + j] = stage->recompute_flops;
        costs[4 * n + j] = (double)plan->placement.stages[j].input_gradients;
        costs[5 * n + j] = (double)plan->placement.stages[j].weight_gradients;
    }
    return costs;
}

/* Return true if stage `j` receives a gradient, sends a gradient, or makes a gradient for the
 * caller. */
static bool has_gradient(const cgp_plan *plan, int j) {
    const cgp__messages *m = &plan->messages;
    for (int s = m->first_stage_edge[j]; s < m->first_stage_edge[j + 1]; s++) {
        const cgp_edge *edge = &m->edges[m->stage_edges[s]].edge;
        if (edge->from > edge->to) return true;
    }
    for (int k = 0; k < plan->setup.model->n_inputs; k++) {
        if (plan->results.input_gradients[k].stage == j) return true;
    }
    return false;
}

static cgp_stage_backward backward_of(const cgp_plan *plan, int j) {
    const cgp__program *backward = &plan->placement.stages[j].programs[CGP__BACKWARD];
    if (backward->n == 0 && !has_gradient(plan, j)) return CGP_BACKWARD_NONE;
    return backward->n_input < backward->n || !plan->setup.splits ? CGP_BACKWARD_FULL
                                                                  : CGP_BACKWARD_INPUT;
}

/* Check that the caller's table has every action that the stage must run. */
static cgp_status check_stage(const cgp_schedule *table, int j, cgp_stage_backward backward) {
    bool has[CGP__COMPUTE_KINDS] = {false};
    int n = 0;
    const cgp_action *actions = cgp_schedule_actions(table, cgp_schedule_device_of(table, j), &n);
    for (int i = 0; i < n; i++) {
        if (actions[i].stage == j) has[actions[i].kind] = true;
    }
    const bool lacks = backward == CGP_BACKWARD_FULL && has[CGP_ACTION_I] && !has[CGP_ACTION_W];
    if (backward == CGP_BACKWARD_NONE || (!lacks && (has[CGP_ACTION_B] || has[CGP_ACTION_I])))
        return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "schedule %s: stage %d has %s, expected %s of each micro-batch, got none "
                    "(freeze its parameters to leave it out)",
                    cgp_schedule_name(table), j,
                    lacks ? "parameters to train" : "a gradient to compute",
                    lacks ? "W" : "a backward");
}

/* Remove from the plan's table the actions that have nothing to compute. */
static cgp_status freeze_table(cgp_plan *plan, const cgp_plan_options *o) {
    const int n = plan->placement.n_stages;
    cgp_stage_backward *stages = NULL;
    if (plan->setup.inference) return CGP_OK;
    CGP_TRY(CGP__NEW(stages, n, "plan: stages"));
    cgp_status status = CGP_OK;
    for (int j = 0; j < n && status == CGP_OK; j++) {
        stages[j] = backward_of(plan, j);
        if (o->table) status = check_stage(plan->actions.table, j, stages[j]);
    }
    if (status == CGP_OK) status = cgp_schedule_freeze(plan->actions.table, stages);
    free(stages);
    return status;
}

cgp_status cgp__generate_table(const cgp__setup *setup, const cgp_plan_options *o,
                               const double *costs, cgp_schedule **out) {
    const size_t n = (size_t)cgp_plan_options_stages(o);
    cgp_schedule_options options = cgp_schedule_options_default();
    options.virtual_stages = o->virtual_stages;
    options.group = o->group;
    options.in_flight = o->in_flight;
    if (costs) {
        options.forward = costs;
        options.backward_input = costs + n;
        options.backward_weight = costs + 2 * n;
    }
    cgp_schedule *schedule = NULL;
    CGP_TRY(cgp_schedule_create(&schedule, cgp__schedule_name_of(o), o->stages, setup->chunks,
                                &options));
    const cgp_status status = cgp__schedule_part(out, schedule, setup->chunks);
    cgp_schedule_destroy(schedule);
    return status;
}

/* The plan's first table was made only for the placement. Replace it with the final table, which is
 * generated for `costs`. */
static cgp_status generate(cgp_plan *plan, const cgp_plan_options *o, const double *costs) {
    cgp_schedule_destroy(plan->actions.table);
    plan->actions.table = NULL;
    return cgp__generate_table(&plan->setup, o, costs, &plan->actions.table);
}

/* --- schedule --- */

/* Return the number of micro-batches in a forward group. It is the number of devices or, if that is
 * less, the smallest number of buffers of a forward edge. */
static int forward_group(const cgp_plan *plan) {
    int group = plan->placement.n_devices;
    for (int e = 0; e < plan->messages.n_edges; e++) {
        const cgp__edge_plan *edge = &plan->messages.edges[e];
        if (edge->edge.from < edge->edge.to && edge->capacity > 0)
            group = cgp__min(group, edge->capacity);
    }
    return group;
}

cgp_status cgp__plan_make_schedule(const cgp_plan *plan, int chunks, bool forward_only,
                                   cgp_schedule **out) {
    /* A smaller mini-batch recomputes the same micro-batches as the full mini-batch. So its action
     * lists are parts of the planned action lists, and they can use the planned slots. */
    const cgp_schedule *full = plan->actions.schedule;
    cgp_schedule *schedule = NULL;
    CGP_TRY(forward_only
                ? cgp__schedule_forward(&schedule, plan->actions.table, chunks, forward_group(plan))
                : cgp__schedule_part(&schedule, full ? full : plan->actions.table, chunks));
    cgp_edge *edges = cgp__calloc((size_t)plan->messages.n_edges, sizeof *edges);
    cgp_status status =
        edges ? CGP_OK
              : cgp__no_memory("plan: edges", (size_t)plan->messages.n_edges * sizeof *edges);
    for (int e = 0; edges && e < plan->messages.n_edges; e++)
        edges[e] = plan->messages.edges[e].edge;
    if (status == CGP_OK && !forward_only && !full && plan->setup.recompute != CGP_RECOMPUTE_NEVER)
        status = cgp_schedule_recompute(schedule, plan->setup.recompute);
    if (status == CGP_OK) status = cgp_schedule_lower(schedule, edges, plan->messages.n_edges);
    if (status == CGP_OK) status = cgp_schedule_check(schedule, NULL);
    free(edges);
    if (status == CGP_OK)
        *out = schedule;
    else
        cgp_schedule_destroy(schedule);
    return status;
}

/* Place the slots of all devices. */
static cgp_status place_slots(cgp_plan *plan) {
    for (int d = 0; d < plan->placement.n_devices; d++)
        CGP_TRY(cgp__place_slots(&plan->placement, plan->actions.schedule, d));
    return CGP_OK;
}

/* Simulate with `capacity`. If the simulated step takes at most as long as the plan's timeline,
 * replace the plan's timeline and return true. */
static bool is_as_fast(cgp_plan *plan, const cgp_schedule_costs *costs, const int *capacity) {
    cgp_schedule_costs bounded = *costs;
    cgp_schedule_timeline timeline, *planned = &plan->actions.timeline;
    bounded.capacity = capacity;
    if (cgp_schedule_simulate(plan->actions.schedule, &bounded, &timeline) != CGP_OK) return false;
    if (timeline.makespan > planned->makespan * (1 + 1e-9)) {
        cgp_schedule_timeline_release(&timeline);
        return false;
    }
    cgp_schedule_timeline_release(planned);
    *planned = timeline;
    return true;
}

/* A stage without backward waits for no gradient, so it could run ahead of later stages by the
 * whole mini-batch. Give each edge out of such a stage the smallest number of buffers (2, 4, 8 ..)
 * that does not make the simulated step longer. `capacity`, `most`: [edges] scratch. */
static cgp_status bound_forward_stages(cgp_plan *plan, const cgp_schedule_costs *costs,
                                       int *capacity, int *most) {
    cgp__edge_plan *edges = plan->messages.edges;
    cgp_action_kind *ends = NULL;
    const int n = plan->messages.n_edges;
    bool any = false;
    CGP_TRY(cgp__stage_ends(plan->actions.schedule, &ends));
    for (int e = 0; e < n; e++) {
        const bool ahead = ends[edges[e].edge.from] == CGP_ACTION_F && !plan->setup.inference;
        capacity[e] = most[e] = edges[e].capacity;
        if (ahead) capacity[e] = 2;
        any = any || capacity[e] < most[e];
    }
    free(ends);
    while (any && !is_as_fast(plan, costs, capacity)) {
        any = false;
        for (int e = 0; e < n; e++) {
            capacity[e] = (int)cgp__min(2 * (int64_t)capacity[e], most[e]);
            any = any || capacity[e] < most[e];
        }
    }
    for (int e = 0; e < n; e++)
        edges[e].capacity = capacity[e];
    return CGP_OK;
}

/* Simulate the step with FLOPs as costs. Give each edge so many buffers that no sender blocks, but
 * at least 2. Where no sender blocks, there is no deadlock. */
static cgp_status size_transfers(cgp_plan *plan, const double *costs) {
    const size_t n = (size_t)plan->placement.n_stages;
    const cgp_schedule_costs given = {.forward = costs,
                                      .backward_input = costs + n,
                                      .backward_weight = costs + 2 * n,
                                      .recompute = costs + 3 * n,
                                      .add_input = costs + 4 * n,
                                      .add_weight = costs + 5 * n,
                                      .gradient_groups =
                                          plan->setup.gradient_groups / plan->setup.replicas};
    CGP_TRY(cgp_schedule_simulate(plan->actions.schedule, &given, &plan->actions.timeline));
    for (int e = 0; e < plan->messages.n_edges; e++) {
        const int max = plan->actions.timeline.free_capacity[e];
        plan->messages.edges[e].capacity = max > 2 ? max : 2;
    }
    int *capacity = NULL;
    CGP_TRY(CGP__NEW(capacity, 2 * plan->messages.n_edges, "plan: edges"));
    const cgp_status status =
        bound_forward_stages(plan, &given, capacity, capacity + plan->messages.n_edges);
    free(capacity);
    return status;
}

cgp_status cgp__make_actions(cgp_plan *plan, const cgp_plan_options *o) {
    double *costs = stage_costs(plan);
    cgp_status status =
        costs ? CGP_OK
              : cgp__no_memory("plan: costs", 6 * (size_t)plan->placement.n_stages * sizeof *costs);
    if (status == CGP_OK && !o->table) status = generate(plan, o, costs);
    if (status == CGP_OK) status = freeze_table(plan, o);
    if (status == CGP_OK && o->external_loss && !cgp__schedule_forward_first(plan->actions.table))
        status = cgp_fail(CGP_EINVAL,
                          "schedule: an external loss needs all forwards before the first "
                          "backward: expected gpipe, looped-bfs or looped-bfs-zb, got \"%s\"",
                          cgp_schedule_name(plan->actions.table));
    if (status == CGP_OK)
        status = cgp__plan_make_schedule(plan, plan->setup.chunks, plan->setup.inference,
                                         &plan->actions.schedule);
    if (status == CGP_OK) status = place_slots(plan);
    if (status == CGP_OK) status = size_transfers(plan, costs);
    free(costs);
    return status;
}
