/* SPDX-License-Identifier: Apache-2.0 */
/* query.c -- the public getters of a plan. */
#include "plan/plan.h"

const cgp__program *cgp__stage_program(const cgp__stage_plan *stage, int program) {
    const cgp__program *const all[CGP__PROGRAMS] = {&stage->forward_nosave, &stage->forward,
                                                    &stage->recompute, &stage->backward};
    return all[program];
}

int cgp_plan_stages(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->n_stages;
}

int cgp_plan_devices(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->n_devices;
}

int64_t cgp_plan_microbatch(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->microbatch;
}

int cgp_plan_chunks(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->chunks;
}

const cgp_plan_stage *cgp_plan_stage_at(const cgp_plan *plan, int stage) {
    CGP__NEED_OR(plan, NULL);
    return stage >= 0 && stage < plan->n_stages ? &plan->stages[stage].info : NULL;
}

const cgp_plan_device *cgp_plan_device_at(const cgp_plan *plan, int device) {
    CGP__NEED_OR(plan, NULL);
    return device >= 0 && device < plan->n_devices ? &plan->devices[device].info : NULL;
}

int cgp_plan_output_stage(const cgp_plan *plan, int output) {
    CGP__NEED_OR(plan, -1);
    return output >= 0 && output < plan->model->n_outputs ? plan->outputs[output].stage : -1;
}

const int *cgp_plan_balance(const cgp_plan *plan) {
    CGP__NEED_OR(plan, NULL);
    return plan->balance;
}

const cgp_schedule *cgp_plan_schedule(const cgp_plan *plan) {
    CGP__NEED_OR(plan, NULL);
    return plan->schedule;
}

const cgp_schedule_timeline *cgp_plan_timeline(const cgp_plan *plan) {
    CGP__NEED_OR(plan, NULL);
    return &plan->timeline;
}

int cgp_plan_edges(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return plan->n_edges;
}

cgp_plan_edge cgp_plan_edge_at(const cgp_plan *plan, int edge) {
    CGP__NEED_OR(plan, (cgp_plan_edge){0});
    if (edge < 0 || edge >= plan->n_edges) return (cgp_plan_edge){0};
    const cgp__edge_plan *e = &plan->edges[edge];
    return (cgp_plan_edge){e->edge.from, e->edge.to, e->bytes, e->capacity};
}
