/* SPDX-License-Identifier: Apache-2.0 */
/* plan_replay.c -- see plan_replay.h. */
#include "plan_replay.h"
#include "support.h"

#include "model/backward.h"
#include "model/model.h"
#include "op/op.h"
#include "plan/memory/devices.h"
#include "plan/plan.h"

typedef struct replay {
    const cgp_plan *plan;
    const cgp_model *model;
    int stage, first, n; /* the stage has nodes `first` to first + n - 1 */
    int64_t b;
    /* for each value, the last node of the stage that reads the value in forward; `n` if the value
     * is sent or is an output; -1 if nothing reads it */
    int64_t *forward_end;
    /* for each value, the lowest node whose backward reads the stored value; `n` if there is no
     * such node */
    int *backward_end;
    /* for each value, the first and the last backward step that needs the recomputed value; -1 if
     * the value is not recomputed */
    int *recomputed_from, *recomputed_to;
    /* bytes of the saved slot and of the input slot */
    int64_t slot, input;
    /* maximum over actions of the bytes that do not fit into the slot and go to the workspace */
    int64_t work;
    /* `scratchpad`: bytes of the largest scratchpad; `piece`: bytes of the largest scratchpad or
     * value */
    int64_t scratchpad, piece;
    /* `input_read_late`: backward reads the input slot; `input_recomputed`: R reads it */
    bool input_read_late, input_recomputed;
} replay;

/* The next functions use only the model and the balance. They find stages, uses of values, and
 * paths of gradients. */
static int stage_of(const cgp_plan *plan, int node) {
    const int *balance = cgp_plan_balance(plan);
    int stage = 0, end = balance[0];
    while (plan->setup.model->nodes[node].layer >= end)
        end += balance[++stage];
    return stage;
}

static int producer_of(const cgp_plan *plan, int value) {
    const int node = plan->setup.model->values[value].node;
    return node < 0 ? -1 : stage_of(plan, node);
}

static bool uses(const cgp_plan *plan, int stage, int value, bool gradient) {
    for (int i = 0; i < plan->setup.model->n_nodes; i++) {
        const cgp__node *node = &plan->setup.model->nodes[i];
        if (stage_of(plan, i) != stage ||
            (gradient &&
             (!node->requires_grad || cgp__op_dx(node->kind, node->use.op) == CGP__DX_NONE)))
            continue;
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->inputs[k] == value) return true;
        }
    }
    return false;
}

/* Return true if a later stage computes the gradient of a value and sends the gradient to this
 * stage. It does so if this stage produces the value, or passes the gradient on. */
static bool gradient_arrives(const cgp_plan *plan, int stage, int value) {
    const int producer = producer_of(plan, value);
    if (producer < 0 || producer > stage || !plan->setup.model->values[value].has_grad)
        return false;
    if (producer != stage && !uses(plan, stage, value, true)) return false;
    for (int above = stage + 1; above < cgp_plan_stages(plan); above++) {
        if (uses(plan, above, value, true)) return true;
    }
    return false;
}

/* Return the bytes of a value for n samples: 4 bytes per element, or 2 for floats in bf16. */
static int64_t value_bytes(const cgp_plan *plan, int value, int64_t n) {
    const cgp_op_type *type = &plan->setup.model->values[value].type;
    const bool half = plan->setup.precision == CGP_PRECISION_BF16 && type->dtype == CGP_F32;
    return n * cgp_shape_count(&type->shape) * (half ? 2 : 4);
}

static int64_t bytes_of(const replay *r, int value) {
    return value_bytes(r->plan, value, r->b);
}

static void find_largest_value(replay *r) {
    for (int i = r->first; i < r->first + r->n; i++) {
        const cgp__node *node = &r->model->nodes[i];
        for (int k = -1; k < node->n_inputs; k++) {
            const int v = k < 0 ? node->output : node->inputs[k];
            if (v >= 0 && bytes_of(r, v) > r->piece) r->piece = bytes_of(r, v);
        }
    }
}

