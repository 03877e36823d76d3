/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h -- prove a training step: run it again with its stages on other devices, and compare the
 * bits.
 *
 *     cgp_pipeline_keep_step(pipeline)            keep the state before the step
 *     cgp_pipeline_step(pipeline, inputs, ..)
 *     cgp_optim_step(pipeline)
 *     cgp_pipeline_replay_step(pipeline, inputs, ..)
 *
 * Results have the same bits on all devices of one kind, so any difference is a fault of a machine.
 * Both runs hash every message between stages, the gradients, the losses and the results of the
 * update. The first difference in the order of the data names the stage. A second replay, on a
 * third layout, decides which run was wrong, and so names the device.
 *
 * The plan needs `replay`. A replay runs in the pipeline's own allocations. With several ranks, the
 * stages of a rank are replayed on another rank. Both functions are then collective.
 *
 * Threads: as in cgpipe/pipeline.h. */
#ifndef CGPIPE_REPLAY_H
#define CGPIPE_REPLAY_H

#include <cgpipe/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The result of a replay. Numbers are -1 if they are not known, or do not apply. */
typedef struct cgp_replay_result {
    bool differs;   /**< The step differs from its replay, or the kept state has changed. */
    int stage;      /**< Stage in which the runs began to differ; for a message, the stage that
                     *   should have received it. -1: the end of the step, or the kept state. */
    int from;       /**< Stage that sent a message that arrived with other bits; otherwise -1. */
    int microbatch; /**< Micro-batch of the first message that differs; otherwise -1. */
    int device;     /**< Number of the device that was wrong. */
    int run;        /**< The run that was wrong. 0: the step. 1: the replay. */
} cgp_replay_result;

/**
 * Keep the parameters, optimizer state and states before a step, and hash them. During the next
 * step, the messages are hashed too.
 *
 * @retval CGP_ESTATE  The plan has no `replay`, gradients wait for an update, steps accumulate, the
 *                     pipeline shares another pipeline's memory, or it has failed.
 * @retval CGP_ENOMEM
 *
 * Cost: reads the state once, and copies it. The first call creates threads, devices and kernels
 *       for the replay.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_keep_step(cgp_pipeline *pipeline);

/**
 * Run the step before this call again, from the kept state and with its update, on the devices of
 * `replay_on`, and compare. Afterwards the pipeline continues from the state after the step, but it
 * has no gradients.
 *
 * @param[in]  inputs    The inputs of the step, as cgp_pipeline_step() got them on this rank.
 *                       Borrowed for the call.
 * @param[in]  n_inputs  Number of inputs.
 * @param[out] result    May be NULL.
 *
 * @retval CGP_EDIFFERS  The step differs from its replay. The message names the first difference,
 *                       and the device and its host, if they are known. The pipeline can only be
 *                       destroyed.
 * @retval CGP_ESTATE    No step was kept and run, or its cgp_optim_step() is due.
 *
 * Other failures are as in cgp_pipeline_step(); after them, the pipeline can only be destroyed.
 *
 * If only one device runs all stages, it runs the replay too, and a difference has no name. With
 * two devices and the default `replay_on`, a device that fails in the same way in each run may be
 * confused with the other device.
 *
 * Cost: a step and its update, hashes of gradients and state, three copies of the state. With
 *       several ranks, each rank receives all inputs and, in pieces of 1 MiB, the state of all
 *       ranks.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_replay_step(cgp_pipeline *pipeline,
                                                           const cgp_tensor *const *inputs,
                                                           int n_inputs, cgp_replay_result *result);

#ifdef __cplusplus
}
#endif
#endif
