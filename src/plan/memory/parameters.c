/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.c -- places parameters and their gradients.
 *
 * A device that uses a parameter has a copy of it and, for each use there that backward reaches, a
 * gradient buffer. After the last backward the buffers are added in order of use, across devices,
 * and every device gets the sum in its first buffer:
 *
 *     uses of p        u0 (device 0)    u1 (device 0)    u2 (device 1)
 *     gradients        g0 = g0 + g1 + g2                 g2 = g0
 *
 * So the sum is the same for every balance, and so are the updated copies. A copy that backward
 * does not reach has one buffer, of zeros. */
#include "plan/memory/parameters.h"

#include "plan/plan.h"

int cgp__plan_device_of(const cgp_plan *plan, int node) {
    return plan->stages[plan->node_stage[node]].info.device;
}

const cgp__copy *cgp__plan_copy(const cgp_plan *plan, int parameter, int device) {
    for (int c = plan->first_copy[parameter]; c < plan->first_copy[parameter + 1]; c++) {
        if (plan->copies[c].device == device) return &plan->copies[c];
    }
    return NULL;
}

bool cgp__plan_is_tied(const cgp_plan *plan, int parameter) {
    const cgp__parameter *param = &plan->model->params[parameter];
    int uses = 0;
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++)
        uses += plan->model->nodes[plan->model->uses[u].node].requires_grad;
    return uses > 1 || plan->first_copy[parameter + 1] - plan->first_copy[parameter] > 1;
}

/* Add a copy of parameter p on a device that has none yet. */
static cgp_status add_copy(cgp_plan *plan, int p, int device) {
    if (!cgp__grow(&plan->copies, &plan->copies_capacity, plan->n_copies + 1, sizeof *plan->copies))
        return cgp__no_memory("plan: parameters", sizeof *plan->copies);
    cgp_plan_device *info = &plan->devices[device].info;
    plan->copies[plan->n_copies++] = (cgp__copy){p, device, info->parameter_bytes, -1};
    info->parameter_bytes += cgp__align_up(4 * cgp_shape_count(&plan->model->params[p].shape));
    return CGP_OK;
}

/* Add copies for the uses whose node requires a gradient; if !requires_grad, for all other uses. */
static cgp_status place_copies(cgp_plan *plan, int p, bool requires_grad) {
    const cgp__parameter *param = &plan->model->params[p];
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        const int node = plan->model->uses[u].node, device = cgp__plan_device_of(plan, node);
        if (plan->model->nodes[node].requires_grad != requires_grad ||
            cgp__plan_copy(plan, p, device))
            continue;
        CGP_TRY(add_copy(plan, p, device));
        plan->first_copy[p + 1] = plan->n_copies;
    }
    return CGP_OK;
}

/* Reserve workspace on the owner of a parameter with several copies: it receives the gradients of
 * the other copies in pieces of CGP__TIE_BYTES bytes. */
static void reserve_piece(cgp_plan *plan, int p) {
    const cgp__copy *owner = &plan->copies[plan->first_copy[p]];
    if (plan->inference || plan->first_copy[p + 1] - plan->first_copy[p] < 2) return;
    cgp__stage_plan *stage = &plan->stages[plan->devices[owner->device].info.stage_list[0]];
    if (stage->workspace_bytes < CGP__TIE_BYTES) stage->workspace_bytes = CGP__TIE_BYTES;
}

/* Reserve the next gradient buffer of a device. */
static int64_t new_buffer(cgp_plan *plan, int p, int device) {
    cgp_plan_device *info = &plan->devices[device].info;
    const int64_t offset = info->gradient_bytes;
    info->gradient_bytes += cgp__align_up(4 * cgp_shape_count(&plan->model->params[p].shape));
    return offset;
}

static void place_gradients(cgp_plan *plan, int p) {
    const cgp__parameter *param = &plan->model->params[p];
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        const int node = plan->model->uses[u].node, device = cgp__plan_device_of(plan, node);
        if (!plan->model->nodes[node].requires_grad) continue;
        plan->use_gradient[u] = new_buffer(plan, p, device);
        for (int c = plan->first_copy[p]; c < plan->first_copy[p + 1]; c++) {
            if (plan->copies[c].device == device && plan->copies[c].gradient < 0)
                plan->copies[c].gradient = plan->use_gradient[u];
        }
    }
    for (int c = plan->first_copy[p]; c < plan->first_copy[p + 1]; c++) {
        if (plan->copies[c].gradient < 0)
            plan->copies[c].gradient = new_buffer(plan, p, plan->copies[c].device);
    }
}

cgp_status cgp__plan_parameters(cgp_plan *plan) {
    for (int p = 0; p < plan->model->n_params; p++) {
        plan->first_copy[p] = plan->first_copy[p + 1] = plan->n_copies;
        /* the first copy is the owner's; backward reaches this copy if it reaches any copy */
        CGP_TRY(place_copies(plan, p, true));
        CGP_TRY(place_copies(plan, p, false));
        if (!plan->inference) place_gradients(plan, p);
        reserve_piece(plan, p);
    }
    for (int d = 0; d < plan->n_devices && !plan->inference; d++) {
        cgp_plan_device *device = &plan->devices[d].info;
        device->optimizer_bytes = device->parameter_bytes * cgp_optim_states(&plan->optim);
    }
    return CGP_OK;
}
