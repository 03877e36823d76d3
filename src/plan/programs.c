/* SPDX-License-Identifier: Apache-2.0 */
/* programs.c -- makes the programs of a stage: first with operands that are items, then, once
 * all items of the stage are known, with places. What the caller's inputs and other stages
 * bring needs no item: it has its place already. */
#include "plan/programs.h"

#include <stdlib.h>
#include <string.h>

typedef struct cgp__workspace_memo {
    cgp__kernel_spec spec;
    int device;
    int64_t bytes;
} cgp__workspace_memo;

int cgp__builder_item(cgp__stage_builder *b, int64_t bytes, int moment) {
    if (!cgp__grow(&b->items, &b->items_capacity, b->n_items + 1, sizeof *b->items)) return -1;
    b->items[b->n_items] = (cgp__item){.bytes = bytes, .start = moment, .end = moment};
    return b->n_items++;
}

void cgp__builder_keep(cgp__stage_builder *b, cgp__place place, int moment) {
    if (place.arena == CGP__ITEM && b->items[place.offset].end < moment)
        b->items[place.offset].end = moment;
}

cgp__kernel_spec cgp__call_spec(const cgp_plan *plan, const cgp__call *call, int64_t n) {
    const cgp__node *node = &plan->model->nodes[call->node];
    cgp__kernel_spec spec;
    memset(&spec, 0, sizeof spec); /* compared as bytes */
    spec.op = node->op->kind;
    spec.direction = call->direction;
    spec.attributes = node->attributes;
    if (call->relu) spec.attributes.slope = call->relu->attributes.slope;
    spec.n = n;
    spec.add = call->add;
    spec.type = cgp__plan_activation_type(plan);
    return spec;
}

/* Bytes of workspace of a call, asked of the backend once for each kernel; fewer samples need no
 * more. */
static cgp_status workspace_bytes(cgp__stage_builder *b, const cgp__call *call,
                                  int64_t *bytes) {
    cgp_plan *plan = b->plan;
    const cgp__kernel_spec spec = cgp__call_spec(plan, call, plan->microbatch);
    const int device = b->stage->info.device;
    const uint64_t hash = cgp__hash(&spec, sizeof spec);
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&plan->memo_index, hash, &tried)) >= 0) {
        const cgp__workspace_memo *memo = &plan->memo[i];
        plan->steps++;
        if (plan->devices[memo->device].backend == plan->devices[device].backend &&
            memcmp(&memo->spec, &spec, sizeof spec) == 0) {
            *bytes = memo->bytes;
            return CGP_OK;
        }
    }
    CGP_TRY(plan->devices[device].backend->workspace(&spec, plan->threads, bytes));
    if (!cgp__grow(&plan->memo, &plan->memo_capacity, plan->n_memo + 1, sizeof *plan->memo) ||
        !cgp__index_add(&plan->memo_index, hash, plan->n_memo))
        return cgp__no_memory("plan", sizeof *plan->memo);
    plan->memo[plan->n_memo++] = (cgp__workspace_memo){spec, device, *bytes};
    return CGP_OK;
}

