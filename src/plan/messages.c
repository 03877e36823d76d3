/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c -- lists the values and gradients that cross between stages.
 *
 * A value made in stage a and used in stage c > a goes from a to c directly. Its gradient returns
 * along a chain: from the last stage that uses the value, through the other users, to the producer.
 * Each stage adds its own uses, last to first, to the sum that arrived:
 *
 *     value        a ──► c1          gradient     a ◄── c1 ◄── c2
 *                  a ──────► c2
 *
 * The gradient of an input ends in the first stage that makes a part of it. That stage gives it to
 * the caller.
 *
 * So the sum ((g4 + g3) + g2) + g1 over uses 1..4 is bit-identical for every balance, and a stage
 * never has to add two partial sums. */
#include "plan/messages.h"

#include <stdlib.h>

#include "plan/plan.h"

/* --- readers --- */

static bool has_input_gradient(const cgp__node *node, int k) {
    return node->requires_grad && cgp__node_passes(node, k);
}

/* Visit each input of each node: count the stages that read a value, or, with `readers`, list them.
 * Nodes, and so stages, ascend. `n`: [values] the count so far. */
static void visit_inputs(const cgp_plan *plan, cgp__reader *readers, const int *first, int *n,
                         int *last_stage) {
    const cgp_model *model = plan->model;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        for (int k = 0; k < node->n_inputs; k++) {
            const int value = node->inputs[k], stage = plan->node_stage[i];
            if (n[value] == 0 || last_stage[value] != stage) n[value]++;
            last_stage[value] = stage;
            if (!readers) continue;
            cgp__reader *reader = &readers[first[value] + n[value] - 1];
            reader->stage = stage;
            reader->last_node = i;
            reader->gradient = reader->gradient || has_input_gradient(node, k);
        }
    }
}

static cgp_status list_readers(cgp_plan *plan) {
    const int values = plan->model->n_values;
    int *n = cgp__calloc(2 * (size_t)values, sizeof *n);
    plan->first_reader = cgp__calloc((size_t)values + 1, sizeof *plan->first_reader);
    if (n && plan->first_reader) {
        visit_inputs(plan, NULL, NULL, n, n + values);
        for (int v = 0; v < values; v++) {
            plan->first_reader[v + 1] = plan->first_reader[v] + n[v];
            n[v] = 0;
        }
        plan->readers = cgp__calloc((size_t)plan->first_reader[values], sizeof *plan->readers);
    }
    if (plan->readers) visit_inputs(plan, plan->readers, plan->first_reader, n, n + values);
    free(n);
    return plan->readers ? CGP_OK : cgp__no_memory("plan: readers", (size_t)values * sizeof *n);
}

bool cgp__plan_reads(const cgp_plan *plan, int value, int stage) {
    int low = plan->first_reader[value], high = plan->first_reader[value + 1];
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (plan->readers[middle].stage < stage)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plan->first_reader[value + 1] && plan->readers[low].stage == stage;
}

int cgp__plan_last_reader(const cgp_plan *plan, int value) {
    const int first = plan->first_reader[value], next = plan->first_reader[value + 1];
    return next > first ? plan->readers[next - 1].last_node : -1;
}

/* --- edges --- */

static int producer_stage(const cgp_plan *plan, int value) {
    const int node = plan->model->values[value].node;
    return node < 0 ? -1 : plan->node_stage[node];
}

static uint64_t hash_of(cgp_edge edge) {
    const int stages[2] = {edge.from, edge.to};
    return cgp__hash(stages, sizeof stages);
}

/* Find or make the edge between two stages; -1: out of memory. */
static int find_edge(cgp_plan *plan, cgp__index *index, cgp_edge edge) {
    const uint64_t hash = hash_of(edge);
    uint32_t tried = 0;
    int e;
    while ((e = cgp__index_next(index, hash, &tried)) >= 0) {
        plan->steps++;
        if (plan->edges[e].edge.from == edge.from && plan->edges[e].edge.to == edge.to) return e;
    }
    if (!cgp__grow(&plan->edges, &plan->edges_capacity, plan->n_edges + 1, sizeof *plan->edges) ||
        !cgp__index_add(index, hash, plan->n_edges))
        return -1;
    plan->edges[plan->n_edges] = (cgp__edge_plan){.edge = edge};
    return plan->n_edges++;
}

