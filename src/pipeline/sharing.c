/* SPDX-License-Identifier: Apache-2.0 */
/* sharing.c -- checks whether pipelines of two plans can share memory. Both plans must place
 * parameters, gradients, optimizer state and op states at the same offsets. These sections come
 * first in each device's memory. Each section is compared separately, because a plan for inference
 * has no gradients. */
#include "pipeline/sharing.h"

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/memory/states.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <string.h>

static cgp_status check_devices(const cgp_plan *plan, const cgp_plan *owner) {
    const int ranks = cgp__plan_setup(plan)->ranks, owners = cgp__plan_setup(owner)->ranks;
    if (ranks > 1 || owners > 1)
        return cgp_fail(CGP_EINVAL, "sharing: expected plans for 1 rank, got %d and %d", ranks,
                        owners);
    if (cgp__plan_setup(owner)->replicas > 1 && !cgp__plan_setup(plan)->inference)
        return cgp_fail(CGP_EINVAL,
                        "sharing: the owner has %d replicas, so expected a plan for inference",
                        cgp__plan_setup(owner)->replicas);
    if (cgp_plan_devices(plan) != cgp_plan_devices(owner))
        return cgp_fail(CGP_EINVAL, "sharing: expected %d devices, as the owner's, got %d",
                        cgp_plan_devices(owner), cgp_plan_devices(plan));
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp__device_plan *a = cgp__plan_device(plan, d), *b = cgp__plan_device(owner, d);
        if (!a->backend->host_addressable)
            return cgp_fail(CGP_EINVAL,
                            "sharing: device %s has memory of its own, which devices of other "
                            "pipelines do not use",
                            a->info.name);
        if (a->backend != b->backend || a->info.ordinal != b->info.ordinal)
            return cgp_fail(CGP_EINVAL,
                            "sharing: device %d is %s of ordinal %d, the owner's %s of %d", d,
                            a->info.name, a->info.ordinal, b->info.name, b->info.ordinal);
    }
    return CGP_OK;
}

/* Check the sections that exist only in training: gradients and optimizer state. */
static cgp_status check_training(const cgp__setup *setup, const cgp__setup *owner) {
    if (setup->inference) return CGP_OK;
    if (owner->inference)
        return cgp_fail(CGP_EINVAL,
                        "sharing: the owner is planned for inference and has no gradients");
    if (setup->optim.kind != owner->optim.kind ||
        cgp_optim_states(&setup->optim) != cgp_optim_states(&owner->optim))
        return cgp_fail(CGP_EINVAL, "sharing: the optimizer is not the owner's");
    return CGP_OK;
}

static cgp_status differs(const char *name, const char *what) {
    return cgp_fail(CGP_EINVAL, "sharing: %s: %s", name, what);
}

static bool same_copies(const cgp__parameters *a, const cgp__parameters *b, int p) {
    const int n = a->first_copy[p + 1] - a->first_copy[p];
    if (b->first_copy[p + 1] - b->first_copy[p] != n) return false;
    for (int k = 0; k < n; k++) {
        const cgp__copy *x = &a->copies[a->first_copy[p] + k],
                        *y = &b->copies[b->first_copy[p] + k];
        if (x->device != y->device || x->offset != y->offset) return false;
    }
    return true;
}

/* Compare the gradient buffers and optimizer states of parameter p. Each use that backward reaches
 * has a gradient buffer, and a step adds these buffers up. Each copy has a gradient buffer and
 * optimizer state. */
static bool same_gradients(const cgp_plan *plan, const cgp_plan *owner, int p) {
    const cgp__parameter *x = &cgp__plan_setup(plan)->model->params[p];
    const cgp__parameter *y = &cgp__plan_setup(owner)->model->params[p];
    const cgp__parameters *a = cgp__plan_parameters(plan), *b = cgp__plan_parameters(owner);
    if (x->n_uses != y->n_uses || x->requires_grad != y->requires_grad) return false;
    for (int k = 0; k < x->n_uses; k++) {
        if (a->use_gradient[x->first_use + k] != b->use_gradient[y->first_use + k]) return false;
    }
    for (int c = 0; c < a->first_copy[p + 1] - a->first_copy[p]; c++) {
        const cgp__copy *at = &a->copies[a->first_copy[p] + c];
        const cgp__copy *to = &b->copies[b->first_copy[p] + c];
        if (at->gradient != to->gradient) return false;
    }
    return true;
}

static cgp_status check_parameters(const cgp_plan *plan, const cgp_plan *owner) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    const cgp_model *a = setup->model, *b = cgp__plan_setup(owner)->model;
    if (a->n_params != b->n_params)
        return cgp_fail(CGP_EINVAL, "sharing: expected %d parameters, as the owner's, got %d",
                        b->n_params, a->n_params);
    for (int p = 0; p < a->n_params; p++) {
        const char *name = a->params[p].name;
        if (strcmp(name, b->params[p].name) != 0)
            return differs(name, "is no parameter of the owner at this place");
        if (!cgp_shape_equal(&a->params[p].shape, &b->params[p].shape))
            return differs(name, "has another shape than the owner's");
        if (!same_copies(cgp__plan_parameters(plan), cgp__plan_parameters(owner), p))
            return differs(name, "lies on another device, or elsewhere, than the owner's "
                                 "(plan with the same stages, schedule and balance)");
        if (!setup->inference && !same_gradients(plan, owner, p))
            return differs(name, "has other gradient buffers than the owner's");
    }
    return CGP_OK;
}

static cgp_status check_states(const cgp_plan *plan, const cgp_plan *owner) {
    const cgp_model *a = cgp__plan_setup(plan)->model, *b = cgp__plan_setup(owner)->model;
    if (a->n_states != b->n_states)
        return cgp_fail(CGP_EINVAL, "sharing: expected %d states, as the owner's, got %d",
                        b->n_states, a->n_states);
    for (int s = 0; s < a->n_states; s++) {
        const cgp__state *x = &a->states[s], *y = &b->states[s];
        if (strcmp(x->name, y->name) != 0 || x->info.dtype != y->info.dtype ||
            !cgp_shape_equal(&x->info.shape, &y->info.shape))
            return differs(x->name, "is no state of the owner at this place");
        if (cgp__plan_device_of(plan, x->node) != cgp__plan_device_of(owner, y->node) ||
            cgp__plan_states(plan)->state[s] != cgp__plan_states(owner)->state[s])
            return differs(x->name, "lies on another device than the owner's");
    }
    return CGP_OK;
}

cgp_status cgp__sharing_check(const cgp_plan *plan, const cgp_plan *owner) {
    CGP_TRY(check_devices(plan, owner));
    CGP_TRY(check_training(cgp__plan_setup(plan), cgp__plan_setup(owner)));
    CGP_TRY(check_parameters(plan, owner));
    return check_states(plan, owner);
}