static const cgp__node *node_at(const replay *r, int i) {
    return &r->model->nodes[r->first + i];
}

static bool made_here(const replay *r, int value) {
    const int node = r->model->values[value].node;
    return node >= r->first && node < r->first + r->n;
}

static bool has(const replay *r, int i, cgp_op_direction d) {
    return cgp__node_has_direction(r->model, node_at(r, i), d);
}

static int64_t scratch(replay *r, int i, cgp_op_direction direction) {
    cgp_kernel_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.op = node_at(r, i)->kind;
    spec.direction = direction;
    spec.attributes = node_at(r, i)->sizes;
    spec.n = r->b;
    int64_t bytes = 0;
    spec.type = r->plan->setup.precision == CGP_PRECISION_BF16 ? CGP_BF16 : CGP_F32;
    const cgp__device_plan *device = &r->plan->placement.devices[0];
    assert_ok(device->backend->kernels.workspace(&device->options, &spec, &bytes));
    r->scratchpad = bytes > r->scratchpad ? bytes : r->scratchpad;
    r->piece = bytes > r->piece ? bytes : r->piece;
    return bytes;
}

/* Return the index, in time order, of the backward step of a node in one direction. A node's weight
 * backward comes before its input backward. */
static int step_of(const replay *r, int i, cgp_op_direction direction) {
    return 2 * (r->n - 1 - i) + (direction == CGP_OP_BACKWARD_INPUT);
}

static void widen(int *from, int *to, int step) {
    *from = *from < 0 || step < *from ? step : *from;
    *to = step > *to ? step : *to;
}

/* Find the first and the last backward step that reads value `v`. A step reads `v` if the op's
 * backward needs `v`, or if the step recomputes an output from `v`. The caller goes from the last
 * node to the first, so it has already determined which ops that read `v` are recomputed. */
static void find_steps(replay *r, int v, int *from, int *to) {
    *from = *to = -1;
    for (int i = r->n - 1; i >= 0; i--) {
        const cgp__node *node = node_at(r, i);
        for (int d = CGP_OP_BACKWARD_INPUT; d <= CGP_OP_BACKWARD_WEIGHT; d++) {
            const bool input = d == CGP_OP_BACKWARD_INPUT;
            const uint32_t needs =
                input ? node->use.op->input_needs_x : node->use.op->weight_needs_x;
            bool reads = node->output == v &&
                         (input ? node->use.op->input_needs_y : node->use.op->weight_needs_y);
            for (int k = 0; k < node->n_inputs; k++)
                reads = reads || (node->inputs[k] == v && (needs >> k & 1));
            if (reads && has(r, i, (cgp_op_direction)d))
                widen(from, to, step_of(r, i, (cgp_op_direction)d));
        }
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->inputs[k] == v && node->output >= 0 && r->recomputed_from[node->output] >= 0)
                widen(from, to, r->recomputed_from[node->output]);
        }
    }
}

/* Find the values that the mode +selective recomputes. The output of a cheap op is recomputed if
 * two conditions hold. First, backward reads the output. Second, each input of the op is also read
 * by backward, or comes from another stage. */
static void find_recomputed(replay *r) {
    bool *recomputed = calloc((size_t)r->model->n_values, sizeof *recomputed);
    int from, to;
    for (int i = 0; i < r->n; i++) {
        const cgp__node *node = node_at(r, i);
        if (!node->use.op->cheap) continue;
        find_steps(r, node->output, &from, &to);
        bool possible = from >= 0;
        for (int k = 0; k < node->n_inputs; k++) {
            find_steps(r, node->inputs[k], &from, &to);
            possible = possible && (!made_here(r, node->inputs[k]) || from >= 0);
        }
        recomputed[node->output] = possible;
    }
    for (int i = r->n - 1; i >= 0; i--) {
        const int y = node_at(r, i)->output;
        if (y >= 0 && recomputed[y]) find_steps(r, y, &r->recomputed_from[y], &r->recomputed_to[y]);
    }
    free(recomputed);
}

