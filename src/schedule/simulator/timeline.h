/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h -- timelines. A timeline has the start and the end of each action of a simulated or
 * measured step, and figures such as the makespan and the bubbles. Other modules use this header
 * for measured steps. */
#ifndef CGP_SRC_SCHEDULE_SIMULATOR_TIMELINE_H
#define CGP_SRC_SCHEDULE_SIMULATOR_TIMELINE_H

#include <cgpipe/schedule.h>

/* Allocate the arrays of a timeline for a lowered schedule. `released` and `ready` are allocated
 * only if `measured` is true. */
cgp_status cgp__timeline_create(cgp_schedule_timeline *timeline, const cgp_schedule *schedule,
                                bool measured);

/* Fill in makespan, span and bubbles from `start`, `end` and `busy`. `busy` has the compute time of
 * each device; this function turns it into a fraction of the makespan. If no action takes time, all
 * results are 0. */
void cgp__timeline_summarise(cgp_schedule_timeline *timeline, const cgp_schedule *schedule);

/* Check the four times of each action of a measured step, and fill in the rest of the timeline. The
 * caller must release the timeline, also after a failure. @retval CGP_EINVAL The message names the
 * first impossible action. @retval CGP_ENOMEM */
cgp_status cgp__timeline_complete(cgp_schedule_timeline *timeline, const cgp_schedule *schedule);

#endif
