/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c -- simulates a step of a plan with given costs of layers and messages. */
#include <cgpipe/planner.h>

#include <stdlib.h>

#include "model/backward.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/plan.h"

/* Return the costs [layers] of all layers on the device of a stage. */
static const cgp_layer_cost *row_of_stage(const cgp_plan *plan, const cgp__device_costs *costs,
                                          int stage) {
    const int device = plan->placement.stages[stage].info.device;
    const size_t row = costs->row_of ? (size_t)costs->row_of[device] : 0;
    return costs->rows + row * (size_t)plan->setup.model->n_layers;
}

/* Add the time of recomputation within a stage's backward to the times of I and W. For each layer,
 * multiply the forward time by the share of forward FLOPs that run again. `all` [layers]: FLOPs of
 * forward. */
static void add_recomputed(const cgp_plan *plan, int j, const cgp_layer_cost *costs,
                           const double *all, double *times) {
    const cgp_model *model = plan->setup.model;
    const cgp__program *backward = &plan->placement.stages[j].programs[CGP__BACKWARD];
    for (int i = 0; i < backward->n; i++) {
        const cgp__call *call = &backward->calls[i];
        if (call->node < 0 || call->direction != CGP_OP_FORWARD) continue;
        const cgp__node *node = &model->nodes[call->node];
        const double flops = cgp__node_flops(model, node, CGP_OP_FORWARD);
        if (flops > 0)
            times[(i < backward->n_input ? 1 : 2) * cgp_plan_stages(plan) + j] +=
                costs[node->layer].forward_seconds * flops / all[node->layer];
    }
}

/* Add the recomputation that mode `budget` has chosen. */
static cgp_status add_budget(const cgp_plan *plan, const cgp__device_costs *costs, double *times) {
    const cgp_model *model = plan->setup.model;
    double *all = NULL;
    if (!plan->setup.recomputed) return CGP_OK;
    CGP_TRY(CGP__NEW(all, model->n_layers, "plan: simulation"));
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        const int layer = node->use.op->is_loss ? model->n_layers - 1 : node->layer;
        all[layer] += cgp__node_flops(model, node, CGP_OP_FORWARD);
    }
    for (int j = 0; j < cgp_plan_stages(plan); j++)
        add_recomputed(plan, j, row_of_stage(plan, costs, j), all, times);
    free(all);
    return CGP_OK;
}

/* Set times[4][stages] to the times of F, I, W and R. */
static void add_times(const cgp_plan *plan, const cgp__device_costs *costs, double *times) {
    const int n = cgp_plan_stages(plan);
    const bool selective = cgp_recompute_is_selective(plan->setup.recompute);
    for (int j = 0; j < n; j++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        for (int i = stage->first_layer; i < stage->first_layer + stage->layers; i++) {
            const cgp_layer_cost *c = &row_of_stage(plan, costs, j)[i];
            times[j] += c->forward_seconds;
            times[n + j] += c->input_seconds + (selective ? c->selective_seconds : 0);
            times[2 * n + j] += c->weight_seconds;
            times[3 * n + j] += c->recompute_seconds;
        }
    }
}

/* Set times[2][stages] to the times of an addition of partial sums: after I, and after W. Additions
 * and updates both move data at the speed of memory, so one time follows from the other. An
 * addition reads two numbers and writes one; cgp__update_passes() counts the numbers that an update
 * reads and writes. */
static void add_additions(const cgp_plan *plan, const cgp__device_costs *costs, double *times) {
    const int n = cgp_plan_stages(plan);
    for (int j = 0; j < n; j++) {
        const cgp__stage_plan *stage = &plan->placement.stages[j];
        const cgp_layer_cost *row = &row_of_stage(plan, costs, j)[stage->info.first_layer];
        double update = 0;
        for (int i = 0; i < stage->info.layers; i++)
            update += row[i].update_seconds;
        const double all = (double)(stage->input_gradients + stage->weight_gradients),
                     seconds = update * 3 / cgp__update_passes(&plan->setup.optim);
        times[j] = all > 0 ? seconds * (double)stage->input_gradients / all : 0;
        times[n + j] = all > 0 ? seconds * (double)stage->weight_gradients / all : 0;
    }
}