static void find_lifetimes(replay *r, bool training) {
    for (int v = 0; v < r->model->n_values; v++) {
        r->forward_end[v] = -1;
        r->backward_end[v] = r->n;
        for (int i = 0; i < r->model->n_nodes; i++) {
            const cgp__node *node = &r->model->nodes[i];
            for (int k = 0; k < node->n_inputs; k++) {
                if (node->inputs[k] == v)
                    r->forward_end[v] = i >= r->first + r->n ? r->n : i - r->first;
            }
        }
        if (r->model->values[v].output >= 0) r->forward_end[v] = r->n;
        r->recomputed_from[v] = r->recomputed_to[v] = -1;
    }
    if (!training) return;
    if (cgp_recompute_is_selective(r->plan->setup.recompute)) find_recomputed(r);
    for (int v = 0; v < r->model->n_values; v++) {
        int from, to;
        find_steps(r, v, &from, &to);
        if (to >= 0 && r->recomputed_from[v] < 0) r->backward_end[v] = r->n - 1 - to / 2;
    }
}

static bool kept(const replay *r, int value) {
    return r->backward_end[value] < r->n;
}

static int64_t stats_bytes(const replay *r, int i) {
    int64_t bytes = 0;
    for (int k = 0; k < node_at(r, i)->use.shapes.n_saved; k++)
        bytes += cgp__type_bytes(&node_at(r, i)->use.shapes.saved[k], r->b);
    return bytes;
}

/* Return true if backward of node `i` reads the node's saved statistics. */
static bool keeps_stats(const replay *r, int i) {
    const cgp__node *node = node_at(r, i);
    return node->use.shapes.n_saved > 0 &&
           (has(r, i, CGP_OP_BACKWARD_INPUT) ||
            (node->use.op->weight_needs_saved && has(r, i, CGP_OP_BACKWARD_WEIGHT)));
}

/* Update the maximum workspace for a moment at which `saved` bytes of the slot are in use.
 * `tensors` and `scratchpad` bytes go into the free part of the slot. What does not fit goes into
 * the workspace. The scratchpad is contiguous, so it is either in the slot or in the workspace.
 * `fixed` bytes are always in the workspace. */
static void need(replay *r, int64_t saved, int64_t tensors, int64_t scratchpad, int64_t fixed) {
    const int64_t capacity = r->slot - saved;
    int64_t beyond = tensors + scratchpad > capacity ? tensors + scratchpad - capacity : 0;
    if (scratchpad > capacity) beyond = scratchpad + (tensors > capacity ? tensors - capacity : 0);
    if (fixed + beyond > r->work) r->work = fixed + beyond;
}

/* Replay forward. At each node, two kinds of values are in use: values saved so far, and temporary
 * values that a later node reads. */
static void replay_forward(replay *r) {
    int64_t saved = 0, temporary = 0;
    for (int i = 0; i < r->n; i++) {
        const cgp__node *node = node_at(r, i);
        const bool backward = keeps_stats(r, i) && r->slot > 0;
        const int64_t scratchpad = scratch(r, i, CGP_OP_FORWARD);
        int64_t own = 0, freed = 0;
        if (backward)
            saved += stats_bytes(r, i);
        else
            own = stats_bytes(r, i);
        for (int k = 0; k < node->n_inputs; k++) {
            const int v = node->inputs[k];
            const bool twice = k == 1 && node->inputs[0] == v;
            if (made_here(r, v) && !kept(r, v) && r->forward_end[v] == i && !twice)
                freed += bytes_of(r, v);
        }
        /* An op may overwrite an input that no later op reads. Then input and output are never live
         * at the same time. */
        int64_t during = temporary, made = node->output >= 0 ? bytes_of(r, node->output) : 0;
        int64_t reused = 0;
        if (node->use.op->overwrites && freed > 0 && made > 0) reused = freed < made ? freed : made;
        if (node->output >= 0 && kept(r, node->output)) {
            saved += made;
            during -= reused;
            made = 0;
        } else {
            during += made - reused;
        }
        need(r, saved, during + own, scratchpad, 0);
        temporary += made - freed;
        if (node->output >= 0 && r->forward_end[node->output] < 0 && made)
            temporary -= made; /* no op reads it */
    }
}

