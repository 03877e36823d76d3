/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c -- makes a plan from options. It cuts the model into stages, lists the edges, and makes
 * the programs, the schedule, the slots and the transfer buffers. At the end it adds up the bytes.
 *
 * The order matters. The layout of a stage depends only on the micro-batch. The number of slots
 * depends on the schedule, and the schedule depends on the edges. The number of transfer buffers
 * comes from the simulated step, whose costs come from the programs. */
#include "plan/plan.h"

#include <cgpipe/planner.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/backward.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/balance.h"
#include "plan/budget.h"
#include "plan/list.h"
#include "plan/memory/devices.h"
#include "plan/memory/outside.h"
#include "plan/precision.h"
#include "schedule/gradient_groups.h"

/* Check a model whose loss the caller computes. */
static cgp_status check_external_loss(const cgp_plan_options *o, const cgp_model *model) {
    if (o->inference)
        return cgp_fail(CGP_EINVAL, "plan options: external_loss trains, inference does not");
    if (model->n_losses > 0)
        return cgp_fail(CGP_EINVAL,
                        "model %s: has a loss of its own (external_loss needs a model with "
                        "cgp_model_output and no loss)",
                        model->name);
    bool any = false;
    for (int k = 0; k < model->n_outputs; k++)
        any = any || cgp_model_output_dtype(model, k) == CGP_F32;
    if (!any)
        return cgp_fail(CGP_EINVAL,
                        "model %s: expected an output of f32 for an external loss, got %s",
                        model->name, cgp_dtype_name(cgp_model_output_dtype(model, 0)));
    return CGP_OK;
}

/* Reject caches in training: forward writes them, but training may repeat forward and run
 * micro-batches out of order. */
static cgp_status check_caches(const cgp_model *model) {
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (cgp__node_cache(node) > 0)
            return cgp_fail(CGP_EINVAL,
                            "model %s: layer %s: %s keeps a cache, expected a plan for "
                            "`inference` (or the model without it to train)",
                            model->name, model->layers[node->layer], node->use.op->name);
    }
    return CGP_OK;
}

/* Check that the model has a parameter that is not frozen, or an input with a gradient. */
static cgp_status check_trainable(const cgp_model *model) {
    for (int k = 0; k < model->n_inputs; k++) {
        if (model->values[model->input_values[k]].has_grad) return CGP_OK;
    }
    for (int p = 0; p < model->n_params; p++) {
        if (!model->params[p].frozen) return CGP_OK;
    }
    return cgp_fail(CGP_EINVAL, "model %s: has no parameter to train%s", model->name,
                    model->n_params > 0 ? ", as all are frozen" : "");
}

/* Check that replicas can run the model. Replicas support neither inference, nor an external loss,
 * nor custom ops with an accumulator. */
static cgp_status check_replicas(const cgp_plan_options *o, const cgp_model *model) {
    CGP_TRY(cgp__replicas_check(o->replicas, o->gradient_groups));
    if (o->replicas == 1) return CGP_OK;
    if (o->inference || o->external_loss)
        return cgp_fail(CGP_EINVAL, "replicas: expected 1 with `%s`, got %d",
                        o->inference ? "inference" : "external_loss", o->replicas);
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (node->use.shapes.accumulator_bytes > 0 && cgp__node_log(node) == 0)
            return cgp_fail(CGP_EINVAL,
                            "replicas: expected 1 for model %s, whose op %s changes %s at the end "
                            "of a step, got %d (batch norms alone may have such states)",
                            model->name, node->use.op->name, model->states[node->first_state].name,
                            o->replicas);
    }
    return CGP_OK;
}

