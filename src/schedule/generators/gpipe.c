/* SPDX-License-Identifier: Apache-2.0 */
/* gpipe.c -- schedules that run all forward passes, then all backward passes. A device has one
 * stage (gpipe), several stages (looped-bfs), or several stages with a split backward
 * (looped-bfs-zb). This file also makes the forward-only schedule of an evaluation.
 *
 *     stage 0   F0 F1 F2  .  .  .  . B0 B1 B2
 *     stage 1    . F0 F1 F2  .  . B0 B1 B2  .
 *     stage 2    .  . F0 F1 F2 B0 B1 B2  .  .
 *
 * If all costs are equal, each stage idles for n-1 of m+n-1 ticks. All m micro-batches are in
 * flight when the backward passes begin.
 *
 * torchgpipe runs the backward passes of micro-batches m-1 down to 0. In this library, every
 * generator runs them in ascending order, so that weight gradients add up in the same order under
 * every schedule. The timeline is the same as torchgpipe's timeline.
 *
 * In looped breadth-first, all micro-batches pass through the first stages of all devices, then all
 * pass through the second stages, and so on.
 *
 * Example with 2 devices, 2 stages each and 4 micro-batches:
 *
 *     device 0   0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3   .   . 2B0 2B1 2B2 2B3 0B0 0B1 0B2 0B3
 *     device 1     . 1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3 1B0 1B1 1B2 1B3   .
 *
 * The bubble is GPipe's bubble divided by v. The schedule needs as much memory as GPipe. The
 * micro-batches of a stage run one after the other, so sharded weights would be fetched only twice
 * per step. An edge from the last device to the first holds the messages of one round of stages
 * until the next round begins, so it needs about m / n buffers.
 *
 * If backward is split, the gradient that I makes is sent before W runs, so the bubble is
 * (n-1)(F+I) / v instead of (n-1)(F+I+W) / v. No schedule has a smaller bubble if all backward
 * passes come after the last forward, as they do with an external loss. Each W follows its I
 * immediately, so the operands of W are kept for only one micro-batch.
 *
 *     device 0   F0 F1 F2  .  . I0 W0 I1 W1 I2 W2
 *     device 1    . F0 F1 F2 I0 W0 I1 W1 I2 W2  .
 *
 * Source: Huang et al. 2019, arXiv:1811.06965, section 2.3; looped-bfs: Lamy-Poirier 2022,
 * arXiv:2211.05953; split backward: Qi et al. 2023, arXiv:2401.10241. */
#include "schedule/generators/generators.h"

static void append_forwards(cgp_schedule *s, int64_t group) {
    for (int64_t first = 0; first < s->chunks; first += group) {
        for (int j = 0; j < s->stages; j++) {
            for (int64_t i = first; i < cgp__min(first + group, s->chunks); i++)
                cgp__append(s, CGP_ACTION_F, j, (int)i);
        }
    }
}

cgp_status cgp__generate_breadth_first(cgp_schedule *s, const cgp_schedule_options *options,
                                       int variant) {
    (void)options;
    append_forwards(s, s->chunks);
    for (int j = s->stages - 1; j >= 0; j--) {
        for (int i = 0; i < s->chunks; i++) {
            cgp__append(s, variant == 1 ? CGP_ACTION_I : CGP_ACTION_B, j, i);
            if (variant == 1) cgp__append(s, CGP_ACTION_W, j, i);
        }
    }
    return CGP_OK;
}

/* Append the forwards in groups of n micro-batches. A group passes a device's first stage, then the
 * device's second stage.
 *
 *     device 0   0F0 0F1 2F0 2F1 0F2 2F2   .
 *     device 1     . 1F0 1F1 3F0 3F1 1F2 3F2
 *
 * The schedule does not deadlock if each edge has one buffer per micro-batch of a group, no matter
 * how many stages the edge skips. A message waits only until a message of the previous group is
 * received, and every receiver runs the previous group first. */
cgp_status cgp__generate_forward_only(cgp_schedule *s, const cgp_schedule_options *options,
                                      int variant) {
    (void)variant;
    append_forwards(s, options->group ? options->group : s->devices);
    return CGP_OK;
}