/* A cell is memory for a gradient. The gradients of several values may share a cell, by the rules
 * in src/plan/program/backward.c. A cell is in one of these places:
 *
 * - ANYWHERE: the slot or the workspace.
 * - OVER: the memory of a saved value.
 * - EXTERNAL: the workspace for the cell's whole life, because the cell did not fit into the slot
 *   when it was created. */
enum { ANYWHERE, OVER, EXTERNAL };

typedef struct cells {
    int *of;    /* [values] cell of the value's gradient; -1: none */
    int *users; /* [cells] number of values that share the cell */
    int *where; /* [cells] place of the cell */
    int64_t *bytes;
    int n;
    int64_t live[3]; /* bytes of cells in use, by place */
} cells;

static void hold(cells *c, int value, int cell) {
    c->of[value] = cell;
    if (c->users[cell]++ == 0) c->live[c->where[cell]] += c->bytes[cell];
}

static void drop(cells *c, int value) {
    if (c->of[value] >= 0 && --c->users[c->of[value]] == 0)
        c->live[c->where[c->of[value]]] -= c->bytes[c->of[value]];
    c->of[value] = -1;
}

static int new_cell(cells *c, int64_t bytes, int where) {
    c->bytes[c->n] = bytes;
    c->where[c->n] = where;
    return c->n++;
}

/* Return the saved bytes that are still needed by the backward of nodes 0 to `i`. */
static int64_t saved_live(const replay *r, int i, const bool *over_x) {
    int64_t bytes = 0;
    for (int v = 0; v < r->model->n_values; v++) {
        if (made_here(r, v) && kept(r, v) && r->backward_end[v] <= i && !over_x[v])
            bytes += bytes_of(r, v);
    }
    for (int k = 0; k <= i; k++) {
        if (keeps_stats(r, k)) bytes += stats_bytes(r, k);
    }
    return bytes;
}

/* Return true if the gradient of input `k` of node `i` overwrites this input. The gradient of the
 * logits always overwrites the logits. Any other input is overwritten if this node's weight
 * backward is the last to read it. */
static bool lies_over_input(const replay *r, const cgp__node *node, int k, int i) {
    const int v = node->inputs[k];
    if (!made_here(r, v) || r->backward_end[v] != i) return false;
    return cgp__op_dx(node->kind, node->use.op) == CGP__DX_OVER_X ||
           (!(node->use.op->input_needs_x >> k & 1) && (node->use.op->weight_needs_x >> k & 1));
}

/* Return the place of the gradient of `value`. The input backward of node `i` creates this
 * gradient. */
static int fits_slot(const replay *r, int i, const cells *c, const bool *over_x, int value) {
    return saved_live(r, i, over_x) + c->live[OVER] + bytes_of(r, value) > r->slot ? EXTERNAL
                                                                                   : ANYWHERE;
}

/* Add the values that a backward step recomputes to the memory in use. */
static void recompute(const replay *r, cells *c, int *where, const bool *over_x, int step) {
    for (int v = 0; v < r->model->n_values; v++) {
        if (r->recomputed_from[v] != step) continue;
        where[v] = fits_slot(r, r->n - 1 - step / 2, c, over_x, v);
        c->live[where[v]] += bytes_of(r, v);
    }
}

static void forget(const replay *r, cells *c, const int *where, int step) {
    for (int v = 0; v < r->model->n_values; v++) {
        if (r->recomputed_to[v] == step) c->live[where[v]] -= bytes_of(r, v);
    }
}

