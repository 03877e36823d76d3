/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c -- lists the values and gradients that cross between stages.
 *
 * A value made in stage a and used in stage c > a goes from a to c directly. The value's gradient
 * returns along a chain: from the last stage that uses the value, through the other stages that use
 * it, to the stage that made it. Each stage adds the gradients of its own uses, last to first, to
 * the sum that arrived:
 *
 *     value        a ──► c1          gradient     a ◄── c1 ◄── c2
 *                  a ──────► c2
 *
 * The chain of a model input's gradient ends in the first stage that makes a part of this gradient.
 * That stage gives the complete gradient to the caller.
 *
 * So a stage never has to add two partial sums: the sum ((g4 + g3) + g2) + g1 over uses 1..4 is
 * bit-identical for every balance. */
#include "plan/messages.h"

#include <stdlib.h>

#include "base/base.h"
#include "model/backward.h"
#include "model/model.h"
#include "plan/placement.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"

/* The state while messages are listed. */
typedef struct lister {
    const cgp__setup *setup;
    const cgp_model *model;
    const int *node_stage;
    cgp__messages *out;
    cgp__index index; /* hash index of the edges */
    int64_t *steps;
} lister;

/* --- readers --- */

static bool has_input_gradient(const cgp__node *node, int k) {
    return node->requires_grad && cgp__node_passes(node, k);
}

/* Visit each input of each node, in ascending order of nodes and hence of stages. Count the stages
 * that read each value; if `readers` is not NULL, also list these stages. `n` [values] holds the
 * counts so far. */