static cgp_status check_options(const cgp_plan_options *o, const cgp_model *model) {
    if (o->struct_size != sizeof *o)
        return cgp_fail(
            CGP_EINVAL,
            "plan options: struct_size is %zu, expected %zu (use cgp_plan_options_default)",
            o->struct_size, sizeof *o);
    if (model->status != CGP_OK)
        return cgp_fail(CGP_EINVAL, "model %s: was not built (%s)", model->name,
                        model->error ? model->error : "no memory");
    if (!model->finished)
        return cgp_fail(CGP_EINVAL, "model %s: is not finished (call cgp_model_finish)",
                        model->name);
    if (o->batch < 1 || o->batch > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "batch: expected 1 to %d, got %lld", INT32_MAX,
                        (long long)o->batch);
    if (o->chunks < 1) return cgp_fail(CGP_EINVAL, "chunks: expected 1 or more, got %d", o->chunks);
    if (o->threads_per_device < 1 || o->threads_per_device > 1024)
        return cgp_fail(CGP_EINVAL, "threads per device: expected 1 to 1024, got %d",
                        o->threads_per_device);
    CGP_TRY(cgp__precision_check("precision", o->precision));
    CGP_TRY(cgp__convolution_check("convolution", o->convolution));
    CGP_TRY(cgp__gradient_groups_check(o->gradient_groups));
    CGP_TRY(check_replicas(o, model));
    CGP_TRY(cgp__replays_check(o));
    if (o->memory_limit < 0)
        return cgp_fail(CGP_EINVAL, "memory limit: expected bytes >= 0, got %lld",
                        (long long)o->memory_limit);
    if (!o->inference && !o->external_loss && model->n_losses == 0)
        return cgp_fail(CGP_EINVAL,
                        "model %s: has no loss to train (plan with `inference`, or with "
                        "`external_loss`)",
                        model->name);
    if (o->external_loss) CGP_TRY(check_external_loss(o, model));
    if (!o->inference) CGP_TRY(check_caches(model));
    if (!o->inference && !o->external_loss) CGP_TRY(check_trainable(model));
    if ((int)o->recompute < 0 || o->recompute > CGP_RECOMPUTE_BUDGET)
        return cgp_fail(CGP_EINVAL, "recompute: expected a cgp_recompute, got number %d",
                        (int)o->recompute);
    /* the optimizer's options are checked even for inference, which uses no optimizer */
    return cgp_optim_check(&o->optim);
}

/* Split the mini-batch by torchgpipe's rule: B samples and M chunks give n = ceil(B / b)
 * micro-batches of b = ceil(B / M) samples. Each of R replicas has at most ceil(n / R)
 * micro-batches. */
static void split_batch(cgp__setup *setup, const cgp_plan_options *o) {
    setup->batch = o->batch;
    setup->microbatch = (o->batch + o->chunks - 1) / o->chunks;
    setup->chunks = (int)((o->batch + setup->microbatch - 1) / setup->microbatch);
    setup->whole_chunks = setup->chunks;
    if (setup->chunks < o->chunks)
        cgp_log(CGP_LOG_WARN, "plan",
                "%lld samples give %d micro-batches of %lld, not the requested %d",
                (long long)o->batch, setup->chunks, (long long)setup->microbatch, o->chunks);
    setup->chunks = (int)cgp__ceil_div(setup->whole_chunks, setup->replicas);
}

static cgp_status set_up(cgp__setup *setup, const cgp_model *model, const cgp_plan_options *o) {
    setup->model = model;
    setup->optim = o->optim;
    setup->optim.groups = NULL;
    setup->optim.n_groups = 0;
    setup->inference = o->inference;
    setup->external_loss = o->external_loss;
    setup->deferred_batch_norm = o->deferred_batch_norm;
    setup->recompute =
        o->inference || o->recompute == CGP_RECOMPUTE_BUDGET ? CGP_RECOMPUTE_NEVER : o->recompute;
    setup->recomputes = cgp_recompute_plain(setup->recompute) != CGP_RECOMPUTE_NEVER;
    setup->precision = o->precision;
    setup->convolution = o->convolution;
    setup->ranks = o->ranks;
    setup->replicas = o->replicas;
    setup->shards = o->shard_optimizer && o->replicas > 1;
    setup->gradient_groups = o->inference ? 1 : o->gradient_groups;
    split_batch(setup, o);
    CGP_TRY(cgp__read_piece_bytes(setup));
    return cgp__groups_find(&setup->groups, model, &o->optim);
}

/* Check that no sum of bytes overflows a 64-bit integer. No plan that fits into a real machine
 * comes near the limit. */
