/* SPDX-License-Identifier: Apache-2.0 */
/* freeze.c -- removes backward actions that are unnecessary because parameters are frozen.
 *
 * Example: 1f1b, 4 stages, 4 micro-batches. No parameter of stages 0 and 1 is trainable:
 *
 *     stage 0   F0 F1 F2 F3  .  .  .  .  .  .
 *     stage 1    . F0 F1 F2 F3  .  .  .  .  .
 *     stage 2    .  . F0 F1  . B0 F2 B1 F3 B2 ...
 *     stage 3    .  .  . F0 B0 F1 B1 F2 B2 F3 ...
 *
 * If a stage has no trainable parameter, but an earlier stage has one, the stage runs I without W.
 * No remaining action waits for a removed action, and no remaining action starts later than before
 * the removal. So the remaining schedule cannot deadlock. */
#include "schedule/table.h"

#include <stdlib.h>

/* Return true if a stage with this kind of backward runs the action. */
static bool runs(const cgp_action *a, cgp_stage_backward backward) {
    if (a->kind == CGP_ACTION_F) return true;
    return backward == CGP_BACKWARD_FULL ||
           (backward == CGP_BACKWARD_INPUT && a->kind != CGP_ACTION_W);
}

/* Copy the actions that run. If a stage needs no W, each of its Bs becomes an I. If the partner of
 * an overlapped F is removed, the copy of the F is not marked as overlapped. */
static cgp_status leave_out(cgp_schedule *schedule, const cgp_stage_backward *stages) {
    cgp_schedule *rest = NULL;
    cgp__cursor at = {0};
    CGP_TRY(cgp__schedule_new(&rest, schedule->name, schedule->stages, schedule->chunks,
                              schedule->devices, schedule->device_of));
    while (cgp__next(schedule, &at)) {
        cgp_action action = *at.action;
        if (!runs(&action, stages[action.stage])) continue;
        const int partner = cgp__partner(schedule, at.device, at.position);
        const cgp_action *other = &schedule->lists[at.device][partner];
        if (action.kind == CGP_ACTION_B && stages[action.stage] == CGP_BACKWARD_INPUT)
            action.kind = CGP_ACTION_I;
        if (partner != at.position && !runs(other, stages[other->stage])) action.overlapped = false;
        cgp__append_action(rest, &action);
    }
    return cgp__schedule_replace(schedule, rest);
}

cgp_status cgp_schedule_freeze(cgp_schedule *schedule, const cgp_stage_backward *stages) {
    CGP__NEED(schedule);
    CGP__NEED(stages);
    if (schedule->lowered)
        return cgp_fail(CGP_ESTATE,
                        "schedule: expected no transfers yet, got a lowered schedule (call "
                        "cgp_schedule_freeze first)");
    for (int j = 0; j < schedule->stages; j++) {
        if ((int)stages[j] < CGP_BACKWARD_FULL || stages[j] > CGP_BACKWARD_NONE)
            return cgp_fail(CGP_EINVAL, "stage %d: expected a cgp_stage_backward, got number %d", j,
                            (int)stages[j]);
    }
    return leave_out(schedule, stages);
}

cgp_status cgp__stage_ends(const cgp_schedule *schedule, cgp_action_kind **ends) {
    cgp__cursor at = {0};
    CGP_TRY(CGP__NEW(*ends, schedule->stages, "schedule"));
    for (int j = 0; j < schedule->stages; j++)
        (*ends)[j] = CGP_ACTION_F;
    while (cgp__next(schedule, &at)) {
        cgp_action_kind *end = &(*ends)[at.action->stage];
        const cgp_action_kind kind = at.action->kind;
        if (kind != CGP_ACTION_B && kind != CGP_ACTION_I && kind != CGP_ACTION_W) continue;
        *end = *end == CGP_ACTION_F || *end == kind ? kind : CGP_ACTION_W;
    }
    return CGP_OK;
}
