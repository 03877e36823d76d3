/* SPDX-License-Identifier: Apache-2.0 */
/* one_f_one_b.c -- 1F1B (one forward, one backward). It has GPipe's bubble, but at most n - j
 * micro-batches in flight on stage j.
 *
 *     stage 0   F0 F1 F2 F3  .  .  . B0 F4 B1 F5 B2 F6 B3 F7 B4  . B5  . B6  . B7
 *     stage 1    . F0 F1 F2  .  . B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5  . B6  . B7  .
 *     stage 2    .  . F0 F1  . B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6  . B7  .  .
 *     stage 3    .  .  . F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7  .  .  .
 *
 * In the warm-up, stage j runs n-1-j forwards, one per later stage, so that the next forward ends
 * when the gradient of micro-batch 0 comes back. Then forwards and backwards alternate, and each
 * backward frees the slot that the next forward takes. The backward passes of the warm-up's
 * micro-batches come last. If m < n, the warm-up of the early stages takes every micro-batch, and
 * these stages run as in GPipe.
 *
 * Eager 1F1B has twice as many forwards in its warm-up, 2(n-1-j):
 *
 *     stage 0   F0 F1 F2 F3 F4 F5 F6 B0 F7 B1  . B2 ...
 *     stage 1    . F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 F7 ...
 *
 * Then no forward waits for a message that was only just sent. Message latency delays only the
 * beginning and the end of the step; in 1F1B it counts twice for every micro-batch. The price is
 * memory for 2(n-j) - 1 micro-batches in flight.
 *
 * Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2 (PipeDream-flush); Fan et al. 2021
 * (DAPPLE). Eager: Zhuang et al. 2022, arXiv:2211.05322, section 4. */
#include "schedule/generators/generators.h"

cgp_status cgp__generate_1f1b(cgp_schedule *s, const cgp_schedule_options *options, int warm_ups) {
    (void)options;
    for (int j = 0; j < s->stages; j++) {
        const int64_t warm_up = (int64_t)warm_ups * (s->stages - 1 - j);
        int forward = 0, backward = 0;
        while (backward < s->chunks) {
            if (forward < s->chunks && forward <= backward + warm_up)
                cgp__append(s, CGP_ACTION_F, j, forward++);
            else
                cgp__append(s, CGP_ACTION_B, j, backward++);
        }
    }
    return CGP_OK;
}