static cgp_status check_size(const cgp__setup *setup, int stages) {
    const cgp_model *model = setup->model;
    const int partials = cgp__setup_partials(setup);
    double bytes = (16.0 + 4.0 * partials) * (double)cgp_model_parameter_count(model);
    for (int v = 0; v < model->n_values; v++)
        bytes += 8.0 * (double)cgp__type_bytes(&model->values[v].type, 1) * (double)setup->batch *
                 stages;
    for (int i = 0; i < model->n_nodes; i++)
        bytes += 4.0 * (double)cgp__node_cache(&model->nodes[i]);
    if (bytes < 0x1p60) return CGP_OK;
    return cgp_fail(CGP_ELIMIT,
                    "memory: %lld samples of model %s need more than 2^60 bytes (a smaller "
                    "batch would help)",
                    (long long)setup->batch, model->name);
}

/* Place the sections of each device's memory, in the order shown in plan.h. */
static void add_up(cgp_plan *plan) {
    cgp__placement *p = &plan->placement;
    for (int j = 0; j < p->n_stages; j++) {
        cgp_plan_device *info = &p->devices[p->stages[j].info.device].info;
        info->workspace_bytes = cgp__max(info->workspace_bytes, p->stages[j].workspace_bytes);
    }
    for (int d = 0; d < p->n_devices; d++) {
        cgp__device_plan *device = &p->devices[d];
        cgp_plan_device *info = &device->info;
        device->parameters = 0;
        device->gradients = info->parameter_bytes;
        device->optimizer = device->gradients + info->gradient_bytes;
        device->state = device->optimizer + info->optimizer_bytes;
        device->partial_gradients = device->state + info->state_bytes;
        device->pool = device->partial_gradients + info->partial_gradient_bytes;
        info->slot_bytes = device->slots.bytes;
        device->workspace = device->pool + info->slot_bytes;
        info->planned_bytes = device->workspace + info->workspace_bytes;
        cgp__place_step_memory(&device->step, &plan->setup, info->planned_bytes);
        info->planned_bytes += info->step_bytes;
    }
    cgp__place_links(plan);
    for (int d = 0; d < p->n_devices; d++) {
        cgp_plan_device *info = &p->devices[d].info;
        info->activation_bytes = info->slot_bytes + info->workspace_bytes + info->transfer_bytes +
                                 info->receive_bytes + info->step_bytes;
        cgp__place_packings(&plan->packings, p, d);
    }
}

const char *cgp__plan_advice(const cgp_plan *plan) {
    int64_t activation = 0, all = 0;
    for (int d = 0; d < plan->placement.n_devices; d++) {
        const cgp_plan_device *info = &plan->placement.devices[d].info;
        activation += info->activation_bytes + info->outside_bytes;
        all += cgp__limited_bytes(info);
    }
    if (activation < all / 2 && plan->setup.gradient_groups > 1)
        return "most of it is parameters, gradients and optimizer: fewer gradient groups, or an "
               "optimizer with less state";
    if (activation < all / 2)
        return "most of it is parameters, gradients and optimizer: a smaller model, or an "
               "optimizer with less state";
    if (!plan->setup.inference && cgp_recompute_plain(plan->setup.recompute) == CGP_RECOMPUTE_NEVER)
        return "recompute always, or a smaller batch";
    return plan->setup.microbatch > 1 ? "more chunks, or a smaller batch" : "a smaller batch";
}

/* Write ", NAME BYTES" to `text` for a section that few devices have, or the empty string if the
 * section is empty. Return `text`. */
static const char *section_text(const char *name, int64_t bytes, char text[64]) {
    char number[32];
    *text = '\0';
    if (bytes > 0)
        snprintf(text, 64, ", %s %s", name, cgp_bytes_text(bytes, number, sizeof number));
    return text;
}

