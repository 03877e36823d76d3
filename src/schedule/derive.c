/* SPDX-License-Identifier: Apache-2.0 */
/* derive.c -- derives two schedules from a plan's schedule: a schedule for fewer micro-batches, and
 * a forward-only schedule.
 *
 * A smaller mini-batch runs the planned action lists without the micro-batches that it lacks. It
 * needs no more slots than a full mini-batch, and it cannot deadlock.
 *
 * An overlapped pair (dualpipe-v) becomes two separate actions. A pair starts when the inputs of
 * both actions have arrived, and sends when both actions are done. This suits a device that runs
 * both at the same time. On a device that runs the two actions one after the other, a pair would
 * only delay the first message. */
#include "schedule/generators/generators.h"

cgp_status cgp__schedule_part(cgp_schedule **out, const cgp_schedule *schedule, int chunks) {
    cgp_schedule *part = NULL;
    cgp__cursor at = {0};
    CGP_TRY(cgp__schedule_new(&part, schedule->name, schedule->stages, chunks, schedule->devices,
                              schedule->device_of));
    while (cgp__next(schedule, &at)) {
        const cgp_action *a = at.action;
        if (!cgp__is_transfer(a->kind)) cgp__append(part, a->kind, a->stage, a->microbatch);
    }
    return cgp__schedule_finish(out, part, CGP_OK);
}

cgp_status cgp__schedule_forward(cgp_schedule **out, const cgp_schedule *schedule, int chunks,
                                 int group) {
    cgp_schedule_options options = cgp_schedule_options_default();
    options.group = group;
    cgp_schedule *forward = NULL;
    CGP_TRY(cgp__schedule_new(&forward, "forward-only", schedule->stages, chunks, schedule->devices,
                              schedule->device_of));
    return cgp__schedule_finish(out, forward, cgp__generate_forward_only(forward, &options, 0));
}

/* Check that a stage runs its actions of one kind in ascending order of micro-batches. A B counts
 * as both an I and a W. */
static bool ascends(const cgp_schedule *schedule, int stage, cgp_action_kind kind) {
    const int device = schedule->device_of[stage];
    const bool backward = kind != CGP_ACTION_F;
    int last = -1;
    for (int i = 0; i < schedule->counts[device]; i++) {
        const cgp_action *a = &schedule->lists[device][i];
        if (a->stage != stage || (a->kind != kind && !(backward && a->kind == CGP_ACTION_B)))
            continue;
        if (a->microbatch < last) return false;
        last = a->microbatch;
    }
    return true;
}

bool cgp__schedule_backward_ascends(const cgp_schedule *schedule) {
    for (int j = 0; j < schedule->stages; j++) {
        if (!ascends(schedule, j, CGP_ACTION_I) || !ascends(schedule, j, CGP_ACTION_W))
            return false;
    }
    return true;
}

bool cgp__schedule_ascends(const cgp_schedule *schedule) {
    for (int j = 0; j < schedule->stages; j++) {
        if (!ascends(schedule, j, CGP_ACTION_F)) return false;
    }
    return cgp__schedule_backward_ascends(schedule);
}

bool cgp__schedule_forward_first(const cgp_schedule *schedule) {
    for (int d = 0; d < schedule->devices; d++) {
        bool backward = false;
        for (int i = 0; i < schedule->counts[d]; i++) {
            const cgp_action_kind kind = schedule->lists[d][i].kind;
            if (kind == CGP_ACTION_F && backward) return false;
            backward = backward || kind != CGP_ACTION_F;
        }
    }
    return true;
}
