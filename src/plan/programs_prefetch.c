/* SPDX-License-Identifier: Apache-2.0 */
/* programs_prefetch.c -- what a call is told of those behind it: the memory they read that nobody has touched for long, so that
 * it can be brought nearer while the call computes.
 *
 *     forward                       backward
 *     linear  <- W, bias below      linear, weight half  <- W
 *     gelu                          linear, input half   <- x saved for gelu, x saved for linear
 *     linear                        gelu
 *                                   linear, weight half
 *
 * A linear is told of all behind it up to and including the next one: products have time for that, as their vector units are
 * busy and their ports to memory are not. What the call before it has just written a call finds near anyway, and what it
 * writes a product calls itself. */
#include "plan/programs.h"

static void tell(cgp__call *call, cgp__place place, int64_t bytes) {
    if (place.arena == CGP__NOWHERE || call->n_prefetch == CGP__MAX_PREFETCH) return;
    for (int i = 0; i < call->n_prefetch; i++) {
        if (cgp__same_place(call->prefetch[i].place, place)) return;
    }
    call->prefetch[call->n_prefetch++] = (cgp__operand){place, bytes};
}

static void tell_saved(const cgp_plan *plan, cgp__call *call, cgp__place place, int value) {
    if (place.arena == CGP__SAVED_SLOT)
        tell(call, place, cgp__plan_value_bytes(plan, value, plan->microbatch));
}

static void tell_of(const cgp_plan *plan, cgp__call *call, const cgp__call *next, bool saved) {
    const cgp__node *node = &plan->model->nodes[next->node];
    for (int k = 0; saved && k < node->n_inputs; k++)
        tell_saved(plan, call, next->x[k], node->inputs[k]);
    if (saved && node->output >= 0) tell_saved(plan, call, next->y, node->output);
    for (int k = 0; next->direction != CGP__BACKWARD_WEIGHT && k < node->n_params; k++) {
        const cgp_shape *shape = &plan->model->params[node->params[k]].shape;
        tell(call, next->param[k], cgp_shape_count(shape) * (int64_t)sizeof(float));
    }
}

static bool is_linear(const cgp_plan *plan, const cgp__call *call) {
    return call->node >= 0 && plan->model->nodes[call->node].op->kind == CGP__OP_LINEAR;
}

void cgp__program_prefetch(const cgp_plan *plan, cgp__program *program, bool saved) {
    int told = -1; /* the linear call that is told */
    for (int i = 0; i < program->n; i++) {
        const cgp__call *next = &program->calls[i];
        if (i == program->n_input) told = -1; /* another action */
        if (told >= 0 && next->node >= 0) tell_of(plan, &program->calls[told], next, saved);
        if (is_linear(plan, next)) told = i;
    }
}
