/* SPDX-License-Identifier: Apache-2.0 */
/* backward.c -- makes the kernel calls of a stage's backward, in descending order of the nodes. For
 * each node, weight backward comes before input backward. So when input backward of a linear runs,
 * the linear's input is dead, and the gradient of this input may take over the input's memory.
 *
 * If the schedule has I and W, all input backward comes first. Weight backward reads the node's
 * input and the gradient of its result, so both stay in the saved slot until W. So the input's
 * gradient must not take over the input's memory, and nothing may overwrite the result's gradient.
 *
 * If the device has a branch and backward is not split, weight backward runs on the branch. It
 * overlaps with the calls up to the next weight backward:
 *
 *     COMPUTE   .. fork ── I of node k ── .. ── I of node j+1 ── join, fork ── I of node j ..
 *     branch         └──── W of node k ──────────────────────────┘         └── W of node j ..
 *
 * No call between fork and join may overwrite the operands or the workspace of the W on the branch.
 * So both live until the next W, or until the end of backward.
 *
 * The gradient of a value is a sum over its uses, last to first. If a later stage uses the value,
 * the sum starts with the gradient that this stage sent. Otherwise the last use starts the sum. The
 * sum lies in new memory or, if the op allows it, in the memory of the gradient of the op's result
 * (see cgp__dx). The other uses add to the sum. The gradients of two values may share memory,
 * because ADD passes the gradient of its result on to its inputs. If a call must write one of the
 * two gradients before the other has been read, the gradient is copied first. */
#include "model/backward.h"
#include "op/op.h"
#include "plan/program/builder.h"

static int64_t value_bytes(const cgp__stage_builder *b, int value) {
    return cgp__value_bytes(b->setup, value, b->setup->microbatch);
}

/* Return true if weight backward of a node may read the gradient of the node's result during or
 * after input backward. (Among ops whose dx may overwrite dy, only custom ops have a weight
 * backward.) */
static bool read_by_weight(const cgp__stage_builder *b, const cgp__node *node) {
    return (b->setup->splits || b->branches) &&
           cgp__node_has_direction(b->model, node, CGP_OP_BACKWARD_WEIGHT);
}

/* Return true if the gradient of a value lies in a live range and may still be read. */
static bool is_in_use(const cgp__stage_builder *b, int value) {
    return !b->of[value].gradient_dead && b->of[value].gradient.arena == CGP__LIVE_RANGE;
}

static void set_gradient(cgp__stage_builder *b, int value, cgp__location location) {
    if (is_in_use(b, value)) b->ranges[b->of[value].gradient.offset].gradients--;
    b->of[value].gradient = location;
    if (is_in_use(b, value)) b->ranges[location.offset].gradients++;
}

/* Mark the gradient of a value as dead: backward has passed the node that makes the value. */
static void retire_gradient(cgp__stage_builder *b, int value) {
    if (is_in_use(b, value)) b->ranges[b->of[value].gradient.offset].gradients--;
    b->of[value].gradient_dead = true;
}

/* Return true if the live range at `location` also holds an unread gradient of a value other than
 * `value`. */
static bool is_aliased(const cgp__stage_builder *b, cgp__location location, int value) {
    if (location.arena != CGP__LIVE_RANGE) return false;
    const bool itself = is_in_use(b, value) && b->of[value].gradient.offset == location.offset;
    return b->ranges[location.offset].gradients > itself;
}

static cgp_status new_gradient(cgp__stage_builder *b, int value, int time) {
    cgp__location location;
    CGP_TRY(cgp__builder_range(b, value_bytes(b, value), time, &location));
    set_gradient(b, value, location);
    return CGP_OK;
}

/* Before the first call of backward, place the gradients that arrive from later stages. */
static cgp_status place_arrivals(cgp__stage_builder *b) {
    const cgp__messages *m = b->parts->messages;
    for (int s = m->first_stage_edge[b->index]; s < m->first_stage_edge[b->index + 1]; s++) {
        const cgp__edge_plan *edge = &m->edges[m->stage_edges[s]];
        if (edge->edge.to != b->index || edge->edge.from < b->index) continue;
        for (int i = 0; i < edge->n_parts; i++)
            b->of[edge->parts[i].value].arriving = &edge->parts[i];
    }
    for (int i = 0; i < b->n_values; i++) {
        const int v = b->values[i];
        if (!b->of[v].arriving) continue;
        CGP_TRY(new_gradient(b, v, cgp__time_arrival(b->stage)));
        b->of[v].arriving->to = b->of[v].gradient;
    }
    return CGP_OK;
}

