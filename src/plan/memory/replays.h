/* SPDX-License-Identifier: Apache-2.0 */
/* replays.h -- memory for replays of a step. A replay runs the plan's lists with its devices placed
 * on other devices of the plan, in the same allocations:
 *
 *     device 0    | sections of device 0          | more | kept state of device 0 |
 *     replay 1    | sections of device 1                 |
 *     replay 2    | sections of device 2   |             |
 *
 * A replay overwrites the sections of the device's own layout. The kept state, which is the state
 * before the step, is not overwritten. */
#ifndef CGP_SRC_PLAN_REPLAYS_H
#define CGP_SRC_PLAN_REPLAYS_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;

/* Layout 0 is the layout of the plan. A replay has layout 1. If it differs from the step, layout 2
 * decides. */
enum { CGP__LAYOUTS = 3 };

/* A layout: the place of each device of the plan. */
typedef struct cgp__layout {
    int *on; /* [devices] device in whose memory and on whose hardware the device is placed; NULL:
              * the plan reserves no memory for replays */
    int64_t *memory, *host; /* [devices] offsets in the device memory and host memory of that
                             * device */
    bool moves;             /* set if any device is placed on another device */
} cgp__layout;

typedef struct cgp__replays {
    cgp__layout layouts[CGP__LAYOUTS];
} cgp__replays;

/* The first function checks the options. The second function makes the layouts and places the kept
 * state, after all other sections. The third function frees the layouts. */
cgp_status cgp__replays_check(const cgp_plan_options *options);
cgp_status cgp__place_replays(cgp__replays *replays, cgp__placement *placement,
                              const cgp_plan_options *options);
void cgp__replays_release(cgp__replays *replays);

/* Return a layout of a plan. */
const cgp__layout *cgp__plan_layout(const cgp_plan *plan, int layout);

#endif
