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

cgp_status cgp__generate_gpipe(cgp_schedule *s, const cgp_schedule_options *options) {
    (void)options;
    for (int j = 0; j < s->stages; j++) {
        for (int i = 0; i < s->chunks; i++)
            cgp__append(s, CGP_ACTION_F, j, i);
        for (int i = 0; i < s->chunks; i++)
            cgp__append(s, CGP_ACTION_B, j, i);
    }
    return CGP_OK;
}

/* In order of the tick i + j at which a pipeline of one device per stage would run it; on a
 * device with several stages the later stage first, so that what is nearly through goes on.
 *
 *     device 0   0F0 0F1 2F0 0F2 2F1 2F2   .
 *     device 1     . 1F0 1F1 3F0 1F2 3F1 3F2 */
cgp_status cgp__generate_forward_only(cgp_schedule *s, const cgp_schedule_options *options) {
    (void)options;
    const int64_t ticks = (int64_t)s->chunks + s->stages - 1;
    for (int64_t tick = 0; tick < ticks; tick++) {
        const int64_t past = tick - s->chunks + 1; /* earlier stages are done with all */
        const int first = past > 0 ? (int)past : 0;
        for (int j = tick < s->stages ? (int)tick : s->stages - 1; j >= first; j--)
            cgp__append(s, CGP_ACTION_F, j, (int)(tick - j));
    }
    return CGP_OK;
}