/* Return true if a node makes a part of a value's gradient. */
static bool has_gradient_readers(const cgp__messages *m, int value) {
    for (int r = m->first_reader[value]; r < m->first_reader[value + 1]; r++) {
        if (m->readers[r].gradient) return true;
    }
    return false;
}

/* If the loss is external, copy the caller's gradients of outputs, because backward may add to
 * these gradients or overwrite them. If ops also read an output, the caller's gradient is added
 * last, after the sum over the uses (add_external). */
static cgp_status place_external(cgp__stage_builder *b, cgp__program *program) {
    const int time = cgp__time_arrival(b->stage);
    for (int k = 0; b->setup->external_loss && k < b->model->n_outputs; k++) {
        const int value = b->model->outputs[k];
        if (b->parts->results->outputs[k].stage != b->index || !b->model->values[value].has_grad)
            continue;
        cgp__location copy;
        CGP_TRY(cgp__builder_range(b, value_bytes(b, value), time, &copy));
        if (has_gradient_readers(b->parts->messages, value))
            b->of[value].external = copy;
        else
            set_gradient(b, value, copy);
        CGP_TRY(cgp__builder_copy(b, program, CGP_OP_BACKWARD_INPUT, time, value,
                                  (cgp__location){CGP__HOST_GRADIENT, k}, copy));
    }
    return CGP_OK;
}

/* Keep gradients for an earlier stage alive until they are sent. */
static void place_departures(cgp__stage_builder *b) {
    const cgp__messages *m = b->parts->messages;
    for (int s = m->first_stage_edge[b->index]; s < m->first_stage_edge[b->index + 1]; s++) {
        const cgp__edge_plan *edge = &m->edges[m->stage_edges[s]];
        if (edge->edge.from != b->index || edge->edge.to > b->index) continue;
        for (int i = 0; i < edge->n_parts; i++) {
            const cgp__location gradient = b->of[edge->parts[i].value].gradient;
            if (gradient.arena == CGP__NOWHERE) continue;
            cgp__builder_extend(b, gradient, cgp__time_last(b->stage));
            edge->parts[i].from[0] = edge->parts[i].from[1] = gradient;
        }
    }
}

/* If the gradient of `value` shares memory with another gradient, copy it to new memory. This
 * happens before a call adds to the gradient. */
static cgp_status unalias(cgp__stage_builder *b, cgp__program *program, int value, int time) {
    const cgp__location old = b->of[value].gradient;
    if (!is_aliased(b, old, value)) return CGP_OK;
    CGP_TRY(new_gradient(b, value, time));
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, -1, CGP_OP_BACKWARD_INPUT, 0, time, &call));
    call->copy_count = cgp_shape_count(&b->model->values[value].type.shape);
    call->from_type = call->to_type = cgp__value_type(b->setup, value);
    call->dy = old;
    call->dx[0] = b->of[value].gradient;
    cgp__builder_extend(b, old, time);
    return CGP_OK;
}

/* Add the caller's gradient of an output to the sum over the output's uses. This happens right
 * before backward of the node that makes the output. */
static cgp_status add_external(cgp__stage_builder *b, cgp__program *program, int i,
                               cgp_op_direction direction) {
    const int value = b->model->nodes[b->stage->first_node + i].output;
    const cgp_op_direction first =
        b->setup->splits ? CGP_OP_BACKWARD_INPUT : CGP_OP_BACKWARD_WEIGHT;
    if (value < 0 || b->of[value].external.arena == CGP__NOWHERE || direction != first)
        return CGP_OK;
    const int time = cgp__time_backward(b, i, direction);
    CGP_TRY(unalias(b, program, value, time));
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, -1, CGP_OP_BACKWARD_INPUT, 1, time, &call));
    call->sums = true;
    call->copy_count = cgp_shape_count(&b->model->values[value].type.shape);
    call->dy = b->of[value].external;
    call->dx[0] = b->of[value].gradient;
    cgp__builder_extend(b, call->dy, time);
    cgp__builder_extend(b, call->dx[0], time);
    return CGP_OK;
}

