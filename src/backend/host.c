/* SPDX-License-Identifier: Apache-2.0 */
/* host.c -- code that all backends in host memory share. Most of it calls the functions of custom
 * ops.
 *
 * A custom op's functions take f32 operands and overwrite their results. So operands in bf16, and
 * gradients to which the kernel adds, are staged in the workspace. The workspace has only the parts
 * that the kernel needs:
 *
 *     the op's workspace | x[0] .. | y | dy | dx[0] .. | dparameters[0] ..
 *
 * Operands in bf16 are widened into the workspace. Results in bf16 are computed in the workspace in
 * f32, and are rounded when they are stored. If the kernel adds a gradient to dx or dparam, it
 * first computes the gradient in the workspace. */
#include "backend/host.h"
#include "backend/running_stats.h"
#include "base/bf16.h"
#include "base/op_needs.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local bool recomputing;

bool cgp_is_recomputing(void) {
    return recomputing;
}

/* Offsets in the workspace; -1: the operand is used in place. */
typedef struct staging {
    int64_t x[CGP_OP_MAX_INPUTS], dx[CGP_OP_MAX_INPUTS], y, dy, dparam[CGP_OP_MAX_PARAMETERS];
    int64_t bytes;
} staging;

static int64_t reserve(staging *s, bool wanted, const cgp_shape *shape, int64_t n) {
    const int64_t offset = s->bytes;
    if (!wanted) return -1;
    s->bytes += cgp__align_up(n * cgp_shape_count(shape) * (int64_t)sizeof(float));
    return offset;
}

static staging stage(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_node *node = spec->attributes.custom;
    const cgp_op *op = node->op;
    const cgp_op_direction direction = spec->direction;
    const cgp__op_needs needs = cgp__op_needs_of(op, direction);
    const bool bf16 = spec->type == CGP_BF16, forward = direction == CGP_OP_FORWARD;
    const cgp_op_type *y = &node->shapes.output;
    const bool has_y = !op->is_loss && y->dtype == CGP_F32;
    staging s = {.bytes = 0};
    if (op->workspace)
        s.bytes = cgp__align_up(cgp__max(0, op->workspace(node, direction, spec->n, threads)));
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        const bool f32 = k < op->n_inputs && node->inputs[k].dtype == CGP_F32;
        const cgp_shape *shape = &node->inputs[k].shape;
        s.x[k] = reserve(&s, bf16 && f32 && (forward || (needs.x & (1u << k))), shape, spec->n);
        s.dx[k] = reserve(
            &s, f32 && direction == CGP_OP_BACKWARD_INPUT && (bf16 || (spec->add & (1u << k))),
            shape, spec->n);
    }
    s.y = reserve(&s, bf16 && has_y && (forward || needs.y), &y->shape, spec->n);
    s.dy = reserve(&s, bf16 && has_y && !forward, &y->shape, spec->n);
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++)
        s.dparam[k] =
            reserve(&s, k < node->shapes.n_parameters && cgp__op_makes_parameters(op, direction),
                    &node->shapes.parameters[k].shape, 1);
    return s;
}

int64_t cgp__custom_workspace(const cgp_kernel_spec *spec, int threads) {
    return stage(spec, threads).bytes;
}

/* One call: its arguments, and the staging of its operands. */
typedef struct call {
    const cgp__host *host;
    const cgp_kernel_spec *spec;
    const cgp_kernel_args *args;
    const cgp_op_node *node;
    staging s;
} call;

static void *staged(const call *c, int64_t offset) {
    return (char *)c->args->workspace + offset;
}

/* Return an operand as the op reads it: either `from` itself or, if the operand is bf16, a copy
 * widened to f32 in the workspace. */
static const void *widened(const call *c, const void *from, int64_t offset,
                           const cgp_shape *shape) {
    if (!from || offset < 0) return from;
    (void)c->host->convert(c->host->device, CGP_F32, staged(c, offset), c->spec->type, from,
                           c->spec->n * cgp_shape_count(shape));
    return staged(c, offset);
}