static void replay_backward(replay *r) {
    const int values = r->model->n_values;
    const size_t max = 4 * (size_t)values + 64;
    cells c = {.of = calloc((size_t)values, sizeof *c.of),
               .users = calloc(max, sizeof *c.users),
               .where = calloc(max, sizeof *c.where),
               .bytes = calloc(max, sizeof *c.bytes)};
    /* place of each recomputed value: ANYWHERE or EXTERNAL */
    int *recomputed_where = calloc((size_t)values, sizeof *recomputed_where);
    /* true if a gradient overwrites the value; in this case, the gradient's cell counts as slot
     * memory */
    bool *over_x = calloc((size_t)values, sizeof *over_x);
    for (int v = 0; v < values; v++) {
        c.of[v] = -1;
    }
    for (int v = 0; v < values; v++) {
        if (gradient_arrives(r->plan, r->stage, v))
            hold(&c, v, new_cell(&c, bytes_of(r, v), fits_slot(r, r->n - 1, &c, over_x, v)));
    }
    for (int i = r->n - 1; i >= 0; i--) {
        const cgp__node *node = node_at(r, i);
        if (!node->requires_grad) continue;
        const bool input = has(r, i, CGP_OP_BACKWARD_INPUT),
                   weight = has(r, i, CGP_OP_BACKWARD_WEIGHT);
        recompute(r, &c, recomputed_where, over_x, step_of(r, i, CGP_OP_BACKWARD_WEIGHT));
        if (weight)
            need(r, saved_live(r, i, over_x) + c.live[OVER], c.live[ANYWHERE],
                 scratch(r, i, CGP_OP_BACKWARD_WEIGHT), c.live[EXTERNAL]);
        forget(r, &c, recomputed_where, step_of(r, i, CGP_OP_BACKWARD_WEIGHT));
        recompute(r, &c, recomputed_where, over_x, step_of(r, i, CGP_OP_BACKWARD_INPUT));
        for (int k = node->n_inputs - 1;
             input && k >= 0 && cgp__op_dx(node->kind, node->use.op) != CGP__DX_NONE; k--) {
            const int v = node->inputs[k], y = node->output;
            if (!r->model->values[v].has_grad) continue;
            if (c.of[v] >= 0) {
                if (c.users[c.of[v]] > 1) {
                    drop(&c, v);
                    hold(&c, v, new_cell(&c, bytes_of(r, v), fits_slot(r, i, &c, over_x, v)));
                }
            } else if (cgp__op_dx(node->kind, node->use.op) == CGP__DX_SAME ||
                       (cgp__op_dx(node->kind, node->use.op) == CGP__DX_IN_PLACE &&
                        c.users[c.of[y]] == 1 && bytes_of(r, v) == bytes_of(r, y))) {
                hold(&c, v, c.of[y]);
            } else if (lies_over_input(r, node, k, i)) {
                over_x[v] = true;
                hold(&c, v, new_cell(&c, bytes_of(r, v), OVER));
            } else {
                hold(&c, v, new_cell(&c, bytes_of(r, v), fits_slot(r, i, &c, over_x, v)));
            }
        }
        if (input)
            need(r, saved_live(r, i, over_x) + c.live[OVER], c.live[ANYWHERE],
                 scratch(r, i, CGP_OP_BACKWARD_INPUT), c.live[EXTERNAL]);
        forget(r, &c, recomputed_where, step_of(r, i, CGP_OP_BACKWARD_INPUT));
        if (node->output >= 0) drop(&c, node->output);
    }
    free(over_x);
    free(recomputed_where);
    free(c.where);
    free(c.of);
    free(c.users);
    free(c.bytes);
}

/* Return true if recomputing this stage's values reads values that other stages sent. */
static bool recompute_reads_input(const replay *r) {
    bool *needed = calloc((size_t)r->n + 1, sizeof *needed), reads = false;
    for (int i = r->n - 1; i >= 0; i--) {
        const cgp__node *node = node_at(r, i);
        if ((node->output >= 0 && kept(r, node->output)) || keeps_stats(r, i)) needed[i] = true;
        for (int k = 0; needed[i] && k < node->n_inputs; k++) {
            const int producer = r->model->values[node->inputs[k]].node;
            if (producer >= r->first)
                needed[producer - r->first] = true;
            else
                reads = reads || producer >= 0;
        }
    }
    free(needed);
    return reads;
}

