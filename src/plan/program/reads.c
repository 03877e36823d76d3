/* SPDX-License-Identifier: Apache-2.0 */
/* reads.c -- finds the values that a stage's backward reads, and the time of the last read of each
 * value. It also plans selective recomputation (Korthikanti et al. 2022, arXiv:2205.05198).
 *
 * Backward reads some operands of forward; the op tables list them. A value that backward reads is
 * stored in the saved slot, from forward to the value's last reader. With `+selective`, the output
 * of a cheap op is not stored if all of the op's inputs are available anyway. An input is available
 * if it is stored for another reader, sent by another stage or the caller, or recomputed. The op
 * then runs again right before the first reader of its output, and writes to memory that is free at
 * that time. The recomputed output lives until its last reader has run:
 *
 *     forward     x ── layer_norm ── y ── linear            stored: x (layer_norm's backward
 *     backward    y = layer_norm(x)   linear's dweight      reads it), not y
 *
 * If backward is split, W recomputes values that I has already recomputed, because I's copies are
 * gone.
 *
 * The functions visit nodes in the order in which backward runs them, so the times are known before
 * any live range is made. */
#include "model/backward.h"
#include "plan/program/builder.h"

#include <stdlib.h>

/* Return the index, within the stage, of the node that makes a value; -1 if the caller or another
 * stage makes the value. */
static int producer_of(const cgp__stage_builder *b, int value) {
    const int i = b->model->values[value].node - b->stage->first_node;
    return i >= 0 && i < b->stage->n_nodes ? i : -1;
}

/* Function that is called for each read of a value. The kernel call that reads the value begins at
 * `time` and ends no later than `last`. */
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

/* Return true if a value was recomputed and its recomputed copy is still in memory at `time`. */
static bool is_live(const cgp__stage_builder *b, int value, int time) {
    const int end = cgp__time_backward_end(b->stage);
    return b->of[value].recomputation >= 0 &&
           (b->recomputations[b->of[value].recomputation].time <= end) == (time <= end);
}

static void note_read(cgp__stage_builder *b, int value, int last, bool by_backward) {
    raise(&b->last_read[value], last);
    if (!is_live(b, value, last)) return;
    cgp__recomputation *r = &b->recomputations[b->of[value].recomputation];
    raise(&r->last, last);
    r->kept |= by_backward;
}

/* List a recomputation of node i at `time`. The recomputation reads the node's inputs. */
static bool add_recomputation(cgp__stage_builder *b, int i, int time) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (!cgp__grow(&b->recomputations, &b->recomputations_capacity, b->n_recomputations + 1,
                   sizeof *b->recomputations))
        return false;
    b->of[node->output].recomputation = b->n_recomputations;
    b->recomputations[b->n_recomputations++] = (cgp__recomputation){i, time, time, false};
    for (int k = 0; k < node->n_inputs; k++)
        note_read(b, node->inputs[k], time, false);
    return true;
}

static void require(cgp__stage_builder *b, int i, int *n) {
    if (b->required[i]) return;
    b->required[i] = true;
    b->required_list[(*n)++] = i;
}

/* Record a read of a value. If the value must be recomputed first, list recomputations of all
 * ancestors that must run again, then of the node that makes the value. */
