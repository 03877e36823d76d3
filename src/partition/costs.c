/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c -- computes the costs of layers from the costs of kernels. It finds the kernels of each
 * op in training, the values that backward reads, and the ops that are recomputed for backward.
 *
 * The costs are for a plan with one stage. With more stages, little changes: R of a stage leaves
 * out the last ops if their results are only sent, and backward adds to arriving gradients instead
 * of overwriting gradients. */
#include "model/model.h"
#include "op/op.h"
#include "partition/partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- saved values --- */

/* Fill last_read [values]: 0 for values that backward reads, -1 for others. */
static void mark_read(const cgp_model *model, int *last_read) {
    for (int i = 0; i < model->n_values; i++)
        last_read[i] = -1;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        for (int d = CGP_OP_BACKWARD_INPUT; d < CGP_OP_DIRECTIONS; d++) {
            bool y;
            const uint32_t x = cgp__node_reads(model, node, (cgp_op_direction)d, &y);
            for (int k = 0; k < node->n_inputs; k++) {
                if (x & (1u << k)) last_read[node->inputs[k]] = 0;
            }
            if (y) last_read[node->output] = 0;
        }
    }
}

static bool keeps(const cgp_model *model, const cgp__node *node, int k) {
    return cgp__node_keeps(model, node, CGP_OP_BACKWARD_INPUT, k) ||
           cgp__node_keeps(model, node, CGP_OP_BACKWARD_WEIGHT, k);
}

/* Mark the nodes that R runs, which are the producers of values that backward reads, and the
 * ancestors of these producers. */
static void mark_recomputed(const cgp_model *model, const int *last_read, bool *recomputed) {
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        recomputed[i] = node->output >= 0 && last_read[node->output] >= 0;
        for (int k = 0; k < node->use.shapes.n_saved; k++)
            recomputed[i] = recomputed[i] || keeps(model, node, k);
    }
    cgp__mark_ancestors(model, 0, model->n_nodes, recomputed);
}

/* --- kernels --- */

/* Return the kernels of a node. This is called for the nodes in the order of backward, from last to
 * first; the inputs of each node are also visited from last to first. `begun` [values] marks the
 * gradients to which a later use has written already. */
static cgp__node_kernels kernels_of(const cgp_model *model, int i, int64_t n,
                                    cgp__arithmetic arithmetic, bool *begun) {
    const cgp__node *node = &model->nodes[i];
    cgp__node_kernels kernels = {.node = i};
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        kernels.has[d] = cgp__node_has_direction(model, node, (cgp_op_direction)d);
        kernels.spec[d] = cgp__node_kernel(node, (cgp_op_direction)d, n, arithmetic);
    }
    if (!kernels.has[CGP_OP_BACKWARD_INPUT]) return kernels;
    uint32_t add = 0;
    for (int k = node->n_inputs - 1; k >= 0; k--) {
        const int value = node->inputs[k];
        if (!cgp__node_passes(node, k) || !model->values[value].has_grad) continue;
        if (begun[value]) add |= 1u << k;
        if (begun[value] || cgp__op_dx(node->kind, node->use.op) != CGP__DX_SAME)
            kernels.dx |= 1u << k;
        begun[value] = true;
    }
    kernels.spec[CGP_OP_BACKWARD_INPUT].add = (uint16_t)add;
    /* If the gradient of an op's result is also the gradient of its input, no kernel runs. */
    kernels.has[CGP_OP_BACKWARD_INPUT] = kernels.dx != 0 || cgp__node_weight_in_input(model, node);
    return kernels;
}

/* --- layers --- */

typedef struct marks {
    /* two arrays [values]: 0 if backward reads the value, else -1; and whether a later use has
     * written to the value's gradient */
    int *last_read;
    bool *begun;
    /* arrays [nodes]: whether R runs the node; whether `+selective` recomputes the node; the
     * kernels of the node */
    bool *recomputed, *selective;
    cgp__node_kernels *kernels;
} marks;

static void release(marks *m) {
    free(m->kernels);
    free(m->selective);
    free(m->recomputed);
    free(m->begun);
    free(m->last_read);
}

