/* SPDX-License-Identifier: Apache-2.0 */
/* programs.c -- makes the programs of a stage. At first, the operands of calls are live ranges.
 * Once all live ranges of the stage are known, each range gets a location, and the locations
 * replace the ranges in the operands. The caller's inputs and the input slot have locations from
 * the start. */
#include "model/backward.h"
#include "op/op.h"
#include "plan/memory/devices.h"
#include "plan/memory/packings.h"
#include "plan/memory/parameters.h"
#include "plan/memory/states.h"
#include "plan/placement.h"
#include "plan/program/builder.h"

#include <stdlib.h>
#include <string.h>

typedef struct workspace {
    cgp_kernel_spec spec;
    const cgp_backend *backend;
    int64_t bytes;
} workspace;

struct cgp__workspaces {
    workspace *list;
    int n, capacity;
    cgp__index index;
};

cgp_status cgp__builder_range(cgp__stage_builder *b, int64_t bytes, int time, cgp__location *out) {
    if (!cgp__grow(&b->ranges, &b->ranges_capacity, b->n_ranges + 1, sizeof *b->ranges))
        return cgp__no_memory("plan: live ranges", sizeof *b->ranges);
    b->ranges[b->n_ranges] = (cgp__live_range){.bytes = bytes, .start = time, .end = time};
    *out = (cgp__location){CGP__LIVE_RANGE, b->n_ranges++};
    return CGP_OK;
}

void cgp__builder_extend(cgp__stage_builder *b, cgp__location location, int time) {
    if (location.arena == CGP__LIVE_RANGE && b->ranges[location.offset].end < time)
        b->ranges[location.offset].end = time;
}

/* Return the spec of the kernel that computes dx[0] += dy, which is input backward of an ADD. */
static cgp_kernel_spec sum_spec(const cgp__setup *setup, const cgp__call *call, int64_t n) {
    cgp_kernel_spec spec;
    memset(&spec, 0, sizeof spec); /* specs are compared as bytes, so the padding must be zero */
    spec.op = CGP_OP_ADD;
    spec.direction = call->direction;
    spec.attributes.rows = 1;
    spec.attributes.in = spec.attributes.out = call->copy_count;
    spec.attributes.slope = 1;
    spec.n = n;
    spec.add = (uint16_t)call->add;
    spec.type = cgp__activation_type(setup);
    return spec;
}

cgp_kernel_spec cgp__call_spec(const cgp__setup *setup, const cgp__call *call, int64_t n) {
    if (call->sums) return sum_spec(setup, call, n);
    const cgp__node *node = &setup->model->nodes[call->node];
    cgp_kernel_spec spec = cgp__node_kernel(node, call->direction, n, cgp__arithmetic_of(setup));
    if (call->relu) spec.attributes.slope = call->relu->sizes.slope;
    spec.add = (uint16_t)call->add;
    return spec;
}

/* Ask the backend for the workspace of a node's kernel. The message of a failure names the layer
 * and the op. */
static cgp_status ask_workspace(const cgp__stage_builder *b, const cgp__node *node,
                                const cgp_kernel_spec *spec, int64_t *bytes) {
    const cgp__device_plan *d = b->device;
    const char *layer = b->model->layers[node->layer], *op = node->use.op->name;
    if (spec->op == CGP_OP_CUSTOM && !d->backend->custom_ops)
        return cgp_fail(CGP_EINVAL,
                        "layer %s, op %s: device %s runs no custom ops (put that layer on a cpu "
                        "device)",
                        layer, op, d->name);
    const cgp_status status = d->backend->kernels.workspace(&d->options, spec, bytes);
    if (status == CGP_OK) return CGP_OK;
    return cgp_fail(status, "layer %s, op %s, device %s: %s%s", layer, op, d->name, cgp_message(),
                    status == CGP_EINVAL ? " (put that layer on a cpu device)" : "");
}