static void read_value(cgp__stage_builder *b, int value, int time, int last, bool *failed) {
    note_read(b, value, last, true);
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
    note_read(b, value, last, true);
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

/* --- recomputations at one time --- */

enum { MOST_FREE = 32 };

/* Memory of one batch of recomputations. It has a list of free ranges, whose temporary results no
 * later recomputation reads, and one workspace for all calls of the batch. */
typedef struct batch_memory {
    int64_t free[MOST_FREE];
    int n_free;
    /* live range of the workspace; -1: there is no workspace yet */
    int64_t workspace;
} batch_memory;

/* Take a free range of this size, or add a new range if none is free. */
static cgp_status take_range(cgp__stage_builder *b, batch_memory *batch, int64_t bytes, int time,
                             cgp__location *out) {
    for (int i = 0; i < batch->n_free; i++) {
        if (b->ranges[batch->free[i]].bytes != bytes) continue;
        *out = (cgp__location){CGP__LIVE_RANGE, batch->free[i]};
        batch->free[i] = batch->free[--batch->n_free];
        return CGP_OK;
    }
    return cgp__builder_range(b, bytes, time, out);
}

/* Free the inputs of recomputation k that neither a later recomputation nor backward reads. */
static void free_inputs(cgp__stage_builder *b, batch_memory *batch, int k) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + b->recomputations[k].node];
    for (int i = 0; i < node->n_inputs; i++) {
        cgp__stage_value *x = &b->of[node->inputs[i]];
        if (!x->recomputed || x->read_by != k ||
            b->recomputations[x->made_by].time != b->recomputations[k].time ||
            b->recomputations[x->made_by].kept)
            continue;
        x->read_by = -1; /* reset read_by so that the range is freed only once, even if the node
                          * reads the value twice */
        if (batch->n_free < MOST_FREE) batch->free[batch->n_free++] = x->recomputed_location.offset;
    }
}

/* Let `call` use the shared workspace of its batch, and make this workspace large enough for the
 * call. If the batch has no workspace yet, it takes the call's workspace. Otherwise drop the call's
 * own workspace, which is the last live range. */
static void share_workspace(cgp__stage_builder *b, batch_memory *batch, cgp__call *call) {
    if (call->workspace.arena != CGP__LIVE_RANGE) return;
    if (batch->workspace < 0) {
        batch->workspace = call->workspace.offset;
        return;
    }
    cgp__live_range *shared = &b->ranges[batch->workspace];
    shared->bytes = cgp__max(shared->bytes, b->ranges[call->workspace.offset].bytes);
    call->workspace.offset = batch->workspace;
    b->n_ranges--;
}

/* Append the call of recomputation k. */
static cgp_status run_again(cgp__stage_builder *b, cgp__program *program, batch_memory *batch,
                            int k) {
    const cgp__recomputation *r = &b->recomputations[k];
    const int index = b->stage->first_node + r->node;
    const cgp__node *node = &b->model->nodes[index];
    const int64_t bytes = cgp__value_bytes(b->setup, node->output, b->setup->microbatch);
    cgp__stage_value *value = &b->of[node->output];
    CGP_TRY(take_range(b, batch, bytes, r->time, &value->recomputed_location));
    value->made_by = k;
    cgp__builder_extend(b, value->recomputed_location, r->last);
    /* The call also writes the values that its op saves. */
    for (int i = 0; i < node->use.shapes.n_saved; i++)
        cgp__builder_extend(b, b->stats[r->node * CGP_OP_MAX_SAVED + i], r->time);
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, index, CGP_OP_FORWARD, 0, r->time, &call));
    for (int i = 0; i < node->n_inputs; i++)
        call->x[i] = cgp__builder_operand(b, node->inputs[i]);
    call->y = value->recomputed_location;
    share_workspace(b, batch, call);
    free_inputs(b, batch, k);
    return CGP_OK;
}

cgp_status cgp__builder_recompute(cgp__stage_builder *b, cgp__program *program, int time) {
    batch_memory batch = {.workspace = -1};
    const int begin = b->next_recomputation;
    int end = begin;
    for (; end < b->n_recomputations && b->recomputations[end].time == time; end++) {
        const cgp__node *node =
            &b->model->nodes[b->stage->first_node + b->recomputations[end].node];
        for (int i = 0; i < node->n_inputs; i++)
            b->of[node->inputs[i]].read_by = end;
    }
    for (int k = begin; k < end; k++)
        CGP_TRY(run_again(b, program, &batch, k));
    b->next_recomputation = end;
    return CGP_OK;
}
