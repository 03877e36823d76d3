/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h -- layouts of repeating blocks, and a list scheduler that packs them.
 *
 *     block (offsets of one micro-batch)  ->  lists of all devices  ->  packed lists
 *              cgp__block_place()              cgp__lay_out()             cgp__pack()
 */
#ifndef CGP_SRC_SCHEDULE_GENERATORS_PACK_H
#define CGP_SRC_SCHEDULE_GENERATORS_PACK_H

#include "schedule/table.h"

/* --- block.c --- */

/* A building block: the ticks of the actions of micro-batch 0. Micro-batch i has the same ticks, i
 * periods later. */
typedef struct cgp__block {
    const cgp_schedule *schedule; /* the schedule whose placement is used */
    int period;                   /* in ticks */
    bool splits;                  /* true: each backward is an I, and the Ws take free ticks */
    int *forward, *backward;      /* two arrays [stages]: tick of the stage's F, and tick of its I
                                   * or B */
    int *at;                      /* [devices][period] what runs in each tick (block.c describes the
                                   * entries) */
} cgp__block;

cgp_status cgp__block_create(cgp__block *block, const cgp_schedule *schedule, int period,
                             bool splits);

/* Free the arrays of a block. A block that is all zero is accepted. */
void cgp__block_release(cgp__block *block);

/* Clear the ticks of a block. */
void cgp__block_clear(cgp__block *block);

/* Set the tick of a stage's F or backward. The tick modulo the period must be free on the stage's
 * device. */
void cgp__block_set(cgp__block *block, bool backward, int stage, int tick);

/* Modulo scheduling: find the first free tick t >= `from` with t = `phase` modulo `stride`, set it,
 * and return it. `stride` must divide the period. */
int cgp__block_place(cgp__block *block, bool backward, int stage, int from, int phase, int stride);

/* --- pack.c --- */

/* An action of a layout. */
typedef struct cgp__packed {
    cgp_action_kind kind;
    int stage, microbatch;
    bool done;
} cgp__packed;

typedef struct cgp__pack_device {
    cgp__packed *slots; /* the device's actions in the order of the layout */
    int count, head;    /* number of slots; all slots before slot `head` are done */
    int in_flight;
    int begin, end; /* ticks in which the device's first action began and its last action ended */
} cgp__pack_device;

/* A packer packs the action lists of all devices. It simulates the step; each device runs the first
 * action of its list that can run. F, I and W take one tick, B takes two. The order of the actions
 * of one stage and kind does not change. An F overtakes other actions only if this leaves at most
 * `max` micro-batches in flight, summed over the stages of its device. A W runs only if no other
 * action can run. */
typedef struct cgp__packer {
    const cgp_schedule *schedule; /* the schedule whose placement (loop, V-shaped or waves) is
                                   * used */
    int kinds;                    /* number of actions of a stage and micro-batch: 2 (F and B) or 3
                                   * (F, I and W) */
    int max;
    bool weight_in_turn; /* true: a W that is first in its list runs immediately */
    cgp__pack_device *devices;
    /* [F, I or B][stages][m] the tick from which on the action is done; 0: it is not done yet */
    int *done;
    cgp__packed *slots;
    bool *seen; /* [stages of a device][CGP__COMPUTE_KINDS] */
} cgp__packer;

/* Create a packer for `kinds` actions of each stage and micro-batch. Its lists are empty, and have
 * room for all these actions. */
cgp_status cgp__packer_create(cgp__packer *packer, const cgp_schedule *schedule, int kinds);

/* Free the arrays of a packer. A packer that is all zero is accepted. */
void cgp__packer_release(cgp__packer *packer);

/* Return the largest number of micro-batches in flight on a device if each device runs its list in
 * order. */
int cgp__packer_peak(const cgp__packer *packer);

/* Lay out the lists of a packer: put the blocks of all micro-batches one period apart. If the block
 * splits backward, each free tick takes the W for the oldest I that has no W yet (block.c). */
void cgp__lay_out(cgp__packer *packer, const cgp__block *block);

typedef struct cgp__pack_times {
    int makespan, span; /* in ticks */
} cgp__pack_times;

/* Pack the lists, and append the actions to `out`, unless `out` is NULL. At most max(`max`,
 * cgp__packer_peak()) micro-batches are in flight. */
cgp__pack_times cgp__pack(cgp__packer *packer, cgp_schedule *out);

/* --- v_block.c --- */

/* Fill in the block of v-half (fraction 2) or v-min (fraction 3). The block must come from
 * cgp__v_packer_create(). */
void cgp__v_block_make(cgp__block *block, int fraction);

/* Return the largest number of half stages in flight in v-half (fraction 2) or v-min (fraction 3)
 * on n devices. */
int cgp__v_block_peak(int fraction, int n);

/* Create a packer, and a block with a period of six ticks, for the V-shaped placement of a
 * schedule. */
cgp_status cgp__v_packer_create(cgp__packer *packer, cgp__block *block, const cgp_schedule *s);

#endif
