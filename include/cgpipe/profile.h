/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h -- returns the times of the last run, and measures costs of layers and ops. The costs
 * are measured in the steps of a pipeline that trains, or in steps on random data. Balances and
 * simulations of schedules use these costs. */
#ifndef CGPIPE_PROFILE_H
#define CGPIPE_PROFILE_H

#include <cgpipe/partition.h>
#include <cgpipe/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Measured times of the last run: a step, or its forward or backward alone. An evaluation or
 *  prediction runs in pieces of at most 256 micro-batches; its times are the times of the last
 *  piece. */
typedef struct cgp_pipeline_times {
    double seconds; /**< Time from the start of the first action to the end of the last. */
    /** Time from the start until the last F ends. NaN if the schedule mixes forward and backward;
     *  equal to `seconds` for a run without backward. */
    double forward_seconds;
    /** Time from the end of the last F to the end of the run. NaN if the schedule mixes forward and
     *  backward; equal to `seconds` for a run without forward. */
    double backward_seconds;
    double bubble; /**< 1 - sum of the times of F, B, I, W, R / (devices x seconds). */
    /** Median time from the end of an action (or transfer) to the start of the device's next
     *  action. Next actions that waited are not counted. NaN if there is no such time, or if memory
     *  is short. A transfer starts when it has its buffer. */
    double gap_seconds;
    /** Wake-up latency: median time from the end of a SEND to the start of the RECV that waited for
     *  it. NaN if no RECV waited, or if memory is short. */
    double wakeup_seconds;
} cgp_pipeline_times;

/** Return the times of the last run; before the first run, all times are NaN. @param[out] busy
 *  [devices] busy time / `seconds`; may be NULL. Cost: sorts the run's events. */
CGP_API cgp_pipeline_times cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy);

/**
 * Return the measured start and end of each action of the last step, in seconds from the start of
 * the first action.
 *
 * The timeline has the lists of cgp_plan_schedule(). Pass that schedule and the timeline to
 * cgp_schedule_svg(), _trace(), _draw_timeline() or _compare(). The update is not included.
 *
 * In a plan with `replicas`, the timeline is that of replica 0. On ranks of other replicas, `out`
 * is set to zero.
 *
 * @param[out] out  Filled on success only. The caller frees it with
 *                  cgp_schedule_timeline_release().
 *
 * @retval CGP_ESTATE  The last run did not run these lists. No step has run yet, or the last run
 *                     was: a step of fewer samples than planned, an evaluation, a prediction, a
 *                     step in two calls (`external_loss`), or a step that failed. Or replica 0
 *                     has fewer micro-batches than planned. The message says which.
 * @retval CGP_ENOMEM
 *
 * Cost: O(actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_last_timeline(const cgp_pipeline *pipeline,
                                                             cgp_schedule_timeline *out);

/**
 * Start or stop measuring the time of each kernel. Both discard the earlier measurements. By
 * default nothing is measured.
 *
 * @retval CGP_ENOMEM  Nothing is measured.
 * Cost: reads the clock twice per kernel, about 50 ns.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_measure_layers(cgp_pipeline *pipeline, bool measure);

/**
 * Return the costs of layers in all full micro-batches since cgp_pipeline_measure_layers(), in the
 * form of cgp_profile_steps(). These costs are measured during training, while all devices of the
 * plan are busy. Times are means; recomputations count as forwards.
 *
 * @param[out] costs  [cgp_model_layers()], for micro-batches of cgp_plan_microbatch() samples. The
 *                    caller's memory. Unchanged on failure.
 * @retval CGP_ESTATE  Nothing has been measured.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_layer_costs(const cgp_pipeline *pipeline,
                                                           cgp_layer_cost *costs);

/** Maximum number of kinds of ops, built-in and custom. */
#define CGP_OP_TIMES 64

/** Kernel times of one kind of op, by direction: F, I and W (`cgp_layer_cost`). */
typedef struct cgp_op_time {
    const char *op;  /**< Name as in graph files, or "custom". The string is static. */
    int64_t runs[3]; /**< Number of runs. Recomputations count as F. */
    /** Sum of the times of all runs on all devices, even if some runs were concurrent. */
    double seconds[3];
    double flops[3]; /**< FLOPs of all runs. */
    /** Bytes of the operands of all runs, as if each operand were read from or written to memory
     *  once. An operand to which the kernel adds counts twice. This is the least memory traffic if
     *  each kernel's operands are larger than the cache. */
    double bytes[3];
} cgp_op_time;

