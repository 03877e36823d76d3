/* SPDX-License-Identifier: Apache-2.0 */
/* replay_verdict.h -- the results and messages of a step that differs from its replay. */
#ifndef CGP_SRC_PIPELINE_REPLAY_VERDICT_H
#define CGP_SRC_PIPELINE_REPLAY_VERDICT_H

#include <cgpipe/replay.h>

typedef struct cgp__difference cgp__difference;

/* Set the result for a difference. `run`: the number of the run that was wrong; -1: not known. */
void cgp__replay_result_set(const cgp_pipeline *pipeline, const cgp__difference *difference,
                            int run, cgp_replay_result *out);

/* Return CGP_EDIFFERS with a message about a difference in step `number`. `why` says why no run can
 * be named; it is read only if `run` is -1. */
cgp_status cgp__replay_differs(const cgp_pipeline *pipeline, int64_t number,
                               const cgp__difference *difference, int run, const char *why);

/* Return CGP_EDIFFERS because the state differs after it was moved back, and set the result. */
cgp_status cgp__replay_moved_differs(const cgp_pipeline *pipeline, int64_t step,
                                     const cgp__difference *difference, cgp_replay_result *out);

/* Return CGP_EDIFFERS because the kept state has changed in the memory of a device, and set the
 * result. */
cgp_status cgp__replay_kept_differs(const cgp_pipeline *pipeline, int64_t step, int device,
                                    cgp_replay_result *out);

#endif
