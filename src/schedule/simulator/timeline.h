/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h -- when each action of a step started and ended, simulated or measured, and the
 * figures that follow. Other modules use it for measured steps. */
#ifndef CGP_SRC_SCHEDULE_SIMULATOR_TIMELINE_H
#define CGP_SRC_SCHEDULE_SIMULATOR_TIMELINE_H

#include <cgpipe/schedule.h>

/* Allocate the arrays for a lowered schedule; `released` and `ready` only if measured. */
cgp_status cgp__timeline_create(cgp_schedule_timeline *timeline, const cgp_schedule *schedule,
                                bool measured);

/* Fill in makespan, span and bubbles from start, end and busy: `busy` holds the compute time of
 * each device; the function turns it into a fraction of the makespan. If nothing takes time,
 * everything is 0. */
void cgp__timeline_summarise(cgp_schedule_timeline *timeline, const cgp_schedule *schedule);

/* Check the four times of each action of a measured step, and fill in the rest. CGP_EINVAL names
 * the first impossible action; CGP_ENOMEM. The caller releases the timeline in any case. */
cgp_status cgp__timeline_complete(cgp_schedule_timeline *timeline, const cgp_schedule *schedule);

#endif