/* Set the operands of forward. If the op is a loss, forward will write its sum to *loss. */
static void bind_forward(const call *c, cgp_op_run *run, double *loss) {
    const cgp_kernel_args *args = c->args;
    for (int k = 0; k < c->node->op->n_inputs; k++)
        run->x[k] = widened(c, args->x[k], c->s.x[k], &c->node->inputs[k].shape);
    run->y = c->s.y < 0 ? args->y : staged(c, c->s.y);
    for (int k = 0; k < c->node->shapes.n_saved; k++)
        run->saved[k] = args->saved[k];
    for (int k = 0; k < c->node->shapes.n_state; k++)
        run->state[k] = args->state[k];
    run->accumulator = args->accumulator;
    run->first = args->first;
    run->training = args->training;
    if (c->node->op->is_loss) run->loss = loss;
}

static void bind_backward(const call *c, cgp_op_run *run) {
    const cgp_kernel_args *args = c->args;
    const cgp_op_direction direction = c->spec->direction;
    const cgp_op *op = c->node->op;
    const cgp_op_shapes *shapes = &c->node->shapes;
    const cgp__op_needs needs = cgp__op_needs_of(op, direction);
    const cgp_shape *y = &shapes->output.shape;
    for (int k = 0; k < op->n_inputs; k++) {
        if (needs.x & (1u << k))
            run->x[k] = widened(c, args->x[k], c->s.x[k], &c->node->inputs[k].shape);
        if (direction == CGP_OP_BACKWARD_INPUT && args->dx[k])
            run->dx[k] = c->s.dx[k] < 0 ? args->dx[k] : staged(c, c->s.dx[k]);
    }
    if (needs.y) run->y = (void *)widened(c, args->y, c->s.y, y);
    run->dy = widened(c, args->dy, c->s.dy, y);
    for (int k = 0; k < shapes->n_saved; k++) {
        if (needs.saved & (1u << k)) run->saved[k] = args->saved[k];
    }
    for (int k = 0; k < shapes->n_parameters && cgp__op_makes_parameters(op, direction); k++)
        run->dparameters[k] =
            args->first && args->dparam[k] ? args->dparam[k] : staged(c, c->s.dparam[k]);
    run->training = args->training;
    if (op->is_loss) run->loss_scale = cgp__loss_scale(args);
}

static void add_rounded(uint16_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = cgp__bf16_from_float(cgp__bf16_to_float(to[i]) + from[i]);
}

/* Move staged results to their destination. */
static void commit_results(const call *c) {
    const cgp_kernel_args *args = c->args;
    const cgp_kernel_spec *spec = c->spec;
    const cgp_op_shapes *shapes = &c->node->shapes;
    if (spec->direction == CGP_OP_FORWARD && c->s.y >= 0)
        (void)c->host->convert(c->host->device, spec->type, args->y, CGP_F32, staged(c, c->s.y),
                               spec->n * cgp_shape_count(&shapes->output.shape));
    /* Process the last input first. If two inputs are the same value, the gradient of the first
     * input is added to the gradient of the second. */
    for (int k = c->node->op->n_inputs - 1; k >= 0; k--) {
        const int64_t count = spec->n * cgp_shape_count(&c->node->inputs[k].shape);
        if (spec->direction != CGP_OP_BACKWARD_INPUT || !args->dx[k] || c->s.dx[k] < 0) continue;
        if (!(spec->add & (1u << k)))
            (void)c->host->convert(c->host->device, spec->type, args->dx[k], CGP_F32,
                                   staged(c, c->s.dx[k]), count);
        else if (spec->type == CGP_BF16)
            add_rounded(args->dx[k], staged(c, c->s.dx[k]), count);
        else
            (void)c->host->add(c->host->device, args->dx[k], staged(c, c->s.dx[k]), count);
    }
    for (int k = 0; k < shapes->n_parameters && !args->first; k++) {
        if (c->s.dparam[k] >= 0 && args->dparam[k])
            (void)c->host->add(c->host->device, args->dparam[k], staged(c, c->s.dparam[k]),
                               cgp_shape_count(&shapes->parameters[k].shape));
    }
}