char *cgp__device_needs_text(const cgp_plan_device *i, char *text, size_t size) {
    char number[5][32], partial[64], packed[64], step[64], receive[64], replay[64], outside[64];
    snprintf(
        text, size,
        "device %s: needs %s (parameters, gradients, optimizer and state %s%s%s, slots %s, "
        "workspace %s, transfer %s%s%s%s%s)",
        i->name, cgp_bytes_text(cgp__limited_bytes(i), number[0], sizeof number[0]),
        cgp_bytes_text(i->parameter_bytes + i->gradient_bytes + i->optimizer_bytes + i->state_bytes,
                       number[1], sizeof number[1]),
        section_text("partial gradients", i->partial_gradient_bytes, partial),
        section_text("packed", i->packed_bytes, packed),
        cgp_bytes_text(i->slot_bytes, number[2], sizeof number[2]),
        cgp_bytes_text(i->workspace_bytes, number[3], sizeof number[3]),
        cgp_bytes_text(i->transfer_bytes, number[4], sizeof number[4]),
        section_text("step", i->step_bytes, step),
        section_text("receive", i->receive_bytes, receive),
        section_text("replay", i->replay_bytes, replay),
        section_text("outside the plan", i->outside_bytes, outside));
    return text;
}

int64_t cgp__plan_fullest(const cgp_plan *plan) {
    int64_t most = 0;
    for (int d = 0; d < plan->placement.n_devices; d++)
        most = cgp__max(most, cgp__limited_bytes(&plan->placement.devices[d].info));
    return most;
}

int64_t cgp__plan_excess(const cgp_plan *plan) {
    int64_t most = INT64_MIN;
    for (int d = 0; d < plan->placement.n_devices; d++) {
        const cgp_plan_device *i = &plan->placement.devices[d].info;
        if (i->limit_bytes > 0) most = cgp__max(most, cgp__limited_bytes(i) - i->limit_bytes);
    }
    return most;
}

cgp_status cgp__plan_check_limits(const cgp_plan *plan) {
    char text[512], limit[32];
    for (int d = 0; d < plan->placement.n_devices; d++) {
        const cgp_plan_device *i = &plan->placement.devices[d].info;
        if (i->limit_bytes == 0 || cgp__limited_bytes(i) <= i->limit_bytes) continue;
        return cgp_fail(CGP_ELIMIT, "%s but its memory is limited to %s (%s)",
                        cgp__device_needs_text(i, text, sizeof text),
                        cgp_bytes_text(i->limit_bytes, limit, sizeof limit),
                        plan->placement.n_stages < plan->setup.model->n_layers
                            ? "more stages would help"
                            : cgp__plan_advice(plan));
    }
    return CGP_OK;
}

/* Count the bound instances that have calls, in the step of a full mini-batch. */
static cgp_status count_variants(cgp_plan *plan) {
    /* no replica has more micro-batches than the last one */
    cgp__minibatch full = cgp__plan_share(plan, plan->setup.batch, plan->setup.replicas - 1);
    full.forward_only = plan->setup.inference;
    full.chunks = plan->setup.chunks;
    for (int d = 0; d < plan->placement.n_devices; d++) {
        cgp_plan_device *info = &plan->placement.devices[d].info;
        cgp__list list = {0};
        const cgp_status status = cgp__plan_bind(plan, plan->actions.schedule, full, d, &list);
        for (int i = 0; i < list.n_variants; i++)
            info->variants += list.variants[i].end > list.variants[i].begin;
        cgp__list_release(&list);
        CGP_TRY(status);
    }
    return CGP_OK;
}

static cgp_status build(cgp_plan *plan, const cgp_plan_options *o) {
    const cgp__setup *setup = &plan->setup;
    cgp__placement *placement = &plan->placement;
    const cgp__program_parts parts = {setup,          &plan->parameters, &plan->states,
                                      placement,      &plan->messages,   &plan->packings,
                                      &plan->results, &plan->steps};
    CGP_TRY(cgp__place_stages(plan, o));
    CGP_TRY(check_size(setup, cgp_schedule_stages(plan->actions.table)));
    CGP_TRY(cgp__place_nodes(placement, setup, o, plan->actions.table));
    CGP_TRY(cgp__place_parameters(&plan->parameters, setup, placement));
    CGP_TRY(cgp__place_states(&plan->states, setup, placement));
    CGP_TRY(CGP__NEW(plan->results.outputs, setup->model->n_outputs, "plan"));
    CGP_TRY(CGP__NEW(plan->results.input_gradients, setup->model->n_inputs, "plan"));
    CGP_TRY(cgp__list_messages(&plan->messages, setup, placement, &plan->results, &plan->steps));
    CGP_TRY(cgp__make_programs(&parts));
    CGP_TRY(cgp__make_actions(plan, o));
    CGP_TRY(cgp__list_links(plan));
    cgp__size_step_memory(placement, setup, &plan->parameters, &plan->states);
    cgp__size_staging(placement, setup, &plan->results);
    CGP_TRY(cgp__count_outside(placement, setup));
    add_up(plan);
    CGP_TRY(cgp__place_replays(&plan->replays, placement, o));
    return count_variants(plan);
}