/* Return the bytes of workspace that a call needs for a full micro-batch; fewer samples need no
 * more. The backend is asked once for each different kernel. */
static cgp_status workspace_bytes(cgp__stage_builder *b, const cgp__call *call, int64_t *bytes) {
    struct cgp__workspaces *w = b->workspaces;
    const cgp_kernel_spec spec = cgp__call_spec(b->setup, call, b->setup->microbatch);
    const uint64_t hash = cgp__hash(&spec, sizeof spec);
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&w->index, hash, &tried)) >= 0) {
        ++*b->parts->steps;
        if (w->list[i].backend == b->device->backend &&
            memcmp(&w->list[i].spec, &spec, sizeof spec) == 0) {
            *bytes = w->list[i].bytes;
            return CGP_OK;
        }
    }
    CGP_TRY(ask_workspace(b, &b->model->nodes[call->node], &spec, bytes));
    if (!cgp__grow(&w->list, &w->capacity, w->n + 1, sizeof *w->list) ||
        !cgp__index_add(&w->index, hash, w->n))
        return cgp__no_memory("plan", sizeof *w->list);
    w->list[w->n++] = (workspace){spec, b->device->backend, *bytes};
    return CGP_OK;
}

bool cgp__builder_shares_host(const cgp__stage_builder *b) {
    return b->device->backend->host_addressable;
}

cgp_status cgp__builder_copy(cgp__stage_builder *b, cgp__program *program,
                             cgp_op_direction direction, int time, int value, cgp__location from,
                             cgp__location to) {
    const cgp_op_type *type = &b->model->values[value].type;
    cgp__call *call = NULL;
    CGP_TRY(cgp__builder_call(b, program, -1, direction, 0, time, &call));
    call->copy_count = cgp_shape_count(&type->shape);
    call->from_type = type->dtype;
    call->to_type = cgp__value_type(b->setup, value);
    call->dy = from;
    call->dx[0] = to;
    if (call->from_type == call->to_type || cgp__builder_shares_host(b)) return CGP_OK;
    call->workspace_bytes = cgp__type_bytes(type, b->setup->microbatch);
    return cgp__builder_range(b, call->workspace_bytes, time, &call->workspace);
}

cgp_status cgp__builder_call(cgp__stage_builder *b, cgp__program *program, int node,
                             cgp_op_direction direction, uint32_t add, int time, cgp__call **out) {
    if (!cgp__grow(&program->calls, &program->capacity, program->n + 1, sizeof *program->calls))
        return cgp__no_memory("plan: calls", sizeof *program->calls);
    cgp__call *call = &program->calls[program->n++];
    *call = (cgp__call){.node = node, .direction = direction, .add = add};
    *out = call;
    if (node < 0) return CGP_OK;
    const cgp__node *n = &b->model->nodes[node];
    for (int k = 0; k < n->use.shapes.n_parameters; k++) {
        const cgp__copy *copy =
            cgp__copy_on(b->parts->parameters, n->params[k], b->stage->info.device);
        call->param[k] = (cgp__location){CGP__PARAMETERS, copy->offset};
        const bool makes_gradient =
            !b->model->params[n->params[k]].frozen &&
            (direction == CGP_OP_BACKWARD_WEIGHT ||
             (direction == CGP_OP_BACKWARD_INPUT && n->use.op->weight_in_input));
        if (makes_gradient)
            call->dparam[k] =
                (cgp__location){CGP__GRADIENTS, b->parts->parameters->use_gradient[n->uses[k]]};
    }
    for (int k = 0; k < n->use.shapes.n_state && direction == CGP_OP_FORWARD; k++)
        call->state[k] = (cgp__location){CGP__STATE, b->parts->states->state[n->first_state + k]};
    if (b->parts->states->cache[node] >= 0)
        call->state[0] = (cgp__location){CGP__SCRATCH, b->parts->states->cache[node]};
    for (int k = 0; k < n->use.shapes.n_saved; k++)
        call->saved[k] = b->stats[(node - b->stage->first_node) * CGP_OP_MAX_SAVED + k];
    CGP_TRY(cgp__find_packing(b->parts, b->stage->info.device, call));
    CGP_TRY(workspace_bytes(b, call, &call->workspace_bytes));
    return call->workspace_bytes > 0
               ? cgp__builder_range(b, call->workspace_bytes, time, &call->workspace)
               : CGP_OK;
}