static void visit_inputs(const lister *l, cgp__reader *readers, const int *first, int *n,
                         int *last_stage) {
    for (int i = 0; i < l->model->n_nodes; i++) {
        const cgp__node *node = &l->model->nodes[i];
        for (int k = 0; k < node->n_inputs; k++) {
            const int value = node->inputs[k], stage = l->node_stage[i];
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

static cgp_status list_readers(lister *l) {
    cgp__messages *m = l->out;
    const int values = l->model->n_values;
    int *n = cgp__calloc(2 * (size_t)values, sizeof *n);
    m->first_reader = cgp__calloc((size_t)values + 1, sizeof *m->first_reader);
    if (n && m->first_reader) {
        visit_inputs(l, NULL, NULL, n, n + values);
        for (int v = 0; v < values; v++) {
            m->first_reader[v + 1] = m->first_reader[v] + n[v];
            n[v] = 0;
        }
        m->readers = cgp__calloc((size_t)m->first_reader[values], sizeof *m->readers);
    }
    if (m->readers) visit_inputs(l, m->readers, m->first_reader, n, n + values);
    free(n);
    return m->readers ? CGP_OK : cgp__no_memory("plan: readers", (size_t)values * sizeof *n);
}

bool cgp__stage_reads(const cgp__messages *m, int value, int stage) {
    int low = m->first_reader[value], high = m->first_reader[value + 1];
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (m->readers[middle].stage < stage)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->first_reader[value + 1] && m->readers[low].stage == stage;
}

int cgp__last_reader(const cgp__messages *m, int value) {
    const int first = m->first_reader[value], next = m->first_reader[value + 1];
    return next > first ? m->readers[next - 1].last_node : -1;
}

/* --- edges --- */

static int producer_stage(const lister *l, int value) {
    const int node = l->model->values[value].node;
    return node < 0 ? -1 : l->node_stage[node];
}

/* Find or make the edge between two stages and return its index; -1: out of memory. */
static int find_edge(lister *l, int from, int to) {
    cgp__messages *m = l->out;
    const int stages[2] = {from, to};
    const uint64_t hash = cgp__hash(stages, sizeof stages);
    uint32_t tried = 0;
    int e;
    while ((e = cgp__index_next(&l->index, hash, &tried)) >= 0) {
        ++*l->steps;
        if (m->edges[e].edge.from == from && m->edges[e].edge.to == to) return e;
    }
    if (!cgp__grow(&m->edges, &m->edges_capacity, m->n_edges + 1, sizeof *m->edges) ||
        !cgp__index_add(&l->index, hash, m->n_edges))
        return -1;
    m->edges[m->n_edges] = (cgp__edge_plan){.edge = {from, to}};
    return m->n_edges++;
}

static cgp_status add_part(lister *l, int from, int to, int value) {
    const int e = find_edge(l, from, to);
    if (e < 0) return cgp__no_memory("plan: edges", sizeof *l->out->edges);
    cgp__edge_plan *edge = &l->out->edges[e];
    if (!cgp__grow(&edge->parts, &edge->parts_capacity, edge->n_parts + 1, sizeof *edge->parts))
        return cgp__no_memory("plan: messages", sizeof *edge->parts);
    const int64_t sample_bytes = cgp__value_bytes(l->setup, value, 1);
    edge->parts[edge->n_parts++] =
        (cgp__part){.value = value, .sample_bytes = sample_bytes, .offset = edge->bytes};
    edge->bytes += cgp__align_up(sample_bytes * l->setup->microbatch);
    return CGP_OK;
}

static cgp_status add_activation(lister *l, int value) {
    const int producer = producer_stage(l, value);
    for (int r = l->out->first_reader[value]; r < l->out->first_reader[value + 1]; r++) {
        const int stage = l->out->readers[r].stage;
        ++*l->steps;
        if (producer >= 0 && stage > producer) CGP_TRY(add_part(l, producer, stage, value));
    }
    return CGP_OK;
}

/* Add the edges of a value's gradient. The chain of edges leads from the last stage that makes a
 * part of the gradient to the stage that made the value. */
static cgp_status add_gradient(lister *l, int value, cgp__results *results) {
    const int producer = producer_stage(l, value), *first = &l->out->first_reader[value];
    int from = -1;
    if (l->setup->inference || !l->model->values[value].has_grad) return CGP_OK;
    for (int r = first[1] - 1; r >= first[0]; r--) {
        const cgp__reader *reader = &l->out->readers[r];
        ++*l->steps;
        if (!reader->gradient || reader->stage <= producer) continue;
        if (from >= 0) CGP_TRY(add_part(l, from, reader->stage, value));
        from = reader->stage;
    }
    if (producer >= 0) return from < 0 ? CGP_OK : add_part(l, from, producer, value);
    results->input_gradients[l->model->values[value].input].stage = from;
    return CGP_OK;
}

/* List the edges of each stage. */
static cgp_status list_stage_edges(cgp__messages *m, size_t n) {
    int *first = m->first_stage_edge = cgp__calloc(n + 2, sizeof *first);
    int *list = m->stage_edges = cgp__calloc(2 * (size_t)m->n_edges, sizeof *list);
    if (!first || !list) return cgp__no_memory("plan: edges", n * sizeof *first);
    /* Store stage j's count at first[j + 2]. After the prefix sum, first[j + 1] is the start of
     * stage j. Filling the list advances first[j + 1] to the start of stage j + 1. */
    for (int e = 0; e < m->n_edges; e++) {
        first[m->edges[e].edge.from + 2]++;
        first[m->edges[e].edge.to + 2]++;
    }
    for (size_t j = 2; j < n + 2; j++)
        first[j] += first[j - 1];
    for (int e = 0; e < m->n_edges; e++) {
        list[first[m->edges[e].edge.from + 1]++] = e;
        list[first[m->edges[e].edge.to + 1]++] = e;
    }
    return CGP_OK;
}

cgp_status cgp__list_messages(cgp__messages *messages, const cgp__setup *setup,
                              const cgp__placement *placement, cgp__results *results,
                              int64_t *steps) {
    lister l = {setup, setup->model, placement->node_stage, messages, {0}, steps};
    CGP_TRY(list_readers(&l));
    for (int k = 0; k < l.model->n_inputs; k++)
        results->input_gradients[k].stage = -1;
    cgp_status status = CGP_OK;
    for (int value = 0; value < l.model->n_values && status == CGP_OK; value++)
        status = add_activation(&l, value);
    for (int value = 0; value < l.model->n_values && status == CGP_OK; value++)
        status = add_gradient(&l, value, results);
    cgp__index_release(&l.index);
    return status == CGP_OK ? list_stage_edges(messages, (size_t)placement->n_stages) : status;
}

void cgp__messages_release(cgp__messages *m) {
    for (int e = 0; e < m->n_edges; e++)
        free(m->edges[e].parts);
    free(m->readers);
    free(m->first_reader);
    free(m->edges);
    free(m->stage_edges);
    free(m->first_stage_edge);
}