/* Set latency[edges] and transfer[edges]. */
static void add_messages(const cgp_plan *plan, const cgp_message_costs *costs, double *latency,
                         double *transfer) {
    const int devices = cgp_plan_devices(plan);
    for (int e = 0; e < cgp_plan_edges(plan); e++) {
        const cgp_plan_edge edge = cgp_plan_edge_at(plan, e);
        const int from = cgp_plan_stage_at(plan, edge.from)->device;
        const int to = cgp_plan_stage_at(plan, edge.to)->device;
        if (costs->latency_seconds && from != to) {
            const size_t link = (size_t)from * (size_t)devices + (size_t)to;
            latency[e] = costs->latency_seconds[link];
            transfer[e] = (double)edge.bytes / costs->bytes_per_second[link];
        } else if (costs->copy_bytes_per_second > 0) {
            latency[e] = (double)edge.bytes / costs->copy_bytes_per_second;
        }
    }
}

/* Return the update time of the slowest device, in seconds. With a sharded optimizer, a replica
 * updates 1/R of the parameters. */
static double slowest_update(const cgp_plan *plan, const cgp__device_costs *costs) {
    double slowest = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        double sum = 0;
        for (int k = 0; k < device->stages; k++) {
            const cgp_plan_stage *stage = cgp_plan_stage_at(plan, device->stage_list[k]);
            const cgp_layer_cost *row = row_of_stage(plan, costs, device->stage_list[k]);
            for (int i = 0; i < stage->layers; i++)
                sum += row[stage->first_layer + i].update_seconds;
        }
        slowest = sum > slowest ? sum : slowest;
    }
    return plan->setup.shards ? slowest / plan->setup.replicas : slowest;
}

cgp_status cgp_plan_simulate(const cgp_plan *plan, const cgp_layer_cost *costs, const int *row_of,
                             const cgp_message_costs *messages, cgp_schedule_timeline *timeline,
                             double *update) {
    CGP__NEED(plan);
    CGP__NEED(costs);
    CGP__NEED(timeline);
    const cgp__device_costs by_device = {costs, row_of, cgp_plan_devices(plan)};
    CGP_TRY(cgp__check_row_of(row_of, by_device.devices));
    const size_t n = (size_t)cgp_plan_stages(plan), edges = (size_t)cgp_plan_edges(plan);
    double *times = cgp__calloc(6 * n + 2 * edges, sizeof *times);
    int *buffers = cgp__calloc(edges + 1, sizeof *buffers);
    cgp_status status =
        times && buffers ? CGP_OK : cgp__no_memory("plan: simulation", 6 * n * sizeof *times);
    if (status == CGP_OK) {
        double *latency = times + 6 * n, *transfer = latency + edges;
        for (int e = 0; e < (int)edges; e++)
            buffers[e] = cgp_plan_edge_at(plan, e).buffers;
        add_times(plan, &by_device, times);
        add_additions(plan, &by_device, times + 4 * n);
        if (messages) add_messages(plan, messages, latency, transfer);
        status = add_budget(plan, &by_device, times);
    }
    if (status == CGP_OK) {
        const double *latency = times + 6 * n, *transfer = latency + edges;
        status = cgp_schedule_simulate(
            plan->actions.schedule,
            &(cgp_schedule_costs){.forward = times,
                                  .backward_input = times + n,
                                  .backward_weight = times + 2 * n,
                                  .recompute = times + 3 * n,
                                  .add_input = times + 4 * n,
                                  .add_weight = times + 5 * n,
                                  .gradient_groups =
                                      plan->setup.gradient_groups / plan->setup.replicas,
                                  .latency = latency,
                                  .transfer = transfer,
                                  .capacity = buffers},
            timeline);
    }
    if (status == CGP_OK && update) *update = slowest_update(plan, &by_device);
    free(buffers);
    free(times);
    return status;
}
