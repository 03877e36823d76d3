/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.c -- places parameters and their gradients.
 *
 * A device that uses a parameter has a copy of the parameter. For each use on this device that
 * backward reaches, the device also has a gradient buffer. After the last backward, the buffers of
 * all devices are added in the order of the uses. The first buffer of every device gets the sum:
 *
 *     uses of p        u0 (device 0)    u1 (device 0)    u2 (device 1)
 *     gradients        g0 = g0 + g1 + g2                 g2 = g0
 *
 * So the sum and the updated copies are the same for every balance. If backward does not reach a
 * copy, the copy has one buffer of zeros, which lies after all buffers that backward writes. A
 * frozen parameter has neither buffers nor optimizer state.
 *
 * Untied parameters come first in the sections of parameters and gradients, at the same offsets. So
 * replicas can divide them at the same places (shards.h):
 *
 *     parameters   untied | other trained | frozen
 *     gradients    untied | uses of tied parameters | zeros
 *
 * If there are gradient groups, each buffer that backward writes also has buffers of partial sums.
 * The partial sums lie at the same offset in separate sections (schedule/gradient_groups.h). */
#include "plan/memory/parameters.h"

#include "model/model.h"
#include "plan/links.h"
#include "plan/memory/devices.h"
#include "plan/memory/shards.h"
#include "plan/placement.h"
#include "plan/program/program.h"
#include "plan/setup.h"
#include "schedule/gradient_groups.h"

const cgp__copy *cgp__copy_on(const cgp__parameters *parameters, int parameter, int device) {
    const int *first = &parameters->first_copy[parameter];
    for (int c = first[0]; c < first[1]; c++) {
        if (parameters->copies[c].device == device) return &parameters->copies[c];
    }
    return NULL;
}

bool cgp__is_tied(const cgp__parameters *parameters, const cgp_model *model, int parameter) {
    const cgp__parameter *param = &model->params[parameter];
    const int *first = &parameters->first_copy[parameter];
    int uses = 0;
    if (param->frozen) return false;
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++)
        uses += model->nodes[model->uses[u].node].requires_grad;
    return uses > 1 || first[1] - first[0] > 1;
}

/* The state while parameters are placed. */
typedef struct placer {
    const cgp__setup *setup;
    const cgp_model *model;
    cgp__placement *placement;
    cgp__parameters *out;
} placer;

/* Return the bytes of parameter p on a device. */
static int64_t bytes_of(const placer *r, int p) {
    return cgp__align_up(4 * cgp_shape_count(&r->model->params[p].shape));
}

/* Add a copy of parameter p on a device that has no copy yet. */
static cgp_status add_copy(placer *r, int p, int device) {
    if (!cgp__grow(&r->out->copies, &r->out->copies_capacity, r->out->n_copies + 1,
                   sizeof *r->out->copies))
        return cgp__no_memory("plan: parameters", sizeof *r->out->copies);
    r->out->copies[r->out->n_copies++] = (cgp__copy){p, device, -1, -1};
    return CGP_OK;
}

/* Add copies of the parameter for some of its uses. If `requires_grad`, these are the uses by nodes
 * that require a gradient; otherwise, the uses by all other nodes. */
static cgp_status place_copies(placer *r, int p, bool requires_grad) {
    const cgp__parameter *param = &r->model->params[p];
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        const int node = r->model->uses[u].node, device = cgp__device_of(r->placement, node);
        if (r->model->nodes[node].requires_grad != requires_grad || cgp__copy_on(r->out, p, device))
            continue;
        CGP_TRY(add_copy(r, p, device));
        r->out->first_copy[p + 1] = r->out->n_copies;
    }
    return CGP_OK;
}

/* Parameters with one copy and one gradient buffer, other trained parameters, and frozen ones. */
typedef enum section { UNTIED, TRAINED, FROZEN } section;

static section section_of(const placer *r, int p) {
    const cgp__parameter *param = &r->model->params[p];
    if (param->frozen) return FROZEN;
    return param->requires_grad && !cgp__is_tied(r->out, r->model, p) ? UNTIED : TRAINED;
}

/* Give offsets to the copies of the parameters of a section. */
static void place_section(placer *r, section which) {
    for (int c = 0; c < r->out->n_copies; c++) {
        cgp__copy *copy = &r->out->copies[c];
        cgp_plan_device *info = &r->placement->devices[copy->device].info;
        if (section_of(r, copy->parameter) != which) continue;
        copy->offset = info->parameter_bytes;
        info->parameter_bytes += bytes_of(r, copy->parameter);
    }
}

