/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c -- finds the waits between the queues of a device. An action's queue waits for the last
 * action on each other queue that touches memory of this action.
 *
 *     COMPUTE   .. B of 1 ........ F of 3 ...    F reads the slot that IN wrote,
 *     IN        ... RECV_F of 3 ..               and writes a workspace that OUT reads
 *     OUT       ......... SEND_B of 1 ...
 *
 * The memory of an action is the workspace, its input slot and its saved slot. Only COMPUTE touches
 * parameters, gradients and states. A wait is elided if the host has already synchronized past that
 * action (CGP__AHEAD). It is also elided if this queue has already waited for that action, or for a
 * later one on the same queue. OUT never waits for IN: an F, B or I of the same micro-batch wrote
 * what is sent. That action runs after the stage's receives, and OUT waits for it. */
#include "plan/list.h"
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

typedef struct finder {
    const cgp_plan *plan;
    /* [memories][CGP_QUEUES] the last action on a queue that touches a memory (the workspace, an
     * input slot or a saved slot); -1: none */
    int (*last)[CGP_QUEUES];
    /* [stages] index of a stage's first input slot, and of its first saved slot, among the
     * memories */
    int *first_input, *first_saved;
    /* [queue][other queue] the last action on the other queue for which the queue has waited */
    int waited[CGP_QUEUES][CGP_QUEUES];
} finder;

/* List the memories of an action in touched[3]; return their number. */
static int list_touched(const finder *f, const cgp__bound_action *bound, const cgp__variant *v,
                        int touched[3]) {
    bool workspace = true, input = true, saved = true;
    int n = 0;
    if (bound->action.edge >= 0) {
        const cgp__edge_plan *edge = &f->plan->messages.edges[bound->action.edge];
        const bool sends = cgp__queue_of(bound->action.kind) == CGP_QUEUE_OUT;
        workspace = input = saved = false;
        for (int i = 0; i < edge->n_parts; i++) {
            const cgp__part *part = &edge->parts[i];
            const cgp__arena arena =
                (sends ? part->from[v->program != CGP__FORWARD_NOSAVE] : part->to).arena;
            workspace = workspace || arena == CGP__WORKSPACE;
            input = input || arena == CGP__INPUT_SLOT;
            saved = saved || arena == CGP__SAVED_SLOT;
        }
    }
    if (workspace) touched[n++] = 0;
    if (input && v->input_slot >= 0) touched[n++] = f->first_input[v->stage] + v->input_slot;
    if (saved && v->saved_slot >= 0) touched[n++] = f->first_saved[v->stage] + v->saved_slot;
    return n;
}

static void find_waits(finder *f, const cgp__list *list, int i) {
    cgp__bound_action *bound = &list->actions[i];
    const cgp_queue queue = cgp__queue_of(bound->action.kind);
    int touched[3];
    const int n = list_touched(f, bound, &list->variants[bound->variant], touched);
    for (int other = 0; other < CGP_QUEUES; other++) {
        int last = -1;
        for (int k = 0; k < n && other != (int)queue; k++)
            last = f->last[touched[k]][other] > last ? f->last[touched[k]][other] : last;
        const bool known = last <= i - CGP__AHEAD || last <= f->waited[queue][other] ||
                           (queue == CGP_QUEUE_OUT && other == CGP_QUEUE_IN);
        bound->wait[other] = known ? -1 : last;
        if (!known) f->waited[queue][other] = last;
    }
    for (int k = 0; k < n; k++)
        f->last[touched[k]][queue] = i;
}

cgp_status cgp__plan_find_waits(const cgp_plan *plan, int device, cgp__list *list) {
    const cgp_plan_device *info = cgp_plan_device_at(plan, device);
    const size_t stages = (size_t)plan->placement.n_stages;
    int *first = cgp__calloc(2 * stages, sizeof *first);
    if (!first) return cgp__no_memory("list", 2 * stages * sizeof *first);
    size_t memories = 1;
    for (int k = 0; k < info->stages; k++) {
        const int j = info->stage_list[k];
        first[j] = (int)memories;
        memories += (size_t)plan->placement.stages[j].info.input_slots;
        first[stages + (size_t)j] = (int)memories;
        memories += (size_t)plan->placement.stages[j].info.saved_slots;
    }
    int(*last)[CGP_QUEUES] = cgp__calloc(memories, sizeof *last);
    if (last) {
        finder f = {
            .plan = plan, .last = last, .first_input = first, .first_saved = first + stages};
        for (size_t m = 0; m < memories; m++)
            for (int q = 0; q < CGP_QUEUES; q++)
                last[m][q] = -1;
        for (int p = 0; p < CGP_QUEUES; p++)
            for (int q = 0; q < CGP_QUEUES; q++)
                f.waited[p][q] = -1;
        for (int i = 0; i < list->n; i++)
            find_waits(&f, list, i);
    }
    free(last);
    free(first);
    return last ? CGP_OK : cgp__no_memory("list", memories * sizeof *last);
}
