/* SPDX-License-Identifier: Apache-2.0 */
/* layer_sums.c -- makes prefix sums of the costs of layers, as integers (layer_sums.h).
 *
 * Times are multiplied by a power of two and rounded. The factor is the largest with which all sums
 * stay below 2^53. So FLOPs stay exact, and measured times keep their precision. */
#include "partition/layer_sums.h"

#include <math.h>
#include <stdlib.h>

#include "model/backward.h"
#include "model/model.h"
#include "partition/partition.h"

/* --- times and bytes --- */

static void times_of(const cgp_layer_cost *c, const cgp__layer_use *use, double time[CGP__TIMES]) {
    time[CGP__TIME_F] = c->forward_seconds;
    time[CGP__TIME_I] = c->input_seconds;
    if (use->selective) time[CGP__TIME_I] += c->selective_seconds;
    time[CGP__TIME_W] = c->weight_seconds;
    time[CGP__TIME_R] = c->recompute_seconds;
    if (use->inference) time[CGP__TIME_I] = time[CGP__TIME_W] = time[CGP__TIME_R] = 0;
}

int cgp__device_cost_rows(const cgp__device_costs *costs) {
    int rows = 1;
    for (int d = 0; costs->row_of && d < costs->devices; d++)
        rows = cgp__max(rows, costs->row_of[d] + 1);
    return rows;
}

/* Add up the times of a row of costs, for all micro-batches. */
static cgp_status add_row(const cgp_layer_cost *costs, int layers, const cgp__layer_use *use,
                          double *total) {
    double sum = 0;
    for (int i = 0; i < layers; i++) {
        double time[CGP__TIMES];
        times_of(&costs[i], use, time);
        for (int k = 0; k < CGP__TIMES; k++) {
            if (!(time[k] >= 0 && isfinite(time[k])))
                return cgp_fail(CGP_EINVAL,
                                "balance: layer %d: expected times of 0 or more, got %g", i,
                                time[k]);
            sum += time[k];
        }
    }
    sum *= use->chunks;
    if (!isfinite(sum))
        return cgp_fail(CGP_EINVAL, "balance: the costs add up to more than a number holds "
                                    "(divide all of them by the largest)");
    *total = sum;
    return CGP_OK;
}

/* Find the exponent of the power of two that multiplies the times of all rows. */
static cgp_status find_scale(const cgp__device_costs *costs, int rows, int layers,
                             const cgp__layer_use *use, int *exponent) {
    double all = 0;
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        CGP_TRY(add_row(costs->rows + (size_t)r * (size_t)layers, layers, use, &sum));
        all += sum;
    }
    if (!isfinite(all))
        return cgp_fail(CGP_EINVAL, "balance: the costs of all devices add up to more than a "
                                    "number holds (divide all of them by the largest)");
    frexp(all, exponent); /* sets exponent such that all < 2^exponent */
    *exponent = 52 - *exponent;
    return CGP_OK;
}

static void add_times(cgp__layer_sums *s, const cgp__device_costs *costs, int exponent,
                      const cgp__layer_use *use) {
    for (int at = 0; at < s->rows * s->layers; at++) {
        double time[CGP__TIMES];
        times_of(&costs->rows[at], use, time);
        for (int k = 0; k < CGP__TIMES; k++) {
            int64_t *sum = &s->time[k][at + at / s->layers]; /* rows have layers + 1 entries */
            sum[1] = sum[0] + llround(ldexp(time[k], exponent));
        }
    }
}

/* Add up times and bytes. frozen: [layers] bytes of frozen parameters, which have no gradient and
 * no optimizer state. */
static cgp_status add_up(cgp__layer_sums *s, const cgp__device_costs *device_costs,
                         const int64_t *frozen, const cgp__layer_use *use) {
    const cgp_layer_cost *costs = device_costs->rows; /* bytes are the same in all rows */
    int exponent = 0;
    CGP_TRY(find_scale(device_costs, s->rows, s->layers, use, &exponent));
    add_times(s, device_costs, exponent, use);
    for (int i = 0; i < s->layers; i++) {
        const int64_t trained = cgp__max(0, costs[i].parameter_bytes - frozen[i]);
        s->parameter[i + 1] = s->parameter[i] + frozen[i] + trained * use->parameter_scale;
        s->saved[i + 1] = s->saved[i] + (use->inference ? 0 : costs[i].saved_bytes);
    }
    return CGP_OK;
}

static cgp_status add_costs(cgp__layer_sums *s, const cgp_model *model,
                            const cgp__device_costs *costs, const cgp__layer_use *use) {
    int64_t *frozen = cgp__calloc((size_t)s->layers, sizeof *frozen);
    if (!frozen) return cgp__no_memory("balance", (size_t)s->layers * sizeof *frozen);
    cgp__frozen_bytes(model, frozen);
    const cgp_status status = add_up(s, costs, frozen, use);
    free(frozen);
    return status;
}

/* --- values between layers --- */

/* Return a node's layer. Losses are in no layer, and run with the last layer. */
static int layer_of(const cgp_model *model, int node) {
    return cgp__min(model->nodes[node].layer, model->n_layers - 1);
}

static int find_first_backward(const cgp_model *model) {
    int first = model->n_layers;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (cgp__node_has_direction(model, node, CGP_OP_BACKWARD_INPUT) ||
            cgp__node_has_direction(model, node, CGP_OP_BACKWARD_WEIGHT))
            first = cgp__min(first, layer_of(model, i));
    }
    return first;
}