cgp_status cgp__builder_call(cgp__stage_builder *b, cgp__program *program, int node,
                             cgp__direction direction, uint32_t add, int moment,
                             cgp__call **out) {
    if (!cgp__grow(&program->calls, &program->capacity, program->n + 1, sizeof *program->calls))
        return cgp__no_memory("plan: calls", sizeof *program->calls);
    cgp__call *call = &program->calls[program->n++];
    *call = (cgp__call){.node = node, .direction = direction, .add = add};
    *out = call;
    if (node < 0) return CGP_OK;
    const cgp__node *n = &b->model->nodes[node];
    for (int k = 0; k < n->n_params; k++) {
        const cgp__copy *copy = cgp__plan_copy(b->plan, n->params[k], b->stage->info.device);
        call->param[k] = (cgp__place){CGP__PARAMETERS, copy->offset};
        const bool made = direction == CGP__BACKWARD_WEIGHT ||
                          (direction == CGP__BACKWARD_INPUT && n->op->weight_in_input);
        if (made)
            call->dparam[k] = (cgp__place){CGP__GRADIENTS, b->plan->use_gradient[n->uses[k]]};
    }
    for (int k = 0; k < n->n_state && direction == CGP__FORWARD; k++)
        call->state[k] = (cgp__place){CGP__STATE, b->plan->state[n->first_state + k]};
    for (int k = 0; k < n->n_saved; k++)
        call->saved[k] = b->stats[(node - b->stage->first_node) * CGP__MAX_SAVED + k];
    CGP_TRY(workspace_bytes(b, call, &call->workspace_bytes));
    if (call->workspace_bytes > 0) {
        const int item = cgp__builder_item(b, call->workspace_bytes, moment);
        if (item < 0) return cgp__no_memory("plan: items", sizeof *b->items);
        call->workspace = (cgp__place){CGP__ITEM, item};
    }
    return CGP_OK;
}

/* Which nodes make what backward reads, and what these need in turn; `calls`: theirs in forward; `written`: [items]
 * scratch. */
static void find_needed(const cgp__stage_builder *b, const cgp__call *calls, bool *needed,
                        bool *written) {
    const cgp__stage_plan *stage = b->stage;
    for (int i = stage->n_nodes - 1; i >= 0; i--) {
        const cgp__node *node = &b->model->nodes[stage->first_node + i];
        for (int k = 0; k < node->n_saved; k++)
            needed[i] = needed[i] || b->items[calls[i].saved[k].offset].saved;
        /* The last of the nodes that write a saved item makes the saved value; the others are
         * its inputs. */
        if (calls[i].y.arena == CGP__ITEM) {
            const int64_t item = calls[i].y.offset;
            needed[i] = needed[i] || (b->items[item].saved && !written[item]);
            written[item] = true;
        }
        for (int k = 0; needed[i] && k < node->n_inputs; k++) {
            const int maker = b->model->values[node->inputs[k]].node - stage->first_node;
            if (maker >= 0 && maker < stage->n_nodes) needed[maker] = true;
        }
    }
}

/* Whether backward or a needed node reads the input that a call converts. */
static bool converts_needed(const cgp__stage_builder *b, const cgp__call *call,
                            const cgp__call *calls, const bool *needed) {
    bool reads = b->items[call->dx[0].offset].saved;
    for (int i = 0; i < b->stage->n_nodes; i++) {
        for (int k = 0; needed[i] && k < CGP__MAX_INPUTS; k++)
            reads = reads || (calls[i].x[k].arena == CGP__ITEM &&
                              calls[i].x[k].offset == call->dx[0].offset);
    }
    return reads;
}

/* R: the calls of forward that backward needs. */
static cgp_status make_recompute(cgp__stage_builder *b) {
    const cgp__program *forward = &b->stage->forward;
    if (forward->n == 0) return CGP_OK; /* a stage of empty layers */
    const cgp__call *calls = forward->calls + b->n_converts;
    cgp__program *program = &b->stage->recompute;
    const size_t flags = (size_t)b->stage->n_nodes + (size_t)b->n_items;
    bool *needed = cgp__calloc(flags, sizeof *needed);
    if (!needed) return cgp__no_memory("plan: recompute", flags);
    find_needed(b, calls, needed, needed + b->stage->n_nodes);
    cgp_status status = CGP_OK;
    for (int i = 0; i < forward->n && status == CGP_OK; i++) {
        const cgp__call *call = &forward->calls[i];
        cgp__call again = *call;
        again.accumulator = (cgp__place){CGP__NOWHERE, 0};
        if (i < b->n_converts ? !converts_needed(b, call, calls, needed)
                              : !needed[i - b->n_converts])
            continue;
        if (!cgp__grow(&program->calls, &program->capacity, program->n + 1,
                       sizeof *program->calls))
            status = cgp__no_memory("plan: calls", sizeof *program->calls);
        else
            program->calls[program->n++] = again;
    }
    free(needed);
    return status;
}

