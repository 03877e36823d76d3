/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.c -- fills prefetch lists. While the GEMM of a linear runs, it prefetches the operands
 * on its list. The next calls read these operands, which have probably left the cache.
 *
 *     forward                       backward
 *     linear  <- W, bias below      linear, weight  <- W
 *     gelu                          linear, input   <- x saved for gelu, x saved for linear
 *     linear                        gelu
 *                                   linear, weight
 *
 * The list of a linear covers the calls up to and including the next linear. A GEMM keeps the
 * vector units busy, but leaves load ports free. The list leaves out results of the previous call,
 * which are in cache already, and the GEMM's own results, which the GEMM prefetches anyway. */
#include "op/op.h"
#include "plan/program/builder.h"

static void add(cgp__call *call, cgp__location location, int64_t bytes) {
    if (location.arena == CGP__NOWHERE || call->n_prefetch == CGP_MAX_PREFETCH) return;
    for (int i = 0; i < call->n_prefetch; i++) {
        if (cgp__same_location(call->prefetch[i].location, location)) return;
    }
    call->prefetch[call->n_prefetch++] = (cgp__operand){location, bytes};
}

static void add_saved(const cgp__setup *setup, cgp__call *call, cgp__location location, int value) {
    if (location.arena == CGP__SAVED_SLOT)
        add(call, location, cgp__value_bytes(setup, value, setup->microbatch));
}

static void add_operands(const cgp__setup *setup, cgp__call *call, const cgp__call *next,
                         bool saved) {
    const cgp__node *node = &setup->model->nodes[next->node];
    for (int k = 0; saved && k < node->n_inputs; k++)
        add_saved(setup, call, next->x[k], node->inputs[k]);
    if (saved && node->output >= 0) add_saved(setup, call, next->y, node->output);
    for (int k = 0; next->direction != CGP_OP_BACKWARD_WEIGHT && k < node->use.shapes.n_parameters;
         k++) {
        const cgp_shape *shape = &setup->model->params[node->params[k]].shape;
        add(call, next->param[k], cgp_shape_count(shape) * (int64_t)sizeof(float));
    }
}

static bool prefetches(const cgp__setup *setup, const cgp__call *call) {
    return call->node >= 0 && cgp__op_find(setup->model->nodes[call->node].kind)->prefetches;
}

void cgp__program_prefetch(const cgp__setup *setup, cgp__program *program, bool saved) {
    int linear = -1; /* index of the last linear call */
    for (int i = 0; i < program->n; i++) {
        const cgp__call *next = &program->calls[i];
        /* W begins at this call. Because W is another action, the list of an earlier linear ends
         * here. */
        if (i == program->n_input) linear = -1;
        if (linear >= 0 && next->node >= 0)
            add_operands(setup, &program->calls[linear], next, saved);
        if (prefetches(setup, next)) linear = i;
    }
}
