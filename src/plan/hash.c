/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c -- hashes everything that must be equal on all ranks before they run a plan together: what
 * each rank does, sends, keeps and checks. The hash excludes data that the code derives from the
 * hashed data, such as programs and offsets. The hash also excludes the functions of a custom op
 * and the bytes of its own attributes, because they may contain addresses. */
#include <string.h>

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/plan.h"

/* A hash in progress. After a failure, further data are ignored. */
typedef struct sum {
    cgp__sha256 *hash;
    cgp_status status;
} sum;

static void add(sum *s, const void *data, size_t bytes) {
    if (s->status == CGP_OK) s->status = cgp__sha256_add(s->hash, data, bytes);
}

static void add_text(sum *s, const char *text) {
    add(s, text, strlen(text) + 1);
}

#define ADD_NUMBERS(s, ...)                                                                        \
    add(s, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}))
#define ADD_REALS(s, ...)                                                                          \
    add(s, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}))

static void add_type(sum *s, cgp_dtype dtype, const cgp_shape *shape) {
    ADD_NUMBERS(s, (int64_t)dtype, shape->rank);
    for (int i = 0; i < shape->rank; i++)
        ADD_NUMBERS(s, shape->dims[i]);
}

/* --- the graph --- */

/* Add the fields of an op's table. They matter for custom ops; the version of cgpipe determines the
 * tables of built-in ops. */
static void add_op(sum *s, const cgp_op_node *use) {
    const cgp_op *op = use->op;
    const cgp_op_shapes *shapes = &use->shapes;
    add_text(s, op->name);
    ADD_NUMBERS(s, op->n_inputs, op->is_loss, op->input_needs_x, op->input_needs_saved,
                op->input_needs_y, op->weight_needs_x, op->weight_needs_saved, op->weight_needs_y,
                op->weight_in_input, op->cheap, op->overwrites, op->dx_in_place,
                op->backward_input != NULL, op->backward_weight != NULL, op->end_of_step != NULL,
                op->count != NULL);
    ADD_NUMBERS(s, shapes->n_saved, shapes->n_parameters, shapes->n_state,
                shapes->accumulator_bytes);
    for (int k = 0; k < shapes->n_saved; k++)
        add_type(s, shapes->saved[k].dtype, &shapes->saved[k].shape);
}

static void add_node(sum *s, const cgp__node *node) {
    cgp_op_attributes sizes = node->sizes;
    sizes.custom = NULL; /* the field is an address, which may differ between ranks */
    add_op(s, &node->use);
    add(s, &sizes, sizeof sizes);
    ADD_NUMBERS(s, (int64_t)node->kind, node->layer, node->id, node->output, node->first_state);
    ADD_REALS(s, node->loss_weight);
    for (int k = 0; k < node->n_inputs; k++)
        ADD_NUMBERS(s, node->inputs[k]);
    for (int k = 0; k < node->use.shapes.n_parameters; k++)
        ADD_NUMBERS(s, node->params[k]);
}

static void add_model(sum *s, const cgp_model *model) {
    add_text(s, model->name);
    ADD_NUMBERS(s, model->n_values, model->n_nodes, model->n_params, model->n_states,
                model->n_layers, model->n_inputs, model->n_losses,
                model->n_outputs > 0 ? model->outputs[0] : -1);
    for (int k = 1; k < model->n_outputs; k++)
        ADD_NUMBERS(s, model->outputs[k]);
    for (int k = 0; k < model->n_inputs; k++) {
        add_text(s, model->inputs[k]);
        ADD_NUMBERS(s, model->input_values[k]);
    }
    for (int v = 0; v < model->n_values; v++)
        add_type(s, model->values[v].type.dtype, &model->values[v].type.shape);
    for (int i = 0; i < model->n_nodes; i++)
        add_node(s, &model->nodes[i]);
    for (int k = 0; k < model->n_inputs; k++) {
        if (model->values[model->input_values[k]].wants_grad) ADD_NUMBERS(s, -1, k);
    }
    for (int p = 0; p < model->n_params; p++) {
        const cgp__parameter *param = &model->params[p];
        add_text(s, param->name);
        add_type(s, CGP_F32, &param->shape);
        ADD_NUMBERS(s, (int64_t)param->init.kind, param->decays + 2 * param->frozen);
        ADD_REALS(s, param->init.scale);
    }
    for (int k = 0; k < model->n_states; k++) {
        const cgp__state *state = &model->states[k];
        add_text(s, state->name);
        add_type(s, state->info.dtype, &state->info.shape);
        ADD_NUMBERS(s, state->node, state->k);
        ADD_REALS(s, (double)state->info.begin);
    }
}

/* --- options and layout --- */

