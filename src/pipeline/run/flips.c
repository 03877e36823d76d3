/* SPDX-License-Identifier: Apache-2.0 */
/* flips.c -- flips bits of results (flips.h). The fault's number selects one result of the action,
 * a byte of the result and a bit of the byte, so a test can repeat a flip. These are the results of
 * an action:
 *
 *     F, R    outputs of the action's calls        W    gradients of parameters
 *     I       gradients of inputs                  B    both */
#include "pipeline/run/flips.h"

#include "model/model.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/injected_faults.h"
#include "pipeline/run/worker.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"

void cgp__flip_add(cgp__flip_search *search, void *at, int64_t bytes) {
    if (!at || bytes == 0 || search->n++ != search->wanted) return;
    search->at = at;
    search->bytes = bytes;
}

static void add_value(const cgp__execution *s, cgp__flip_search *found, cgp__location location,
                      int value) {
    if (value < 0 || location.arena == CGP__HOST || location.arena == CGP__HOST_GRADIENT) return;
    const cgp_shape *shape = &s->setup->model->values[value].type.shape;
    const int64_t bytes = s->variant->samples * cgp_shape_count(shape) *
                          (int64_t)cgp_dtype_bytes(cgp__value_type(s->setup, value));
    cgp__flip_add(found, cgp__address(s, location), bytes);
}

/* Return the address of a parameter's gradient. If there are gradient groups, the action has
 * already added its buffer of partial sums to the buffers below. So the gradient is in the lowest
 * of these buffers. */
static char *gradient_at(const cgp__execution *s, cgp__location location) {
    if (location.arena != CGP__GRADIENTS) return cgp__address(s, location);
    cgp__execution sum = *s;
    sum.base[CGP__GRADIENTS] =
        cgp__gradients_at(s->worker, s->variant->buffer - s->variant->additions);
    return cgp__address(&sum, location);
}

static void add_call(const cgp__execution *s, cgp__flip_search *found, const cgp__call *call) {
    const cgp_action_kind kind = s->bound->action.kind;
    const cgp_model *model = s->setup->model;
    if (call->node < 0) return; /* the call is a copy or a sum */
    const cgp__node *node = &model->nodes[call->node];
    if (kind == CGP_ACTION_F || kind == CGP_ACTION_R) add_value(s, found, call->y, node->output);
    for (int k = 0; (kind == CGP_ACTION_B || kind == CGP_ACTION_I) && k < node->n_inputs; k++)
        add_value(s, found, call->dx[k], node->inputs[k]);
    for (int k = 0;
         (kind == CGP_ACTION_B || kind == CGP_ACTION_W) && k < node->use.shapes.n_parameters; k++)
        cgp__flip_add(found, gradient_at(s, call->dparam[k]),
                      4 * cgp_shape_count(&model->params[node->params[k]].shape));
}

static cgp__flip_search find_result(const cgp__execution *s, int wanted) {
    const cgp__program *program = &s->stage->programs[s->variant->program];
    cgp__flip_search found = {.wanted = wanted};
    for (int i = s->variant->begin; i < s->variant->end; i++)
        add_call(s, &found, &program->calls[i]);
    return found;
}

static void draw_of(int64_t number, uint32_t draw[4]) {
    const uint32_t counter[4] = {(uint32_t)number, 0, 0, 0};
    cgp__philox(draw, counter, (cgp__rng_key){0xF11B, 0});
}

int cgp__flip_draw(int64_t number, int n) {
    uint32_t draw[4];
    draw_of(number, draw);
    return (int)(draw[0] % (uint32_t)n);
}

cgp_status cgp__flip_bit(cgp__worker *worker, const cgp__flip_search *found, int64_t number) {
    uint32_t draw[4];
    draw_of(number, draw);
    const uint64_t wide = ((uint64_t)draw[1] << 32) | draw[2];
    char *at = found->at + wide % (uint64_t)found->bytes;
    unsigned char byte = 0;
    CGP_TRY(cgp__worker_read(worker, &byte, at, 1));
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    byte = (unsigned char)(byte ^ (1u << draw[3] % 8));
    return cgp__worker_write(worker, at, &byte, 1);
}

cgp_status cgp__flip_result(const cgp__execution *s) {
    int64_t number;
    for (int from = 0;
         cgp__injected_flip(s->worker->executor, &s->bound->action, &from, &number);) {
        const int n = find_result(s, -1).n;
        if (n == 0) continue;
        const cgp__flip_search found = find_result(s, cgp__flip_draw(number, n));
        CGP_TRY(cgp__flip_bit(s->worker, &found, number));
    }
    return CGP_OK;
}
