/* SPDX-License-Identifier: Apache-2.0 */
/* list.c -- binds a device's list: finds each action's samples and its bound instance (slots,
 * program, range of calls, flags). */
#include "plan/list.h"

#include <stdlib.h>

#include "plan/memory/slots.h"
#include "plan/plan.h"

void cgp__list_release(cgp__list *list) {
    free(list->actions);
    free(list->variants);
}

/* Check that the list uses at most the planned slots. If it uses more slots, this is a bug of the
 * library, which is reported before anything runs. */
static cgp_status check_counts(const cgp_plan *plan, const int *inputs, const int *saved) {
    for (int j = 0; j < plan->placement.n_stages; j++) {
        const cgp_plan_stage *stage = &plan->placement.stages[j].info;
        if (inputs[j] > stage->input_slots || saved[j] > stage->saved_slots)
            return cgp_fail(
                CGP_EDEVICE,
                "stage %d: a list needs %d input and %d saved slots, planned are %d and %d", j,
                inputs[j], saved[j], stage->input_slots, stage->saved_slots);
    }
    return CGP_OK;
}

/* Return the program that F of a micro-batch runs: forward_nosave if nothing needs saving. But a
 * training plan that never recomputes has no forward_nosave, so even without backward its F runs
 * forward_saved, with saved slot 0, if the stage has saved slots. */
static int forward_program(const cgp_plan *plan, cgp__minibatch m, bool recomputed) {
    const bool has_forward_nosave = plan->setup.inference || plan->setup.recomputes;
    return has_forward_nosave && (m.forward_only || recomputed) ? CGP__FORWARD_NOSAVE
                                                                : CGP__FORWARD_SAVED;
}

/* The state while a list is bound. begun_... [stages]: set when a stage's first forward, input
 * backward or weight backward is bound. recomputed [stages x chunks]: set if the micro-batch has an
 * R, so that its F saves nothing. */
typedef struct binder {
    const cgp_plan *plan;
    cgp__minibatch minibatch;
    cgp__list *list;
    bool *begun_forward, *begun_input, *begun_weight, *recomputed;
    int *input_slot, *saved_slot; /* [actions] */
    cgp__index index;             /* index of the bound instances */
} binder;

static bool *recomputed_mark(const binder *b, const cgp_action *action) {
    return &b->recomputed[(size_t)action->stage * (size_t)b->minibatch.chunks +
                          (size_t)action->microbatch];
}

static bool first_time(bool *begun) {
    const bool first = !*begun;
    *begun = true;
    return first;
}

/* Bind the range of calls, and the flags that make the first action of its kind write instead of
 * add. */
static void bind_calls(const binder *b, cgp_action_kind kind, cgp__variant *v) {
    const cgp__program *program = &b->plan->placement.stages[v->stage].programs[v->program];
    v->begin = kind == CGP_ACTION_W ? program->n_input : 0;
    v->end = kind == CGP_ACTION_I ? program->n_input : program->n;
    if (kind == CGP_ACTION_F) v->first = first_time(&b->begun_forward[v->stage]);
    const bool writes = !b->minibatch.adds;
    if (kind == CGP_ACTION_B || kind == CGP_ACTION_I)
        v->first = first_time(&b->begun_input[v->stage]) && writes;
    if (kind == CGP_ACTION_B || kind == CGP_ACTION_W)
        v->first_weight = first_time(&b->begun_weight[v->stage]) && writes;
}

bool cgp__same_variant(const cgp__variant *a, const cgp__variant *b) {
    return a->stage == b->stage && a->input_slot == b->input_slot &&
           a->saved_slot == b->saved_slot && a->program == b->program && a->begin == b->begin &&
           a->end == b->end && a->first == b->first && a->first_weight == b->first_weight &&
           a->samples == b->samples;
}

