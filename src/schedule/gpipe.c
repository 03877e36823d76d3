/* gpipe.c -- all forwards, then all backwards; and forward alone, for evaluation.
 *
 *     stage 0   F0 F1 F2  .  .  .  . B0 B1 B2
 *     stage 1    . F0 F1 F2  .  . B0 B1 B2  .
 *     stage 2    .  . F0 F1 F2 B0 B1 B2  .  .
 *
 * With equal costs each stage idles for n-1 of m+n-1 slots. All m micro-batches are in flight
 * at the turn.
 *
 * torchgpipe runs backward from m-1 down to 0; here it runs up, as in every generator, so that
 * weight gradients add up in one order whatever the schedule. The timeline is the same.
 *
 * Source: Huang et al. 2019, arXiv:1811.06965, section 2.3. */
#include "schedule/schedule.h"

static cgp_action *append_all(cgp_action *a, cgp_action_kind kind, int stage, int chunks) {
    for (int i = 0; i < chunks; i++)
        *a++ = (cgp_action){.kind = kind, .stage = stage, .microbatch = i, .edge = -1};
    return a;
}

cgp_status cgp_schedule_gpipe(cgp_schedule **out, int stages, int chunks) {
    cgp_schedule *schedule = NULL;
    CGP_TRY(cgp__schedule_new(&schedule, "gpipe", stages, chunks, 2));
    for (int j = 0; j < stages; j++) {
        cgp_action *a = append_all(schedule->lists[j], CGP_ACTION_F, j, chunks);
        append_all(a, CGP_ACTION_B, j, chunks);
    }
    *out = schedule;
    return CGP_OK;
}

cgp_status cgp_schedule_forward(cgp_schedule **out, int stages, int chunks) {
    cgp_schedule *schedule = NULL;
    CGP_TRY(cgp__schedule_new(&schedule, "forward", stages, chunks, 1));
    for (int j = 0; j < stages; j++)
        append_all(schedule->lists[j], CGP_ACTION_F, j, chunks);
    *out = schedule;
    return CGP_OK;
}
