/* SPDX-License-Identifier: Apache-2.0 */
/* reads.c -- finds the values that a stage's backward reads and when it last reads each, and plans
 * selective recomputation (Korthikanti et al. 2022, arXiv:2205.05198).
 *
 * Backward reads operands of forward (see the op tables). A value that it reads is stored in the
 * saved slot, from forward to its last reader. With `+selective`, the output of a cheap op is not
 * stored if all of the op's inputs are available anyway. An input is available if it is stored for
 * another reader, sent by another stage or the caller, or recomputed. The op then runs again right
 * before the first reader, into memory that is free at that time. Its output lives until the last
 * reader:
 *
 *     forward     x ── layer_norm ── y ── linear            stored: x (layer_norm's backward
 *     backward    y = layer_norm(x)   linear's dweight      reads it), not y
 *
 * If W runs later than I, it recomputes again, because the values that I recomputed are gone.
 *
 * Nodes are visited in the order in which backward runs them, so that the times are known before
 * any live range is made. */
#include "model/backward.h"
#include "plan/program/builder.h"

#include <stdlib.h>

/* Return a value's producer as an index into the stage's nodes, -1 if another stage has the
 * producer. */
static int producer_of(const cgp__stage_builder *b, int value) {
    const int i = b->model->values[value].node - b->stage->first_node;
    return i >= 0 && i < b->stage->n_nodes ? i : -1;
}

/* A read of a value by a call that begins at `time` and ends by `last`. */
typedef void visit(cgp__stage_builder *b, int value, int time, int last, bool *failed);

/* Visit every read of backward, in order of time. */
static bool visit_reads(cgp__stage_builder *b, visit *each) {
    bool failed = false;
    for (int step = 0; step < 2 * b->stage->n_nodes; step++) {
        cgp_op_direction direction;
        const int i = cgp__backward_at(b, step, &direction);
        const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
        const int time = cgp__time_backward(b, i, direction),
                  last = cgp__time_backward_last(b, i, direction);
        bool y;
        const uint32_t x = cgp__node_reads(b->model, node, direction, &y);
        for (int k = 0; k < node->n_inputs; k++) {
            if (x & (1u << k)) each(b, node->inputs[k], time, last, &failed);
        }
        if (y) each(b, node->output, time, last, &failed);
    }
    return !failed;
}

static void raise(int *at, int time) {
    if (*at < time) *at = time;
}

static void mark_read(cgp__stage_builder *b, int value, int time, int last, bool *failed) {
    (void)time, (void)failed;
    raise(&b->last_read[value], last);
}

/* Return true if a value was recomputed, and is still there at `time`. */
static bool is_live(const cgp__stage_builder *b, int value, int time) {
    const int end = cgp__time_backward_end(b->stage);
    return b->of[value].recomputation >= 0 &&
           (b->recomputations[b->of[value].recomputation].time <= end) == (time <= end);
}

static void note_read(cgp__stage_builder *b, int value, int last) {
    raise(&b->last_read[value], last);
    if (is_live(b, value, last)) raise(&b->recomputations[b->of[value].recomputation].last, last);
}

/* List a recomputation of node i at `time`. The recomputation reads the node's inputs. */
static bool add_recomputation(cgp__stage_builder *b, int i, int time) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (!cgp__grow(&b->recomputations, &b->recomputations_capacity, b->n_recomputations + 1,
                   sizeof *b->recomputations))
        return false;
    b->of[node->output].recomputation = b->n_recomputations;
    b->recomputations[b->n_recomputations++] = (cgp__recomputation){i, time, time};
    for (int k = 0; k < node->n_inputs; k++)
        note_read(b, node->inputs[k], time);
    return true;
}

static void require(cgp__stage_builder *b, int i, int *n) {
    if (b->required[i]) return;
    b->required[i] = true;
    b->required_list[(*n)++] = i;
}

