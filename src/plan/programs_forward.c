/* SPDX-License-Identifier: Apache-2.0 */
/* programs_forward.c -- forward of a stage as kernel calls, in order of the nodes; before them, copies
 * of the caller's inputs that devices keep in another type.
 *
 * A value that nobody reads after an op, and that the op may overwrite, shares its memory with
 * the op's result: in x + dropout(linear(y)) the linear writes where the sum will be. (A stored sum
 * then comes into use earlier than it must, which can be worse: `separate` leaves it out.) When
 * training, what backward reads is marked as saved. */
#include "plan/programs.h"

/* Whether backward of this stage reads what forward leaves of a value. */
static bool is_stored(const cgp__stage_builder *b, int value) {
    return b->last_read[value] >= 0 && !b->redone[value];
}

/* Whether anybody reads a value after node i has: a later node, another stage, the caller,
 * backward. */
static bool read_after(const cgp__stage_builder *b, int value, int i) {
    return value == b->model->output || is_stored(b, value) ||
           cgp__plan_last_reader(b->plan, value) > b->stage->first_node + i;
}

/* Whether the op may write its result over the memory of input k: all inputs of that value may be written over, and it has
 * the result's type. */
static bool may_overwrite(const cgp__stage_builder *b, const cgp__node *node, int k) {
    const cgp__value_info *values = b->model->values;
    const int value = node->inputs[k];
    if (values[value].type.dtype != values[node->output].type.dtype) return false;
    for (int j = 0; j < node->n_inputs; j++) {
        if (node->inputs[j] == value && !(node->op->overwrites & (1u << j))) return false;
    }
    return true;
}

/* The item that node i's result may take over from one of its inputs, or -1. */
static int takes_over(const cgp__stage_builder *b, int i, int64_t bytes) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (b->separate && is_stored(b, node->output)) return -1;
    for (int k = 0; k < node->n_inputs; k++) {
        const int value = node->inputs[k];
        const cgp__place place = b->where[value];
        if (may_overwrite(b, node, k) && place.arena == CGP__ITEM &&
            b->items[place.offset].bytes == bytes && !read_after(b, value, i))
            return (int)place.offset;
    }
    return -1;
}

/* The first node behind the stage. */
static int first_behind(const cgp__stage_builder *b) {
    return b->stage->first_node + b->stage->n_nodes;
}

static cgp_status place_result(cgp__stage_builder *b, int i) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (node->output < 0) return CGP_OK;
    const int64_t bytes = cgp__plan_value_bytes(b->plan, node->output, b->plan->microbatch);
    int item = takes_over(b, i, bytes), moment = i;
    if (item < 0) item = cgp__builder_item(b, bytes, i);
    if (item < 0) return cgp__no_memory("plan: items", sizeof *b->items);
    b->where[node->output] = (cgp__place){CGP__ITEM, item};
    if (is_stored(b, node->output)) {
        b->items[item].saved = true;
        moment = b->last_read[node->output];
    }
    const bool leaves = node->output == b->model->output ||
                        cgp__plan_last_reader(b->plan, node->output) >= first_behind(b);
    if (leaves && moment < cgp__moment_forward_end(b->stage))
        moment = cgp__moment_forward_end(b->stage);
    cgp__builder_keep(b, b->where[node->output], moment);
    return CGP_OK;
}

/* Whether a half of backward reads saved[k]. What may be redone keeps a place for all, to be written again. */
static bool reads_stat(const cgp__stage_builder *b, const cgp__node *node, cgp__direction half,
                       int k) {
    const bool input = half == CGP__BACKWARD_INPUT;
    const uint32_t needs = input ? node->op->input_needs_saved : node->op->weight_needs_saved;
    return cgp__node_has_direction(b->model, node, half) &&
           ((needs & (1u << k)) || (input && node->op->cheap));
}

/* The op's own saved values (means, log-sum-exps). */
static cgp_status place_stats(cgp__stage_builder *b, int i) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    for (int k = 0; k < node->n_saved; k++) {
        const int item =
            cgp__builder_item(b, cgp__type_bytes(&node->saved[k], b->plan->microbatch), i);
        if (item < 0) return cgp__no_memory("plan: items", sizeof *b->items);
        const cgp__place place = {CGP__ITEM, item};
        b->stats[i * CGP__MAX_SAVED + k] = place;
        for (int half = CGP__BACKWARD_INPUT; b->training && half < CGP__DIRECTIONS; half++) {
            if (!reads_stat(b, node, (cgp__direction)half, k)) continue;
            b->items[item].saved = true;
            cgp__builder_keep(b, place, cgp__moment_backward(b, i, (cgp__direction)half));
        }
    }
    return CGP_OK;
}

/* From then on such an input is a value like those that the stage makes: backward, if it reads it,
 * finds it in the saved slot. */
static cgp_status convert_inputs(cgp__stage_builder *b, cgp__program *program) {
    for (int k = 0; k < b->model->n_inputs; k++) {
        const int value = b->model->input_values[k];
        if (!cgp__plan_converts(b->plan, value) || !cgp__plan_reads(b->plan, value, b->index))
            continue;
        const int64_t bytes = cgp__plan_value_bytes(b->plan, value, b->plan->microbatch);
        const int item = cgp__builder_item(b, bytes, 0);
        if (item < 0) return cgp__no_memory("plan: items", sizeof *b->items);
        cgp__call *call = NULL;
        CGP_TRY(cgp__builder_call(b, program, -1, CGP__FORWARD, 0, 0, &call));
        call->copy_count = cgp_shape_count(&b->model->values[value].type.shape);
        call->dy = b->where[value];
        call->dx[0] = b->where[value] = (cgp__place){CGP__ITEM, item};
        b->items[item].saved = is_stored(b, value);
        if (b->items[item].saved) cgp__builder_keep(b, b->where[value], b->last_read[value]);
        b->n_converts++;
    }
    return CGP_OK;
}

cgp_status cgp__builder_forward(cgp__stage_builder *b, cgp__program *program) {
    CGP_TRY(convert_inputs(b, program));
    for (int i = 0; i < b->stage->n_nodes; i++) {
        const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
        CGP_TRY(place_stats(b, i));
        CGP_TRY(place_result(b, i));
        cgp__call *call = NULL;
        CGP_TRY(
            cgp__builder_call(b, program, b->stage->first_node + i, CGP__FORWARD, 0, i, &call));
        for (int k = 0; k < node->n_inputs; k++) {
            call->x[k] = b->where[node->inputs[k]];
            cgp__builder_keep(b, call->x[k], i);
        }
        if (node->output >= 0) call->y = b->where[node->output];
        const int64_t accumulator = b->plan->accumulator[b->stage->first_node + i];
        if (accumulator >= 0) call->accumulator = (cgp__place){CGP__STATE, accumulator};
    }
    return CGP_OK;
}
