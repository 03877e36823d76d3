/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c -- makes the kernel calls of a stage's forward, in order of the nodes. The first calls
 * copy those model inputs from the caller's memory that the device keeps in another type or cannot
 * read in place.
 *
 * An op's result takes over the memory of one of the op's inputs, if the op may overwrite this
 * input and no later call reads it. So in x + dropout(linear(y)), the linear writes into the sum's
 * memory. But then a sum that is stored occupies its memory earlier than necessary, which can
 * increase the total. So if `separate` is set, stored results take over no memory. In training,
 * values that backward reads are marked as saved. */
#include "model/backward.h"
#include "plan/memory/states.h"
#include "plan/program/builder.h"

/* Return true if forward stores the value for backward of this stage. */
static bool is_stored(const cgp__stage_builder *b, int value) {
    return b->last_read[value] >= 0 && !b->of[value].recomputed;
}

/* Return true if a value has a reader after node i: a later node, another stage, the caller, or
 * backward. */
static bool read_after(const cgp__stage_builder *b, int value, int i) {
    return b->model->values[value].output >= 0 || is_stored(b, value) ||
           cgp__last_reader(b->parts->messages, value) > b->stage->first_node + i;
}

/* Return true if the op may write its result over input k. This holds if the input has the result's
 * type, and the op may overwrite every input that is the same value as input k. */
static bool may_overwrite(const cgp__stage_builder *b, const cgp__node *node, int k) {
    const cgp__value_info *values = b->model->values;
    const int value = node->inputs[k];
    if (values[value].type.dtype != values[node->output].type.dtype) return false;
    for (int j = 0; j < node->n_inputs; j++) {
        if (node->inputs[j] == value && !(node->use.op->overwrites & (1u << j))) return false;
    }
    return true;
}

/* Return the live range of an input that the result of node `i` may take over; -1: there is
 * none. */
static int takes_over(const cgp__stage_builder *b, int i, int64_t bytes) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (b->separate && is_stored(b, node->output)) return -1;
    for (int k = 0; k < node->n_inputs; k++) {
        const int value = node->inputs[k];
        const cgp__location x = b->of[value].location;
        if (may_overwrite(b, node, k) && x.arena == CGP__LIVE_RANGE &&
            b->ranges[x.offset].bytes == bytes && !read_after(b, value, i))
            return (int)x.offset;
    }
    return -1;
}

/* Return the first node after the stage. */
static int first_behind(const cgp__stage_builder *b) {
    return b->stage->first_node + b->stage->n_nodes;
}

static cgp_status place_result(cgp__stage_builder *b, int i) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (node->output < 0) return CGP_OK;
    const int64_t bytes = cgp__value_bytes(b->setup, node->output, b->setup->microbatch);
    cgp__location *y = &b->of[node->output].location;
    int end = i;
    *y = (cgp__location){CGP__LIVE_RANGE, takes_over(b, i, bytes)};
    if (y->offset < 0) CGP_TRY(cgp__builder_range(b, bytes, i, y));
    if (is_stored(b, node->output)) {
        b->ranges[y->offset].saved = true;
        end = b->last_read[node->output];
    }
    const bool leaves = b->model->values[node->output].output >= 0 ||
                        cgp__last_reader(b->parts->messages, node->output) >= first_behind(b);
    if (leaves && end < cgp__time_forward_end(b->stage)) end = cgp__time_forward_end(b->stage);
    cgp__builder_extend(b, *y, end);
    return CGP_OK;
}

/* Place the values that the op of node `i` itself saves, such as means and log-sum-exps. */
static cgp_status place_stats(cgp__stage_builder *b, int i) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    for (int k = 0; k < node->use.shapes.n_saved; k++) {
        const int64_t bytes = cgp__type_bytes(&node->use.shapes.saved[k], b->setup->microbatch);
        cgp__location *stat = &b->stats[i * CGP_OP_MAX_SAVED + k];
        CGP_TRY(cgp__builder_range(b, bytes, i, stat));
        /* a recomputed op writes this saved value again in backward, so its range must be a saved
         * range */
        b->ranges[stat->offset].saved = node->output >= 0 && b->of[node->output].recomputed;
        for (int d = CGP_OP_BACKWARD_INPUT; b->training && d < CGP_OP_DIRECTIONS; d++) {
            if (!cgp__node_keeps(b->model, node, (cgp_op_direction)d, k)) continue;
            b->ranges[stat->offset].saved = true;
            cgp__builder_extend(b, *stat, cgp__time_backward_last(b, i, (cgp_op_direction)d));
        }
    }
    return CGP_OK;
}

