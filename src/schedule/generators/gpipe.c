/* SPDX-License-Identifier: Apache-2.0 */
/* gpipe.c -- all forwards, then all backwards; and forward alone, for evaluation.
 *
 *     stage 0   F0 F1 F2  .  .  .  . B0 B1 B2
 *     stage 1    . F0 F1 F2  .  . B0 B1 B2  .
 *     stage 2    .  . F0 F1 F2 B0 B1 B2  .  .
 *
 * With equal costs each stage idles for n-1 of m+n-1 ticks. All m micro-batches are in flight at the turn.
 *
 * torchgpipe runs backward from m-1 down to 0; here it ascends, as in every generator, so that weight gradients add up in
 * one order under every schedule. The timeline is the same.
 *
 * Source: Huang et al. 2019, arXiv:1811.06965, section 2.3. */
#include "schedule/generators/generators.h"

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

/* Forward only, in groups of n micro-batches: a group passes a device's first stage, then its second.
 *
 *     device 0   0F0 0F1 2F0 2F1 0F2 2F2   .
 *     device 1     . 1F0 1F1 3F0 3F1 1F2 3F2
 *
 * With one buffer per micro-batch of a group on each edge it does not deadlock, whatever stages an edge skips: a message
 * of the next group waits for one of this group only, whose receiver comes earlier in the order of groups. */
cgp_status cgp__generate_forward_only(cgp_schedule *s, const cgp_schedule_options *options) {
    const int64_t group = options->group ? options->group : s->devices;
    for (int64_t first = 0; first < s->chunks; first += group) {
        for (int j = 0; j < s->stages; j++) {
            for (int64_t i = first; i < cgp__min(first + group, s->chunks); i++)
                cgp__append(s, CGP_ACTION_F, j, (int)i);
        }
    }
    return CGP_OK;
}