static void locate(const cgp__stage_builder *b, cgp__place *place) {
    if (place->arena == CGP__ITEM) *place = b->items[place->offset].place;
}

static void resolve_program(const cgp__stage_builder *b, cgp__program *program) {
    for (int i = 0; i < program->n; i++) {
        cgp__call *call = &program->calls[i];
        locate(b, &call->y);
        locate(b, &call->dy);
        locate(b, &call->workspace);
        for (int k = 0; k < CGP__MAX_INPUTS; k++) {
            locate(b, &call->x[k]);
            locate(b, &call->dx[k]);
        }
        for (int k = 0; k < CGP__MAX_SAVED; k++)
            locate(b, &call->saved[k]);
    }
}

/* What the programs of this builder leave for others: parts of messages, the model's output. */
static void resolve_results(cgp__stage_builder *b, int variant) {
    const int output = b->model->output;
    if (output >= 0 && b->plan->node_stage[b->model->values[output].node] == b->index) {
        b->stage->output[variant] = b->where[output];
        locate(b, &b->stage->output[variant]);
    }
    const cgp_plan *plan = b->plan;
    for (int s = plan->first_stage_edge[b->index]; s < plan->first_stage_edge[b->index + 1];
         s++) {
        cgp__edge_plan *edge = &plan->edges[plan->stage_edges[s]];
        const bool gradient = edge->edge.from > edge->edge.to;
        for (int i = 0; i < edge->n_parts; i++) {
            cgp__part *part = &edge->parts[i];
            if (gradient && variant == 1 && edge->edge.from == b->index) {
                locate(b, &part->from[0]);
                part->from[1] = part->from[0];
            } else if (gradient && variant == 1 && edge->edge.to == b->index) {
                locate(b, &part->to);
            } else if (!gradient && edge->edge.from == b->index) {
                part->from[variant] = b->where[part->value];
                locate(b, &part->from[variant]);
            }
        }
    }
}

/* Where the values are that this stage does not make: the caller's inputs, and its input slot.
 */
static void place_incoming(cgp__stage_builder *b) {
    for (int k = 0; k < b->model->n_inputs; k++)
        b->where[b->model->input_values[k]] = (cgp__place){CGP__HOST, k};
    int64_t offset = 0;
    const cgp_plan *plan = b->plan;
    for (int s = plan->first_stage_edge[b->index]; s < plan->first_stage_edge[b->index + 1];
         s++) {
        cgp__edge_plan *edge = &plan->edges[plan->stage_edges[s]];
        if (edge->edge.to != b->index || edge->edge.from > edge->edge.to) continue;
        for (int i = 0; i < edge->n_parts; i++) {
            edge->parts[i].to = (cgp__place){CGP__INPUT_SLOT, offset};
            b->where[edge->parts[i].value] = edge->parts[i].to;
            offset += cgp__align_up(edge->parts[i].sample_bytes * plan->microbatch);
        }
    }
    b->stage->info.input_slot_bytes = offset;
}

/* Whether one of the calls begin .. end - 1 does. */
static bool reads_input_slot(const cgp__program *program, int begin, int end) {
    for (int i = begin; i < end; i++) {
        for (int k = 0; k < CGP__MAX_INPUTS; k++) {
            if (program->calls[i].x[k].arena == CGP__INPUT_SLOT) return true;
        }
    }
    return false;
}

/* `weight`: of the weight halves only. */
static double program_flops(const cgp_plan *plan, const cgp__program *program, bool weight) {
    double flops = 0;
    for (int i = 0; i < program->n; i++) {
        const cgp__call *call = &program->calls[i];
        if (call->node >= 0 && (!weight || call->direction == CGP__BACKWARD_WEIGHT)) {
            const cgp__node *node = &plan->model->nodes[call->node];
            flops +=
                node->op->flops(&node->attributes, call->direction) * (double)plan->microbatch;
        }
    }
    return flops;
}