static void place_sections(placer *r) {
    cgp__device_plan *devices = r->placement->devices;
    place_section(r, UNTIED);
    for (int d = 0; d < r->placement->n_devices; d++)
        devices[d].untied_bytes = devices[d].info.parameter_bytes;
    place_section(r, TRAINED);
    for (int d = 0; d < r->placement->n_devices; d++)
        devices[d].trained_bytes = devices[d].info.parameter_bytes;
    place_section(r, FROZEN);
}

/* Reserve workspace on the device that owns a parameter with several copies. This device receives
 * the gradients of the other copies in pieces of CGP__TIE_BYTES bytes. */
static void reserve_piece(placer *r, int p) {
    const cgp__copy *owner = &r->out->copies[r->out->first_copy[p]];
    if (r->setup->inference || r->model->params[p].frozen ||
        r->out->first_copy[p + 1] - r->out->first_copy[p] < 2)
        return;
    cgp__stage_plan *stage =
        &r->placement->stages[r->placement->devices[owner->device].info.stage_list[0]];
    if (stage->workspace_bytes < CGP__TIE_BYTES) stage->workspace_bytes = CGP__TIE_BYTES;
}

/* Reserve the next gradient buffer of a device; return its offset. */
static int64_t new_buffer(placer *r, int p, int device) {
    cgp_plan_device *info = &r->placement->devices[device].info;
    const int64_t offset = info->gradient_bytes;
    info->gradient_bytes += bytes_of(r, p);
    return offset;
}

static void place_gradients(placer *r, int p) {
    const cgp__parameter *param = &r->model->params[p];
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        const int node = r->model->uses[u].node, device = cgp__device_of(r->placement, node);
        if (!r->model->nodes[node].requires_grad) continue;
        r->out->use_gradient[u] = new_buffer(r, p, device);
        for (int c = r->out->first_copy[p]; c < r->out->first_copy[p + 1]; c++) {
            if (r->out->copies[c].device == device && r->out->copies[c].gradient < 0)
                r->out->copies[c].gradient = r->out->use_gradient[u];
        }
    }
}

int cgp__setup_partials(const cgp__setup *setup) {
    return cgp__gradient_partials(setup->chunks, setup->gradient_groups / setup->replicas);
}

/* Reserve the buffers of zeros, and the partial sums for the buffers that backward writes. */
static void place_other_gradients(placer *r) {
    const int partials = cgp__setup_partials(r->setup);
    for (int d = 0; d < r->placement->n_devices; d++) {
        cgp__device_plan *device = &r->placement->devices[d];
        device->written_gradient_bytes = device->info.gradient_bytes;
        device->info.partial_gradient_bytes = partials * device->written_gradient_bytes;
    }
    for (int t = 0; t < r->out->n_trained; t++) {
        const int p = r->out->trained[t];
        for (int c = r->out->first_copy[p]; c < r->out->first_copy[p + 1]; c++) {
            if (r->out->copies[c].gradient < 0)
                r->out->copies[c].gradient = new_buffer(r, p, r->out->copies[c].device);
        }
    }
}

/* Reserve gradient buffers and optimizer states. */
static void place_training(placer *r) {
    for (int p = 0; p < r->model->n_params; p++) {
        if (!r->model->params[p].frozen) r->out->trained[r->out->n_trained++] = p;
        if (section_of(r, p) == UNTIED) place_gradients(r, p);
    }
    for (int p = 0; p < r->model->n_params; p++)
        if (section_of(r, p) == TRAINED) place_gradients(r, p);
    place_other_gradients(r);
    for (int d = 0; d < r->placement->n_devices; d++) {
        cgp__device_plan *device = &r->placement->devices[d];
        cgp__shard_place(r->setup, device);
        device->info.optimizer_bytes =
            device->optimizer_state_bytes * cgp_optim_states(&r->setup->optim);
    }
}

cgp_status cgp__place_parameters(cgp__parameters *parameters, const cgp__setup *setup,
                                 cgp__placement *placement) {
    placer r = {setup, setup->model, placement, parameters};
    CGP_TRY(CGP__NEW(parameters->first_copy, setup->model->n_params + 1, "plan"));
    CGP_TRY(CGP__NEW(parameters->use_gradient, setup->model->n_uses, "plan"));
    CGP_TRY(CGP__NEW(parameters->trained, setup->model->n_params, "plan"));
    for (int p = 0; p < setup->model->n_params; p++) {
        parameters->first_copy[p] = parameters->first_copy[p + 1] = parameters->n_copies;
        /* the first copy is the owner's; backward reaches this copy if it reaches any copy */
        CGP_TRY(place_copies(&r, p, true));
        CGP_TRY(place_copies(&r, p, false));
        reserve_piece(&r, p);
    }
    place_sections(&r);
    if (!setup->inference) place_training(&r);
    return CGP_OK;
}