static cgp_status make_marks(marks *m, const cgp_model *model, int64_t n,
                             cgp__arithmetic arithmetic) {
    const size_t values = (size_t)model->n_values, nodes = (size_t)model->n_nodes;
    CGP_TRY(CGP__NEW(m->last_read, values, "costs"));
    CGP_TRY(CGP__NEW(m->begun, values, "costs"));
    CGP_TRY(CGP__NEW(m->recomputed, nodes, "costs"));
    CGP_TRY(CGP__NEW(m->selective, nodes, "costs"));
    CGP_TRY(CGP__NEW(m->kernels, nodes, "costs"));
    mark_read(model, m->last_read);
    mark_recomputed(model, m->last_read, m->recomputed);
    for (int i = model->n_nodes - 1; i >= 0; i--) {
        m->selective[i] = cgp__node_may_recompute(model, &model->nodes[i], 0, m->last_read);
        m->kernels[i] = kernels_of(model, i, n, arithmetic, m->begun);
    }
    return CGP_OK;
}

/* Return the layer that gets a node's costs. Losses are in no layer, so their costs go to the last
 * layer. */
static int cost_layer(const cgp_model *model, const cgp__node *node) {
    return node->use.op->is_loss ? model->n_layers - 1 : node->layer;
}

static int64_t value_bytes(const cgp_op_type *type, int64_t n, cgp_dtype type_on_device) {
    cgp_op_type on_device = *type;
    if (on_device.dtype == CGP_F32) on_device.dtype = type_on_device;
    return cgp__type_bytes(&on_device, n);
}

/* Return the layer that gets a parameter's bytes: the layer of the parameter's first use. */
static int parameter_layer(const cgp_model *model, int p) {
    return cost_layer(model, &model->nodes[model->uses[model->params[p].first_use].node]);
}

void cgp__frozen_bytes(const cgp_model *model, int64_t *bytes) {
    for (int i = 0; i < model->n_layers; i++)
        bytes[i] = 0;
    for (int p = 0; p < model->n_params; p++) {
        if (model->params[p].frozen)
            bytes[parameter_layer(model, p)] += 4 * cgp_shape_count(&model->params[p].shape);
    }
}

static void add_bytes(const cgp_model *model, const marks *m, int64_t n, cgp_dtype type,
                      cgp_layer_cost *costs) {
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        cgp_layer_cost *cost = &costs[cost_layer(model, node)];
        if (node->output >= 0 && m->last_read[node->output] >= 0)
            cost->saved_bytes += value_bytes(&model->values[node->output].type, n, type);
        for (int k = 0; k < node->use.shapes.n_saved; k++) {
            if (keeps(model, node, k))
                cost->saved_bytes += cgp__type_bytes(&node->use.shapes.saved[k], n);
        }
    }
    for (int p = 0; p < model->n_params; p++)
        costs[parameter_layer(model, p)].parameter_bytes +=
            4 * cgp_shape_count(&model->params[p].shape);
}

static cgp_status add_node(const cgp_model *model, const marks *m, int i, const cgp__timer *timer,
                           cgp_layer_cost *costs) {
    const cgp__node *node = &model->nodes[i];
    const cgp__node_kernels *kernels = &m->kernels[i];
    cgp_layer_cost *cost = &costs[cost_layer(model, node)];
    double seconds[CGP_OP_DIRECTIONS] = {0};
    CGP_TRY(timer->time(timer->self, model, kernels, seconds));
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        if (!kernels->has[d]) continue;
        cost->flops[d] +=
            cgp__node_flops(model, node, (cgp_op_direction)d) * (double)kernels->spec[d].n;
    }
    cost->forward_seconds += seconds[CGP_OP_FORWARD];
    if (kernels->has[CGP_OP_BACKWARD_INPUT]) cost->input_seconds += seconds[CGP_OP_BACKWARD_INPUT];
    if (kernels->has[CGP_OP_BACKWARD_WEIGHT])
        cost->weight_seconds += seconds[CGP_OP_BACKWARD_WEIGHT];
    if (m->recomputed[i]) cost->recompute_seconds += seconds[CGP_OP_FORWARD];
    if (m->selective[i]) cost->selective_seconds += seconds[CGP_OP_FORWARD];
    return CGP_OK;
}

