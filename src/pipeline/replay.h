/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h -- replays of a step on other devices, in the pipeline's own memory. */
#ifndef CGP_SRC_PIPELINE_REPLAY_H
#define CGP_SRC_PIPELINE_REPLAY_H

#include <cgpipe/pipeline.h>

typedef struct cgp__replay cgp__replay;

/* Create a pipeline of the lender's plan that places its devices in the lender's allocations, in a
 * layout of the plan's replays. Parameters and states are not initialized. `transport` and
 * `communicator` are NULL with one rank; with several ranks, the call is collective. The caller
 * destroys the pipeline before the lender (pipeline.c). */
cgp_status cgp__pipeline_create_lent(cgp_pipeline **out, const cgp_pipeline *lender, int layout,
                                     const cgp_transport *transport,
                                     cgp_communicator *communicator);

/* Destroy a pipeline without replays. Return false if a worker hangs, and may still touch memory of
 * this pipeline and of its lender (pipeline.c). */
bool cgp__pipeline_destroy(cgp_pipeline *pipeline);

/* The first function destroys the pipelines that run the replays. It returns false if a worker of
 * theirs hangs. The second function frees the rest. Both accept NULL. */
bool cgp__replay_stop(cgp__replay *replay);
void cgp__replay_free(cgp__replay *replay);

#endif
