/* SPDX-License-Identifier: Apache-2.0 */
/* step_memory.c -- see step_memory.h. */
#include "plan/memory/step_memory.h"

#include "plan/plan.h"

static int64_t update_bytes(void) {
    return cgp__align_up((int64_t)sizeof(cgp_update_values));
}

static int64_t losses_bytes(const cgp_plan *plan, const cgp__step_memory *m) {
    return cgp__align_up((int64_t)sizeof(double) * m->n_rows * plan->model->n_losses);
}

/* Add one word for the norm of each gradient, and one for each node's accumulator. */
static void count_words(cgp_plan *plan) {
    const cgp_model *model = plan->model;
    for (int p = 0; p < model->n_params; p++)
        plan->devices[plan->copies[plan->first_copy[p]].device].step.n_words++;
    for (int i = 0; i < model->n_nodes; i++) {
        if (plan->accumulator[i] >= 0) plan->devices[cgp__plan_device_of(plan, i)].step.n_words++;
    }
}

void cgp__plan_step_memory(cgp_plan *plan) {
    for (int d = 0; d < plan->n_devices; d++) {
        cgp__device_plan *device = &plan->devices[d];
        cgp__step_memory *m = &device->step;
        m->row_bytes = cgp__align_up((int64_t)sizeof(cgp_step_values) +
                                     (int64_t)sizeof(float) * plan->model->n_losses);
        m->n_rows = (int)cgp__max(plan->chunks, CGP__PIECE);
        m->n_words = 1;
    }
    count_words(plan);
    for (int d = 0; d < plan->n_devices; d++) {
        cgp__device_plan *device = &plan->devices[d];
        const cgp__step_memory *m = &device->step;
        if (!device->backend->host_addressable)
            device->info.step_bytes = (m->n_rows + 1) * m->row_bytes + update_bytes() +
                                      losses_bytes(plan, m) +
                                      cgp__align_up((int64_t)sizeof(double) * m->n_words);
    }
}

void cgp__plan_place_step_memory(cgp_plan *plan, int device, int64_t at) {
    cgp__step_memory *m = &plan->devices[device].step;
    m->values = at;
    m->rows = m->values + m->row_bytes;
    m->update = m->rows + m->n_rows * m->row_bytes;
    m->losses = m->update + update_bytes();
    m->words = m->losses + losses_bytes(plan, m);
}
