/* SPDX-License-Identifier: Apache-2.0 */
/* programs_backward.c -- backward of a stage as kernel calls, nodes in descending order, weight
 * half before input half: once the weight gradient of a product is made nobody reads its input
 * again, and the input's gradient may lie where it was.
 *
 * Where the schedule has I and W, all input halves come first. Then what a weight half reads, its
 * node's input and the gradient of its result, stays in the saved slot until W: the input's gradient
 * may not lie there, and nothing may be written over the result's.
 *
 * The gradient of a value is a sum over its uses, last to first. It begins with what a later
 * stage sent, if the value is used there; else the first use met makes it, in memory of its
 * own, or in that of its result's gradient where the op allows (see cgp__dx); the others add.
 * Memory that two values' gradients share (an addition hands on its own) is copied before one
 * of them is written while the other is still to be read. */
#include "plan/programs.h"

static int64_t value_bytes(const cgp__stage_builder *b, int value) {
    return cgp__plan_value_bytes(b->plan, value, b->plan->microbatch);
}

/* Whether W will read the gradient of a node's result. (Of ops that write in place, only some from outside have that.) */
static bool read_by_weight(const cgp__stage_builder *b, const cgp__node *node) {
    return b->plan->splits && cgp__node_has_direction(b->model, node, CGP__BACKWARD_WEIGHT);
}

/* Tell whether the gradient of a value lies in an item and is still to be read. */
static bool is_in_use(const cgp__stage_builder *b, int value) {
    return !b->settled[value] && b->gradient[value].arena == CGP__ITEM;
}

static void set_gradient(cgp__stage_builder *b, int value, cgp__place place) {
    if (is_in_use(b, value)) b->items[b->gradient[value].offset].gradients--;
    b->gradient[value] = place;
    if (is_in_use(b, value)) b->items[place.offset].gradients++;
}

/* Backward runs past the node that makes a value. */
static void resolve(cgp__stage_builder *b, int value) {
    if (is_in_use(b, value)) b->items[b->gradient[value].offset].gradients--;
    b->settled[value] = true;
}

/* Whether a gradient other than `value`'s lies in the same item and is still to be read. */
static bool shared(const cgp__stage_builder *b, cgp__place place, int value) {
    if (place.arena != CGP__ITEM) return false;
    const bool itself = is_in_use(b, value) && b->gradient[value].offset == place.offset;
    return b->items[place.offset].gradients > itself;
}

static cgp_status new_gradient(cgp__stage_builder *b, int value, int moment) {
    const int item = cgp__builder_item(b, value_bytes(b, value), moment);
    if (item < 0) return cgp__no_memory("plan: items", sizeof *b->items);
    set_gradient(b, value, (cgp__place){CGP__ITEM, item});
    return CGP_OK;
}

/* Gradients that begin in a later stage: they arrive before the first call. */
static cgp_status place_arrivals(cgp__stage_builder *b) {
    const cgp_plan *plan = b->plan;
    for (int s = plan->first_stage_edge[b->index]; s < plan->first_stage_edge[b->index + 1];
         s++) {
        const cgp__edge_plan *edge = &plan->edges[plan->stage_edges[s]];
        if (edge->edge.to != b->index || edge->edge.from < b->index) continue;
        for (int i = 0; i < edge->n_parts; i++)
            b->arriving[edge->parts[i].value] = &edge->parts[i];
    }
    for (int i = 0; i < b->n_values; i++) {
        const int v = b->values[i];
        if (!b->arriving[v]) continue;
        CGP_TRY(new_gradient(b, v, cgp__moment_arrival(b->stage)));
        b->arriving[v]->to = b->gradient[v];
    }
    return CGP_OK;
}

/* With a loss outside the output's gradient is the caller's: it begins with a copy, as others may
 * be added to it, or lie over it. */