static void measure_stage(replay *r, const cgp_plan *plan, int stage) {
    *r = (replay){
        .plan = plan, .model = plan->setup.model, .stage = stage, .b = cgp_plan_microbatch(plan)};
    while (r->first < plan->setup.model->n_nodes && stage_of(plan, r->first) < stage)
        r->first++; /* a stage may have no nodes */
    while (r->first + r->n < plan->setup.model->n_nodes && stage_of(plan, r->first + r->n) == stage)
        r->n++;
    find_largest_value(r);
    r->forward_end = calloc((size_t)plan->setup.model->n_values, sizeof *r->forward_end);
    r->backward_end = calloc((size_t)plan->setup.model->n_values, sizeof *r->backward_end);
    r->recomputed_from = calloc((size_t)plan->setup.model->n_values, sizeof *r->recomputed_from);
    r->recomputed_to = calloc((size_t)plan->setup.model->n_values, sizeof *r->recomputed_to);
    if (cgp_recompute_plain(plan->setup.recompute) != CGP_RECOMPUTE_NEVER) {
        /* forward without saving uses no slot, so all values are temporary */
        find_lifetimes(r, false);
        replay_forward(r);
    }
    find_lifetimes(r, true);
    for (int v = 0; v < plan->setup.model->n_values; v++) {
        if (made_here(r, v) && kept(r, v)) r->slot += bytes_of(r, v);
    }
    for (int i = 0; i < r->n; i++)
        r->slot += has(r, i, CGP_OP_BACKWARD_INPUT) ? stats_bytes(r, i) : 0;
    for (int v = 0; v < plan->setup.model->n_values; v++) {
        const int producer = producer_of(plan, v);
        if (producer >= 0 && producer < stage && uses(plan, stage, v, false)) {
            r->input += bytes_of(r, v);
            r->input_read_late = r->input_read_late || kept(r, v);
        }
    }
    r->input_recomputed = recompute_reads_input(r);
    replay_forward(r);
    replay_backward(r);
    free(r->forward_end);
    free(r->backward_end);
    free(r->recomputed_from);
    free(r->recomputed_to);
}

/* Count the slots that a stage has in use at one time, from the stage's action list. An input slot
 * is in use until backward if backward reads it, or until R if R reads it. */
static void count_slots(const replay *r, int *inputs, int *saved) {
    int n = 0, in = 0, out = 0;
    const cgp_action *a = cgp_schedule_actions(cgp_plan_schedule(r->plan), r->stage, &n);
    *inputs = *saved = 0;
    for (int i = 0; i < n; i++) {
        bool recomputed = false;
        for (int k = 0; k < n; k++)
            recomputed =
                recomputed || (a[k].kind == CGP_ACTION_R && a[k].microbatch == a[i].microbatch);
        const bool first_receive =
            a[i].kind == CGP_ACTION_RECV_F && (i == 0 || a[i - 1].kind != CGP_ACTION_RECV_F ||
                                               a[i - 1].microbatch != a[i].microbatch);
        in += first_receive;
        out += a[i].kind == (recomputed ? CGP_ACTION_R : CGP_ACTION_F);
        *inputs = in > *inputs ? in : *inputs;
        *saved = out > *saved ? out : *saved;
        out -= a[i].kind == CGP_ACTION_B;
        if (r->input > 0)
            in -= a[i].kind == (r->input_read_late                  ? CGP_ACTION_B
                                : recomputed && r->input_recomputed ? CGP_ACTION_R
                                                                    : CGP_ACTION_F);
    }
}