/* Return true if the gradient of input `k` may take over the memory of the input itself. The input
 * must be a saved value, and no later call may read the input. Input backward of this node may read
 * the input only if the op may overwrite an input that it reads (CGP__DX_OVER_X). */
static bool may_lie_over_input(const cgp__stage_builder *b, const cgp__node *node, int k,
                               int time) {
    const cgp__location x = b->of[node->inputs[k]].location;
    if (x.arena != CGP__LIVE_RANGE || !b->ranges[x.offset].saved || b->ranges[x.offset].end > time)
        return false;
    const bool read_now = node->use.op->input_needs_x & (1u << k);
    for (int j = 0; j < node->n_inputs; j++) { /* check whether another input of the node is the
                                                * same value */
        if (j != k && node->inputs[j] == node->inputs[k]) return false;
    }
    return cgp__op_dx(node->kind, node->use.op) == CGP__DX_OVER_X ||
           (!read_now && b->ranges[x.offset].end == time - 1);
}

/* Locate the gradient of input `k`. This node's call is the first call of backward that makes a
 * part of this gradient. */
static cgp_status first_use(cgp__stage_builder *b, const cgp__node *node, int k, int time) {
    const int value = node->inputs[k], y = node->output;
    const cgp__location dy = y < 0 ? (cgp__location){CGP__NOWHERE, 0} : b->of[y].gradient;
    const cgp__dx dx = cgp__op_dx(node->kind, node->use.op);
    if (dx == CGP__DX_SAME) {
        set_gradient(b, value, dy);
        return CGP_OK;
    }
    if (dx == CGP__DX_IN_PLACE && !is_aliased(b, dy, y) && !read_by_weight(b, node) &&
        value_bytes(b, value) == value_bytes(b, y)) {
        set_gradient(b, value, dy);
        return CGP_OK;
    }
    if (may_lie_over_input(b, node, k, time)) {
        set_gradient(b, value, b->of[value].location);
        return CGP_OK;
    }
    return new_gradient(b, value, time);
}

/* Return true if a later input of the node is the same value as input `k`. One call then makes the
 * gradients of both inputs. */
static bool is_computed(const cgp__node *node, int k, const cgp__location *dx) {
    for (int j = k + 1; j < node->n_inputs; j++) {
        if (node->inputs[j] == node->inputs[k] && dx[j].arena != CGP__NOWHERE) return true;
    }
    return false;
}

/* Locate the gradients of a node's inputs. Set *work if a kernel must compute at least one of these
 * gradients. */
static cgp_status place_dx(cgp__stage_builder *b, cgp__program *program, const cgp__node *node,
                           int time, cgp__location *dx, uint32_t *add, bool *work) {
    for (int k = node->n_inputs - 1; k >= 0; k--) {
        const int value = node->inputs[k];
        if (!cgp__node_passes(node, k) || !b->model->values[value].has_grad) continue;
        if (b->of[value].gradient.arena == CGP__NOWHERE) {
            CGP_TRY(first_use(b, node, k, time));
            if (cgp__op_dx(node->kind, node->use.op) == CGP__DX_SAME) continue;
        } else {
            if (!is_computed(node, k, dx)) CGP_TRY(unalias(b, program, value, time));
            *add |= 1u << k;
        }
        dx[k] = b->of[value].gradient;
        *work = true;
        cgp__builder_extend(b, dx[k], time);
    }
    return CGP_OK;
}

static void bind_reads(cgp__stage_builder *b, cgp__call *call, const cgp__node *node, int time) {
    bool y;
    const uint32_t needs_x = cgp__node_reads(b->model, node, call->direction, &y);
    for (int k = 0; k < node->n_inputs; k++) {
        if (needs_x & (1u << k)) call->x[k] = cgp__builder_operand(b, node->inputs[k]);
    }
    if (y) call->y = cgp__builder_operand(b, node->output);
    if (node->output >= 0) {
        call->dy = b->of[node->output].gradient;
        cgp__builder_extend(b, call->dy, time);
    }
}

/* Put a call on the branch. The branch's previous call ends before this call starts. */
static void put_on_branch(cgp__stage_builder *b, cgp__call *call, int output) {
    if (b->branch_reads >= 0) retire_gradient(b, b->branch_reads);
    b->branch_reads = output;
    call->branch = true;
}