static cgp_status place_external(cgp__stage_builder *b, cgp__program *program) {
    const int output = b->model->output;
    if (!b->plan->external_loss ||
        b->plan->node_stage[b->model->values[output].node] != b->index ||
        !b->model->values[output].has_grad)
        return CGP_OK;
    const int moment = cgp__moment_arrival(b->stage);
    CGP_TRY(new_gradient(b, output, moment));
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, -1, CGP__BACKWARD_INPUT, 0, moment, &call));
    call->copy_count = cgp_shape_count(&b->model->values[output].type.shape);
    call->dy = (cgp__place){CGP__HOST_GRADIENT, 0};
    call->dx[0] = b->gradient[output];
    return CGP_OK;
}

/* Gradients that end in an earlier stage: they stay until they are sent. */
static void place_departures(cgp__stage_builder *b) {
    const cgp_plan *plan = b->plan;
    for (int s = plan->first_stage_edge[b->index]; s < plan->first_stage_edge[b->index + 1];
         s++) {
        const cgp__edge_plan *edge = &plan->edges[plan->stage_edges[s]];
        if (edge->edge.from != b->index || edge->edge.to > b->index) continue;
        for (int i = 0; i < edge->n_parts; i++) {
            const cgp__place gradient = b->gradient[edge->parts[i].value];
            if (gradient.arena == CGP__NOWHERE) continue;
            cgp__builder_keep(b, gradient, cgp__moment_last(b->stage));
            edge->parts[i].from[0] = edge->parts[i].from[1] = gradient;
        }
    }
}

/* value's gradient is about to be added to: give it memory of its own if another one shares it.
 */
static cgp_status unshare(cgp__stage_builder *b, cgp__program *program, int value, int moment) {
    const cgp__place old = b->gradient[value];
    if (!shared(b, old, value)) return CGP_OK;
    CGP_TRY(new_gradient(b, value, moment));
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, -1, CGP__BACKWARD_INPUT, 0, moment, &call));
    call->copy_count = cgp_shape_count(&b->model->values[value].type.shape);
    call->dy = old;
    call->dx[0] = b->gradient[value];
    cgp__builder_keep(b, old, moment);
    return CGP_OK;
}

/* Whether the gradient of input k may take the memory of the input itself: it is one that
 * backward keeps, this node's is the last of backward to read it, and its input half does not.
 */
static bool may_lie_over_input(const cgp__stage_builder *b, const cgp__node *node, int k,
                               int moment) {
    const cgp__place x = b->where[node->inputs[k]];
    if (x.arena != CGP__ITEM || !b->items[x.offset].saved || b->items[x.offset].end > moment)
        return false;
    const bool read_now = node->op->input_needs_x & (1u << k);
    for (int j = 0; j < node->n_inputs; j++) { /* the other one is read still */
        if (j != k && node->inputs[j] == node->inputs[k]) return false;
    }
    return node->op->dx == CGP__DX_OVER_X ||
           (!read_now && b->items[x.offset].end == moment - 1);
}

/* Where the first use of input k puts its gradient. `y`: the node's result, -1 for a loss. */
static cgp_status first_use(cgp__stage_builder *b, const cgp__node *node, int k, int moment) {
    const int value = node->inputs[k], y = node->output;
    const cgp__place dy = y < 0 ? (cgp__place){CGP__NOWHERE, 0} : b->gradient[y];
    if (node->op->dx == CGP__DX_SAME) {
        set_gradient(b, value, dy);
        return CGP_OK;
    }
    if (node->op->dx == CGP__DX_IN_PLACE && !shared(b, dy, y) && !read_by_weight(b, node) &&
        value_bytes(b, value) == value_bytes(b, y)) {
        set_gradient(b, value, dy);
        return CGP_OK;
    }
    if (may_lie_over_input(b, node, k, moment)) {
        set_gradient(b, value, b->where[value]);
        return CGP_OK;
    }
    return new_gradient(b, value, moment);
}

/* Whether a later input of the node is the same value, and its gradient made by the same call. */
static bool is_made_already(const cgp__node *node, int k, const cgp__place *dx) {
    for (int j = k + 1; j < node->n_inputs; j++) {
        if (node->inputs[j] == node->inputs[k] && dx[j].arena != CGP__NOWHERE) return true;
    }
    return false;
}