static void add_optim(sum *s, const cgp_optim *o) {
    const cgp_lr_schedule *rate = &o->schedule;
    ADD_NUMBERS(s, (int64_t)o->kind, o->nesterov, o->decay_all);
    ADD_REALS(s, o->lr, o->weight_decay, o->momentum, o->beta1, o->beta2, o->eps, o->alpha,
              o->clip_norm);
    ADD_NUMBERS(s, (int64_t)rate->kind, rate->warmup, rate->steps, rate->step_size,
                rate->warmup_interval, rate->n_milestones);
    ADD_REALS(s, rate->min_ratio, rate->gamma, rate->start);
    for (int k = 0; k < rate->n_milestones && k < CGP_MAX_MILESTONES; k++)
        ADD_NUMBERS(s, rate->milestones[k]);
}

/* Add the groups, if there are any. */
static void add_groups(sum *s, const cgp__groups *groups, int n_params) {
    if (groups->n == 0) return;
    ADD_NUMBERS(s, groups->n);
    for (int g = 0; g < groups->n; g++)
        ADD_REALS(s, groups->lr[g], groups->weight_decay[g]);
    for (int p = 0; p < n_params; p++)
        ADD_NUMBERS(s, groups->of[p]);
}

static void add_options(sum *s, const cgp__setup *setup) {
    add_text(s, CGP_VERSION);
    ADD_NUMBERS(s, setup->batch, setup->microbatch, setup->chunks, (int64_t)setup->precision,
                (int64_t)setup->recompute, setup->deferred_batch_norm, setup->inference,
                setup->external_loss, setup->ranks, (int64_t)setup->convolution);
    if (setup->recomputed)
        add(s, setup->recomputed, (size_t)setup->model->n_nodes * sizeof *setup->recomputed);
    if (setup->gradient_groups > 1) ADD_NUMBERS(s, setup->gradient_groups);
    if (setup->replicas > 1) ADD_NUMBERS(s, setup->replicas, setup->whole_chunks);
    if (setup->shards) ADD_NUMBERS(s, setup->shards);
    add_optim(s, &setup->optim);
    add_groups(s, &setup->groups, setup->model->n_params);
}

/* Add devices, stages, edges and links. Offsets need not be hashed: if memory layouts differ, the
 * byte counts of devices or links differ too. */
static void add_layout(sum *s, const cgp_plan *plan) {
    const cgp__placement *placement = &plan->placement;
    ADD_NUMBERS(s, placement->n_devices, placement->n_stages, plan->messages.n_edges,
                plan->links.n);
    for (int d = 0; d < placement->n_devices; d++) {
        const cgp_plan_device *device = &placement->devices[d].info;
        const int64_t ordinal = placement->devices[d].local ? -1 : device->ordinal;
        add_text(s, device->name);
        ADD_NUMBERS(s, placement->devices[d].options.threads, ordinal, device->limit_bytes,
                    device->rank, device->planned_bytes, device->host_bytes);
    }
    for (int j = 0; j < placement->n_stages; j++)
        ADD_NUMBERS(s, placement->balance[j], placement->stages[j].info.device);
    for (int e = 0; e < plan->messages.n_edges; e++) {
        const cgp__edge_plan *edge = &plan->messages.edges[e];
        ADD_NUMBERS(s, edge->edge.from, edge->edge.to, edge->n_parts);
        for (int k = 0; k < edge->n_parts; k++)
            ADD_NUMBERS(s, edge->parts[k].value, edge->parts[k].sample_bytes);
    }
    for (int l = 0; l < plan->links.n; l++) {
        const cgp__link_plan *link = &plan->links.list[l];
        ADD_NUMBERS(s, link->from, link->to, link->bytes, link->capacity, link->in_host,
                    link->receives, link->receives_in_host, link->pieces);
    }
}

static void add_actions(sum *s, const cgp_schedule *schedule) {
    add_text(s, cgp_schedule_name(schedule));
    for (int d = 0; d < cgp_schedule_devices(schedule); d++) {
        int n = 0;
        const cgp_action *actions = cgp_schedule_actions(schedule, d, &n);
        ADD_NUMBERS(s, n);
        for (int i = 0; i < n; i++)
            ADD_NUMBERS(s, (int64_t)actions[i].kind, actions[i].stage, actions[i].microbatch,
                        actions[i].edge, actions[i].overlapped);
    }
}

cgp_status cgp_plan_hash(const cgp_plan *plan, char hex[65]) {
    CGP__NEED(plan);
    CGP__NEED(hex);
    sum s = {NULL, CGP_OK};
    CGP_TRY(cgp__sha256_create(&s.hash));
    add_options(&s, &plan->setup);
    add_model(&s, plan->setup.model);
    add_layout(&s, plan);
    add_actions(&s, plan->actions.table); /* all other schedules are derived from this table */
    add_actions(&s, plan->actions.schedule);
    if (s.status == CGP_OK) s.status = cgp__sha256_finish(s.hash, hex);
    cgp__sha256_destroy(s.hash);
    return s.status;
}