cgp_status cgp__layer_costs(const cgp_model *model, int64_t samples, cgp__arithmetic arithmetic,
                            const cgp__timer *timer, cgp_layer_cost *costs) {
    marks m = {0};
    const size_t layers = (size_t)model->n_layers;
    cgp_layer_cost *sums = cgp__calloc(layers, sizeof *sums);
    cgp_status status = sums ? make_marks(&m, model, samples, arithmetic)
                             : cgp__no_memory("costs", layers * sizeof *sums);
    for (int i = 0; i < model->n_nodes && status == CGP_OK; i++)
        status = add_node(model, &m, i, timer, sums);
    if (status == CGP_OK) {
        add_bytes(model, &m, samples, arithmetic.type, sums);
        memcpy(costs, sums, layers * sizeof *costs);
    }
    release(&m);
    free(sums);
    return status;
}

/* A cgp__timer for which one FLOP takes one second. */
static cgp_status time_flops(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                             double seconds[CGP_OP_DIRECTIONS]) {
    const cgp__node *node = &model->nodes[kernels->node];
    (void)self;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        if (kernels->has[d])
            seconds[d] =
                cgp__node_flops(model, node, (cgp_op_direction)d) * (double)kernels->spec[d].n;
    }
    return CGP_OK;
}

cgp_status cgp__layer_flops_costs(const cgp_model *model, int64_t samples,
                                  cgp__arithmetic arithmetic, cgp_layer_cost *costs) {
    return cgp__layer_costs(model, samples, arithmetic, &(cgp__timer){time_flops, NULL}, costs);
}

/* --- sizes of micro-batches --- */

/* A line through (x0, y0) and (x1, y1). The cost at `at` samples is interpolated on this line. */
typedef struct line {
    double x0, x1, at;
} line;

static double on_line(const line *l, double y0, double y1) {
    const double y = y0 + (y1 - y0) * ((l->at - l->x0) / (l->x1 - l->x0));
    return y > 0 ? y : 0;
}

static cgp_layer_cost between(const line *l, const cgp_layer_cost *a, const cgp_layer_cost *b) {
    cgp_layer_cost cost = {
        .forward_seconds = on_line(l, a->forward_seconds, b->forward_seconds),
        .input_seconds = on_line(l, a->input_seconds, b->input_seconds),
        .weight_seconds = on_line(l, a->weight_seconds, b->weight_seconds),
        .recompute_seconds = on_line(l, a->recompute_seconds, b->recompute_seconds),
        .selective_seconds = on_line(l, a->selective_seconds, b->selective_seconds),
    };
    for (int d = 0; d < 3; d++)
        cost.flops[d] = on_line(l, a->flops[d], b->flops[d]);
    const double bytes = on_line(l, (double)a->saved_bytes, (double)b->saved_bytes);
    cost.saved_bytes = bytes < 0x1p62 ? llround(bytes) : (int64_t)1 << 62;
    return cost;
}

cgp_status cgp_layer_costs_at(const cgp_layer_cost *costs, const int64_t *samples, int sizes,
                              int layers, int64_t at, cgp_layer_cost *out) {
    CGP__NEED(costs);
    CGP__NEED(samples);
    CGP__NEED(out);
    if (sizes < 1 || layers < 1 || at < 1)
        return cgp_fail(CGP_EINVAL,
                        "costs: expected sizes, layers and samples of 1 or more, got %d, %d "
                        "and %lld",
                        sizes, layers, (long long)at);
    for (int k = 0; k < sizes; k++) {
        if (samples[k] < 1 || (k > 0 && samples[k] <= samples[k - 1]))
            return cgp_fail(CGP_EINVAL,
                            "costs: expected sizes of micro-batches that ascend from 1 or "
                            "more, got %lld as number %d",
                            (long long)samples[k], k);
    }
    int k = 0; /* index of the size at which the line begins */
    while (k < sizes - 2 && samples[k + 1] <= at)
        k++;
    static const cgp_layer_cost nothing = {0};
    const bool one = sizes == 1;
    const line l = {one ? 0 : (double)samples[k], (double)samples[one ? 0 : k + 1], (double)at};
    for (int i = 0; i < layers; i++) {
        const cgp_layer_cost *row = &costs[(size_t)k * (size_t)layers + (size_t)i];
        const cgp_layer_cost cost =
            one ? between(&l, &nothing, row) : between(&l, row, row + layers);
        out[i] = cost;
        out[i].parameter_bytes = costs[i].parameter_bytes;
        out[i].update_seconds = costs[i].update_seconds;
    }
    return CGP_OK;
}

