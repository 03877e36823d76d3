/* SPDX-License-Identifier: Apache-2.0 */
/* step_memory.c -- lays out the step memory described in step_memory.h. */
#include "plan/memory/step_memory.h"

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/memory/states.h"
#include "plan/placement.h"
#include "plan/setup.h"

static int64_t update_bytes(const cgp__setup *setup) {
    return cgp__align_up((int64_t)sizeof(cgp_update_values) * (1 + setup->groups.n));
}

static int64_t losses_bytes(const cgp_model *model, const cgp__step_memory *m) {
    return cgp__align_up((int64_t)sizeof(double) * m->n_rows * model->n_losses);
}

/* Add one word for the norm of each gradient, and one for each node's accumulator. */
static void count_words(cgp__placement *placement, const cgp_model *model,
                        const cgp__parameters *parameters, const cgp__states *states) {
    for (int p = 0; p < model->n_params; p++)
        placement->devices[parameters->copies[parameters->first_copy[p]].device].step.n_words++;
    for (int i = 0; i < model->n_nodes; i++) {
        if (states->accumulator[i] >= 0)
            placement->devices[cgp__device_of(placement, i)].step.n_words++;
    }
}

void cgp__size_step_memory(cgp__placement *placement, const cgp__setup *setup,
                           const cgp__parameters *parameters, const cgp__states *states) {
    for (int d = 0; d < placement->n_devices; d++) {
        cgp__step_memory *m = &placement->devices[d].step;
        m->row_bytes = cgp__align_up((int64_t)sizeof(cgp_step_values) +
                                     (int64_t)sizeof(float) * setup->model->n_losses);
        m->n_rows = (int)cgp__max(setup->chunks, CGP__PIECE);
        m->n_words = 1;
    }
    count_words(placement, setup->model, parameters, states);
    for (int d = 0; d < placement->n_devices; d++) {
        cgp__device_plan *device = &placement->devices[d];
        const cgp__step_memory *m = &device->step;
        if (!device->backend->host_addressable)
            device->info.step_bytes = (m->n_rows + 1) * m->row_bytes + update_bytes(setup) +
                                      losses_bytes(setup->model, m) +
                                      cgp__align_up((int64_t)sizeof(double) * m->n_words);
    }
}

void cgp__place_step_memory(cgp__step_memory *m, const cgp__setup *setup, int64_t at) {
    m->values = at;
    m->rows = m->values + m->row_bytes;
    m->update = m->rows + m->n_rows * m->row_bytes;
    m->losses = m->update + update_bytes(setup);
    m->words = m->losses + losses_bytes(setup->model, m);
}
