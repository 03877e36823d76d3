/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c -- what crosses between stages.
 *
 * A value made in stage a and used in stage c > a goes from a to c directly. Its gradient comes
 * back along a chain, from the last stage that uses it down through the others to the one that
 * made it; each adds its own uses, last to first, to what arrived:
 *
 *     value        a ──► c1          gradient     a ◄── c1 ◄── c2
 *                  a ──────► c2
 *
 * So the sum ((g4 + g3) + g2) + g1 over uses 1..4 is the same for every balance, to the bit,
 * and a stage never has to add two partial sums. */
#include "plan/plan.h"

/* Whether a node of `stage` reads the value; with `gradient`, and hands a gradient back. */
static bool used_in(const cgp_plan *plan, int value, int stage, bool gradient) {
    const cgp_model *model = plan->model;
    const cgp__stage_plan *s = &plan->stages[stage];
    for (int i = s->first_node; i < s->first_node + s->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (gradient && (!node->on_loss || node->op->dx == CGP__DX_NONE)) continue;
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->inputs[k] == value) return true;
        }
    }
    return false;
}

static int maker_stage(const cgp_plan *plan, int value) {
    const int node = plan->model->values[value].node;
    return node < 0 ? -1 : plan->node_stage[node];
}

int cgp__plan_next_in_chain(const cgp_plan *plan, int value, int stage, int direction) {
    const int maker = maker_stage(plan, value);
    if (plan->inference || maker < 0 || !plan->model->values[value].has_grad) return -1;
    for (int j = stage + direction; j >= maker && j < plan->n_stages; j += direction) {
        if (j == maker || used_in(plan, value, j, true)) return j;
    }
    return -1;
}

int cgp__plan_find_edge(const cgp_plan *plan, int from, int to) {
    for (int e = 0; e < plan->n_edges; e++) {
        if (plan->edges[e].edge.from == from && plan->edges[e].edge.to == to) return e;
    }
    return -1;
}

cgp__part *cgp__plan_find_part(const cgp_plan *plan, int from, int to, int value) {
    const int e = cgp__plan_find_edge(plan, from, to);
    for (int i = 0; e >= 0 && i < plan->edges[e].n_parts; i++) {
        if (plan->edges[e].parts[i].value == value) return &plan->edges[e].parts[i];
    }
    return NULL;
}

static cgp_status add_part(cgp_plan *plan, int from, int to, int value) {
    int e = cgp__plan_find_edge(plan, from, to);
    if (e < 0) {
        if (!cgp__grow(&plan->edges, &plan->edges_room, plan->n_edges + 1, sizeof *plan->edges))
            return cgp__no_memory("plan: edges", sizeof *plan->edges);
        e = plan->n_edges++;
        plan->edges[e] = (cgp__edge_plan){.edge = {from, to}};
    }
    cgp__edge_plan *edge = &plan->edges[e];
    if (!cgp__grow(&edge->parts, &edge->parts_room, edge->n_parts + 1, sizeof *edge->parts))
        return cgp__no_memory("plan: messages", sizeof *edge->parts);
    const int64_t sample_bytes = cgp__plan_value_bytes(plan, value, 1);
    edge->parts[edge->n_parts++] =
        (cgp__part){.value = value, .sample_bytes = sample_bytes, .offset = edge->bytes};
    edge->bytes += cgp__align_up(sample_bytes * plan->microbatch);
    return CGP_OK;
}

cgp_status cgp__plan_edges(cgp_plan *plan) {
    for (int value = 0; value < plan->model->n_values; value++) {
        const int maker = maker_stage(plan, value);
        for (int to = maker + 1; maker >= 0 && to < plan->n_stages; to++) {
            if (used_in(plan, value, to, false)) CGP_TRY(add_part(plan, maker, to, value));
        }
    }
    for (int value = 0; value < plan->model->n_values; value++) {
        const int maker = maker_stage(plan, value);
        int from = maker < 0 ? -1 : cgp__plan_next_in_chain(plan, value, plan->n_stages, -1);
        while (from > maker) {
            const int to = cgp__plan_next_in_chain(plan, value, from, -1);
            CGP_TRY(add_part(plan, from, to, value));
            from = to;
        }
    }
    return CGP_OK;
}
