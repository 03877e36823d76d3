/* SPDX-License-Identifier: Apache-2.0 */
/* programs_reads.c -- what backward of a stage reads, and until when; and what it makes again.
 *
 * Backward reads operands of forward (see the op tables). A value that it reads is stored in the
 * saved slot, from forward to its last reader. With `+selective` the output of a cheap op is not
 * stored if all of the op's inputs are there anyway: stored for another reader, brought by
 * another stage or the caller, or redone themselves. Then the op runs again right before the
 * first reader, into memory that is free by then, and its output stays until the last one:
 *
 *     forward     x ── layer_norm ── y ── linear            stored: x (layer_norm's backward
 *     backward    y = layer_norm(x)   linear's dweight      reads it), not y
 *
 * Where W runs later than I, what I has made again is gone by then, and W makes it again for itself.
 *
 * Nodes are visited here in the order in which backward runs them, so that the times are known
 * before anything is given a place. */
#include "plan/programs.h"

#include <stdlib.h>

/* Bit k: the direction reads x[k]. *y: it reads y. Nothing if the node has no such direction. */
static uint32_t operands_read(const cgp__stage_builder *b, int i, cgp__direction direction,
                              bool *y) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    const bool input = direction == CGP__BACKWARD_INPUT;
    *y = false;
    if (!cgp__node_has_direction(b->model, node, direction)) return 0;
    *y = input ? node->op->input_needs_y : node->op->weight_needs_y;
    return input ? node->op->input_needs_x : node->op->weight_needs_x;
}

/* The node of this stage that makes a value, as an index into the stage's; -1 if none does. */
static int maker_of(const cgp__stage_builder *b, int value) {
    const int i = b->model->values[value].node - b->stage->first_node;
    return i >= 0 && i < b->stage->n_nodes ? i : -1;
}

typedef void visit(cgp__stage_builder *b, int value, int moment, bool *failed);

/* Visit every read of backward, in order of time. */
static bool visit_reads(cgp__stage_builder *b, visit *each) {
    bool failed = false;
    for (int half = 0; half < 2 * b->stage->n_nodes; half++) {
        cgp__direction direction;
        const int i = cgp__half_at(b, half, &direction);
        const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
        const int moment = cgp__moment_backward(b, i, direction);
        bool y;
        const uint32_t x = operands_read(b, i, direction, &y);
        for (int k = 0; k < node->n_inputs; k++) {
            if (x & (1u << k)) each(b, node->inputs[k], moment, &failed);
        }
        if (y) each(b, node->output, moment, &failed);
    }
    return !failed;
}

static void mark_read(cgp__stage_builder *b, int value, int moment, bool *failed) {
    (void)failed;
    b->last_read[value] = moment;
}

/* Find the values that need not be stored, in order of the nodes. */
static void find_redone(cgp__stage_builder *b) {
    for (int i = 0; i < b->stage->n_nodes; i++) {
        const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
        if (!node->op->cheap || b->last_read[node->output] < 0) continue;
        /* its own saved values are there, to be written again */
        bool possible = cgp__node_has_direction(b->model, node, CGP__BACKWARD_INPUT);
        for (int k = 0; k < node->n_inputs; k++) {
            const int x = node->inputs[k];
            possible = possible && (maker_of(b, x) < 0 || b->last_read[x] >= 0);
        }
        b->redone[node->output] = possible;
    }
}

/* Whether a value was made again, and is still there at `moment`. */
static bool is_live(const cgp__stage_builder *b, int value, int moment) {
    const int end = cgp__moment_end(b->stage);
    return b->live[value] >= 0 && (b->redos[b->live[value]].moment <= end) == (moment <= end);
}

static void note_read(cgp__stage_builder *b, int value, int moment) {
    b->last_read[value] = moment;
    if (is_live(b, value, moment)) b->redos[b->live[value]].last = moment;
}

/* Run node i again at `moment`, and read its inputs for that. */
static bool add_redo(cgp__stage_builder *b, int i, int moment) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (!cgp__grow(&b->redos, &b->redos_capacity, b->n_redos + 1, sizeof *b->redos))
        return false;
    b->live[node->output] = b->n_redos;
    b->redos[b->n_redos++] = (cgp__redo){i, moment, moment};
    for (int k = 0; k < node->n_inputs; k++)
        note_read(b, node->inputs[k], moment);
    return true;
}

static void want(cgp__stage_builder *b, int i, int *n) {
    if (b->wanted[i]) return;
    b->wanted[i] = true;
    b->wanted_list[(*n)++] = i;
}

static int ascending(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* A read of a value: if it is redone and not there yet, what makes it comes first, and in front of
 * that what makes its inputs. */
static void read_value(cgp__stage_builder *b, int value, int moment, bool *failed) {
    note_read(b, value, moment);
    if (!b->redone[value] || is_live(b, value, moment)) return;
    int n = 0;
    want(b, maker_of(b, value), &n);
    for (int w = 0; w < n; w++) {
        const cgp__node *node = &b->model->nodes[b->stage->first_node + b->wanted_list[w]];
        b->plan->steps++;
        for (int k = 0; k < node->n_inputs; k++) {
            const int x = node->inputs[k], maker = maker_of(b, x);
            if (maker >= 0 && b->redone[x] && !is_live(b, x, moment)) want(b, maker, &n);
        }
    }
    qsort(b->wanted_list, (size_t)n, sizeof *b->wanted_list, ascending);
    for (int w = 0; w < n; w++) {
        if (!add_redo(b, b->wanted_list[w], moment)) *failed = true;
        b->wanted[b->wanted_list[w]] = false;
    }
}

cgp_status cgp__builder_reads(cgp__stage_builder *b) {
    if (!b->training) return CGP_OK;
    (void)visit_reads(b, mark_read);
    if (!cgp_recompute_is_selective(b->plan->recompute)) return CGP_OK;
    find_redone(b);
    return visit_reads(b, read_value) ? CGP_OK
                                      : cgp__no_memory("plan: redone", sizeof *b->redos);
}

cgp__place cgp__builder_operand(const cgp__stage_builder *b, int value) {
    return b->redone[value] ? b->again[value] : b->where[value];
}

cgp_status cgp__builder_redo(cgp__stage_builder *b, cgp__program *program, int moment) {
    for (; b->next_redo < b->n_redos && b->redos[b->next_redo].moment == moment;
         b->next_redo++) {
        const cgp__redo *redo = &b->redos[b->next_redo];
        const int index = b->stage->first_node + redo->node;
        const cgp__node *node = &b->model->nodes[index];
        const int64_t bytes = cgp__plan_value_bytes(b->plan, node->output, b->plan->microbatch);
        const int item = cgp__builder_item(b, bytes, moment);
        if (item < 0) return cgp__no_memory("plan: items", sizeof *b->items);
        b->again[node->output] = (cgp__place){CGP__ITEM, item};
        cgp__builder_keep(b, b->again[node->output], redo->last);
        for (int k = 0; k < node->n_saved; k++) /* it writes them again */
            cgp__builder_keep(b, b->stats[redo->node * CGP__MAX_SAVED + k], moment);
        cgp__call *call = NULL;
        CGP_TRY(cgp__builder_call(b, program, index, CGP__FORWARD, 0, moment, &call));
        for (int k = 0; k < node->n_inputs; k++)
            call->x[k] = cgp__builder_operand(b, node->inputs[k]);
        call->y = b->again[node->output];
    }
    return CGP_OK;
}
