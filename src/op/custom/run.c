/* SPDX-License-Identifier: Apache-2.0 */
/* custom_run.c -- one call of an op from outside. Its functions see f32 and write; what is bf16, or is to be added to, goes through
 * the workspace:
 *
 *     the op's own | x[0] .. | y | dy | dx[0] .. | dparameters[0] ..       those that this kernel needs
 *
 * In bf16 operands are widened into it, and results rounded out of it: the result is that in f32, rounded. A gradient
 * that is added to is made there first. */
#include "op/custom/custom.h"
#include "tensor/bf16.h"

static _Thread_local bool recomputing;

bool cgp_is_recomputing(void) {
    return recomputing;
}

/* Offsets in the workspace; -1: the operand is used where it is. */
typedef struct staging {
    int64_t x[CGP__MAX_INPUTS], dx[CGP__MAX_INPUTS], y, dy, dparam[CGP__MAX_PARAMS];
    int64_t bytes;
} staging;

static int64_t capacity(staging *s, bool wanted, const cgp_shape *shape, int64_t n) {
    const int64_t offset = s->bytes;
    if (!wanted) return -1;
    s->bytes += cgp__align_up(n * cgp_shape_count(shape) * (int64_t)sizeof(float));
    return offset;
}

static const cgp_op_node *node_of(const cgp__kernel_spec *spec) {
    return &((const cgp__custom_use *)spec->attributes.custom)->node;
}

static staging stage(const cgp__kernel_spec *spec, int threads) {
    const cgp_op_node *node = node_of(spec);
    const cgp_op *op = node->op;
    const cgp__direction direction = spec->direction;
    const cgp__custom_needs needs = cgp__custom_needs_of(op, direction);
    const bool half = spec->type == CGP_BF16, forward = direction == CGP__FORWARD;
    const cgp_op_type *y = &node->shapes.output;
    const bool has_y = !op->is_loss && y->dtype == CGP_F32;
    staging s = {.bytes = 0};
    if (op->workspace)
        s.bytes = cgp__align_up(
            cgp__max(0, op->workspace(node, (cgp_op_direction)direction, spec->n, threads)));
    for (int k = 0; k < CGP__MAX_INPUTS; k++) {
        const bool f32 = k < op->n_inputs && node->inputs[k].dtype == CGP_F32;
        const cgp_shape *shape = &node->inputs[k].shape;
        s.x[k] =
            capacity(&s, half && f32 && (forward || (needs.x & (1u << k))), shape, spec->n);
        s.dx[k] = capacity(
            &s, f32 && direction == CGP__BACKWARD_INPUT && (half || (spec->add & (1u << k))),
            shape, spec->n);
    }
    s.y = capacity(&s, half && has_y && (forward || needs.y), &y->shape, spec->n);
    s.dy = capacity(&s, half && has_y && !forward, &y->shape, spec->n);
    for (int k = 0; k < CGP__MAX_PARAMS; k++)
        s.dparam[k] = capacity(
            &s, k < node->shapes.n_parameters && cgp__custom_makes_parameters(op, direction),
            &node->shapes.parameters[k].shape, 1);
    return s;
}

static int64_t workspace(const cgp__kernel_spec *spec, int threads) {
    return stage(spec, threads).bytes;
}

/* One call: where its operands are, and where they were given. */
typedef struct call {
    const cgp__custom_host *host;
    const cgp__kernel_spec *spec;
    const cgp__kernel_args *args;
    const cgp_op_node *node;
    staging s;
} call;

static void *staged(const call *c, int64_t offset) {
    return (char *)c->args->workspace + offset;
}

/* An operand that is read: as it is, or widened. */
static const void *widened(const call *c, const void *from, int64_t offset,
                           const cgp_shape *shape) {
    if (!from || offset < 0) return from;
    c->host->convert(c->host->device, CGP_F32, staged(c, offset), c->spec->type, from,
                     c->spec->n * cgp_shape_count(shape));
    return staged(c, offset);
}

static void bind_forward(const call *c, cgp_op_run *run) {
    const cgp__kernel_args *args = c->args;
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
    if (c->node->op->is_loss) run->loss = args->loss;
}

static void bind_backward(const call *c, cgp_op_run *run) {
    const cgp__kernel_args *args = c->args;
    const cgp__direction direction = c->spec->direction;
    const cgp_op *op = c->node->op;
    const cgp_op_shapes *shapes = &c->node->shapes;
    const cgp__custom_needs needs = cgp__custom_needs_of(op, direction);
    const cgp_shape *y = &shapes->output.shape;
    for (int k = 0; k < op->n_inputs; k++) {
        if (needs.x & (1u << k))
            run->x[k] = widened(c, args->x[k], c->s.x[k], &c->node->inputs[k].shape);
        if (direction == CGP__BACKWARD_INPUT && args->dx[k])
            run->dx[k] = c->s.dx[k] < 0 ? args->dx[k] : staged(c, c->s.dx[k]);
    }
    if (needs.y) run->y = (void *)widened(c, args->y, c->s.y, y);
    run->dy = widened(c, args->dy, c->s.dy, y);
    for (int k = 0; k < shapes->n_saved; k++) {
        if (needs.saved & (1u << k)) run->saved[k] = args->saved[k];
    }
    for (int k = 0; k < shapes->n_parameters && cgp__custom_makes_parameters(op, direction);
         k++)
        run->dparameters[k] = args->first ? args->dparam[k] : staged(c, c->s.dparam[k]);
    run->training = args->training;
    run->loss_scale = args->loss_scale;
}

