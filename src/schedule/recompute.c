/* SPDX-License-Identifier: Apache-2.0 */
/* recompute.c -- inserts an R before the backward of each micro-batch that is recomputed.
 *
 * Example: 1f1b, 3 stages, 4 micro-batches, mode except_last:
 *
 *     stage 0   F0 F1 F2  .  . B0 F3 R1 B1 R2  . B2 R3 B3
 *     stage 1    . F0 F1  . B0 F2 R1 B1 F3 R2 B2 R3 B3  .
 *     stage 2    .  . F0 B0 F1 B1 F2 B2  . F3 B3  .  .  .
 *
 * From F to R, a recomputed micro-batch keeps only its input; from R to B, it fills the stage's
 * only saved slot. If the stage's next backward after an F belongs to the same micro-batch, no
 * other micro-batch needs the saved slot in between. Then F may fill the slot at once, and
 * except_last leaves out the R, which would be wasted. (In torchgpipe, backward descends, so this
 * spares the last micro-batch, hence the name. In this library, it spares micro-batch 0 in GPipe,
 * and every micro-batch on the last stage of 1f1b.)
 *
 * R is a separate action before the RECV of the gradient, so that it runs while the gradient is in
 * flight. */
#include "schedule/table.h"

#include <stdlib.h>

/* Set spared[stage][micro-batch] if the stage's next backward after the micro-batch's F is for the
 * same micro-batch. Each list is walked from its end; next[stage] is the micro-batch of the stage's
 * next backward. */
static void find_spared(const cgp_schedule *schedule, bool *spared, int *next) {
    for (int j = 0; j < schedule->stages; j++)
        next[j] = -1;
    for (int device = 0; device < schedule->devices; device++) {
        for (int i = schedule->counts[device] - 1; i >= 0; i--) {
            const cgp_action *a = &schedule->lists[device][i];
            if (cgp__starts_backward(a->kind))
                next[a->stage] = a->microbatch;
            else if (a->kind == CGP_ACTION_F && next[a->stage] == a->microbatch)
                spared[(size_t)a->stage * schedule->chunks + a->microbatch] = true;
        }
    }
}

/* Copy the lists, with an R before each backward that is not spared. */
static cgp_status insert(cgp_schedule *schedule, const bool *spared) {
    cgp_schedule *rebuilt = NULL;
    cgp__cursor at = {0};
    CGP_TRY(cgp__schedule_new(&rebuilt, schedule->name, schedule->stages, schedule->chunks,
                              schedule->devices, schedule->device_of));
    while (cgp__next(schedule, &at)) {
        cgp_action recompute = *at.action;
        recompute.kind = CGP_ACTION_R;
        if (cgp__starts_backward(at.action->kind) &&
            !spared[(size_t)recompute.stage * schedule->chunks + recompute.microbatch])
            cgp__append_action(rebuilt, &recompute);
        cgp__append_action(rebuilt, at.action);
    }
    return cgp__schedule_replace(schedule, rebuilt);
}

static cgp_status check_state(const cgp_schedule *schedule) {
    cgp__cursor at = {0};
    if (schedule->lowered)
        return cgp_fail(CGP_ESTATE,
                        "schedule: expected recomputation before lowering, got a lowered "
                        "schedule (call cgp_schedule_recompute first)");
    while (cgp__next(schedule, &at)) {
        if (at.action->kind == CGP_ACTION_R)
            return cgp_fail(CGP_ESTATE,
                            "schedule: expected no R yet, got %dR%d on device %d, position %d",
                            at.action->stage, at.action->microbatch, at.device, at.position);
    }
    return CGP_OK;
}

cgp_status cgp_schedule_recompute(cgp_schedule *schedule, cgp_recompute mode) {
    CGP__NEED(schedule);
    if ((int)mode < CGP_RECOMPUTE_NEVER || mode > CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE)
        return cgp_fail(CGP_EINVAL, "recompute: expected never, always or except_last, got %s%s",
                        cgp_recompute_name(mode),
                        mode == CGP_RECOMPUTE_BUDGET ? ", which needs a plan" : "");
    mode = cgp_recompute_plain(mode);
    CGP_TRY(check_state(schedule));
    if (mode == CGP_RECOMPUTE_NEVER) return CGP_OK;
    const size_t cells = (size_t)schedule->stages * (size_t)schedule->chunks;
    bool *spared = cgp__calloc(cells, sizeof *spared);
    int *next = cgp__calloc((size_t)schedule->stages, sizeof *next);
    cgp_status status = CGP_OK;
    if (!spared || !next) {
        status = cgp__no_memory("schedule: recompute", cells);
    } else {
        if (mode == CGP_RECOMPUTE_EXCEPT_LAST) find_spared(schedule, spared, next);
        status = insert(schedule, spared);
    }
    free(next);
    free(spared);
    return status;
}
