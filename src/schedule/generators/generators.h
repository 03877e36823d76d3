/* SPDX-License-Identifier: Apache-2.0 */
/* generators.h -- functions that append compute actions to an empty schedule. registry.c checks the
 * options first. */
#ifndef CGP_SRC_SCHEDULE_GENERATORS_GENERATORS_H
#define CGP_SRC_SCHEDULE_GENERATORS_GENERATORS_H

#include "schedule/table.h"

/* A generator appends compute actions to a schedule. If it can make several schedules, `variant`,
 * from the registry's entry, selects one. */
typedef cgp_status cgp__generator(cgp_schedule *schedule, const cgp_schedule_options *options,
                                  int variant);

/* The generators, the files in which they are, and the meanings of `variant`:
 *
 *     breadth_first    gpipe.c          1: I and W instead of B
 *     forward_only     gpipe.c
 *     1f1b             one_f_one_b.c    number of warm-up forwards per later stage
 *     interleaved      interleaved.c    1: I and W instead of B
 *     zero_bubble      zero_bubble.c    1: ZB-H1, 2: ZB-H2
 *     heuristic        heuristic.c      1: n micro-batches in flight, 2: 2n
 *     zb_v             zb_v.c
 *     v_block          v_block.c        2: v-half, 3: v-min
 *     wave             wave.c
 *     v_flex           v_flex.c
 *     dualpipe_v       dualpipe_v.c */
cgp__generator cgp__generate_breadth_first;
cgp__generator cgp__generate_forward_only;
cgp__generator cgp__generate_1f1b;
cgp__generator cgp__generate_interleaved;
cgp__generator cgp__generate_zero_bubble;
cgp__generator cgp__generate_heuristic;
cgp__generator cgp__generate_zb_v;
cgp__generator cgp__generate_v_block;
cgp__generator cgp__generate_wave;
cgp__generator cgp__generate_v_flex;
cgp__generator cgp__generate_dualpipe_v;

/* Return the kind of the next action of stage r in ZB-H1 (variant 1) or ZB-H2 (variant 2). done[k]
 * is the number of actions of kind k that the stage has run so far (zero_bubble.c). */
cgp_action_kind cgp__zero_bubble_next(const cgp_schedule *schedule, int variant, int r,
                                      const int done[CGP__COMPUTE_KINDS]);

/* --- v_builder.c --- */

/* A builder for the action list of a device with two stages in a V-shaped placement: one on the way
 * down (chunk 0) and one on the way back (chunk 1). */
typedef struct cgp__v_builder {
    cgp_schedule *schedule;
    int stage[2];                    /* the device's stages: stage[0] is chunk 0, stage[1] is chunk
                                      * 1 */
    int next[CGP__COMPUTE_KINDS][2]; /* next micro-batch of F, of I and of W in each chunk; a B
                                      * counts as I and as W */
} cgp__v_builder;

cgp__v_builder cgp__v_builder_of(cgp_schedule *schedule, int device);

/* Append the actions that a text lists, and repeat this `times` times. For example, "F1 I1 W1"
 * means the next F, I and W of chunk 1, and "F0&B1" means an overlapped pair. */
void cgp__v_append(cgp__v_builder *builder, int times, const char *actions);

#endif
