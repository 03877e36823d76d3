/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h -- the slots of a device's micro-batches, which share one pool of memory. */
#ifndef CGP_SRC_PLAN_SLOTS_H
#define CGP_SRC_PLAN_SLOTS_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;

/* The offsets of a device's slots, relative to the pool. They are valid for the action list of a
 * full mini-batch, and for each list that has only some of its micro-batches. */
typedef struct cgp__slots {
    /* [stages of the device x micro-batches] offsets; -1: no such slot */
    int64_t *input, *saved, *gradient;
    int microbatches;
    int64_t bytes;
} cgp__slots;

/* Place the slots of a device's actions, and set the device's `slots`. For each stage of the
 * device, also set the largest numbers of input slots and saved slots that are in use at one
 * time. */
cgp_status cgp__place_slots(cgp__placement *placement, const cgp_schedule *schedule, int device);
void cgp__slots_release(cgp__slots *slots);

#endif
