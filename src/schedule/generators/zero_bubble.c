/* SPDX-License-Identifier: Apache-2.0 */
/* zero_bubble.c -- ZB-H1 and ZB-H2. They are 1F1B with the weight backward (W) moved to times in
 * which the device would idle, so that no stage waits for a W.
 *
 * ZB-H1, 3 stages, 5 micro-batches:
 *
 *     stage 0   F0 F1 F2  .  . I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4
 *     stage 1    . F0 F1  . I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4
 *     stage 2    .  . F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4
 *
 * Stage r runs n-r forwards first. Then it repeats three actions: an I, the W of the micro-batch
 * that is r micro-batches older, and an F. The gradient that I makes is sent before W runs, and the
 * deferred Ws fill the end. The bubble is (n-1)(F+I-W) instead of (n-1)(F+I+W), with as much memory
 * as 1F1B.
 *
 * In ZB-H2, stage r runs 2(n-r)-1 forwards first, and runs each W 2r micro-batches after its I. If
 * F + I <= 2W, there is no bubble from a device's first action to its last, but the memory is
 * doubled. If all devices wait for each other at the end of a step (for a gradient norm), the
 * makespan matters. At equal costs, the makespan of ZB-H2 is no shorter than the makespan of ZB-H1.
 *
 * Source: Qi et al. 2023, arXiv:2401.10241, figures 2 and 3. */
#include "schedule/generators/generators.h"

cgp_action_kind cgp__zero_bubble_next(const cgp_schedule *s, int variant, int r,
                                      const int done[CGP__COMPUTE_KINDS]) {
    const int f = done[CGP_ACTION_F], i = done[CGP_ACTION_I], w = done[CGP_ACTION_W];
    const int64_t behind = s->stages - r;
    const int64_t warm_up = variant == 1 ? behind : 2 * behind - 1;
    const int64_t lag = variant * (int64_t)r;
    if (w < i - lag || i == s->chunks) return CGP_ACTION_W;
    if (f < s->chunks && f < warm_up + i) return CGP_ACTION_F;
    return CGP_ACTION_I;
}

cgp_status cgp__generate_zero_bubble(cgp_schedule *s, const cgp_schedule_options *options,
                                     int variant) {
    (void)options;
    for (int r = 0; r < s->stages; r++) {
        int done[CGP__COMPUTE_KINDS] = {0};
        while (done[CGP_ACTION_W] < s->chunks) {
            const cgp_action_kind kind = cgp__zero_bubble_next(s, variant, r, done);
            cgp__append(s, kind, r, done[kind]++);
        }
    }
    return CGP_OK;
}
