/* SPDX-License-Identifier: Apache-2.0 */
/* list.c -- binds a device's action list. For each action, it finds the samples and the bound
 * instance (slots, program, range of calls, flags). */
#include "plan/list.h"

#include <stdlib.h>

#include "plan/memory/devices.h"
#include "plan/plan.h"
#include "schedule/gradient_groups.h"

void cgp__list_release(cgp__list *list) {
    free(list->actions);
    free(list->variants);
    free(list->pieces);
}

/* Return the program that F of a micro-batch runs: forward_nosave if no values need saving,
 * otherwise forward_saved. Exception: a training plan that never recomputes has no forward_nosave,
 * so F always runs forward_saved. */
static int forward_program(const cgp_plan *plan, cgp__minibatch m, bool recomputed) {
    const bool has_forward_nosave = plan->setup.inference || plan->setup.recomputes;
    return has_forward_nosave && (m.forward_only || recomputed) ? CGP__FORWARD_NOSAVE
                                                                : CGP__FORWARD_SAVED;
}

/* The state while a device's action list is bound. begun_forward [stages]: set when a stage's first
 * forward is bound. input_group [stages]: 1 + the gradient group of the micro-batch whose input
 * backward was bound last; 0 if none is bound. weight_group [stages]: the same for weight backward.
 * recomputed [stages x chunks]: set if the micro-batch has an R; then its F saves nothing. */
typedef struct binder {
    const cgp_plan *plan;
    cgp__minibatch minibatch;
    cgp__list *list;
    bool *begun_forward, *recomputed;
    int *input_group, *weight_group;
    /* [stages x chunks] set if a later action of the list uses the slot; find_frees() walks the
     * list backward */
    bool *input_used, *saved_used, *gradient_used;
    const cgp__slots *slots;
    cgp__index index; /* hash index of the bound instances */
} binder;

static size_t cell(const binder *b, const cgp_action *action) {
    return (size_t)action->stage * (size_t)b->minibatch.chunks + (size_t)action->microbatch;
}

static bool first_time(bool *begun) {
    const bool first = !*begun;
    *begun = true;
    return first;
}

/* Return true if an action is the first of its gradient group and must overwrite the gradients. In
 * a step that adds to the gradients of earlier steps, the first group adds instead. */
static bool overwrites(const binder *b, int *last, int group) {
    const int before = *last;
    *last = 1 + group;
    return before != *last && !(before == 0 && b->minibatch.adds && b->minibatch.first == 0);
}

/* Set the flags, buffer and additions for the gradients that a backward action makes. */
static void bind_gradients(const binder *b, const cgp_action *action, cgp__variant *v) {
    const cgp__stage_plan *stage = &b->plan->placement.stages[v->stage];
    const bool input = action->kind != CGP_ACTION_W, weight = action->kind != CGP_ACTION_I;
    const cgp__minibatch *m = &b->minibatch;
    const cgp__gradient_place place =
        cgp__gradient_place_of(m->first + action->microbatch, cgp__whole_chunks(m),
                               b->plan->setup.gradient_groups, b->plan->setup.replicas);
    const int group = stage->n_gradients > 0 ? place.group : 0;
    if (input) v->first = overwrites(b, &b->input_group[v->stage], group);
    if (weight) v->first_weight = overwrites(b, &b->weight_group[v->stage], group);
    if ((input && stage->input_gradients > 0) || (weight && stage->weight_gradients > 0)) {
        v->buffer = place.buffer;
        v->additions = place.additions;
    }
}

/* Set the action's range of calls, and the flags of an action that overwrites instead of adding. */
static void bind_calls(const binder *b, const cgp_action *action, cgp__variant *v) {
    const cgp__program *program = &b->plan->placement.stages[v->stage].programs[v->program];
    const cgp_action_kind kind = action->kind;
    v->begin = kind == CGP_ACTION_W ? program->n_input : 0;
    v->end = kind == CGP_ACTION_I ? program->n_input : program->n;
    if (kind == CGP_ACTION_F) v->first = first_time(&b->begun_forward[v->stage]);
    if (v->program == CGP__BACKWARD) bind_gradients(b, action, v);
}

