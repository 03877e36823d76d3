/* one_f_one_b.c -- one forward, one backward: GPipe's bubble with at most n - j micro-batches
 * in flight on stage j.
 *
 *     stage 0   F0 F1 F2 F3  .  .  . B0 F4 B1 F5 B2 F6 B3 F7 B4  . B5  . B6  . B7
 *     stage 1    . F0 F1 F2  .  . B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5  . B6  . B7  .
 *     stage 2    .  . F0 F1  . B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6  . B7  .  .
 *     stage 3    .  .  . F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7  .  .  .
 *
 * Warm-up: stage j runs as many forwards as stages stand behind it, n-1-j, so that the next one
 * is just due when the gradient of micro-batch 0 comes back. Then each forward pays for itself
 * with a backward, which frees the slot that the next forward takes; at the end the backwards
 * of the warm-up are left. With m < n the warm-up takes every micro-batch on the early stages,
 * and the schedule is GPipe's there.
 *
 * Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2 (PipeDream-flush); Fan et al.
 * 2021 (DAPPLE). */
#include "schedule/schedule.h"

static void fill_stage(cgp_action *a, int stage, int stages, int chunks) {
    const int warm_up = stages - 1 - stage;
    int forward = 0, backward = 0;
    while (backward < chunks) {
        const bool is_forward = forward < chunks && forward <= backward + warm_up;
        *a++ = (cgp_action){.kind = is_forward ? CGP_ACTION_F : CGP_ACTION_B,
                            .stage = stage,
                            .microbatch = is_forward ? forward++ : backward++,
                            .edge = -1};
    }
}

cgp_status cgp_schedule_1f1b(cgp_schedule **out, int stages, int chunks) {
    cgp_schedule *schedule = NULL;
    CGP_TRY(cgp__schedule_new(&schedule, "1f1b", stages, chunks, 2));
    for (int j = 0; j < stages; j++)
        fill_stage(schedule->lists[j], j, stages, chunks);
    *out = schedule;
    return CGP_OK;
}
