/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c -- finds the waits between the queues of a device. Before an action runs, its queue waits
 * for the other queues. On each of these queues, it waits for the last action that touches the same
 * bytes.
 *
 *     COMPUTE   .. B of 1 ........ F of 3 ...    F reads the slot that IN wrote,
 *     IN        ... RECV_F of 3 ..               and writes a workspace that OUT reads
 *     OUT       ......... SEND_B of 1 ...
 *
 * A compute action touches its slots and the workspace. A transfer touches a slot or the workspace
 * only if its message has values there. Slots of different stages and micro-batches may use the
 * same bytes at different times (slots.c). So bytes are compared instead of slots: the bounds of
 * all slots divide the pool into segments. Only COMPUTE touches parameters, gradients and states.
 *
 * A wait for an action is elided if the host has already synchronized past this action
 * (CGP__AHEAD). It is also elided if the waiting queue has already waited for this action or a
 * later action on the same queue. OUT never waits for IN, because an F, B or I of the same
 * micro-batch wrote the values that OUT sends. That action runs after the stage's receives, and OUT
 * waits for that action. */
#include "plan/list.h"
#include "plan/memory/devices.h"
#include "plan/plan.h"

#include <stdlib.h>

cgp_queue cgp__queue_of(cgp_action_kind kind) {
    switch (kind) {
    case CGP_ACTION_RECV_F:
    case CGP_ACTION_RECV_B:
        return CGP_QUEUE_IN;
    case CGP_ACTION_SEND_F:
    case CGP_ACTION_SEND_B:
        return CGP_QUEUE_OUT;
    default:
        return CGP_QUEUE_COMPUTE;
    }
}

/* Segments begin .. end - 1. */
typedef struct span {
    int begin, end;
} span;

/* The slots of a bound instance. */
typedef struct slots {
    span input, saved, gradient;
} slots;

typedef struct finder {
    const cgp_plan *plan;
    const cgp__list *list;
    /* [n_bounds] ascending offsets of the bounds between segments of the pool; segment s lies
     * between bounds[s] and bounds[s + 1] */
    int64_t *bounds;
    int n_bounds;
    /* [variants] slots of each bound instance */
    slots *slots;
    /* [n_bounds][CGP_QUEUES] the last action on a queue that touches a segment; -1: none. The last
     * entry is for the workspace. */
    int (*last)[CGP_QUEUES];
    /* [queue][other queue] the last action on the other queue for which the queue has waited */
    int waited[CGP_QUEUES][CGP_QUEUES];
} finder;

/* --- segments --- */

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void add_bounds(finder *f, int64_t at, int64_t bytes) {
    if (at < 0 || bytes == 0) return;
    f->bounds[f->n_bounds++] = at;
    f->bounds[f->n_bounds++] = at + bytes;
}

/* Return the number of bounds below an offset. */
static int below(const finder *f, int64_t offset) {
    int low = 0, high = f->n_bounds;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (f->bounds[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static span span_of(const finder *f, int64_t at, int64_t bytes) {
    if (at < 0 || bytes == 0) return (span){0, 0};
    return (span){below(f, at), below(f, at + bytes)};
}

static void divide(finder *f) {
    const cgp__stage_plan *stages = f->plan->placement.stages;
    int n = 0;
    for (int v = 0; v < f->list->n_variants; v++) {
        const cgp__variant *variant = &f->list->variants[v];
        const cgp_plan_stage *stage = &stages[variant->stage].info;
        add_bounds(f, variant->input_slot, stage->input_slot_bytes);
        add_bounds(f, variant->saved_slot, stage->saved_slot_bytes);
        add_bounds(f, variant->gradient_slot, stages[variant->stage].gradient_slot_bytes);
    }
    qsort(f->bounds, (size_t)f->n_bounds, sizeof *f->bounds, ascending);
    for (int i = 0; i < f->n_bounds; i++) {
        if (i == 0 || f->bounds[i] != f->bounds[n - 1]) f->bounds[n++] = f->bounds[i];
    }
    f->n_bounds = n;
    for (int v = 0; v < f->list->n_variants; v++) {
        const cgp__variant *variant = &f->list->variants[v];
        const cgp_plan_stage *stage = &stages[variant->stage].info;
        f->slots[v].input = span_of(f, variant->input_slot, stage->input_slot_bytes);
        f->slots[v].saved = span_of(f, variant->saved_slot, stage->saved_slot_bytes);
        f->slots[v].gradient =
            span_of(f, variant->gradient_slot, stages[variant->stage].gradient_slot_bytes);
    }
}

/* --- waits --- */

/* List the spans of segments that an action touches; return the number of spans. */
static int list_touched(const finder *f, const cgp__bound_action *bound, span touched[4]) {
    const cgp__variant *v = &f->list->variants[bound->variant];
    touched[0] = f->slots[bound->variant].input;
    touched[1] = f->slots[bound->variant].saved;
    touched[2] = f->slots[bound->variant].gradient;
    touched[3] = (span){f->n_bounds, f->n_bounds + 1};
    return cgp__transfer_touches(f->plan, &bound->action, v->program, CGP__WORKSPACE) ? 4 : 3;
}

static void find_waits(finder *f, int i) {
    cgp__bound_action *bound = &f->list->actions[i];
    const cgp_queue queue = cgp__queue_of(bound->action.kind);
    int last[CGP_QUEUES] = {-1, -1, -1};
    span touched[4];
    const int n = list_touched(f, bound, touched);
    for (int k = 0; k < n; k++) {
        for (int s = touched[k].begin; s < touched[k].end; s++) {
            for (int q = 0; q < CGP_QUEUES; q++)
                last[q] = f->last[s][q] > last[q] ? f->last[s][q] : last[q];
            f->last[s][queue] = i;
        }
    }
    for (int other = 0; other < CGP_QUEUES; other++) {
        const bool known = other == (int)queue || last[other] <= i - CGP__AHEAD ||
                           last[other] <= f->waited[queue][other] ||
                           (queue == CGP_QUEUE_OUT && other == CGP_QUEUE_IN);
        bound->wait[other] = known ? -1 : last[other];
        if (!known) f->waited[queue][other] = last[other];
    }
}

static cgp_status allocate(finder *f) {
    const size_t variants = (size_t)f->list->n_variants;
    CGP_TRY(CGP__NEW(f->bounds, 6 * variants, "list"));
    CGP_TRY(CGP__NEW(f->slots, variants, "list"));
    divide(f);
    CGP_TRY(CGP__NEW(f->last, f->n_bounds + 1, "list"));
    for (int s = 0; s <= f->n_bounds; s++)
        for (int q = 0; q < CGP_QUEUES; q++)
            f->last[s][q] = -1;
    for (int p = 0; p < CGP_QUEUES; p++)
        for (int q = 0; q < CGP_QUEUES; q++)
            f->waited[p][q] = -1;
    return CGP_OK;
}

cgp_status cgp__plan_find_waits(const cgp_plan *plan, cgp__list *list) {
    finder f = {.plan = plan, .list = list};
    const cgp_status status = allocate(&f);
    for (int i = 0; i < list->n && status == CGP_OK; i++)
        find_waits(&f, i);
    free(f.last);
    free(f.slots);
    free(f.bounds);
    return status;
}