static cgp_status add_link(cgp__layer_sums *s, int from, int to) {
    if (from == to) return CGP_OK;
    if (!cgp__grow(&s->links, &s->links_capacity, s->n_links + 1, sizeof *s->links))
        return cgp__no_memory("balance: links", sizeof *s->links);
    s->links[s->n_links++] = (cgp__layer_link){from, to};
    return CGP_OK;
}

/* Add the links of a node's inputs. The links of a value go from its producer to each reader. The
 * links of the value's gradient form a chain from the last reader through the other readers to the
 * producer, as in plan/messages.c. `next`: [values] the layer that was added last to the value's
 * chain, or -1. */
static cgp_status add_reads(cgp__layer_sums *s, const cgp_model *model, int i, int *next) {
    const cgp__node *node = &model->nodes[i];
    const int layer = layer_of(model, i);
    for (int k = 0; k < node->n_inputs; k++) {
        const int value = node->inputs[k], producer = model->values[value].node;
        if (producer < 0 || layer_of(model, producer) == layer) continue;
        CGP_TRY(add_link(s, layer_of(model, producer), layer));
        if (!model->values[value].has_grad || !node->requires_grad || !cgp__node_passes(node, k))
            continue;
        if (next[value] >= 0) CGP_TRY(add_link(s, next[value], layer));
        next[value] = layer;
    }
    return CGP_OK;
}

/* Add the bytes of a value to each boundary that it crosses. While values are added, each entry of
 * crossing[] is the difference from the previous entry. */
static void add_crossing(cgp__layer_sums *s, const cgp_model *model, int i, int *last,
                         const cgp__layer_use *use) {
    const cgp__node *node = &model->nodes[i];
    if (node->output < 0 || last[node->output] <= layer_of(model, i)) return;
    cgp_op_type type = model->values[node->output].type;
    if (type.dtype == CGP_F32) type.dtype = use->type;
    const int64_t bytes = cgp__type_bytes(&type, use->samples);
    s->crossing[layer_of(model, i) + 1] += bytes;
    if (last[node->output] + 1 < s->layers) s->crossing[last[node->output] + 1] -= bytes;
}

static bool is_chain(const cgp__layer_sums *s, bool inference, uint8_t *linked) {
    for (int e = 0; e < s->n_links; e++) {
        const cgp__layer_link *link = &s->links[e];
        if (link->to == link->from + 1) linked[link->to] |= 1;
        if (link->from == link->to + 1) linked[link->from] |= 2;
    }
    for (int i = 1; i < s->layers; i++) {
        if (!(linked[i] & 1) || (!inference && !(linked[i] & 2))) return false;
    }
    return true;
}

static cgp_status link_layers(cgp__layer_sums *s, const cgp_model *model, const cgp__layer_use *use,
                              int *next, int *last) {
    for (int v = 0; v < model->n_values; v++)
        next[v] = last[v] = -1;
    for (int i = model->n_nodes - 1; i >= 0; i--) {
        const cgp__node *node = &model->nodes[i];
        CGP_TRY(add_reads(s, model, i, next));
        for (int k = 0; k < node->n_inputs; k++)
            last[node->inputs[k]] = cgp__max(last[node->inputs[k]], layer_of(model, i));
        add_crossing(s, model, i, last, use);
        if (node->output >= 0 && next[node->output] >= 0)
            CGP_TRY(add_link(s, next[node->output], layer_of(model, i)));
    }
    for (int i = 1; i < s->layers; i++)
        s->crossing[i] += s->crossing[i - 1];
    uint8_t *linked = cgp__calloc((size_t)s->layers, 1);
    if (!linked) return cgp__no_memory("balance: links", (size_t)s->layers);
    s->chain = is_chain(s, use->inference, linked);
    free(linked);
    return CGP_OK;
}

cgp_status cgp__layer_sums_create(cgp__layer_sums *s, const cgp_model *model,
                                  const cgp__device_costs *costs, const cgp__layer_use *use) {
    const size_t row = (size_t)model->n_layers + 1, values = (size_t)model->n_values;
    *s = (cgp__layer_sums){
        .layers = model->n_layers, .rows = cgp__device_cost_rows(costs), .row_of = costs->row_of};
    const size_t times = (size_t)s->rows * row;
    CGP_TRY(CGP__NEW(s->time[0], CGP__TIMES * times + 3 * row, "balance"));
    for (int k = 1; k < CGP__TIMES; k++)
        s->time[k] = s->time[k - 1] + times;
    s->parameter = s->time[CGP__TIMES - 1] + times;
    s->saved = s->parameter + row;
    s->crossing = s->saved + row;
    CGP_TRY(add_costs(s, model, costs, use));
    s->first_backward = find_first_backward(model);
    int *layer = cgp__calloc(2 * values, sizeof *layer);
    if (!layer) return cgp__no_memory("balance: links", 2 * values * sizeof *layer);
    const cgp_status status = link_layers(s, model, use, layer, layer + values);
    free(layer);
    return status;
}

void cgp__layer_sums_release(cgp__layer_sums *s) {
    free(s->time[0]);
    free(s->links);
    *s = (cgp__layer_sums){0};
}
