/* SPDX-License-Identifier: Apache-2.0 */
/* plan_replay.h -- replay a stage's action list, and count the bytes in use, value by value. The
 * replay models values, lifetimes and action lists, but no allocator. It gives a lower bound for a
 * plan with slots and a workspace:
 *
 * - slots: for each kind of slot, the largest number in use at one time, times the bytes of the
 *   values in one slot;
 * - workspace: the maximum over actions of the live bytes that do not fit into the free parts of
 *   the action's saved slot.
 *
 * The replay has no offsets and therefore no fragmentation. So the plan's bytes minus the bound are
 * the bytes that the plan's layout wastes. */
#ifndef CGP_TESTS_PLAN_REPLAY_H
#define CGP_TESTS_PLAN_REPLAY_H

#include <cgpipe/cgpipe.h>

/* The least memory that a stage needs, as numbers of slots and sizes. Sizes are in bytes. */
typedef struct test_replay {
    int inputs, saved;          /* largest number of input slots, and of saved slots, in use */
    int64_t input, slot;        /* sizes of an input slot and of a saved slot */
    int64_t work;               /* the workspace */
    int64_t transfer;           /* send buffers */
    int64_t parameters, states; /* the parameters; the states of batch norms */
    int64_t scratchpad;         /* the largest scratchpad */
    int64_t piece;              /* the largest scratchpad or value */
} test_replay;

/* Replay a stage, which must be alone on its device. */
void test_replay_stage(test_replay *bound, const cgp_plan *plan, int stage);

#endif