/* If an operand is a live range, replace the range with its location. */
static void rewrite(const cgp__stage_builder *b, cgp__location *operand) {
    if (operand->arena == CGP__LIVE_RANGE) *operand = b->ranges[operand->offset].location;
}

static void rewrite_program(const cgp__stage_builder *b, cgp__program *program) {
    for (int i = 0; i < program->n; i++) {
        cgp__call *call = &program->calls[i];
        rewrite(b, &call->y);
        rewrite(b, &call->dy);
        rewrite(b, &call->workspace);
        for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
            rewrite(b, &call->x[k]);
            rewrite(b, &call->dx[k]);
        }
        for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
            rewrite(b, &call->saved[k]);
    }
}

/* Replace live ranges with locations in the results that leave the stage: parts of messages,
 * outputs of the model, and gradients of its inputs. */
static void rewrite_results(cgp__stage_builder *b, int variant) {
    const cgp__messages *m = b->parts->messages;
    const cgp__results *results = b->parts->results;
    for (int k = 0; k < b->model->n_outputs; k++) {
        cgp__output_plan *output = &results->outputs[k];
        if (output->stage == b->index) rewrite(b, &output->at[variant]);
    }
    for (int k = 0; b->training && k < b->model->n_inputs; k++) {
        cgp__input_gradient *gradient = &results->input_gradients[k];
        if (gradient->stage == b->index) rewrite(b, &gradient->at);
    }
    for (int s = m->first_stage_edge[b->index]; s < m->first_stage_edge[b->index + 1]; s++) {
        cgp__edge_plan *edge = &m->edges[m->stage_edges[s]];
        const bool gradient = edge->edge.from > edge->edge.to;
        for (int i = 0; i < edge->n_parts; i++) {
            cgp__part *part = &edge->parts[i];
            if (gradient && b->training && edge->edge.from == b->index) {
                rewrite(b, &part->from[0]);
                part->from[1] = part->from[0];
            } else if (gradient && b->training && edge->edge.to == b->index) {
                rewrite(b, &part->to);
            } else if (!gradient && edge->edge.from == b->index) {
                part->from[variant] = b->of[part->value].location;
                rewrite(b, &part->from[variant]);
            }
        }
    }
}

/* Locate the values that other stages or the caller make: the caller's inputs, and the values in
 * the input slot. */
static void place_incoming(cgp__stage_builder *b) {
    for (int k = 0; k < b->model->n_inputs; k++)
        b->of[b->model->input_values[k]].location = (cgp__location){CGP__HOST, k};
    int64_t offset = 0;
    const cgp__messages *m = b->parts->messages;
    for (int s = m->first_stage_edge[b->index]; s < m->first_stage_edge[b->index + 1]; s++) {
        cgp__edge_plan *edge = &m->edges[m->stage_edges[s]];
        if (edge->edge.to != b->index || edge->edge.from > edge->edge.to) continue;
        for (int i = 0; i < edge->n_parts; i++) {
            edge->parts[i].to = (cgp__location){CGP__INPUT_SLOT, offset};
            b->of[edge->parts[i].value].location = edge->parts[i].to;
            offset += cgp__align_up(edge->parts[i].sample_bytes * b->setup->microbatch);
        }
    }
    b->stage->info.input_slot_bytes = offset;
}

/* Return true if one of the calls begin .. end - 1 reads the input slot. */
static bool reads_input_slot(const cgp__program *program, int begin, int end) {
    for (int i = begin; i < end; i++) {
        for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
            if (program->calls[i].x[k].arena == CGP__INPUT_SLOT) return true;
        }
    }
    return false;
}

