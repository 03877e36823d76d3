/* SPDX-License-Identifier: Apache-2.0 */
/* dualpipe_v.c -- DualPipe-V, a V-shaped schedule. Once the pipeline is full, every device overlaps
 * a forward of one of its two stages with a backward of the other stage.
 *
 * 2 devices, 4 micro-batches:
 *
 *   0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2   . 3F3 0B1 3B3 0I2 0W2 0I3 0W3
 *     . 1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2   . 2I3 1I3 2W3 1W3
 *
 * The overlapped pairs F0&B1 and F1&B0 (OVERLAP_F_B) are for models whose stages send messages
 * while they compute, because a stage's experts are on other devices. One action of the pair
 * computes while the other waits for such messages. Both actions start when the inputs of both have
 * arrived, and send when both are done. In this library, one action runs after the other.
 *
 * The actions of device r, whose two stages are called 0 and 1:
 *
 *     1. 2(n-r-1) x F0              5. (n-r-1) x (B1, F1&B0)
 *     2. (r+1) x (F0, F1)           6. (r+1) x (B1, B0); after half: I instead of B
 *     3. (n-r-1) x (I1, W1, F1)     7. (n-r-1) x (the oldest W, I0)
 *     4. (m-2n+r+1) x               8. (r+1) x the oldest W
 *        (F0&B1, F1&B0)
 *
 * The schedule needs 2n micro-batches; with fewer, device 0 does not reach step 4. It needs memory
 * for the activations of 2n+1 half stages. In times of half stages, the bubble is (n-1)(P + I + W -
 * 3W), where P is the time of a pair. In this library, P is F + I + W.
 *
 * Source: DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1 (DualPipe). The V shape, with one copy
 * of the weights, is the same as in PyTorch's ScheduleDualPipeV. */
#include "schedule/generators/generators.h"

/* Append the W for the device's oldest I that has no W yet. `at` advances from call to call. */
static void append_oldest_weight(cgp_schedule *s, int device, int *at) {
    const cgp_action *list = s->lists[device];
    if (s->incomplete) return;
    while (list[*at].kind != CGP_ACTION_I)
        ++*at;
    cgp__append(s, CGP_ACTION_W, list[*at].stage, list[*at].microbatch);
    ++*at;
}

/* Append the actions of steps 6 to 8. The Ws of the last backward passes come at the end. */
static void drain(cgp__v_builder *b, int r, int n, int oldest) {
    const int turn = (r + 1) / 2;
    for (int i = 0; i <= r; i++) {
        const bool apart = i > turn || (i == turn && r % 2 == 1);
        cgp__v_append(b, 1, apart ? "I1" : "B1");
        cgp__v_append(b, 1, i >= turn ? "I0" : "B0");
    }
    for (int i = 0; i < n - r - 1; i++) {
        append_oldest_weight(b->schedule, r, &oldest);
        cgp__v_append(b, 1, "I0");
    }
    for (int i = 0; i <= r; i++)
        append_oldest_weight(b->schedule, r, &oldest);
}

cgp_status cgp__generate_dualpipe_v(cgp_schedule *s, const cgp_schedule_options *options,
                                    int variant) {
    (void)options, (void)variant;
    const int n = s->devices, m = s->chunks;
    if (m < 2 * (int64_t)n)
        return cgp_fail(CGP_EINVAL,
                        "dualpipe-v: expected at least 2 micro-batches per device, %lld, got %d "
                        "(zb-v takes fewer)",
                        2 * (long long)n, m);
    for (int r = 0; r < n; r++) {
        cgp__v_builder builder = cgp__v_builder_of(s, r), *b = &builder;
        cgp__v_append(b, 2 * (n - r - 1), "F0");
        cgp__v_append(b, r + 1, "F0 F1");
        cgp__v_append(b, n - r - 1, "I1 W1 F1");
        /* The last device runs the two actions of the first pair separately, so that F0 need not
         * wait for B1's input. */
        const int alone = r == n - 1;
        cgp__v_append(b, alone, "F0 B1 F1&B0");
        cgp__v_append(b, m - 2 * n + r + 1 - alone, "F0&B1 F1&B0");
        cgp__v_append(b, n - r - 1, "B1 F1&B0");
        drain(b, r, n, s->counts[r]);
    }
    return CGP_OK;
}