static cgp_status weight_backward(cgp__stage_builder *b, cgp__program *program, int i) {
    const int index = b->stage->first_node + i;
    const cgp__node *node = &b->model->nodes[index];
    if (!cgp__node_has_direction(b->model, node, CGP_OP_BACKWARD_WEIGHT)) return CGP_OK;
    const int time = cgp__time_backward(b, i, CGP_OP_BACKWARD_WEIGHT),
              last = cgp__time_backward_last(b, i, CGP_OP_BACKWARD_WEIGHT);
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_recompute(b, program, time));
    CGP_TRY(cgp__builder_call(b, program, index, CGP_OP_BACKWARD_WEIGHT, 0, time, &call));
    bind_reads(b, call, node, last);
    cgp__builder_extend(b, call->workspace, last);
    if (b->branches) put_on_branch(b, call, node->output);
    if (b->setup->splits && call->dy.arena == CGP__LIVE_RANGE)
        b->ranges[call->dy.offset].saved = true;
    return CGP_OK;
}

static cgp_status input_backward(cgp__stage_builder *b, cgp__program *program, int i) {
    const int index = b->stage->first_node + i;
    const cgp__node *node = &b->model->nodes[index];
    if (cgp__node_has_direction(b->model, node, CGP_OP_BACKWARD_INPUT)) {
        const int time = cgp__time_backward(b, i, CGP_OP_BACKWARD_INPUT);
        cgp__location dx[CGP_OP_MAX_INPUTS] = {{CGP__NOWHERE, 0}};
        uint32_t add = 0;
        bool work = cgp__node_weight_in_input(b->model, node);
        CGP_TRY(cgp__builder_recompute(b, program, time));
        CGP_TRY(place_dx(b, program, node, time, dx, &add, &work));
        if (work) {
            cgp__call *call = NULL;
            CGP_TRY(cgp__builder_call(b, program, index, CGP_OP_BACKWARD_INPUT, add, time, &call));
            bind_reads(b, call, node, time);
            for (int k = 0; k < node->n_inputs; k++)
                call->dx[k] = dx[k];
        }
    }
    if (node->output >= 0 && !read_by_weight(b, node)) retire_gradient(b, node->output);
    return CGP_OK;
}

/* Place the gradients of the model's inputs. The caller receives these gradients in the same way as
 * outputs (forward.c). Their memory stays in use until the action ends. */
static cgp_status place_input_gradients(cgp__stage_builder *b, cgp__program *program) {
    const int time = cgp__time_backward_end(b->stage);
    for (int k = 0; k < b->model->n_inputs; k++) {
        cgp__input_gradient *gradient = &b->parts->results->input_gradients[k];
        const int value = b->model->input_values[k];
        if (gradient->stage != b->index) continue;
        cgp__builder_extend(b, b->of[value].gradient, time);
        CGP_TRY(cgp__builder_for_caller(b, program, CGP_OP_BACKWARD_INPUT, time, value,
                                        b->of[value].gradient, &gradient->at));
        cgp__builder_extend(b, gradient->at, cgp__time_last(b->stage));
    }
    return CGP_OK;
}

static cgp_status backward_steps(cgp__stage_builder *b, cgp__program *program, int begin, int end) {
    for (int step = begin; step < end; step++) {
        cgp_op_direction direction;
        const int i = cgp__backward_at(b, step, &direction);
        if (!b->model->nodes[b->stage->first_node + i].requires_grad) continue;
        CGP_TRY(add_external(b, program, i, direction));
        if (direction == CGP_OP_BACKWARD_WEIGHT)
            CGP_TRY(weight_backward(b, program, i));
        else
            CGP_TRY(input_backward(b, program, i));
    }
    return CGP_OK;
}

cgp_status cgp__builder_backward(cgp__stage_builder *b, cgp__program *program) {
    const int all = 2 * b->stage->n_nodes, input = b->setup->splits ? all / 2 : all;
    CGP_TRY(place_arrivals(b));
    CGP_TRY(place_external(b, program));
    CGP_TRY(backward_steps(b, program, 0, input));
    CGP_TRY(place_input_gradients(b, program));
    program->n_input = program->n;
    CGP_TRY(backward_steps(b, program, input, all));
    place_departures(b);
    return CGP_OK;
}
