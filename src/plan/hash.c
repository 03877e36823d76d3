/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c -- a hash of all that ranks must have in common before they run a plan together. */
#include <string.h>

#include "plan/plan.h"

static cgp_status add_text(cgp__sha256 *hash, const char *text) {
    return cgp__sha256_add(hash, text, strlen(text) + 1);
}

static cgp_status add_number(cgp__sha256 *hash, int64_t number) {
    return cgp__sha256_add(hash, &number, sizeof number);
}

/* The graph: its nodes, their sizes, and the parameters. */
static cgp_status add_model(cgp__sha256 *hash, const cgp_model *model) {
    CGP_TRY(add_text(hash, model->name));
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        cgp_op_attributes sizes = node->sizes;
        sizes.custom = NULL; /* an address; its name and inputs are added */
        CGP_TRY(add_text(hash, node->use.op->name));
        CGP_TRY(cgp__sha256_add(hash, &sizes, sizeof sizes));
        CGP_TRY(add_number(hash, node->layer));
        CGP_TRY(add_number(hash, node->output));
        for (int k = 0; k < node->n_inputs; k++)
            CGP_TRY(add_number(hash, node->inputs[k]));
    }
    for (int p = 0; p < model->n_params; p++) {
        const cgp__parameter *param = &model->params[p];
        CGP_TRY(add_text(hash, param->name));
        CGP_TRY(add_number(hash, cgp_shape_count(&param->shape)));
        CGP_TRY(add_number(hash, (int64_t)param->init.kind));
        CGP_TRY(cgp__sha256_add(hash, &param->init.scale, sizeof param->init.scale));
    }
    return CGP_OK;
}

/* Devices, stages and links: their bytes tell them apart. */
static cgp_status add_layout(cgp__sha256 *hash, const cgp_plan *plan) {
    for (int d = 0; d < plan->n_devices; d++) {
        const cgp__device_plan *device = &plan->devices[d];
        CGP_TRY(add_text(hash, device->name));
        CGP_TRY(add_number(hash, device->options.ordinal));
        CGP_TRY(add_number(hash, device->info.rank));
        CGP_TRY(add_number(hash, device->info.planned_bytes));
        CGP_TRY(add_number(hash, device->info.host_bytes));
    }
    for (int j = 0; j < plan->n_stages; j++)
        CGP_TRY(add_number(hash, plan->balance[j]));
    for (int l = 0; l < plan->n_links; l++) {
        CGP_TRY(add_number(hash, plan->links[l].bytes));
        CGP_TRY(add_number(hash, plan->links[l].capacity));
    }
    return CGP_OK;
}

static cgp_status add_actions(cgp__sha256 *hash, const cgp_plan *plan) {
    for (int d = 0; d < plan->n_devices; d++) {
        int n = 0;
        const cgp_action *actions = cgp_schedule_actions(plan->schedule, d, &n);
        for (int i = 0; i < n; i++) {
            const int32_t numbers[] = {(int32_t)actions[i].kind, actions[i].stage,
                                       actions[i].microbatch, actions[i].edge};
            CGP_TRY(cgp__sha256_add(hash, numbers, sizeof numbers));
        }
    }
    return CGP_OK;
}

static cgp_status add_options(cgp__sha256 *hash, const cgp_plan *plan) {
    const cgp_optim *o = &plan->optim;
    const double numbers[] = {o->lr,    o->weight_decay, o->momentum, o->beta1,
                              o->beta2, o->eps,          o->alpha,    o->clip_norm};
    CGP_TRY(add_text(hash, CGP_VERSION));
    CGP_TRY(add_number(hash, plan->batch));
    CGP_TRY(add_number(hash, plan->chunks));
    CGP_TRY(add_number(hash, (int64_t)plan->precision));
    CGP_TRY(add_number(hash, plan->deferred_batch_norm));
    CGP_TRY(add_number(hash, plan->inference));
    CGP_TRY(add_number(hash, plan->ranks));
    CGP_TRY(add_number(hash, (int64_t)o->kind));
    return cgp__sha256_add(hash, numbers, sizeof numbers);
}

cgp_status cgp_plan_hash(const cgp_plan *plan, char hex[65]) {
    CGP__NEED(plan);
    CGP__NEED(hex);
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = add_options(hash, plan);
    if (status == CGP_OK) status = add_model(hash, plan->model);
    if (status == CGP_OK) status = add_layout(hash, plan);
    if (status == CGP_OK) status = add_actions(hash, plan);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex);
    cgp__sha256_destroy(hash);
    return status;
}