cgp__minibatch cgp__plan_share(const cgp_plan *plan, int64_t samples, int replica) {
    const cgp__setup *setup = &plan->setup;
    if (setup->replicas == 1) return (cgp__minibatch){.samples = samples};
    const int whole = (int)cgp__ceil_div(samples, setup->microbatch),
              first = cgp__replica_first(replica, whole, setup->replicas),
              next = cgp__replica_first(replica + 1, whole, setup->replicas);
    const int64_t end = cgp__min(samples, next * setup->microbatch);
    return (cgp__minibatch){.samples = cgp__max(end - first * setup->microbatch, 0),
                            .chunks = next - first,
                            .first = first,
                            .of_chunks = whole,
                            .of_samples = samples};
}

bool cgp__same_variant(const cgp__variant *a, const cgp__variant *b) {
    return a->stage == b->stage && a->input_slot == b->input_slot &&
           a->saved_slot == b->saved_slot && a->gradient_slot == b->gradient_slot &&
           a->program == b->program && a->begin == b->begin && a->end == b->end &&
           a->first == b->first && a->first_weight == b->first_weight && a->buffer == b->buffer &&
           a->additions == b->additions && a->samples == b->samples;
}

/* Find or add a bound instance and return its index; -1: out of memory. */
static int find_variant(binder *b, const cgp__variant *v) {
    cgp__list *list = b->list;
    const int64_t numbers[] = {v->stage,        v->input_slot, v->saved_slot, v->gradient_slot,
                               v->program,      v->begin,      v->end,        v->first,
                               v->first_weight, v->buffer,     v->additions,  v->samples};
    const uint64_t hash = cgp__hash(numbers, sizeof numbers);
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&b->index, hash, &tried)) >= 0) {
        if (cgp__same_variant(&list->variants[i], v)) return i;
    }
    if (!cgp__grow(&list->variants, &list->variants_capacity, list->n_variants + 1,
                   sizeof *list->variants) ||
        !cgp__index_add(&b->index, hash, list->n_variants))
        return -1;
    list->variants[list->n_variants] = *v;
    return list->n_variants++;
}

bool cgp__transfer_touches(const cgp_plan *plan, const cgp_action *action, int program,
                           cgp__arena arena) {
    if (action->edge < 0) return true;
    const cgp__edge_plan *edge = &plan->messages.edges[action->edge];
    const bool sends = cgp__queue_of(action->kind) == CGP_QUEUE_OUT;
    for (int i = 0; i < edge->n_parts; i++) {
        const cgp__part *part = &edge->parts[i];
        if ((sends ? part->from[program != CGP__FORWARD_NOSAVE] : part->to).arena == arena)
            return true;
    }
    return false;
}

/* Return true if an action reads or writes its stage's input slot. */
static bool uses_input(const cgp__stage_plan *stage, cgp_action_kind kind) {
    switch (kind) {
    case CGP_ACTION_F:
    case CGP_ACTION_RECV_F:
        return true;
    case CGP_ACTION_R:
        return stage->recompute_reads_slot;
    case CGP_ACTION_I:
        return stage->input_reads_slot;
    case CGP_ACTION_W:
        return stage->weight_reads_slot;
    case CGP_ACTION_B:
        return stage->input_reads_slot || stage->weight_reads_slot;
    default:
        return false;
    }
}

/* Set the slots of the action's micro-batch. In a forward-only list, all micro-batches use the
 * slots of micro-batch 0, one after another. */
static void bind_slots(const binder *b, const cgp_action *action, cgp__variant *v) {
    const cgp__stage_plan *stage = &b->plan->placement.stages[action->stage];
    const size_t at = (size_t)stage->number * (size_t)b->slots->microbatches +
                      (b->minibatch.forward_only ? 0 : (size_t)action->microbatch);
    v->input_slot = uses_input(stage, action->kind) ? b->slots->input[at] : -1;
    v->saved_slot = v->program != CGP__FORWARD_NOSAVE &&
                            cgp__transfer_touches(b->plan, action, v->program, CGP__SAVED_SLOT)
                        ? b->slots->saved[at]
                        : -1;
    v->gradient_slot =
        v->program == CGP__BACKWARD &&
                cgp__transfer_touches(b->plan, action, v->program, CGP__GRADIENT_SLOT)
            ? b->slots->gradient[at]
            : -1;
}