static cgp_status add_part(cgp_plan *plan, cgp__index *index, int from, int to, int value) {
    const int e = find_edge(plan, index, (cgp_edge){from, to});
    if (e < 0) return cgp__no_memory("plan: edges", sizeof *plan->edges);
    cgp__edge_plan *edge = &plan->edges[e];
    if (!cgp__grow(&edge->parts, &edge->parts_capacity, edge->n_parts + 1, sizeof *edge->parts))
        return cgp__no_memory("plan: messages", sizeof *edge->parts);
    const int64_t sample_bytes = cgp__plan_value_bytes(plan, value, 1);
    edge->parts[edge->n_parts++] =
        (cgp__part){.value = value, .sample_bytes = sample_bytes, .offset = edge->bytes};
    edge->bytes += cgp__align_up(sample_bytes * plan->microbatch);
    return CGP_OK;
}

static cgp_status add_activation(cgp_plan *plan, cgp__index *index, int value) {
    const int producer = producer_stage(plan, value);
    for (int r = plan->first_reader[value]; r < plan->first_reader[value + 1]; r++) {
        plan->steps++;
        if (producer >= 0 && plan->readers[r].stage > producer)
            CGP_TRY(add_part(plan, index, producer, plan->readers[r].stage, value));
    }
    return CGP_OK;
}

/* Add the chain from the last stage that makes a part of the gradient to the value's producer. */
static cgp_status add_gradient(cgp_plan *plan, cgp__index *index, int value) {
    const int producer = producer_stage(plan, value);
    int from = -1;
    if (plan->inference || !plan->model->values[value].has_grad) return CGP_OK;
    for (int r = plan->first_reader[value + 1] - 1; r >= plan->first_reader[value]; r--) {
        const cgp__reader *reader = &plan->readers[r];
        plan->steps++;
        if (!reader->gradient || reader->stage <= producer) continue;
        if (from >= 0) CGP_TRY(add_part(plan, index, from, reader->stage, value));
        from = reader->stage;
    }
    if (producer >= 0) return from < 0 ? CGP_OK : add_part(plan, index, from, producer, value);
    plan->input_gradients[plan->model->values[value].input].stage = from;
    return CGP_OK;
}

/* List the edges of each stage. */
static cgp_status list_stage_edges(cgp_plan *plan) {
    const size_t n = (size_t)plan->n_stages;
    int *first = cgp__calloc(n + 2, sizeof *first);
    int *list = cgp__calloc(2 * (size_t)plan->n_edges, sizeof *list);
    plan->first_stage_edge = first;
    plan->stage_edges = list;
    if (!first || !list) return cgp__no_memory("plan: edges", n * sizeof *first);
    /* Store each count two entries too far: filling the list then moves each start to its place. */
    for (int e = 0; e < plan->n_edges; e++) {
        first[plan->edges[e].edge.from + 2]++;
        first[plan->edges[e].edge.to + 2]++;
    }
    for (size_t j = 2; j < n + 2; j++)
        first[j] += first[j - 1];
    for (int e = 0; e < plan->n_edges; e++) {
        list[first[plan->edges[e].edge.from + 1]++] = e;
        list[first[plan->edges[e].edge.to + 1]++] = e;
    }
    return CGP_OK;
}

cgp_status cgp__plan_edges(cgp_plan *plan) {
    cgp__index index = {0};
    CGP_TRY(list_readers(plan));
    for (int k = 0; k < plan->model->n_inputs; k++)
        plan->input_gradients[k].stage = -1;
    cgp_status status = CGP_OK;
    for (int value = 0; value < plan->model->n_values && status == CGP_OK; value++)
        status = add_activation(plan, &index, value);
    for (int value = 0; value < plan->model->n_values && status == CGP_OK; value++)
        status = add_gradient(plan, &index, value);
    cgp__index_release(&index);
    return status == CGP_OK ? list_stage_edges(plan) : status;
}