/* Return the FLOPs of a program; if `weight`, only the FLOPs of its weight backward. */
static double program_flops(const cgp__setup *setup, const cgp__program *program, bool weight) {
    double flops = 0;
    for (int i = 0; i < program->n; i++) {
        const cgp__call *call = &program->calls[i];
        if (call->node < 0 || (weight && call->direction != CGP_OP_BACKWARD_WEIGHT)) continue;
        const cgp__node *node = &setup->model->nodes[call->node];
        flops += cgp__node_flops(setup->model, node, call->direction) * (double)setup->microbatch;
    }
    return flops;
}

static void release(cgp__stage_builder *b) {
    free(b->ranges);
    free(b->recomputations);
    free(b->values);
    free(b->of);
    free(b->last_read);
    free(b->required);
    free(b->required_list);
    free(b->weight_end);
    free(b->stats);
    cgp__index_release(&b->workspaces->index);
    free(b->workspaces->list);
}

/* Allocate the builder. One builder makes all stages, so that its arrays over the model's values
 * are allocated only once. */
static cgp_status allocate(cgp__stage_builder *b) {
    const cgp__placement *placement = b->parts->placement;
    const size_t values = (size_t)b->model->n_values;
    size_t nodes = 0;
    for (int j = 0; j < placement->n_stages; j++)
        nodes = (size_t)cgp__max((int64_t)nodes, placement->stages[j].n_nodes);
    CGP_TRY(CGP__NEW(b->values, values, "plan: stage"));
    CGP_TRY(CGP__NEW(b->of, values, "plan: stage"));
    CGP_TRY(CGP__NEW(b->last_read, values, "plan: stage"));
    CGP_TRY(CGP__NEW(b->required, nodes, "plan: stage"));
    CGP_TRY(CGP__NEW(b->required_list, nodes, "plan: stage"));
    CGP_TRY(CGP__NEW(b->weight_end, nodes, "plan: stage"));
    CGP_TRY(CGP__NEW(b->stats, nodes * CGP_OP_MAX_SAVED, "plan: stage"));
    return CGP_OK;
}