static int64_t raw_parameter_bytes(const cgp_plan *plan, int stage) {
    int64_t bytes = 0;
    for (int p = 0; p < plan->setup.model->n_params; p++) {
        if (stage_of(plan, plan->setup.model->uses[plan->setup.model->params[p].first_use].node) ==
            stage)
            bytes += 4 * cgp_shape_count(&plan->setup.model->params[p].shape);
    }
    return bytes;
}

/* Return the workspace bytes for parameters that several stages share. The stage that owns a shared
 * parameter receives the gradients of the other stages in pieces. */
static int64_t piece_bytes(const cgp_plan *plan, int stage) {
    int64_t bytes = 0;
    for (int p = 0; p < plan->setup.model->n_params; p++) {
        const cgp__use *uses_of = plan->setup.model->uses + plan->setup.model->params[p].first_use;
        for (int u = 1; u < plan->setup.model->params[p].n_uses; u++) {
            if (stage_of(plan, uses_of[0].node) == stage &&
                stage_of(plan, uses_of[u].node) != stage)
                bytes = 65536;
        }
    }
    return bytes;
}

/* Return the bytes for all batch norms of a stage. Each batch norm has three states and an
 * accumulator, each aligned to 64 bytes. */
static int64_t state_bytes(const cgp_plan *plan, int stage) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->setup.model->n_nodes; i++) {
        const int64_t channels = plan->setup.model->nodes[i].sizes.out;
        const int64_t parts[4] = {4 * channels, 4 * channels, 4, 8 * (2 + 2 * channels)};
        for (int k = 0; k < 4 && stage_of(plan, i) == stage; k++) {
            if (plan->setup.model->nodes[i].kind == CGP_OP_BATCH_NORM)
                bytes += (parts[k] + 63) / 64 * 64;
        }
    }
    return bytes;
}

static int find_edge(const cgp_plan *plan, int from, int to) {
    int e = cgp_plan_edges(plan) - 1;
    while (e >= 0 &&
           (plan->messages.edges[e].edge.from != from || plan->messages.edges[e].edge.to != to))
        e--;
    return e;
}

/* Return the bytes of a stage's send buffers. The stage sends each of its values to each later
 * stage that uses the value. For each received value, it sends one gradient to the next lower stage
 * that computes a gradient of that value. An edge has as many buffers as the simulated step uses at
 * once, but at least 2. */
static int64_t transfer_bytes(const cgp_plan *plan, int stage) {
    int64_t total = 0;
    for (int to = 0; to < cgp_plan_stages(plan); to++) {
        int64_t bytes = 0;
        for (int v = 0; v < plan->setup.model->n_values; v++) {
            const int producer = producer_of(plan, v);
            bool sent = to > stage && producer == stage && uses(plan, to, v, false);
            if (to < stage && producer >= 0 && producer <= to &&
                plan->setup.model->values[v].has_grad && uses(plan, stage, v, true)) {
                sent = producer == to || uses(plan, to, v, true);
                for (int between = to + 1; between < stage; between++)
                    sent = sent && !uses(plan, between, v, true);
            }
            bytes += sent ? value_bytes(plan, v, cgp_plan_microbatch(plan)) : 0;
        }
        const int e = bytes ? find_edge(plan, stage, to) : -1;
        const int buffers = e < 0 ? 0 : cgp_plan_timeline(plan)->free_capacity[e];
        total += bytes * (buffers > 2 ? buffers : 2);
    }
    return total;
}

void test_replay_stage(test_replay *bound, const cgp_plan *plan, int stage) {
    replay r;
    measure_stage(&r, plan, stage);
    *bound = (test_replay){.input = r.input,
                           .slot = r.slot,
                           .work = r.work,
                           .transfer = transfer_bytes(plan, stage),
                           .parameters = raw_parameter_bytes(plan, stage),
                           .states = state_bytes(plan, stage),
                           .scratchpad = r.scratchpad,
                           .piece = r.piece};
    count_slots(&r, &bound->inputs, &bound->saved);
    if (bound->work < piece_bytes(plan, stage)) bound->work = piece_bytes(plan, stage);
}
