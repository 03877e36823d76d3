/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h -- when each action of a step started and ended, simulated or measured, and the figures
 * that follow. For the rooms that fill one in. */
#ifndef CGP_SRC_SCHEDULE_TIMELINE_H
#define CGP_SRC_SCHEDULE_TIMELINE_H

#include <cgpipe/schedule.h>

/* Room for the actions of a lowered schedule; of a measured step with given and ready. */
cgp_status cgp__timeline_create(cgp_schedule_timeline *timeline, const cgp_schedule *schedule,
                                bool measured);

/* Fill in makespan, span and bubbles from start, end and busy, which holds the compute time of each
 * device and becomes its share. Where nothing takes time, everything is 0. */
void cgp__timeline_summarise(cgp_schedule_timeline *timeline, const cgp_schedule *schedule);

/* Check the four times of each action of a measured step, and fill in the rest. CGP_EINVAL with the
 * action that cannot be, else CGP_ENOMEM; release it in any case. */
cgp_status cgp__timeline_complete(cgp_schedule_timeline *timeline,
                                  const cgp_schedule *schedule);

#endif
