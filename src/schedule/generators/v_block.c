/* SPDX-License-Identifier: Apache-2.0 */
/* v_block.c -- V-Half and V-Min, which repeat one block of six slots (units of time) and need less
 * memory than 1F1B. With many devices, V-Half needs about half of 1F1B's memory, and V-Min about a
 * third.
 *
 * Each device has two stages of a V-shaped placement: stage 0 on the way down and stage 1 on the
 * way back. A micro-batch takes six slots of a device: four for F and I of both stages, and two for
 * W. The next micro-batch takes the same slots, six slots later. The four slots determine how long
 * a micro-batch is in flight:
 *
 *                    F0     F1              I1               I0                of device r
 *     v-min          r      2n-1-r          2n + d + r       4n + d - 1 - r     d = 2 if 3 | n
 *     v-half         2r     3n-2-r          3n + d + 2r - 1  6n + d - 2 - r     d = 3 if 2 | n
 *
 * The number d keeps the slots of a device apart. W takes the first free slot after its I.
 *
 * The pictures show one micro-batch on 4 devices. The first is v-half, which takes two slots per
 * stage on the way down and one slot per stage on the way back. The second is v-min:
 *
 *     0  F0  .  .  .  .  .  .  .  .  . F1  .  .  . I1  .  .  .  .  .  .  .  .  .  . I0
 *     1   .  . F0  .  .  .  .  .  . F1  .  .  .  .  .  . I1  .  .  .  .  .  .  . I0  .
 *     2   .  .  .  . F0  .  .  . F1  .  .  .  .  .  .  .  .  . I1  .  .  .  . I0  .  .
 *     3   .  .  .  .  .  . F0 F1  .  .  .  .  .  .  .  .  .  .  .  . I1  . I0  .  .  .
 *
 *     0  F0  .  .  .  .  .  . F1 I1  .  .  .  .  .  . I0
 *     1   . F0  .  .  .  . F1  .  . I1  .  .  .  . I0  .
 *     2   .  . F0  .  . F1  .  .  .  . I1  .  . I0  .  .
 *     3   .  .  . F0 F1  .  .  .  .  .  . I1 I0  .  .  .
 *
 * The layout is optimal where the blocks repeat, but leaves holes at both ends. So it is packed
 * (pack.c), with no more micro-batches in flight than the repeating part has. A W runs only if no
 * other action can run. If little memory is allowed, it may be better to run a W as soon as it is
 * first in the list, so both policies are tried.
 *
 * If F = I = W, the unit of the bubble is the duration of F of a half stage. In this unit, the
 * bubble of v-half is at most 3n-4, and the bubble of v-min at most 4n-5. If F, I and W differ
 * much, v-min idles in each block.
 *
 * Source: Qi et al. 2024, arXiv:2405.15362, section 3 and appendix. */
#include "schedule/generators/generators.h"
#include "schedule/generators/pack.h"

#include <string.h>

enum { SLOTS = 6, BLOCK = 4, KINDS = 3 };

/* Set the ticks of F0, F1, I1 and I0 on device r; fraction: 2 for v-half, 3 for v-min. */
static void find_ticks(int fraction, int n, int r, int ticks[BLOCK]) {
    const int d = n % fraction == 0 ? SLOTS / fraction : 0;
    const int half[BLOCK] = {2 * r, 3 * n - 2 - r, 3 * n + d + 2 * r - 1, 6 * n + d - 2 - r};
    const int third[BLOCK] = {r, 2 * n - 1 - r, 2 * n + d + r, 4 * n + d - 1 - r};
    memcpy(ticks, fraction == 2 ? half : third, sizeof half);
}

void cgp__v_block_make(cgp__block *block, int fraction) {
    const int n = block->schedule->devices;
    cgp__block_clear(block);
    for (int r = 0; r < n; r++) {
        int ticks[BLOCK];
        find_ticks(fraction, n, r, ticks);
        for (int k = 0; k < BLOCK; k++) {
            const bool first = k == 0 || k == BLOCK - 1;
            cgp__block_set(block, k >= 2, first ? r : 2 * n - 1 - r, ticks[k]);
        }
    }
}

int cgp__v_block_peak(int fraction, int n) {
    return (n + 2 * fraction - 2) / fraction * 2;
}

cgp_status cgp__v_packer_create(cgp__packer *packer, cgp__block *block, const cgp_schedule *s) {
    CGP_TRY(cgp__surplus_check(s, (int64_t)s->chunks + 2 * (int64_t)s->devices));
    CGP_TRY(cgp__packer_create(packer, s, KINDS));
    const cgp_status status = cgp__block_create(block, s, SLOTS, true);
    if (status != CGP_OK) cgp__packer_release(packer);
    return status;
}

cgp_status cgp__generate_v_block(cgp_schedule *s, const cgp_schedule_options *options,
                                 int fraction) {
    (void)options;
    cgp__packer packer;
    cgp__block block;
    CGP_TRY(cgp__v_packer_create(&packer, &block, s));
    cgp__v_block_make(&block, fraction);
    cgp__lay_out(&packer, &block);
    packer.max = cgp__v_block_peak(fraction, s->devices);
    const int span = cgp__pack(&packer, NULL).span;
    packer.weight_in_turn = true;
    packer.weight_in_turn = cgp__pack(&packer, NULL).span < span;
    cgp__pack(&packer, s);
    cgp__block_release(&block);
    cgp__packer_release(&packer);
    return CGP_OK;
}
