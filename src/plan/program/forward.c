/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c -- makes the kernel calls of a stage's forward, in order of the nodes. The first calls
 * copy those inputs of the caller that the device keeps in another type or cannot read in place.
 *
 * An op's result takes over the memory of an input that the op may overwrite and that has no later
 * reader. In x + dropout(linear(y)) the linear writes into the sum's memory. A stored sum then
 * occupies memory earlier than it must, which can be worse; `separate` turns this off for stored
 * results. In training, values that backward reads are marked as saved. */
#include "plan/program/builder.h"

/* Return true if backward of this stage reads the value that forward stored. */
static bool is_stored(const cgp__stage_builder *b, int value) {
    return b->last_read[value] >= 0 && !b->recomputed[value];
}

/* Return true if a value has a reader after node i: a later node, another stage, the caller, or
 * backward. */
static bool read_after(const cgp__stage_builder *b, int value, int i) {
    return b->model->values[value].output >= 0 || is_stored(b, value) ||
           cgp__plan_last_reader(b->plan, value) > b->stage->first_node + i;
}

/* Return true if the op may write its result over input k: the input has the result's type, and the
 * op may overwrite every input that is the same value. */
static bool may_overwrite(const cgp__stage_builder *b, const cgp__node *node, int k) {
    const cgp__value_info *values = b->model->values;
    const int value = node->inputs[k];
    if (values[value].type.dtype != values[node->output].type.dtype) return false;
    for (int j = 0; j < node->n_inputs; j++) {
        if (node->inputs[j] == value && !(node->use.op->overwrites & (1u << j))) return false;
    }
    return true;
}

/* Return the live range that node i's result may take over from one of its inputs, or -1. */
static int takes_over(const cgp__stage_builder *b, int i, int64_t bytes) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    if (b->separate && is_stored(b, node->output)) return -1;
    for (int k = 0; k < node->n_inputs; k++) {
        const int value = node->inputs[k];
        const cgp__location x = b->location[value];
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
    const int64_t bytes = cgp__plan_value_bytes(b->plan, node->output, b->plan->microbatch);
    int range = takes_over(b, i, bytes), end = i;
    if (range < 0) range = cgp__builder_range(b, bytes, i);
    if (range < 0) return cgp__no_memory("plan: live ranges", sizeof *b->ranges);
    b->location[node->output] = (cgp__location){CGP__LIVE_RANGE, range};
    if (is_stored(b, node->output)) {
        b->ranges[range].saved = true;
        end = b->last_read[node->output];
    }
    const bool leaves = b->model->values[node->output].output >= 0 ||
                        cgp__plan_last_reader(b->plan, node->output) >= first_behind(b);
    if (leaves && end < cgp__time_forward_end(b->stage)) end = cgp__time_forward_end(b->stage);
    cgp__builder_extend(b, b->location[node->output], end);
    return CGP_OK;
}

/* Place the op's own saved values (means, log-sum-exps). */
static cgp_status place_stats(cgp__stage_builder *b, int i) {
    const cgp__node *node = &b->model->nodes[b->stage->first_node + i];
    for (int k = 0; k < node->use.shapes.n_saved; k++) {
        const int range = cgp__builder_range(
            b, cgp__type_bytes(&node->use.shapes.saved[k], b->plan->microbatch), i);
        if (range < 0) return cgp__no_memory("plan: live ranges", sizeof *b->ranges);
        const cgp__location stat = {CGP__LIVE_RANGE, range};
        b->stats[i * CGP_OP_MAX_SAVED + k] = stat;
        for (int d = CGP_OP_BACKWARD_INPUT; b->training && d < CGP_OP_DIRECTIONS; d++) {
            if (!cgp__node_keeps(b->model, node, (cgp_op_direction)d, k)) continue;
            b->ranges[range].saved = true;
            cgp__builder_extend(b, stat, cgp__time_backward(b, i, (cgp_op_direction)d));
        }
    }
    return CGP_OK;
}

/* Copy inputs that the device cannot use in place. Such an input is then handled, and saved for
 * backward, like a value that the stage makes. */
static cgp_status copy_inputs(cgp__stage_builder *b, cgp__program *program) {
    for (int k = 0; k < b->model->n_inputs; k++) {
        const int value = b->model->input_values[k];
        if (!(cgp__plan_converts(b->plan, value) || !cgp__builder_shares_host(b)) ||
            !cgp__plan_reads(b->plan, value, b->index))
            continue;
        const int64_t bytes = cgp__plan_value_bytes(b->plan, value, b->plan->microbatch);
        const int range = cgp__builder_range(b, bytes, 0);
        if (range < 0) return cgp__no_memory("plan: live ranges", sizeof *b->ranges);
        const cgp__location copy = {CGP__LIVE_RANGE, range};
        CGP_TRY(cgp__builder_copy(b, program, CGP_OP_FORWARD, 0, value, b->location[value], copy));
        b->location[value] = copy;
        b->ranges[range].saved = is_stored(b, value);
        if (b->ranges[range].saved) cgp__builder_extend(b, b->location[value], b->last_read[value]);
        b->n_converts++;
    }
    return CGP_OK;
}

cgp_status cgp__builder_for_caller(cgp__stage_builder *b, cgp__program *program,
                                   cgp_op_direction direction, int time, int value,
                                   cgp__location from, cgp__location *at) {
    const cgp_op_type *type = &b->model->values[value].type;
    *at = from;
    if (cgp__builder_shares_host(b) || type->dtype == cgp__plan_value_type(b->plan, value))
        return CGP_OK;
    const int range = cgp__builder_range(b, cgp__type_bytes(type, b->plan->microbatch), time);
    if (range < 0) return cgp__no_memory("plan: live ranges", sizeof *b->ranges);
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, -1, direction, 0, time, &call));
    call->copy_count = cgp_shape_count(&type->shape);
    call->from_type = cgp__plan_value_type(b->plan, value);
    call->to_type = type->dtype;
    call->dy = from;
    call->dx[0] = *at = (cgp__location){CGP__LIVE_RANGE, range};
    return CGP_OK;
}

static cgp_status convert_outputs(cgp__stage_builder *b, cgp__program *program) {
    for (int k = 0; k < b->model->n_outputs; k++) {
        cgp__output_plan *output = &b->plan->outputs[k];
        if (output->stage == b->index)
            CGP_TRY(cgp__builder_for_caller(
                b, program, CGP_OP_FORWARD, cgp__time_forward_end(b->stage), b->model->outputs[k],
                b->location[b->model->outputs[k]], &output->at[b->training ? 1 : 0]));
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
            call->x[k] = b->location[node->inputs[k]];
            cgp__builder_extend(b, call->x[k], i);
        }
        if (node->output >= 0) call->y = b->location[node->output];
        const int64_t accumulator = b->plan->accumulator[b->stage->first_node + i];
        if (accumulator >= 0) call->accumulator = (cgp__location){CGP__SCRATCH, accumulator};
    }
    return convert_outputs(b, program);
}
