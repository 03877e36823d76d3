/* SPDX-License-Identifier: Apache-2.0 */
/* zb_v.c -- ZB-V, a zero-bubble schedule with a V-shaped placement. Device r has stage r on the way
 * down and stage 2n-1-r on the way back. So the loss and the first layers are on one device.
 *
 * 2 devices, 4 micro-batches:
 *
 *   0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 ...
 *     . 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 ...
 *
 * The actions of device r, whose two stages are called 0 and 1:
 *
 *     1. 2(n-r)-1 x F0              4. while forwards are left: F0, I0, W0, F1, I1, W1
 *     2. r x (F1, F0)               5. r x (I0, I1), (n-r) x (I0, W0),
 *     3. (n-r) x (F1, I1, W1)          then the remaining W1, then the remaining W0
 *
 * If F = I = W, there is no bubble from a device's first action to its last. The schedule needs as
 * much memory as 1F1B, for the activations of 2n half stages. With fewer than 2n-1 micro-batches,
 * the generator makes the schedule for 2n-1 micro-batches, and leaves out the surplus
 * micro-batches.
 *
 * Source: Qi et al. 2023, arXiv:2401.10241, section 6. The steps are as in PyTorch's
 * ScheduleZBVZeroBubble. */
#include "schedule/generators/generators.h"

static void fill_device(cgp__v_builder *b, int r, int n, int chunks) {
    cgp__v_append(b, 2 * (n - r) - 1, "F0");
    cgp__v_append(b, r, "F1 F0");
    cgp__v_append(b, n - r, "F1 I1 W1");
    const int *forward = b->next[CGP_ACTION_F];
    while (forward[1] < forward[0] || forward[0] < chunks) {
        if (forward[0] < chunks) cgp__v_append(b, 1, "F0");
        cgp__v_append(b, 1, "I0 W0 F1 I1 W1");
    }
    cgp__v_append(b, r, "I0 I1");
    cgp__v_append(b, n - r, "I0 W0");
    cgp__v_append(b, b->next[CGP_ACTION_I][1] - b->next[CGP_ACTION_W][1], "W1");
    cgp__v_append(b, b->next[CGP_ACTION_I][0] - b->next[CGP_ACTION_W][0], "W0");
}

cgp_status cgp__generate_zb_v(cgp_schedule *s, const cgp_schedule_options *options, int variant) {
    (void)options, (void)variant;
    const int n = s->devices;
    const int64_t chunks = cgp__max(s->chunks, 2 * (int64_t)n - 1);
    CGP_TRY(cgp__surplus_check(s, chunks));
    for (int r = 0; r < n; r++) {
        cgp__v_builder builder = cgp__v_builder_of(s, r);
        fill_device(&builder, r, n, (int)chunks);
    }
    return CGP_OK;
}
