/* SPDX-License-Identifier: Apache-2.0 */
/* wave.c -- Hanayo, with v stages on each device in w = v / 2 waves. The sequence of stages goes
 * down the devices and back up, w times. Where it turns, two neighbouring stages are on one device,
 * so no message is sent between them.
 *
 *     v = 4, 3 devices        device 0   0     5  6    11
 *                             device 1    1   4    7  10
 *                             device 2     2 3      8 9
 *
 * Each device alternates F and B, as in 1f1b. Its time is divided into units of three ticks, one
 * for an F and two for a B. A micro-batch takes v such units of a device, all different modulo the
 * period (block.c). The layout is then packed (pack.c) within the memory of 1f1b or, if the layout
 * needs more, within the memory of the layout.
 *
 * With up to n micro-batches, the schedule needs as much memory as 1f1b. If B takes twice as long
 * as F, a device idles for 4(n-1) / v to 4.5(n-1) / v times the time of its F. With more
 * micro-batches, the idle time does not grow.
 *
 * If v is odd, there is half a wave more: the sequence of stages ends at the last device.
 *
 * Source: Liu et al. 2023, arXiv:2308.15762, section 3; the order of actions is this library's
 * invention. */
#include "schedule/generators/generators.h"
#include "schedule/generators/pack.h"

enum { CELL = 3, KINDS = 2 };

static void make_block(cgp__block *block) {
    const int stages = block->schedule->stages;
    int tick = 0;
    for (int j = 0; j < stages; j++)
        tick = cgp__block_place(block, false, j, tick, 0, CELL) + 1;
    for (int j = stages - 1; j >= 0; j--)
        tick = cgp__block_place(block, true, j, tick, 1, CELL) + 2;
}

cgp_status cgp__generate_wave(cgp_schedule *s, const cgp_schedule_options *options, int variant) {
    (void)options, (void)variant;
    cgp__packer packer;
    cgp__block block;
    CGP_TRY(cgp__surplus_check(s, (int64_t)s->chunks + 2 * (int64_t)s->devices));
    CGP_TRY(cgp__packer_create(&packer, s, KINDS));
    const cgp_status status = cgp__block_create(&block, s, CELL * (s->stages / s->devices), false);
    if (status == CGP_OK) {
        make_block(&block);
        cgp__lay_out(&packer, &block);
        packer.max = cgp__max(s->stages, cgp__packer_peak(&packer));
        cgp__pack(&packer, s);
    }
    cgp__block_release(&block);
    cgp__packer_release(&packer);
    return status;
}