/* --- balances --- */

cgp_status cgp_balance_by_time(const cgp_model *model, const cgp_layer_cost *costs, bool recomputed,
                               int stages, int *balance) {
    CGP__NEED(model);
    CGP__NEED(costs);
    CGP__NEED(balance);
    const int layers = cgp_model_layers(model);
    double *seconds = cgp__calloc((size_t)layers, sizeof *seconds);
    if (!seconds) return cgp__no_memory("balance", (size_t)layers * sizeof *seconds);
    cgp_status status = CGP_OK;
    for (int i = 0; i < layers; i++) {
        const cgp_layer_cost *c = &costs[i];
        const double parts[] = {c->forward_seconds, c->input_seconds, c->weight_seconds,
                                c->recompute_seconds};
        for (int k = 0; k < 4 && status == CGP_OK; k++) {
            if (!(parts[k] >= 0 && isfinite(parts[k])))
                status =
                    cgp_fail(CGP_EINVAL, "balance: layer %d: expected times of 0 or more, got %g",
                             i, parts[k]);
        }
        seconds[i] = c->forward_seconds + c->input_seconds + c->weight_seconds;
        if (recomputed) seconds[i] += c->recompute_seconds;
    }
    if (status == CGP_OK) status = cgp_balance_solve(seconds, layers, stages, balance);
    free(seconds);
    return status;
}

static cgp_status no_time(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                          double seconds[CGP_OP_DIRECTIONS]) {
    (void)self;
    (void)model;
    (void)kernels;
    (void)seconds;
    return CGP_OK;
}

static cgp_status check_size_options(const cgp_balance_size_options *o) {
    if (o->struct_size != sizeof *o)
        return cgp_fail(CGP_EINVAL,
                        "balance options: struct_size is %zu, expected %zu (use "
                        "cgp_balance_size_options_default)",
                        o->struct_size, sizeof *o);
    if (o->samples < 1 || o->samples > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "balance options: samples: expected 1 to %d, got %lld",
                        INT32_MAX, (long long)o->samples);
    if (o->in_flight < 1)
        return cgp_fail(CGP_EINVAL, "balance options: in_flight: expected 1 or more, got %d",
                        o->in_flight);
    if (!(o->parameter_scale >= 0 && o->parameter_scale < 1e6))
        return cgp_fail(CGP_EINVAL, "balance options: parameter_scale: expected 0 to 1e6, got %g",
                        o->parameter_scale);
    return CGP_OK;
}

cgp_status cgp_balance_by_size(const cgp_model *model, const cgp_balance_size_options *options,
                               int stages, int *balance) {
    CGP__NEED(model);
    CGP__NEED(options);
    CGP__NEED(balance);
    CGP_TRY(check_size_options(options));
    const size_t layers = (size_t)cgp_model_layers(model);
    const cgp__timer timer = {no_time, NULL};
    cgp_layer_cost *costs = cgp__calloc(layers, sizeof *costs);
    double *bytes = cgp__calloc(layers, sizeof *bytes);
    int64_t *frozen = cgp__calloc(layers, sizeof *frozen);
    cgp_status status =
        costs && bytes && frozen ? CGP_OK : cgp__no_memory("balance", layers * sizeof *costs);
    if (status == CGP_OK)
        status = cgp__layer_costs(model, options->samples, (cgp__arithmetic){.type = CGP_F32},
                                  &timer, costs);
    if (status == CGP_OK) cgp__frozen_bytes(model, frozen);
    for (size_t i = 0; status == CGP_OK && i < layers; i++)
        bytes[i] = (double)costs[i].saved_bytes * options->in_flight + (double)frozen[i] +
                   (double)(costs[i].parameter_bytes - frozen[i]) * options->parameter_scale;
    if (status == CGP_OK) status = cgp_balance_solve(bytes, (int)layers, stages, balance);
    free(frozen);
    free(bytes);
    free(costs);
    return status;
}