/* Place the gradients of a node's inputs. *work tells whether anything is left to compute. */
static cgp_status place_dx(cgp__stage_builder *b, cgp__program *program, const cgp__node *node,
                           int moment, cgp__place *dx, uint32_t *add, bool *work) {
    for (int k = node->n_inputs - 1; k >= 0 && node->op->dx != CGP__DX_NONE; k--) {
        const int value = node->inputs[k];
        if (!b->model->values[value].has_grad) continue;
        if (b->gradient[value].arena == CGP__NOWHERE) {
            CGP_TRY(first_use(b, node, k, moment));
            if (node->op->dx == CGP__DX_SAME) continue;
        } else {
            if (!is_made_already(node, k, dx)) CGP_TRY(unshare(b, program, value, moment));
            *add |= 1u << k;
        }
        dx[k] = b->gradient[value];
        *work = true;
        cgp__builder_keep(b, dx[k], moment);
    }
    return CGP_OK;
}

static void bind_reads(cgp__stage_builder *b, cgp__call *call, const cgp__node *node,
                       int moment) {
    const bool input = call->direction == CGP__BACKWARD_INPUT;
    const uint32_t needs_x = input ? node->op->input_needs_x : node->op->weight_needs_x;
    for (int k = 0; k < node->n_inputs; k++) {
        if (needs_x & (1u << k)) call->x[k] = cgp__builder_operand(b, node->inputs[k]);
    }
    if (input ? node->op->input_needs_y : node->op->weight_needs_y)
        call->y = cgp__builder_operand(b, node->output);
    if (node->output >= 0) {
        call->dy = b->gradient[node->output];
        cgp__builder_keep(b, call->dy, moment);
    }
}

static cgp_status weight_half(cgp__stage_builder *b, cgp__program *program, int i) {
    const int index = b->stage->first_node + i;
    const cgp__node *node = &b->model->nodes[index];
    if (!cgp__node_has_direction(b->model, node, CGP__BACKWARD_WEIGHT)) return CGP_OK;
    const int moment = cgp__moment_backward(b, i, CGP__BACKWARD_WEIGHT);
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_redo(b, program, moment));
    CGP_TRY(cgp__builder_call(b, program, index, CGP__BACKWARD_WEIGHT, 0, moment, &call));
    bind_reads(b, call, node, moment);
    if (b->plan->splits && call->dy.arena == CGP__ITEM) b->items[call->dy.offset].saved = true;
    return CGP_OK;
}

static cgp_status input_half(cgp__stage_builder *b, cgp__program *program, int i) {
    const int index = b->stage->first_node + i;
    const cgp__node *node = &b->model->nodes[index];
    if (cgp__node_has_direction(b->model, node, CGP__BACKWARD_INPUT)) {
        const int moment = cgp__moment_backward(b, i, CGP__BACKWARD_INPUT);
        cgp__place dx[CGP__MAX_INPUTS] = {{CGP__NOWHERE, 0}};
        uint32_t add = 0;
        bool work = node->op->weight_in_input && node->n_params > 0;
        CGP_TRY(cgp__builder_redo(b, program, moment));
        CGP_TRY(place_dx(b, program, node, moment, dx, &add, &work));
        if (work) {
            cgp__call *call = NULL;
            CGP_TRY(
                cgp__builder_call(b, program, index, CGP__BACKWARD_INPUT, add, moment, &call));
            bind_reads(b, call, node, moment);
            for (int k = 0; k < node->n_inputs; k++)
                call->dx[k] = dx[k];
        }
    }
    if (node->output >= 0 && !read_by_weight(b, node)) resolve(b, node->output);
    return CGP_OK;
}

cgp_status cgp__builder_backward(cgp__stage_builder *b, cgp__program *program) {
    CGP_TRY(place_arrivals(b));
    CGP_TRY(place_external(b, program));
    for (int half = 0; half < 2 * b->stage->n_nodes; half++) {
        cgp__direction direction;
        const int i = cgp__half_at(b, half, &direction);
        if (!b->model->nodes[b->stage->first_node + i].requires_grad) continue;
        if (direction == CGP__BACKWARD_WEIGHT) {
            CGP_TRY(weight_half(b, program, i));
        } else {
            CGP_TRY(input_half(b, program, i));
            program->n_input = program->n;
        }
    }
    place_departures(b);
    return CGP_OK;
}
