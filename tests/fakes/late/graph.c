/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c -- see graph.h. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

cgp_status cgp__late_graph_add(cgp_captured_graph *graph, cgp__late_run *run, const void *payload,
                               size_t bytes) {
    if (!cgp__grow(&graph->nodes, &graph->capacity, graph->n + 1, sizeof(cgp__late_node *)))
        return cgp__no_memory("late: graph", bytes);
    cgp__late_node *node = aligned_alloc(16, (sizeof *node + bytes + 15) / 16 * 16);
    if (!node) return cgp__no_memory("late: graph", bytes);
    node->run = run;
    node->bytes = bytes;
    memcpy(node->payload, payload, bytes);
    graph->nodes[graph->n++] = node;
    return CGP_OK;
}

void cgp__late_graph_destroy(cgp_captured_graph *graph) {
    for (int i = 0; i < graph->n; i++)
        free(graph->nodes[i]);
    free(graph->nodes);
    free(graph);
}

#define COMPARE(member)                                                                            \
    if (memcmp(&a->member, &b->member, sizeof a->member) != 0) return #member

const char *cgp__late_differing_args(const cgp_kernel_args *a, const cgp_kernel_args *b) {
    COMPARE(x);
    COMPARE(y);
    COMPARE(saved);
    COMPARE(state);
    COMPARE(accumulator);
    COMPARE(log);
    COMPARE(log_bytes);
    COMPARE(param);
    COMPARE(dy);
    COMPARE(dx);
    COMPARE(dparam);
    COMPARE(workspace);
    COMPARE(values);
    COMPARE(losses);
    COMPARE(loss);
    COMPARE(id);
    COMPARE(first);
    COMPARE(training);
    COMPARE(deferred);
    COMPARE(recomputing);
    COMPARE(n_prefetch);
    return NULL;
}

const char *cgp__late_differing_update(const cgp_update *a, const cgp_update *b) {
    COMPARE(rule);
    COMPARE(n);
    COMPARE(param);
    COMPARE(grad);
    COMPARE(state);
    COMPARE(weight_decay);
    COMPARE(momentum);
    COMPARE(nesterov);
    COMPARE(beta1);
    COMPARE(beta2);
    COMPARE(eps);
    COMPARE(alpha);
    COMPARE(values);
    return NULL;
}