/**
 * Return the kernel times by kind of op, in all full micro-batches since
 * cgp_pipeline_measure_layers(). The times of copies between programs, messages and updates are not
 * included.
 *
 * @param[out] times  [CGP_OP_TIMES] The kinds that ran, in descending order of time. The caller's
 *                    memory. Unchanged on failure.
 * @param[out] n      Number of kinds.
 * @retval CGP_ESTATE  Nothing has been measured.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_op_times(const cgp_pipeline *pipeline,
                                                        cgp_op_time *times, int *n);

/** Maximum number of sizes of micro-batches in one call of cgp_profile_steps(). */
#define CGP_PROFILE_SIZES 16

/** Options of cgp_profile_steps(). */
typedef struct cgp_profile_options {
    size_t struct_size;
    /** [sizes] Samples of a micro-batch, 1 to INT32_MAX each. Borrowed for the call. [NULL: one
     *  size, of 1 sample] */
    const int64_t *samples;
    int sizes; /**< Number of sizes, 1 to CGP_PROFILE_SIZES. [1] */
    /** [n_devices] Names as in cgpipe/devices.h. All devices train at the same time, and the first
     *  is measured. Borrowed for the call. [NULL: "cpu" each] */
    const char *const *devices;
    int n_devices; /**< Number of devices, 1 to 1024. [1] */
    int threads;   /**< Threads of each device, 1 to 1024. [1] */
    /** Number of measured steps, 1 to 1000; the times are medians over the steps. [5] */
    int steps;
    cgp_precision precision;     /**< Precision of the devices. [CGP_PRECISION_F32] */
    cgp_convolution convolution; /**< Algorithm of convolutions. [CGP_CONVOLUTION_DIRECT] */
    /** The optimizer, whose groups are ignored. [SGD with lr 1e-6, which hardly changes the
     *  weights] */
    cgp_optim optim;
} cgp_profile_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_profile_options cgp_profile_options_default(void) {
    const cgp_optim sgd = cgp_optim_sgd(1e-6, 0, false, 0);
    const cgp_profile_options options = {
        sizeof(cgp_profile_options), NULL, 1, NULL, 1, 1, 5, CGP_PRECISION_F32,
        CGP_CONVOLUTION_DIRECT,      sgd};
    return options;
}

/**
 * Measure every layer of a model in whole training steps.
 *
 * For each size of micro-batch, a one-stage pipeline on each device runs a step and an update to
 * warm up, then `steps` more. All steps use random numbers. A model without losses gets random
 * gradients.
 *
 * In a step the operands of most kernels are in no cache, and kernels run in program order, so
 * these times add up to the time of a step. Devices that run at once share caches, memory bandwidth
 * and power, as the stages of a pipeline do.
 *
 * If the steps do not fit into memory, or if the model cannot train, a warning is logged. Then the
 * kernels of all sizes are measured one by one on the first device. Memory for one op at a time is
 * enough, a limit in the device's name has no effect, and `update_seconds` is 0. Each kernel runs
 * once to warm up and `steps` times on random data. On a device that uses host memory, several runs
 * are measured. Before each of them, the caches are filled with other memory, then with the op's x
 * or dy. Kernels that differ only in their data are measured once for all layers.
 *
 * @param[in]  model     Finished. Borrowed.
 * @param[in]  options   Borrowed.
 * @param[out] costs     [sizes][cgp_model_layers()], in seconds and bytes of one micro-batch.
 *                       `update_seconds` is the time of the update, split in proportion to
 *                       parameter bytes. The caller's memory. Unchanged on failure.
 * @param[out] in_steps  Set to true if whole steps were measured, to false if the kernels were
 *                       measured one by one. Unchanged on failure. May be NULL.
 *
 * @retval CGP_EINVAL   An option is wrong, or the model is not finished.
 * @retval CGP_EDEVICE  A kernel failed.
 * @retval CGP_ELIMIT   A single op needs more memory than the machine has.
 * @retval CGP_ENOMEM
 *
 * Threads: any; blocks.
 * Cost: per size, 2 to 4 micro-batches in each of `steps` + 1 steps.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_profile_steps(const cgp_model *model,
                                                    const cgp_profile_options *options,
                                                    cgp_layer_cost *costs, bool *in_steps);

#ifdef __cplusplus
}
#endif
#endif