/* Find or add a bound instance; -1: out of memory. */
static int find_variant(binder *b, const cgp__variant *v) {
    cgp__list *list = b->list;
    const int numbers[] = {v->stage, v->input_slot, v->saved_slot,   v->program,     v->begin,
                           v->end,   v->first,      v->first_weight, (int)v->samples};
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

static cgp_status bind_action(binder *b, int i) {
    cgp__bound_action *bound = &b->list->actions[i];
    const cgp_action *action = &bound->action;
    const int64_t microbatch = b->plan->setup.microbatch;
    const cgp_plan_stage *stage = &b->plan->placement.stages[action->stage].info;
    bound->first_sample = action->microbatch * microbatch;
    cgp__variant v = {.stage = action->stage,
                      .input_slot = b->input_slot[i],
                      .saved_slot = b->saved_slot[i],
                      .program = CGP__BACKWARD, /* of B, I, W, SEND_B; RECV ignores it */
                      .samples = cgp__min(b->minibatch.samples - bound->first_sample, microbatch)};
    if (action->kind == CGP_ACTION_F || action->kind == CGP_ACTION_SEND_F) {
        v.program = forward_program(b->plan, b->minibatch, *recomputed_mark(b, action));
        if (v.program == CGP__FORWARD_SAVED && b->minibatch.forward_only)
            v.saved_slot = stage->saved_slots > 0 ? 0 : -1;
    }
    if (action->kind == CGP_ACTION_R) v.program = CGP__RECOMPUTE;
    if (action->edge < 0) bind_calls(b, action->kind, &v);
    bound->variant = find_variant(b, &v);
    return bound->variant < 0 ? cgp__no_memory("list", sizeof v) : CGP_OK;
}

static bool is_forward(cgp_action_kind kind) {
    return kind == CGP_ACTION_F || kind == CGP_ACTION_SEND_F || kind == CGP_ACTION_RECV_F;
}

static cgp_status bind_actions(binder *b, const cgp_action *actions) {
    cgp__list *list = b->list;
    for (int i = 0; i < list->n; i++) {
        list->actions[i].action = actions[i];
        if (actions[i].kind == CGP_ACTION_R) *recomputed_mark(b, &actions[i]) = true;
    }
    for (int i = 0; i < list->n; i++)
        CGP_TRY(bind_action(b, i));
    while (list->n_forward < list->n && is_forward(actions[list->n_forward].kind))
        list->n_forward++;
    return CGP_OK;
}

cgp_status cgp__plan_bind(const cgp_plan *plan, const cgp_schedule *schedule,
                          cgp__minibatch minibatch, int device, cgp__list *list) {
    const size_t stages = (size_t)plan->placement.n_stages;
    const cgp_action *actions = cgp_schedule_actions(schedule, device, &list->n);
    const size_t n = (size_t)list->n;
    int *numbers = cgp__calloc(2 * n + 2 * stages, sizeof *numbers);
    bool *flags = cgp__calloc(3 * stages + stages * (size_t)minibatch.chunks, sizeof *flags);
    list->actions = cgp__calloc(n, sizeof *list->actions);
    cgp_status status = CGP_OK;
    if (!numbers || !flags || !list->actions)
        status = cgp__no_memory("list", n * sizeof *list->actions);
    if (status == CGP_OK)
        status = cgp__assign_slots(&plan->placement, schedule, device, numbers, numbers + n,
                                   numbers + 2 * n, numbers + 2 * n + stages);
    if (status == CGP_OK) status = check_counts(plan, numbers + 2 * n, numbers + 2 * n + stages);
    if (status == CGP_OK) {
        binder b = {plan,
                    minibatch,
                    list,
                    flags,
                    flags + stages,
                    flags + 2 * stages,
                    flags + 3 * stages,
                    numbers,
                    numbers + n,
                    {0}};
        status = bind_actions(&b, actions);
        cgp__index_release(&b.index);
    }
    free(flags);
    free(numbers);
    return status == CGP_OK ? cgp__plan_find_waits(plan, device, list) : status;
}
