/* SPDX-License-Identifier: Apache-2.0 */
/* op_times.c -- for each kind of op, adds up the kernel times (layer_times.c), FLOPs and bytes of
 * all calls. */
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/layer_times.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/measured.h"

#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "op/op.h"
#include "plan/owners.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"

_Static_assert(CGP_OP_KINDS < CGP_OP_TIMES, "cgp_pipeline_op_times() has room for all kinds");

/* Sum of the bytes of a call's operands. */
typedef struct operands {
    const cgp__setup *setup;
    double bytes;
} operands;

static void add(operands *o, cgp__location location, double bytes) {
    if (location.arena != CGP__NOWHERE) o->bytes += bytes;
}

static double value_bytes(const operands *o, int value) {
    return value < 0 ? 0 : (double)cgp__value_bytes(o->setup, value, o->setup->microbatch);
}

static double call_bytes(const cgp__setup *setup, const cgp__call *call) {
    const cgp_model *model = setup->model;
    const cgp__node *node = &model->nodes[call->node];
    const cgp_op_shapes *shapes = &node->use.shapes;
    /* Mean number of passes over a gradient buffer per micro-batch. Each micro-batch writes the
     * buffer, and each one except the first also reads it. */
    const double passes = 2 - 1.0 / (double)setup->chunks;
    operands o = {setup, 0};
    for (int k = 0; k < node->n_inputs; k++) {
        const double bytes = value_bytes(&o, node->inputs[k]);
        add(&o, call->x[k], bytes);
        add(&o, call->dx[k], call->add >> k & 1 ? 2 * bytes : bytes);
    }
    add(&o, call->y, value_bytes(&o, node->output));
    add(&o, call->dy, value_bytes(&o, node->output));
    for (int k = 0; k < shapes->n_saved; k++)
        add(&o, call->saved[k], (double)cgp__type_bytes(&shapes->saved[k], setup->microbatch));
    for (int k = 0; k < shapes->n_parameters; k++) {
        const double bytes = 4 * (double)cgp_shape_count(&model->params[node->params[k]].shape);
        if (call->direction != CGP_OP_BACKWARD_WEIGHT) add(&o, call->param[k], bytes);
        add(&o, call->dparam[k], passes * bytes);
    }
    return o.bytes;
}

/* Allocate and fill a table [nodes x directions] of the bytes that one run of each kernel moves. */
static cgp_status make_bytes(const cgp_plan *plan, double **bytes) {
    static const int programs[] = {CGP__FORWARD_SAVED, CGP__BACKWARD};
    const cgp__setup *setup = cgp__plan_setup(plan);
    CGP_TRY(CGP__NEW(*bytes, setup->model->n_nodes * CGP_OP_DIRECTIONS, "op times"));
    for (int j = 0; j < cgp_plan_stages(plan); j++)
        for (int k = 0; k < 2; k++) {
            const cgp__program *program = &cgp__plan_stage(plan, j)->programs[programs[k]];
            for (int i = 0; i < program->n; i++) {
                const cgp__call *call = &program->calls[i];
                const int cell = call->node * CGP_OP_DIRECTIONS + (int)call->direction;
                if (call->node >= 0 && (*bytes)[cell] == 0)
                    (*bytes)[cell] = call_bytes(setup, call);
            }
        }
    return CGP_OK;
}

static void add_node(const cgp_pipeline *pipeline, int i, const double *bytes, cgp_op_time *kinds) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__node *node = &pipeline->model->nodes[i];
    const cgp__node_time *times = pipeline->measured[cgp__plan_device_of(plan, i)].node_times;
    cgp_op_time *kind = &kinds[node->kind];
    kind->op = cgp_op_name(node->kind);
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        const int cell = i * CGP_OP_DIRECTIONS + d;
        const double runs = (double)times[cell].runs;
        kind->runs[d] += times[cell].runs;
        kind->seconds[d] += 1e-9 * (double)times[cell].ns;
        kind->flops[d] += runs * (double)pipeline->setup->microbatch *
                          cgp__op_flops(node->kind, &node->use, (cgp_op_direction)d);
        kind->bytes[d] += runs * bytes[cell];
    }
}

static double seconds_of(const cgp_op_time *t) {
    return t->seconds[0] + t->seconds[1] + t->seconds[2];
}

static int longest_first(const void *a, const void *b) {
    const double x = seconds_of(a), y = seconds_of(b);
    return (x < y) - (x > y);
}

cgp_status cgp_pipeline_op_times(const cgp_pipeline *pipeline, cgp_op_time *times, int *n) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_OP_TIMES, .out = times, .more = n);
    const bool wants = pipeline->rank < pipeline->setup->ranks || times || n;
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, !wants   ? CGP_OK
                                              : !times ? cgp__missing(__func__, "times")
                                              : !n     ? cgp__missing(__func__, "n")
                                                       : CGP_OK));
    cgp_op_time kinds[CGP_OP_TIMES] = {{0}};
    double *bytes = NULL;
    int found = 0;
    CGP_TRY(cgp__gather_times(pipeline));
    if (!wants) return CGP_OK;
    CGP_TRY(make_bytes(pipeline->plan, &bytes));
    for (int i = 0; i < pipeline->model->n_nodes; i++)
        add_node(pipeline, i, bytes, kinds);
    free(bytes);
    for (int kind = 0; kind < CGP_OP_TIMES; kind++) {
        if (kinds[kind].runs[0] + kinds[kind].runs[1] + kinds[kind].runs[2] > 0)
            kinds[found++] = kinds[kind];
    }
    qsort(kinds, (size_t)found, sizeof *kinds, longest_first);
    memcpy(times, kinds, (size_t)found * sizeof *kinds);
    *n = found;
    return CGP_OK;
}
