/* SPDX-License-Identifier: Apache-2.0 */
/* v_flex.c -- V-Flex: the shortest V-shaped schedule that a search finds within a limit on the half
 * stages in flight. The limit may be any number from the peak of v-min to the peak of zb-v.
 *
 * Each device has two stages of a V-shaped placement. A block has a period of six ticks. In it,
 * forward takes at least `down` ticks from stage to stage towards the last device, and at least
 * `up` ticks on the way back. The same holds for backward:
 *
 *     down, up   1, 1   v-min             2, 1   v-half             4, 2   zero bubbles
 *
 * Modulo scheduling (block.c) makes a block for each pair (down, up) of numbers 1 .. 4. The blocks
 * of v-half and v-min are candidates too. Each block is laid out. If the peak of its layout is
 * within the limit, the layout is packed (pack.c) within the limit, with both policies for W. Then
 * the layouts are packed within smaller limits, until a budget of actions is used up. zb-v is a
 * candidate if the limit allows it. With F = I = W = 1, the shortest makespan wins; among equal
 * makespans, the shortest span. So for these times, no step is longer than with v-min, v-half or
 * zb-v in the same memory.
 *
 * Source: Qi et al. 2024, arXiv:2405.15362, section 3; there, the variables of the search over
 * blocks are the offsets of all devices. Packing within a limit is this library's invention. */
#include "schedule/generators/generators.h"
#include "schedule/generators/pack.h"

enum { STEPS = 4, BLOCKS = STEPS * STEPS + 2, BUDGET = 1 << 18 };

/* A candidate: the block and the settings with which its packing can be repeated. */
typedef struct choice {
    int block, max;
    bool weight_in_turn;
    cgp__pack_times times;
} choice;

typedef struct search {
    cgp__packer packer;
    cgp__block block;
    int peaks[BLOCKS]; /* the peak of each block's layout, run in list order */
    int64_t actions;   /* number of actions packed so far */
    choice best;
} search;

static void place_block(cgp__block *block, int down, int up) {
    const int n = block->schedule->devices, stages = 2 * n;
    int tick = 0;
    cgp__block_clear(block);
    for (int j = 0; j < stages; j++)
        tick = cgp__block_place(block, false, j, tick, 0, 1) + (j == n - 1 ? 1 : j < n ? down : up);
    tick = block->forward[stages - 1] + 1;
    for (int j = stages - 1; j >= 0; j--)
        tick = cgp__block_place(block, true, j, tick, 0, 1) + (j == n ? 1 : j > n ? down : up);
}

static void lay_out(search *s, int k) {
    const int blocks = STEPS * STEPS;
    if (k < blocks)
        place_block(&s->block, 1 + k / STEPS, 1 + k % STEPS);
    else
        cgp__v_block_make(&s->block, 2 + k - blocks);
    cgp__lay_out(&s->packer, &s->block);
}

static bool is_shorter(cgp__pack_times a, cgp__pack_times b) {
    return a.makespan != b.makespan ? a.makespan < b.makespan : a.span < b.span;
}

/* Pack the current layout with both policies. */
static void try_layout(search *s, int k, int max) {
    for (int in_turn = 0; in_turn <= 1; in_turn++) {
        s->packer.max = max;
        s->packer.weight_in_turn = in_turn;
        const choice now = {k, max, in_turn, cgp__pack(&s->packer, NULL)};
        if (s->best.block < 0 || is_shorter(now.times, s->best.times)) s->best = now;
        s->actions += (int64_t)s->packer.schedule->stages * s->packer.schedule->chunks * 3;
    }
}

/* Try v-half and v-min exactly as their own generators make them. Then try all blocks. */
static void try_all(search *s, int limit) {
    const int n = s->packer.schedule->devices;
    for (int fraction = 2; fraction <= 3; fraction++) {
        if (cgp__v_block_peak(fraction, n) > limit) continue;
        lay_out(s, STEPS * STEPS + fraction - 2);
        try_layout(s, STEPS * STEPS + fraction - 2, cgp__v_block_peak(fraction, n));
    }
    for (int max = limit; max >= cgp__v_block_peak(3, n); max--) {
        for (int k = 0; k < BLOCKS; k++) {
            if (s->actions >= BUDGET) return;
            if (s->peaks[k] > max) continue;
            lay_out(s, k);
            if (s->peaks[k] == 0) s->peaks[k] = cgp__packer_peak(&s->packer);
            if (s->peaks[k] <= max) try_layout(s, k, max);
        }
    }
}

/* Simulate zb-v with F = I = W = 1. */
static cgp_status time_zb_v(const cgp_schedule *schedule, cgp__pack_times *times) {
    cgp_schedule *s = NULL;
    cgp_schedule_timeline t = {0};
    CGP_TRY(cgp_schedule_create(&s, "zb-v", schedule->devices, schedule->chunks, NULL));
    cgp_status status = cgp_schedule_lower_chain(s);
    if (status == CGP_OK) status = cgp_schedule_simulate(s, NULL, &t);
    /* convert to ticks: a tick is half a unit of the default costs */
    if (status == CGP_OK)
        *times = (cgp__pack_times){(int)(2 * t.makespan + 0.5), (int)(2 * t.span + 0.5)};
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
    return status;
}

static cgp_status check_limit(const cgp_schedule *s, int limit) {
    int least, most;
    cgp__in_flight_range("v-flex", s->devices, &least, &most);
    if (limit >= least && limit <= most) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "in_flight: expected %d (v-min's peak) to %d (zb-v's) half stages on %d "
                    "devices, got %d",
                    least, most, s->devices, limit);
}

cgp_status cgp__generate_v_flex(cgp_schedule *schedule, const cgp_schedule_options *options,
                                int variant) {
    (void)variant;
    const int most = 2 * schedule->devices, limit = options->in_flight ? options->in_flight : most;
    search s = {.best = {.block = -1}};
    cgp__pack_times zb_v = {0, 0};
    CGP_TRY(check_limit(schedule, limit));
    if (limit == most) CGP_TRY(time_zb_v(schedule, &zb_v));
    CGP_TRY(cgp__v_packer_create(&s.packer, &s.block, schedule));
    try_all(&s, limit);
    const bool take_zb_v = limit == most && !is_shorter(s.best.times, zb_v);
    if (!take_zb_v) {
        lay_out(&s, s.best.block);
        s.packer.max = s.best.max;
        s.packer.weight_in_turn = s.best.weight_in_turn;
        cgp__pack(&s.packer, schedule);
    }
    cgp__block_release(&s.block);
    cgp__packer_release(&s.packer);
    return take_zb_v ? cgp__generate_zb_v(schedule, options, 0) : CGP_OK;
}