static void release(cgp__stage_builder *b) {
    free(b->items);
    free(b->redos);
    free(b->values);
    free(b->listed);
    free(b->last_read);
    free(b->redone);
    free(b->live);
    free(b->again);
    free(b->where);
    free(b->gradient);
    free(b->settled);
    free(b->arriving);
    free(b->wanted);
    free(b->wanted_list);
    free(b->stats);
}

/* One builder makes all stages: what it has for each value of the model is there once. */
static cgp_status allocate(cgp__stage_builder *b) {
    const size_t values = (size_t)b->model->n_values;
    size_t nodes = 0;
    for (int j = 0; j < b->plan->n_stages; j++)
        nodes = (size_t)cgp__max((int64_t)nodes, b->plan->stages[j].n_nodes);
    b->values = cgp__calloc(values, sizeof *b->values);
    b->listed = cgp__calloc(values, sizeof *b->listed);
    b->last_read = cgp__calloc(values, sizeof *b->last_read);
    b->redone = cgp__calloc(values, sizeof *b->redone);
    b->live = cgp__calloc(values, sizeof *b->live);
    b->where = cgp__calloc(values, sizeof *b->where);
    b->again = cgp__calloc(values, sizeof *b->again);
    b->gradient = cgp__calloc(values, sizeof *b->gradient);
    b->settled = cgp__calloc(values, sizeof *b->settled);
    b->arriving = cgp__calloc(values, sizeof *b->arriving);
    b->wanted = cgp__calloc(nodes, sizeof *b->wanted);
    b->wanted_list = cgp__calloc(nodes, sizeof *b->wanted_list);
    b->stats = cgp__calloc(nodes * CGP__MAX_SAVED, sizeof *b->stats);
    if (b->values && b->listed && b->last_read && b->redone && b->live && b->where &&
        b->again && b->gradient && b->settled && b->arriving && b->wanted && b->wanted_list &&
        b->stats)
        return CGP_OK;
    return cgp__no_memory("plan: stage", values * sizeof *b->where);
}

