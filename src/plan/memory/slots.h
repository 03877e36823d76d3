/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h -- slots of a device's actions. */
#ifndef CGP_SRC_PLAN_SLOTS_H
#define CGP_SRC_PLAN_SLOTS_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;

/* Assign slots to the actions of a device's list: input_slot and saved_slot, [actions]. input_count
 * and saved_count, [stages]: the largest number in use at one time, filled in for the device's
 * stages. Each of the four arrays may be NULL. */
cgp_status cgp__assign_slots(const cgp__placement *placement, const cgp_schedule *schedule,
                             int device, int *input_slot, int *saved_slot, int *input_count,
                             int *saved_count);

#endif