cgp_status cgp__custom_run(const cgp__host *host, const cgp_kernel_spec *spec,
                           const cgp_kernel_args *args) {
    const call c = {host, spec, args, spec->attributes.custom, stage(spec, host->threads)};
    const struct cgp__op_context context = {host, cgp__dropout_key(args), args->values->sample};
    double loss = 0;
    cgp_op_run run = {
        .node = c.node, .n = spec->n, .workspace = args->workspace, .context = &context};
    for (int k = 0; k < c.node->shapes.n_parameters; k++)
        run.parameters[k] = args->param[k];
    if (spec->direction == CGP_OP_FORWARD)
        bind_forward(&c, &run, &loss);
    else
        bind_backward(&c, &run);
    recomputing = args->recomputing && spec->direction == CGP_OP_FORWARD;
    (void)cgp_fail(CGP_OK, "%s", ""); /* clear the message */
    const cgp_status status = cgp__op_run_of(c.node->op, spec->direction)(&run);
    recomputing = false;
    if (status == CGP_OK && run.loss) cgp__set_loss(args, loss);
    if (status == CGP_OK)
        commit_results(&c);
    else if (!cgp_message()[0])
        return cgp_fail(status, "failed with %s", cgp_status_name(status));
    return status;
}

static void commit_custom(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp_op_run run = {
        .node = spec->attributes.custom, .n = spec->n, .accumulator = args->accumulator};
    for (int k = 0; k < run.node->shapes.n_state; k++)
        run.state[k] = args->state[k];
    run.node->op->end_of_step(&run);
}

/* --- entries of a backend's table --- */

cgp_status cgp__host_count(int *count) {
    *count = 1;
    return CGP_OK;
}

cgp_status cgp__host_memory(int ordinal, int64_t *bytes) {
    (void)ordinal;
    *bytes = cgp__memory_available();
    return CGP_OK;
}

cgp_status cgp__host_copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                          size_t bytes) {
    (void)device;
    (void)queue;
    if (bytes) memcpy(to.at, from.at, bytes);
    return CGP_OK;
}

void cgp__host_kernel_destroy(cgp_kernel *kernel) {
    free(kernel);
}

cgp_status cgp__host_merge(cgp_device *device, const cgp_kernel_spec *spec,
                           const cgp_kernel_args *args, int n) {
    (void)device;
    cgp__running_stats_merge(spec, args, n);
    return CGP_OK;
}

cgp_status cgp__host_commit(cgp_device *device, const cgp_kernel_spec *spec,
                            const cgp_kernel_args *args) {
    (void)device;
    if (spec->op == CGP_OP_CUSTOM)
        commit_custom(spec, args);
    else
        cgp__running_stats_commit(spec, args);
    return CGP_OK;
}

cgp_status cgp__host_check_commit(cgp_device *device, const cgp_kernel_spec *spec,
                                  const cgp_kernel_args *args, int64_t *index) {
    (void)device;
    *index = cgp__running_stats_check(spec, args);
    return CGP_OK;
}

/* --- functions for ops to call --- */

void cgp_op_random(const cgp_op_run *run, int64_t sample, int64_t first, int64_t count,
                   float *out) {
    CGP__NEED_OR(run, );
    if (count > 0) CGP__NEED_OR(out, );
    CGP__NEED_OR(run->context, ); /* the context is NULL outside a call of the op */
    const uint64_t index = (uint64_t)(run->context->sample + sample);
    uint32_t words[4];
    for (int64_t e = first; e < first + count; e++) {
        const uint32_t counter[4] = {(uint32_t)(e / 4), (uint32_t)((uint64_t)e >> 34),
                                     (uint32_t)index, (uint32_t)(index >> 32)};
        if (e == first || e % 4 == 0) cgp__philox(words, counter, run->context->key);
        out[e - first] = (float)(words[e % 4] >> 8) * 0x1p-24f;
    }
}

typedef struct parallel_call {
    const cgp_op_run *run;
    cgp_op_range *range;
    void *work;
} parallel_call;

/* Thread number of the range that this thread runs; -1: it runs no range. */
static _Thread_local int range_thread = -1;

static void run_range(const void *work, int64_t begin, int64_t end, int thread) {
    const parallel_call *s = work;
    const int outer = range_thread;
    range_thread = thread;
    s->range(s->run, s->work, begin, end, thread);
    range_thread = outer;
}

void cgp_op_parallel_for(const cgp_op_run *run, int64_t items, int64_t block, cgp_op_range *range,
                         void *work) {
    CGP__NEED_OR(run, );
    if (items > 0) CGP__NEED_OR(range, );
    CGP__NEED_OR(run->context, );
    const parallel_call s = {run, range, work};
    const cgp__host *host = run->context->host;
    if (range_thread >= 0) { /* in a nested loop, the other threads are busy */
        if (items > 0) range(run, work, 0, items, range_thread);
        return;
    }
    host->parallel_for(host->device, items, block > 0 ? block : 1, run_range, &s);
}
