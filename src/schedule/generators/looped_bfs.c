/* SPDX-License-Identifier: Apache-2.0 */
/* looped_bfs.c -- breadth first: all micro-batches through one round of stages, then the next.
 *
 * 2 devices, 2 stages each, 4 micro-batches:
 *
 *     device 0   0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3   .   . 2B0 2B1 2B2 2B3 0B0 0B1 0B2 0B3
 *     device 1     . 1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3 1B0 1B1 1B2 1B3   .
 *
 * GPipe's bubble divided by v, for GPipe's memory. All micro-batches of a stage follow each other, so sharded weights are
 * fetched twice a step only. An edge from the last device to the first holds the messages of a round until the next
 * begins: it needs about m / n buffers.
 *
 * Source: Lamy-Poirier 2022, arXiv:2211.05953. */
#include "schedule/generators/generators.h"

cgp_status cgp__generate_looped_bfs(cgp_schedule *s, const cgp_schedule_options *options) {
    (void)options;
    for (int j = 0; j < s->stages; j++) {
        for (int i = 0; i < s->chunks; i++)
            cgp__append(s, CGP_ACTION_F, j, i);
    }
    for (int j = s->stages - 1; j >= 0; j--) {
        for (int i = 0; i < s->chunks; i++)
            cgp__append(s, CGP_ACTION_B, j, i);
    }
    return CGP_OK;
}