static int ascending(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void list_value(cgp__stage_builder *b, int value) {
    if (value < 0 || b->listed[value]) return;
    b->listed[value] = true;
    b->values[b->n_values++] = value;
}

/* Go on to a stage. */
static void begin_stage(cgp__stage_builder *b, int index) {
    for (int i = 0; i < b->n_values; i++)
        b->listed[b->values[i]] = false;
    b->index = index;
    b->stage = &b->plan->stages[index];
    b->n_values = 0;
    for (int i = b->stage->first_node; i < b->stage->first_node + b->stage->n_nodes; i++) {
        const cgp__node *node = &b->model->nodes[i];
        for (int k = 0; k < node->n_inputs; k++)
            list_value(b, node->inputs[k]);
        list_value(b, node->output);
    }
    qsort(b->values, (size_t)b->n_values, sizeof *b->values, ascending);
}

/* Back to before the first call of the stage. */
static void rewind_stage(cgp__stage_builder *b) {
    const cgp__place nowhere = {CGP__NOWHERE, 0};
    b->n_items = b->n_redos = b->next_redo = b->n_converts = 0;
    for (int i = 0; i < b->n_values; i++) {
        const int v = b->values[i];
        b->last_read[v] = b->live[v] = -1;
        b->redone[v] = b->settled[v] = false;
        b->where[v] = b->again[v] = b->gradient[v] = nowhere;
        b->arriving[v] = NULL;
    }
    memset(b->stats, 0, (size_t)b->stage->n_nodes * CGP__MAX_SAVED * sizeof *b->stats);
}

static void programs_of(cgp__stage_plan *stage, int variant, cgp__program *out[3]) {
    out[0] = variant ? &stage->forward : &stage->forward_nosave;
    out[1] = variant ? &stage->recompute : NULL;
    out[2] = variant ? &stage->backward : NULL;
}

/* Make the programs of a builder and give their items places. */
static cgp_status build(cgp__stage_builder *b, int variant, int64_t *slot_bytes,
                        int64_t *work_bytes) {
    cgp__program *programs[3];
    programs_of(b->stage, variant, programs);
    for (int i = 0; i < 3; i++) {
        if (programs[i]) programs[i]->n = programs[i]->n_input = 0;
    }
    rewind_stage(b);
    CGP_TRY(cgp__builder_reads(b));
    place_incoming(b);
    CGP_TRY(cgp__builder_forward(b, programs[0]));
    if (variant) CGP_TRY(cgp__builder_backward(b, programs[2]));
    if (variant) CGP_TRY(make_recompute(b));
    const cgp__layout_turns turns = {cgp__moment_arrival(b->stage),
                                     cgp__moment_end(b->stage) + 1};
    return cgp__layout_pack(b->items, b->n_items, turns, slot_bytes, work_bytes,
                            &b->plan->steps);
}

/* The programs of a builder are final: put places where items are. */
static void resolve(cgp__stage_builder *b, int variant, int64_t slot_bytes,
                    int64_t work_bytes) {
    cgp__stage_plan *stage = b->stage;
    cgp__program *programs[3];
    programs_of(stage, variant, programs);
    for (int i = 0; i < 3; i++) {
        if (programs[i]) resolve_program(b, programs[i]);
    }
    resolve_results(b, variant);
    if (variant) stage->info.saved_slot_bytes = slot_bytes;
    if (work_bytes > stage->workspace_bytes) stage->workspace_bytes = work_bytes;
}

/* One set of programs with one set of items: variant 0 is `light`, 1 the three of training. Stored results
 * may take over memory of what their op reads, or lie in memory of their own: what needs less workspace is
 * made. */
static cgp_status make_variant(cgp__stage_builder *b, int variant) {
    int64_t slot = 0, shared = 0, separate = INT64_MAX;
    b->training = variant == 1;
    b->separate = true;
    if (variant == 1) CGP_TRY(build(b, variant, &slot, &separate));
    b->separate = false;
    CGP_TRY(build(b, variant, &slot, &shared));
    b->separate = separate < shared;
    if (b->separate) CGP_TRY(build(b, variant, &slot, &shared));
    resolve(b, variant, slot, shared);
    return CGP_OK;
}

static cgp_status make_stage(cgp__stage_builder *b, int index) {
    cgp_plan *plan = b->plan;
    begin_stage(b, index);
    cgp__stage_plan *stage = b->stage;
    if (plan->inference || plan->recomputes) CGP_TRY(make_variant(b, 0));
    if (!plan->inference) CGP_TRY(make_variant(b, 1));
    const cgp__program *backward = &stage->backward;
    stage->inputs_in_input = reads_input_slot(backward, 0, backward->n_input);
    stage->inputs_in_weight = reads_input_slot(backward, backward->n_input, backward->n);
    stage->inputs_in_recompute = reads_input_slot(&stage->recompute, 0, stage->recompute.n);
    const cgp__program *forward = plan->inference ? &stage->forward_nosave : &stage->forward;
    stage->info.forward_flops = program_flops(plan, forward, false);
    stage->info.backward_flops = program_flops(plan, backward, false);
    stage->info.weight_flops = program_flops(plan, backward, true);
    stage->info.recompute_flops = program_flops(plan, &stage->recompute, false);
    cgp__program *const all[4] = {&stage->forward_nosave, &stage->forward, &stage->recompute,
                                  &stage->backward};
    for (int i = 0; i < 4; i++) {
        /* in backward, what it makes again */
        if (plan->devices[stage->info.device].backend->fuses) cgp__program_fuse(plan, all[i]);
        cgp__program_prefetch(plan, all[i], all[i] == &stage->backward);
    }
    return CGP_OK;
}

cgp_status cgp__plan_programs(cgp_plan *plan) {
    cgp__stage_builder b = {.plan = plan, .model = plan->model};
    cgp_status status = allocate(&b);
    for (int j = 0; j < plan->n_stages && status == CGP_OK; j++)
        status = make_stage(&b, j);
    release(&b);
    return status;
}