static void add_rounded(uint16_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = cgp__bf16_from_float(cgp__bf16_to_float(to[i]) + from[i]);
}

/* Results to where they belong. */
static void deliver(const call *c) {
    const cgp__kernel_args *args = c->args;
    const cgp__kernel_spec *spec = c->spec;
    const cgp_op_shapes *shapes = &c->node->shapes;
    if (spec->direction == CGP__FORWARD && c->s.y >= 0)
        c->host->convert(c->host->device, spec->type, args->y, CGP_F32, staged(c, c->s.y),
                         spec->n * cgp_shape_count(&shapes->output.shape));
    for (int k = c->node->op->n_inputs - 1; k >= 0; k--) { /* two may be of one value */
        const int64_t count = spec->n * cgp_shape_count(&c->node->inputs[k].shape);
        if (spec->direction != CGP__BACKWARD_INPUT || !args->dx[k] || c->s.dx[k] < 0) continue;
        if (!(spec->add & (1u << k)))
            c->host->convert(c->host->device, spec->type, args->dx[k], CGP_F32,
                             staged(c, c->s.dx[k]), count);
        else if (spec->type == CGP_BF16)
            add_rounded(args->dx[k], staged(c, c->s.dx[k]), count);
        else
            c->host->add(c->host->device, args->dx[k], staged(c, c->s.dx[k]), count);
    }
    for (int k = 0; k < shapes->n_parameters && !args->first; k++) {
        if (c->s.dparam[k] >= 0)
            c->host->add(c->host->device, args->dparam[k], staged(c, c->s.dparam[k]),
                         cgp_shape_count(&shapes->parameters[k].shape));
    }
}

static cgp_status run_custom(const cgp__custom_host *host, const cgp__kernel_spec *spec,
                             const cgp__kernel_args *args) {
    const call c = {host, spec, args, node_of(spec), stage(spec, host->threads)};
    const struct cgp__op_context context = {host, args->key, args->sample};
    cgp_op_run run = {
        .node = c.node, .n = spec->n, .workspace = args->workspace, .context = &context};
    for (int k = 0; k < c.node->shapes.n_parameters; k++)
        run.parameters[k] = args->param[k];
    if (spec->direction == CGP__FORWARD)
        bind_forward(&c, &run);
    else
        bind_backward(&c, &run);
    recomputing = args->again && spec->direction == CGP__FORWARD;
    (void)cgp_fail(CGP_OK, "%s", ""); /* so that its message is its own */
    const cgp_status status = cgp__custom_function(c.node->op, spec->direction)(&run);
    recomputing = false;
    if (status == CGP_OK)
        deliver(&c);
    else if (!cgp_message()[0])
        return cgp_fail(status, "failed with %s", cgp_status_name(status));
    return status;
}

static void commit(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    cgp_op_run run = {.node = node_of(spec), .n = spec->n, .accumulator = args->accumulator};
    for (int k = 0; k < run.node->shapes.n_state; k++)
        run.state[k] = args->state[k];
    run.node->op->end_of_step(&run);
}

const cgp__custom cgp__custom_functions = {
    .workspace = workspace, .run = run_custom, .commit = commit};

/* --- what the functions of an op may call --- */

void cgp_op_random(const cgp_op_run *run, int64_t sample, int64_t first, int64_t count,
                   float *out) {
    CGP__NEED_OR(run, );
    if (count > 0) CGP__NEED_OR(out, );
    CGP__NEED_OR(run->context, ); /* outside of a call of the op */
    const uint64_t place = (uint64_t)(run->context->sample + sample);
    uint32_t words[4];
    for (int64_t e = first; e < first + count; e++) {
        const uint32_t counter[4] = {(uint32_t)(e / 4), (uint32_t)((uint64_t)e >> 34),
                                     (uint32_t)place, (uint32_t)(place >> 32)};
        if (e == first || e % 4 == 0) cgp__philox(words, counter, run->context->key);
        out[e - first] = (float)(words[e % 4] >> 8) * 0x1p-24f;
    }
}

typedef struct shared {
    const cgp_op_run *run;
    cgp_op_range *part;
    void *work;
} shared;

static _Thread_local int part_thread = -1; /* of the part that this thread is in; -1: in none */

static void run_part(const void *work, int64_t begin, int64_t end, int thread) {
    const shared *s = work;
    const int outer = part_thread;
    part_thread = thread;
    s->part(s->run, s->work, begin, end, thread);
    part_thread = outer;
}

void cgp_op_parallel_for(const cgp_op_run *run, int64_t items, int64_t block,
                         cgp_op_range *part, void *work) {
    CGP__NEED_OR(run, );
    if (items > 0) CGP__NEED_OR(part, );
    CGP__NEED_OR(run->context, );
    const shared s = {run, part, work};
    const cgp__custom_host *host = run->context->host;
    if (part_thread >= 0) { /* the other threads are at work */
        if (items > 0) part(run, work, 0, items, part_thread);
        return;
    }
    host->share(host->device, items, block > 0 ? block : 1, run_part, &s);
}