static cgp_status bind_action(binder *b, int i) {
    cgp__bound_action *bound = &b->list->actions[i];
    const cgp_action *action = &bound->action;
    const int64_t microbatch = b->plan->setup.microbatch;
    bound->first_sample = action->microbatch * microbatch;
    cgp__variant v = {.stage = action->stage,
                      .program = CGP__BACKWARD, /* program of B, I, W and SEND_B; RECV ignores this
                                                 * field */
                      .samples = cgp__min(b->minibatch.samples - bound->first_sample, microbatch)};
    if (action->kind == CGP_ACTION_F || action->kind == CGP_ACTION_SEND_F)
        v.program = forward_program(b->plan, b->minibatch, b->recomputed[cell(b, action)]);
    if (action->kind == CGP_ACTION_R) v.program = CGP__RECOMPUTE;
    bind_slots(b, action, &v);
    if (action->edge < 0) bind_calls(b, action, &v);
    bound->variant = find_variant(b, &v);
    return bound->variant < 0 ? cgp__no_memory("list", sizeof v) : CGP_OK;
}

/* For each slot, find the last action that uses the slot. */
static void find_frees(const binder *b) {
    for (int i = b->list->n - 1; i >= 0; i--) {
        cgp__bound_action *bound = &b->list->actions[i];
        const cgp__variant *v = &b->list->variants[bound->variant];
        const size_t at = cell(b, &bound->action);
        bound->frees_input = v->input_slot >= 0 && !b->input_used[at];
        bound->frees_saved = v->saved_slot >= 0 && !b->saved_used[at];
        bound->frees_gradient = v->gradient_slot >= 0 && !b->gradient_used[at];
        b->gradient_used[at] = b->gradient_used[at] || v->gradient_slot >= 0;
        b->input_used[at] = b->input_used[at] || v->input_slot >= 0;
        b->saved_used[at] = b->saved_used[at] || v->saved_slot >= 0;
    }
}

static bool is_forward(cgp_action_kind kind) {
    return kind == CGP_ACTION_F || kind == CGP_ACTION_SEND_F || kind == CGP_ACTION_RECV_F;
}

static cgp_status bind_actions(binder *b, const cgp_action *actions) {
    cgp__list *list = b->list;
    for (int i = 0; i < list->n; i++) {
        list->actions[i].action = actions[i];
        if (actions[i].kind == CGP_ACTION_R) b->recomputed[cell(b, &actions[i])] = true;
    }
    for (int i = 0; i < list->n; i++)
        CGP_TRY(bind_action(b, i));
    find_frees(b);
    while (list->n_forward < list->n && is_forward(actions[list->n_forward].kind))
        list->n_forward++;
    return CGP_OK;
}

cgp_status cgp__plan_bind(const cgp_plan *plan, const cgp_schedule *schedule,
                          cgp__minibatch minibatch, int device, cgp__list *list) {
    const size_t stages = (size_t)plan->placement.n_stages,
                 cells = stages * (size_t)minibatch.chunks;
    const cgp_action *actions = cgp_schedule_actions(schedule, device, &list->n);
    const size_t n = (size_t)list->n;
    bool *flags = cgp__calloc(stages + 4 * cells, sizeof *flags);
    int *last_groups = cgp__calloc(2 * stages, sizeof *last_groups);
    list->actions = cgp__calloc(n, sizeof *list->actions);
    cgp_status status = CGP_OK;
    if (!flags || !last_groups || !list->actions)
        status = cgp__no_memory("list", n * sizeof *list->actions);
    if (status == CGP_OK) {
        binder b = {plan,
                    minibatch,
                    list,
                    flags,
                    flags + stages,
                    last_groups,
                    last_groups + stages,
                    flags + stages + cells,
                    flags + stages + 2 * cells,
                    flags + stages + 3 * cells,
                    &plan->placement.devices[device].slots,
                    {0}};
        status = bind_actions(&b, actions);
        cgp__index_release(&b.index);
    }
    free(last_groups);
    free(flags);
    if (status == CGP_OK && !minibatch.forward_only)
        status = cgp__plan_find_complete(plan, device, list);
    return status == CGP_OK ? cgp__plan_find_waits(plan, list) : status;
}
