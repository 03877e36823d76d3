/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.c -- kernel fusion. An ADD or a channel norm, and a RELU that overwrites its result, become
 * one call. This saves a pass over memory; results are bit-identical.
 *
 *     norm   x -> y                    norm, relu   x -> y
 *     relu   y -> y
 *
 * Programs are complete at this point: every operand has its location, and an in-place RELU is the
 * only reader of the value that it overwrites. */
#include "op/op.h"
#include "plan/program/builder.h"

/* Return true if `second` is an in-place RELU of the result of `first`. */
static bool can_fuse(const cgp_model *model, const cgp__call *first, const cgp__call *second) {
    if (first->node < 0 || second->node < 0 || first->direction != CGP_OP_FORWARD ||
        second->direction != CGP_OP_FORWARD)
        return false;
    const cgp__node *norm = &model->nodes[first->node], *relu = &model->nodes[second->node];
    return cgp__op_find(norm->kind)->ends_in_relu && relu->kind == CGP_OP_RELU &&
           relu->inputs[0] == norm->output && cgp__same_location(first->y, second->x[0]) &&
           cgp__same_location(second->x[0], second->y);
}

void cgp__program_fuse(const cgp_model *model, cgp__program *program) {
    const int first_weight = program->n_input;
    int n = 0;
    for (int i = 0; i < program->n; i++) {
        cgp__call *call = &program->calls[n++];
        *call = program->calls[i];
        if (i + 1 < program->n && i + 1 != first_weight &&
            can_fuse(model, call, &program->calls[i + 1]))
            call->relu = &model->nodes[program->calls[++i].node];
        if (i + 1 == first_weight) program->n_input = n;
    }
    program->n = n;
}