int cgp__builder_ascending(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void list_value(cgp__stage_builder *b, int value) {
    if (value < 0 || b->of[value].listed) return;
    b->of[value].listed = true;
    b->values[b->n_values++] = value;
}

/* Begin a stage: list its values. */
static void begin_stage(cgp__stage_builder *b, int index) {
    for (int i = 0; i < b->n_values; i++)
        b->of[b->values[i]].listed = false;
    b->index = index;
    b->stage = &b->parts->placement->stages[index];
    b->device = &b->parts->placement->devices[b->stage->info.device];
    b->n_values = 0;
    for (int i = b->stage->first_node; i < b->stage->first_node + b->stage->n_nodes; i++) {
        const cgp__node *node = &b->model->nodes[i];
        for (int k = 0; k < node->n_inputs; k++)
            list_value(b, node->inputs[k]);
        list_value(b, node->output);
    }
    qsort(b->values, (size_t)b->n_values, sizeof *b->values, cgp__builder_ascending);
}

/* Reset the builder to its state before the first call of the stage. */
static void rewind_stage(cgp__stage_builder *b) {
    b->n_ranges = b->n_recomputations = b->next_recomputation = b->n_converts = 0;
    b->branch_reads = -1;
    for (int i = 0; i < b->n_values; i++) {
        b->of[b->values[i]] = (cgp__stage_value){.listed = true, .recomputation = -1};
        b->last_read[b->values[i]] = -1;
    }
    memset(b->stats, 0, (size_t)b->stage->n_nodes * CGP_OP_MAX_SAVED * sizeof *b->stats);
}

/* Return the index after the last program of a variant. A variant is a set of programs with one
 * forward program: forward_nosave alone, or the three programs of training. The number of a variant
 * is the index of its forward program. */
static int end_of(int variant) {
    return variant == CGP__FORWARD_NOSAVE ? CGP__FORWARD_SAVED : CGP__PROGRAMS;
}

/* Bytes of a stage's saved slot and gradient slot. */
typedef struct slot_sizes {
    int64_t saved, gradient;
} slot_sizes;

/* Make the programs of a variant and lay out their live ranges. */
static cgp_status build(cgp__stage_builder *b, int variant, slot_sizes *slot, int64_t *work_bytes) {
    cgp__program *programs = b->stage->programs;
    for (int k = variant; k < end_of(variant); k++)
        programs[k].n = programs[k].n_input = 0;
    rewind_stage(b);
    CGP_TRY(cgp__builder_find_reads(b));
    place_incoming(b);
    CGP_TRY(cgp__builder_forward(b, &programs[variant]));
    if (b->training) CGP_TRY(cgp__builder_backward(b, &programs[CGP__BACKWARD]));
    if (b->training) CGP_TRY(cgp__builder_recompute_program(b));
    const cgp__layout_starts starts = {cgp__time_arrival(b->stage),
                                       cgp__time_backward_end(b->stage) + 1};
    return cgp__layout_pack(b->ranges, b->n_ranges, starts, &slot->saved, &slot->gradient,
                            work_bytes, b->parts->steps);
}

/* In the final programs of a variant, replace all live ranges with their locations. */
static void apply_layout(cgp__stage_builder *b, int variant, slot_sizes slot, int64_t work_bytes) {
    cgp__stage_plan *stage = b->stage;
    for (int k = variant; k < end_of(variant); k++)
        rewrite_program(b, &stage->programs[k]);
    rewrite_results(b, variant);
    if (b->training) stage->info.saved_slot_bytes = slot.saved;
    if (b->training) stage->gradient_slot_bytes = slot.gradient;
    if (work_bytes > stage->workspace_bytes) stage->workspace_bytes = work_bytes;
}

static bool has_branch(const cgp_backend *backend) {
    return backend->streams && backend->streams->fork;
}

/* Make the programs of a variant. These programs share live ranges. Stored results may take over
 * the memory of their op's inputs, or have memory of their own. In training, try both ways and keep
 * the layout with the smaller workspace. */
static cgp_status make_variant(cgp__stage_builder *b, int variant) {
    slot_sizes slot = {0, 0};
    int64_t in_place = 0, separate = INT64_MAX;
    b->training = variant == CGP__FORWARD_SAVED;
    b->branches = b->training && !b->setup->splits && has_branch(b->device->backend);
    b->separate = true;
    if (b->training) CGP_TRY(build(b, variant, &slot, &separate));
    b->separate = false;
    CGP_TRY(build(b, variant, &slot, &in_place));
    b->separate = separate < in_place;
    if (b->separate) CGP_TRY(build(b, variant, &slot, &in_place));
    apply_layout(b, variant, slot, in_place);
    return CGP_OK;
}

static bool is_callers(cgp__location location) {
    return location.arena == CGP__HOST || location.arena == CGP__HOST_GRADIENT;
}

/* Count the calls that copy the caller's data; these come first in a program. The later calls may
 * be captured in a graph, so on a device with its own memory they must not read the caller's
 * memory. A later call that reads this memory is a bug in this library, and is reported before any
 * call runs. */
static cgp_status count_callers(const cgp__stage_builder *b, cgp__program *program) {
    program->n_caller = 0;
    while (program->n_caller < program->n && program->calls[program->n_caller].node < 0 &&
           is_callers(program->calls[program->n_caller].dy))
        program->n_caller++;
    for (int i = program->n_caller; i < program->n && !cgp__builder_shares_host(b); i++) {
        const cgp__call *call = &program->calls[i];
        bool reads = is_callers(call->dy);
        for (int k = 0; k < CGP_OP_MAX_INPUTS; k++)
            reads = reads || is_callers(call->x[k]);
        if (reads)
            return cgp_fail(CGP_EDEVICE,
                            "stage %d: call %d reads the caller's memory, expected of the first "
                            "%d alone",
                            b->index, i, program->n_caller);
    }
    return CGP_OK;
}

/* Return the FLOPs of the forward calls that backward runs to recompute values. */
static double recomputed_flops(const cgp__setup *setup, const cgp__program *backward) {
    double flops = 0;
    for (int i = 0; i < backward->n; i++) {
        const cgp__call *call = &backward->calls[i];
        if (call->node >= 0 && call->direction == CGP_OP_FORWARD)
            flops +=
                cgp__node_flops(setup->model, &setup->model->nodes[call->node], CGP_OP_FORWARD) *
                (double)setup->microbatch;
    }
    return flops;
}

/* Count the stage's values that backward reads. */
static void count_values(const cgp__stage_builder *b) {
    cgp_plan_stage *info = &b->stage->info;
    for (int i = 0; i < b->stage->n_nodes; i++) {
        const int value = b->model->nodes[b->stage->first_node + i].output;
        if (value < 0 || b->last_read[value] < 0) continue;
        if (b->of[value].recomputed)
            info->recomputed_values++;
        else
            info->kept_values++;
    }
}

static cgp_status make_stage(cgp__stage_builder *b, int index) {
    const cgp__setup *setup = b->setup;
    begin_stage(b, index);
    cgp__stage_plan *stage = b->stage;
    if (setup->inference || setup->recomputes) CGP_TRY(make_variant(b, CGP__FORWARD_NOSAVE));
    if (!setup->inference) CGP_TRY(make_variant(b, CGP__FORWARD_SAVED));
    const int forward = setup->inference ? CGP__FORWARD_NOSAVE : CGP__FORWARD_SAVED;
    cgp__program *programs = stage->programs, *backward = &programs[CGP__BACKWARD];
    const cgp__program *recompute = &programs[CGP__RECOMPUTE];
    stage->input_reads_slot = reads_input_slot(backward, 0, backward->n_input);
    stage->weight_reads_slot = reads_input_slot(backward, backward->n_input, backward->n);
    stage->recompute_reads_slot = reads_input_slot(recompute, 0, recompute->n);
    stage->info.forward_flops = program_flops(setup, &programs[forward], false);
    stage->info.backward_flops = program_flops(setup, backward, false);
    stage->info.weight_flops = program_flops(setup, backward, true);
    stage->info.recompute_flops = program_flops(setup, recompute, false);
    stage->info.recomputed_flops = recomputed_flops(setup, backward);
    if (!setup->inference) count_values(b);
    for (int k = 0; k < CGP__PROGRAMS; k++) {
        /* calls of backward are fused too, because backward has forward calls that recompute
         * values */
        if (b->device->backend->fuses) cgp__program_fuse(b->model, &programs[k]);
        if (b->device->backend->prefetches)
            cgp__program_prefetch(setup, &programs[k], k == CGP__BACKWARD);
        CGP_TRY(count_callers(b, &programs[k]));
    }
    return cgp__list_gradients(b->model, stage);
}

cgp_status cgp__make_programs(const cgp__program_parts *parts) {
    const cgp_model *model = parts->setup->model;
    const cgp__placement *placement = parts->placement;
    struct cgp__workspaces workspaces = {0};
    cgp__stage_builder b = {
        .parts = parts, .setup = parts->setup, .model = model, .workspaces = &workspaces};
    for (int k = 0; k < model->n_outputs; k++)
        parts->results->outputs[k].stage = placement->node_stage[cgp__model_output_node(model, k)];
    cgp_status status = allocate(&b);
    for (int j = 0; j < placement->n_stages && status == CGP_OK; j++)
        status = make_stage(&b, j);
    release(&b);
    return status;
}