/* Note a read of a value. If the value must be recomputed first, list its producer, preceded by the
 * ancestors that must run again, too. */
static void read_value(cgp__stage_builder *b, int value, int time, int last, bool *failed) {
    note_read(b, value, last);
    if (!b->of[value].recomputed || is_live(b, value, time)) return;
    int n = 0;
    require(b, producer_of(b, value), &n);
    for (int w = 0; w < n; w++) {
        const cgp__node *node = &b->model->nodes[b->stage->first_node + b->required_list[w]];
        ++*b->parts->steps;
        for (int k = 0; k < node->n_inputs; k++) {
            const int x = node->inputs[k], producer = producer_of(b, x);
            if (producer >= 0 && b->of[x].recomputed && !is_live(b, x, time))
                require(b, producer, &n);
        }
    }
    qsort(b->required_list, (size_t)n, sizeof *b->required_list, cgp__builder_ascending);
    for (int w = 0; w < n; w++) {
        if (!add_recomputation(b, b->required_list[w], time)) *failed = true;
        b->required[b->required_list[w]] = false;
    }
    note_read(b, value, last);
}

/* Find the last time at which each weight backward uses its operands: the time of the next weight
 * backward, or the end of backward. */
static void find_weight_ends(cgp__stage_builder *b) {
    int end = cgp__time_backward_end(b->stage);
    for (int i = 0; i < b->stage->n_nodes; i++) {
        const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
        b->weight_end[i] = end;
        if (cgp__node_has_direction(b->model, node, CGP_OP_BACKWARD_WEIGHT))
            end = cgp__time_backward(b, i, CGP_OP_BACKWARD_WEIGHT);
    }
}

cgp_status cgp__builder_find_reads(cgp__stage_builder *b) {
    if (!b->training) return CGP_OK;
    if (b->branches) find_weight_ends(b);
    (void)visit_reads(b, mark_read);
    const bool *recomputed = b->setup->recomputed;
    if (!recomputed && !cgp_recompute_is_selective(b->setup->recompute)) return CGP_OK;
    for (int i = 0; i < b->stage->n_nodes; i++) {
        const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
        if (node->output < 0) continue;
        b->of[node->output].recomputed =
            recomputed
                ? recomputed[b->stage->first_node + i]
                : cgp__node_may_recompute(b->model, node, b->stage->first_node, b->last_read);
    }
    return visit_reads(b, read_value)
               ? CGP_OK
               : cgp__no_memory("plan: recomputed", sizeof *b->recomputations);
}

cgp__location cgp__builder_operand(const cgp__stage_builder *b, int value) {
    return b->of[value].recomputed ? b->of[value].recomputed_location : b->of[value].location;
}

cgp_status cgp__builder_recompute(cgp__stage_builder *b, cgp__program *program, int time) {
    for (; b->next_recomputation < b->n_recomputations &&
           b->recomputations[b->next_recomputation].time == time;
         b->next_recomputation++) {
        const cgp__recomputation *r = &b->recomputations[b->next_recomputation];
        const int index = b->stage->first_node + r->node;
        const cgp__node *node = &b->model->nodes[index];
        const int64_t bytes = cgp__value_bytes(b->setup, node->output, b->setup->microbatch);
        cgp__location *y = &b->of[node->output].recomputed_location;
        CGP_TRY(cgp__builder_range(b, bytes, time, y));
        cgp__builder_extend(b, *y, r->last);
        for (int k = 0; k < node->use.shapes.n_saved; k++) /* the call writes saved values too */
            cgp__builder_extend(b, b->stats[r->node * CGP_OP_MAX_SAVED + k], time);
        cgp__call *call = NULL;
        CGP_TRY(cgp__builder_call(b, program, index, CGP_OP_FORWARD, 0, time, &call));
        for (int k = 0; k < node->n_inputs; k++)
            call->x[k] = cgp__builder_operand(b, node->inputs[k]);
        call->y = *y;
    }
    return CGP_OK;
}