static cgp_status copy_recomputed(cgp__setup *setup, const bool *recomputed) {
    const size_t n = (size_t)setup->model->n_nodes;
    if (!recomputed) return CGP_OK;
    CGP_TRY(CGP__NEW(setup->recomputed, n, "plan"));
    memcpy(setup->recomputed, recomputed, n * sizeof *recomputed);
    return CGP_OK;
}

cgp_status cgp__plan_make_with(cgp_plan **out, const cgp_model *model,
                               const cgp_plan_options *options, const bool *recomputed) {
    cgp_plan *plan = cgp__calloc(1, sizeof *plan);
    if (!plan) return cgp__no_memory("plan", sizeof *plan);
    cgp_status status = set_up(&plan->setup, model, options);
    if (status == CGP_OK) status = copy_recomputed(&plan->setup, recomputed);
    if (status == CGP_OK) {
        cgp__model_set_planned(model);
        status = build(plan, options);
    }
    if (status != CGP_OK) {
        cgp_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return CGP_OK;
}

cgp_status cgp__plan_make(cgp_plan **out, const cgp_model *model, const cgp_plan_options *options) {
    CGP_TRY(check_options(options, model));
    return options->recompute == CGP_RECOMPUTE_BUDGET && !options->inference
               ? cgp__plan_budget(out, model, options, true, INFINITY)
               : cgp__plan_make_with(out, model, options, NULL);
}

/* Set the error message for mode `budget`. It names the bytes that the fullest device needs even
 * with the most useful recomputation. It also names `least`, the smallest limit with which a plan
 * fits, unless `least` is 0 (unknown). */
static cgp_status refuse_budget(const cgp_plan *plan, int64_t least) {
    const cgp_plan_device *device = NULL;
    char needs[512], limit[32];
    for (int d = 0; d < plan->placement.n_devices; d++) {
        const cgp_plan_device *i = &plan->placement.devices[d].info;
        const bool exceeds = i->limit_bytes > 0 && cgp__limited_bytes(i) > i->limit_bytes;
        if (exceeds && (!device || cgp__limited_bytes(i) > cgp__limited_bytes(device))) device = i;
    }
    cgp__device_needs_text(device, needs, sizeof needs);
    cgp_bytes_text(device->limit_bytes, limit, sizeof limit);
    if (least == 0)
        return cgp_fail(CGP_ELIMIT, "recompute budget: %s but its memory is limited to %s", needs,
                        limit);
    return cgp_fail(CGP_ELIMIT,
                    "recompute budget: %s but its memory is limited to %s; the least that would do "
                    "is %lld bytes",
                    needs, limit, (long long)least);
}

/* No plan of mode `budget` was found within the limits. The search is a heuristic, so a search with
 * a smaller limit may still find a plan. Take that plan, or refuse. */
static cgp_status retry_budget(cgp_plan **plan, const cgp_plan_options *o) {
    int64_t least = 0;
    CGP_TRY(cgp__plan_budget_least((*plan)->setup.model, o, &least));
    if (least > 0 && least <= o->memory_limit) CGP_TRY(cgp__plan_budget_smaller(plan, o, least));
    return cgp__plan_check_limits(*plan) == CGP_OK ? CGP_OK : refuse_budget(*plan, least);
}

cgp_status cgp_plan_create(cgp_plan **out, const cgp_model *model,
                           const cgp_plan_options *options) {
    CGP__NEED(out);
    CGP__NEED(model);
    CGP__NEED(options);
    cgp_plan *plan = NULL;
    CGP_TRY(cgp__plan_make(&plan, model, options));
    cgp_status status = cgp__plan_check_limits(plan);
    if (status == CGP_ELIMIT && options->recompute == CGP_RECOMPUTE_BUDGET)
        status = retry_budget(&plan, options);
    if (status != CGP_OK) {
        cgp_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return CGP_OK;
}

cgp_status cgp__plan_balance(const cgp_model *model, const cgp_plan_options *options,
                             const int64_t *caps, const cgp__device_costs *costs, int *balance,
                             int64_t *bytes) {
    CGP_TRY(check_options(options, model));
    cgp_plan *plan = cgp__calloc(1, sizeof *plan);
    if (!plan) return cgp__no_memory("balance", sizeof *plan);
    cgp_status status = set_up(&plan->setup, model, options);
    if (status == CGP_OK) status = cgp__place_stages(plan, options);
    if (status == CGP_OK)
        status = check_size(&plan->setup, cgp_schedule_stages(plan->actions.table));
    if (status == CGP_OK)
        status = cgp__find_balance(&plan->setup, options, plan->actions.table, caps, costs, balance,
                                   bytes);
    cgp_plan_destroy(plan);
    return status;
}

int cgp__options_devices(const cgp_plan_options *options) {
    return options->table ? cgp_schedule_devices(options->table) : options->stages;
}

cgp_status cgp__check_row_of(const int *row_of, int devices) {
    for (int d = 0; row_of && d < devices; d++) {
        if (row_of[d] < 0 || row_of[d] >= devices)
            return cgp_fail(CGP_EINVAL,
                            "costs: device %d: expected a row from 0 to %d, got %d (row_of)", d,
                            devices - 1, row_of[d]);
    }
    return CGP_OK;
}

cgp_status cgp_balance_for_plan(const cgp_model *model, const cgp_plan_options *options,
                                cgp_balance_goal goal, const cgp_layer_cost *costs, int *balance) {
    CGP__NEED(model);
    CGP__NEED(options);
    CGP__NEED(balance);
    if (goal != CGP_BALANCE_MAKESPAN && goal != CGP_BALANCE_MEMORY)
        return cgp_fail(CGP_EINVAL, "balance: expected a cgp_balance_goal, got number %d",
                        (int)goal);
    const cgp__device_costs equal = {.rows = costs}, *given = costs ? &equal : NULL;
    if (goal == CGP_BALANCE_MAKESPAN)
        return cgp__plan_balance(model, options, NULL, given, balance, NULL);
    CGP_TRY(check_options(options, model)); /* before the number of devices is used */
    const int n = cgp__options_devices(options);
    int64_t *caps = cgp__calloc((size_t)cgp__max(n, 1), sizeof *caps);
    if (!caps) return cgp__no_memory("balance", (size_t)n * sizeof *caps);
    const cgp_status status = cgp__plan_balance(model, options, caps, given, balance, NULL);
    free(caps);
    return status;
}

cgp_status cgp_balance_for_devices(const cgp_model *model, const cgp_plan_options *options,
                                   const cgp_layer_cost *costs, const int *row_of, int *balance) {
    CGP__NEED(model);
    CGP__NEED(options);
    CGP__NEED(costs);
    CGP__NEED(balance);
    CGP_TRY(check_options(options, model)); /* before the number of devices is used */
    const cgp__device_costs given = {costs, row_of, cgp__options_devices(options)};
    CGP_TRY(cgp__check_row_of(row_of, given.devices));
    return cgp__plan_balance(model, options, NULL, &given, balance, NULL);
}

void cgp_plan_destroy(cgp_plan *plan) {
    if (!plan) return;
    cgp_schedule_timeline_release(&plan->actions.timeline);
    cgp_schedule_destroy(plan->actions.schedule);
    cgp_schedule_destroy(plan->actions.table);
    cgp__replays_release(&plan->replays);
    free(plan->links.list);
    free(plan->results.input_gradients);
    free(plan->results.outputs);
    cgp__messages_release(&plan->messages);
    cgp__index_release(&plan->packings.index);
    free(plan->packings.list);
    free(plan->states.log);
    free(plan->states.accumulator);
    free(plan->states.cache);
    free(plan->states.state);
    free(plan->parameters.trained);
    free(plan->parameters.use_gradient);
    free(plan->parameters.first_copy);
    free(plan->parameters.copies);
    free(plan->setup.recomputed);
    cgp__placement_release(&plan->placement);
    cgp__groups_release(&plan->setup.groups);
    free(plan);
}