/* Copy inputs that the device cannot use in place. The copy of such an input is then handled, and
 * saved for backward, like a value that the stage makes. */
static cgp_status copy_inputs(cgp__stage_builder *b, cgp__program *program) {
    for (int k = 0; k < b->model->n_inputs; k++) {
        const int value = b->model->input_values[k];
        if (!(cgp__is_converted(b->setup, value) || !cgp__builder_shares_host(b)) ||
            !cgp__stage_reads(b->parts->messages, value, b->index))
            continue;
        const int64_t bytes = cgp__value_bytes(b->setup, value, b->setup->microbatch);
        cgp__location *x = &b->of[value].location, copy;
        CGP_TRY(cgp__builder_range(b, bytes, 0, &copy));
        CGP_TRY(cgp__builder_copy(b, program, CGP_OP_FORWARD, 0, value, *x, copy));
        *x = copy;
        b->ranges[copy.offset].saved = is_stored(b, value);
        if (is_stored(b, value)) cgp__builder_extend(b, copy, b->last_read[value]);
        b->n_converts++;
    }
    return CGP_OK;
}

cgp_status cgp__builder_for_caller(cgp__stage_builder *b, cgp__program *program,
                                   cgp_op_direction direction, int time, int value,
                                   cgp__location from, cgp__location *at) {
    const cgp_op_type *type = &b->model->values[value].type;
    *at = from;
    if (cgp__builder_shares_host(b) || type->dtype == cgp__value_type(b->setup, value))
        return CGP_OK;
    CGP_TRY(cgp__builder_range(b, cgp__type_bytes(type, b->setup->microbatch), time, at));
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, -1, direction, 0, time, &call));
    call->copy_count = cgp_shape_count(&type->shape);
    call->from_type = cgp__value_type(b->setup, value);
    call->to_type = type->dtype;
    call->dy = from;
    call->dx[0] = *at;
    return CGP_OK;
}

static cgp_status convert_outputs(cgp__stage_builder *b, cgp__program *program) {
    for (int k = 0; k < b->model->n_outputs; k++) {
        cgp__output_plan *output = &b->parts->results->outputs[k];
        if (output->stage == b->index)
            CGP_TRY(cgp__builder_for_caller(
                b, program, CGP_OP_FORWARD, cgp__time_forward_end(b->stage), b->model->outputs[k],
                b->of[b->model->outputs[k]].location, &output->at[b->training ? 1 : 0]));
    }
    return CGP_OK;
}

cgp_status cgp__builder_forward(cgp__stage_builder *b, cgp__program *program) {
    CGP_TRY(copy_inputs(b, program));
    for (int i = 0; i < b->stage->n_nodes; i++) {
        const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
        CGP_TRY(place_stats(b, i));
        CGP_TRY(place_result(b, i));
        cgp__call *call = NULL;
        CGP_TRY(
            cgp__builder_call(b, program, b->stage->first_node + i, CGP_OP_FORWARD, 0, i, &call));
        for (int k = 0; k < node->n_inputs; k++) {
            call->x[k] = b->of[node->inputs[k]].location;
            cgp__builder_extend(b, call->x[k], i);
        }
        if (node->output >= 0) call->y = b->of[node->output].location;
        const int64_t accumulator = b->parts->states->accumulator[b->stage->first_node + i],
                      log = b->parts->states->log[b->stage->first_node + i];
        if (accumulator >= 0) call->accumulator = (cgp__location){CGP__SCRATCH, accumulator};
        if (log >= 0) call->log = (cgp__location){CGP__LOG, log};
    }
    return convert_outputs(b, program);
}
