/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h -- a captured graph of the fake backend `late`. The nodes of the graph are copies of
 * entries of queue COMPUTE. */
#ifndef CGP_TESTS_FAKES_LATE_GRAPH_H
#define CGP_TESTS_FAKES_LATE_GRAPH_H

#include <cgpipe/ext/backend.h>

#include "queue.h"

typedef struct cgp__late_node {
    cgp__late_run *run;
    size_t bytes;
    _Alignas(16) char payload[];
} cgp__late_node;

struct cgp_captured_graph {
    cgp_device *device;
    cgp__late_node **nodes;
    int n, capacity;
};

/* Add a copy of an entry to a graph as a node. */
cgp_status cgp__late_graph_add(cgp_captured_graph *graph, cgp__late_run *run, const void *payload,
                               size_t bytes);
void cgp__late_graph_destroy(cgp_captured_graph *graph);

/* Compare two runs of a kernel (ignoring the tag), or two updates. Return the name of the first
 * operand that differs, or NULL if all operands are equal. */
const char *cgp__late_differing_args(const cgp_kernel_args *a, const cgp_kernel_args *b);
const char *cgp__late_differing_update(const cgp_update *a, const cgp_update *b);

#endif
