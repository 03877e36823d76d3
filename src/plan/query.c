/* SPDX-License-Identifier: Apache-2.0 */
/* query.c -- getters of a plan: public getters, and getters that other modules use to read the
 * plan's parts. */
#include "plan/plan.h"

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/owners.h"

int cgp_plan_stages(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->placement.n_stages;
}

int cgp_plan_devices(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->placement.n_devices;
}

int64_t cgp_plan_microbatch(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->setup.microbatch;
}

int cgp_plan_parameter_group(const cgp_plan *plan, int parameter) {
    CGP__NEED_OR(plan, -1);
    if (parameter < 0 || parameter >= plan->setup.model->n_params) return -1;
    return cgp__group_of(&plan->setup.groups, parameter) - 1;
}

int cgp_plan_chunks(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->setup.whole_chunks;
}

const cgp_plan_stage *cgp_plan_stage_at(const cgp_plan *plan, int stage) {
    CGP__NEED_OR(plan, NULL);
    return stage >= 0 && stage < plan->placement.n_stages ? &plan->placement.stages[stage].info
                                                          : NULL;
}

const cgp_plan_device *cgp_plan_device_at(const cgp_plan *plan, int device) {
    CGP__NEED_OR(plan, NULL);
    return device >= 0 && device < plan->placement.n_devices ? &plan->placement.devices[device].info
                                                             : NULL;
}

int cgp_plan_output_stage(const cgp_plan *plan, int output) {
    CGP__NEED_OR(plan, -1);
    return output >= 0 && output < plan->setup.model->n_outputs
               ? plan->results.outputs[output].stage
               : -1;
}

const int *cgp_plan_balance(const cgp_plan *plan) {
    CGP__NEED_OR(plan, NULL);
    return plan->placement.balance;
}

const cgp_schedule *cgp_plan_schedule(const cgp_plan *plan) {
    CGP__NEED_OR(plan, NULL);
    return plan->actions.schedule;
}

const cgp_schedule_timeline *cgp_plan_timeline(const cgp_plan *plan) {
    CGP__NEED_OR(plan, NULL);
    return &plan->actions.timeline;
}

int cgp_plan_edges(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->messages.n_edges;
}

cgp_plan_edge cgp_plan_edge_at(const cgp_plan *plan, int edge) {
    CGP__NEED_OR(plan, (cgp_plan_edge){0});
    if (edge < 0 || edge >= plan->messages.n_edges) return (cgp_plan_edge){0};
    const cgp__edge_plan *e = &plan->messages.edges[edge];
    return (cgp_plan_edge){e->edge.from, e->edge.to, e->bytes, e->capacity};
}

/* --- parts --- */

#define PART(name)                                                                                 \
    const cgp__##name *cgp__plan_##name(const cgp_plan *plan) {                                    \
        return &plan->name;                                                                        \
    }
PART(setup)
PART(parameters)
PART(states)
PART(packings)
PART(results)
PART(links)

const cgp__stage_plan *cgp__plan_stage(const cgp_plan *plan, int stage) {
    return &plan->placement.stages[stage];
}

const cgp__device_plan *cgp__plan_device(const cgp_plan *plan, int device) {
    return &plan->placement.devices[device];
}

int cgp__plan_device_of(const cgp_plan *plan, int node) {
    return cgp__device_of(&plan->placement, node);
}

bool cgp__plan_is_on(const cgp_plan *plan, int device, int rank) {
    return plan->placement.devices[device].info.rank == rank % plan->setup.ranks;
}

const cgp__copy *cgp__owner_of(const cgp_plan *plan, int parameter) {
    return &plan->parameters.copies[plan->parameters.first_copy[parameter]];
}

const cgp__layout *cgp__plan_layout(const cgp_plan *plan, int layout) {
    return &plan->replays.layouts[layout];
}

const cgp__edge_plan *cgp__plan_edge(const cgp_plan *plan, int edge) {
    return &plan->messages.edges[edge];
}
