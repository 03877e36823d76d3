/* SPDX-License-Identifier: Apache-2.0 */
/* block.c -- building blocks. A block gives the tick of each action of one micro-batch. It repeats
 * for every micro-batch, one period later each time.
 *
 * A block of period 6 on 2 devices with two stages each (a digit is a stage):
 *
 *     device 0   F0  .  . F3 I3  .  . I0
 *     device 1    . F1 F2  .  . I2 I1  .
 *
 * The layout of 2 micro-batches, in which W takes the free ticks:
 *
 *     device 0   0F0   .   . 3F0 3I0 3W0 0F1 0I0 0W0 3F1 3I1 3W1   . 0I1 0W1   .   .
 *     device 1     . 1F0 2F0   .   . 2I0 1I0 1F1 2F1 2W0 1W0 2I1 1I1   .   . 2W1 1W1
 *
 * The ticks of a device are distinct modulo the period, so the blocks of all micro-batches fit
 * together without a hole.
 *
 * Source: Qi et al. 2024, arXiv:2405.15362, section 2. Actions are placed by modulo scheduling (Rau
 * 1994, "Iterative modulo scheduling") without backtracking. */
#include "schedule/generators/pack.h"

#include <stdlib.h>
#include <string.h>

/* An entry of at[] is 0 if the tick is free, 1 + 2 x stage for an F, and 2 + 2 x stage for a
 * backward. */

cgp_status cgp__block_create(cgp__block *block, const cgp_schedule *schedule, int period,
                             bool splits) {
    const size_t stages = (size_t)schedule->stages;
    const size_t ticks = (size_t)schedule->devices * (size_t)period;
    *block = (cgp__block){.schedule = schedule,
                          .period = period,
                          .splits = splits,
                          .forward = cgp__calloc(stages, sizeof *block->forward),
                          .backward = cgp__calloc(stages, sizeof *block->backward),
                          .at = cgp__calloc(ticks, sizeof *block->at)};
    if (block->forward && block->backward && block->at) return CGP_OK;
    cgp__block_release(block);
    return cgp__no_memory("schedule", ticks * sizeof *block->at);
}

void cgp__block_release(cgp__block *block) {
    free(block->forward);
    free(block->backward);
    free(block->at);
    *block = (cgp__block){0};
}

void cgp__block_clear(cgp__block *block) {
    const size_t ticks = (size_t)block->schedule->devices * (size_t)block->period;
    memset(block->at, 0, ticks * sizeof *block->at);
}

static int *at(const cgp__block *block, int device, int64_t tick) {
    return &block->at[(int64_t)device * block->period + tick % block->period];
}

void cgp__block_set(cgp__block *block, bool backward, int stage, int tick) {
    *(backward ? &block->backward[stage] : &block->forward[stage]) = tick;
    *at(block, block->schedule->device_of[stage], tick) = 1 + 2 * stage + backward;
}

int cgp__block_place(cgp__block *block, bool backward, int stage, int from, int phase, int stride) {
    int tick = from + ((phase - from) % stride + stride) % stride;
    while (*at(block, block->schedule->device_of[stage], tick))
        tick += stride;
    cgp__block_set(block, backward, stage, tick);
    return tick;
}

/* Append the action that a device runs in a tick. Return false if the tick is free in all
 * periods. */
static bool append_block(const cgp__block *block, cgp__pack_device *d, int entry, int64_t tick) {
    if (!entry) return false;
    const int stage = (entry - 1) / 2;
    const bool backward = (entry - 1) % 2;
    const int64_t since = tick - (backward ? block->backward[stage] : block->forward[stage]);
    const int64_t microbatch = since / block->period;
    if (since < 0 || microbatch >= block->schedule->chunks) return true;
    const cgp_action_kind kind = !backward       ? CGP_ACTION_F
                                 : block->splits ? CGP_ACTION_I
                                                 : CGP_ACTION_B;
    d->slots[d->count++] = (cgp__packed){kind, stage, (int)microbatch, false};
    return true;
}

void cgp__lay_out(cgp__packer *packer, const cgp__block *block) {
    const cgp_schedule *s = block->schedule;
    const int64_t all = (int64_t)packer->kinds * (s->stages / s->devices) * s->chunks;
    for (int r = 0; r < s->devices; r++) {
        cgp__pack_device *d = &packer->devices[r];
        int oldest = 0; /* index of the oldest I without a W */
        d->count = 0;
        for (int64_t tick = 0; d->count < all; tick++) {
            const bool of_block = append_block(block, d, *at(block, r, tick), tick);
            while (block->splits && oldest < d->count && d->slots[oldest].kind != CGP_ACTION_I)
                oldest++;
            if (of_block || !block->splits || oldest == d->count) continue;
            d->slots[d->count] = d->slots[oldest++];
            d->slots[d->count++].kind = CGP_ACTION_W;
        }
    }
}
