/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h -- runs a plan: one worker thread per device, each with its action list.
 *
 * Threads: the thread that created a pipeline makes all calls on it; each blocks until every worker is idle. Several
 * pipelines may run side by side. In a child that fork() made since, every call is CGP_ESTATE (see base.h). */
#ifndef CGPIPE_PIPELINE_H
#define CGPIPE_PIPELINE_H

#include <cgpipe/partition.h>
#include <cgpipe/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_pipeline cgp_pipeline;

/**
 * Make the devices and workers of a plan, allocate every planned byte, and set parameters and states to their start.
 *
 * @param[out] out   Owned by the caller, see cgp_pipeline_destroy().
 * @param[in]  plan  Borrowed until the pipeline is destroyed.
 * @param[in]  seed  Of the initial weights and of dropout.
 *
 * @retval CGP_ELIMIT   The devices together need more memory than the machine has available.
 * @retval CGP_ENOMEM   Memory could not be had; nothing is left behind.
 * @retval CGP_EDEVICE  A device or kernel could not be made.   @retval CGP_EINVAL  CGP_CPU_ISA asks for what the machine lacks.
 *
 * Threads: the calling thread owns the pipeline: all other calls come from it.
 * Cost:    touches all planned bytes; makes the kernels of a full mini-batch.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan,
                                                      uint64_t seed);

/**
 * Compare the planned bytes of all devices with the memory that the machine has available now, as cgp_pipeline_create() does.
 *
 * @param[in]  plan       Borrowed for the call.
 * @param[out] available  Bytes, also where they do not suffice; INT64_MAX where the system does not say. May be NULL.
 *
 * @retval CGP_ELIMIT  The plan needs more; the message says what would make it smaller.   @retval CGP_EINVAL  `plan` is NULL.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_check_memory(const cgp_plan *plan,
                                                            int64_t *available);

/** Stop the workers and free everything. Accepts NULL. Legal in every state, after a failure too. */
CGP_API void cgp_pipeline_destroy(cgp_pipeline *pipeline);

/**
 * Run forward and backward of one mini-batch under the pipeline's schedule.
 *
 * The mini-batch is split along its leading dimension into micro-batches of the planned size; the last one may be
 * smaller. Gradients are overwritten: the first micro-batch writes them, the others add, in ascending order.
 * Update the parameters with cgp_optim_step() afterwards. States (running statistics) change when all of it has succeeded and
 * its numbers are finite (the loss, what the library's norms have collected and, with `clip_norm`, the norm of the gradients;
 * otherwise no state changes, and cgp_optim_step() says why), by each micro-batch in the order of the forwards in the schedule's
 * lists (ascending in every schedule there is; with `deferred_batch_norm`, once); what is run forward again does not count.
 *
 * @param[in]  pipeline  Pipeline to run. Borrowed.
 * @param[in]  inputs    One tensor per model input, in order of declaration, each [N, ...] on the host, all with the
 *                       same N, 1 <= N <= the planned batch. Borrowed until return.
 * @param[in]  n_inputs  Number of tensors in `inputs`.
 * @param[out] loss      Loss sum / count over the mini-batch, dimensionless. May be NULL.
 *
 * @retval CGP_OK        The step ran; gradients are complete on every stage, also where they or the loss are not finite.
 * @retval CGP_EINVAL    An input does not fit the model, an integer is out of range, or the loss counts nothing; nothing
 *                       ran, gradients unchanged.
 * @retval CGP_ESTATE    The plan is for inference or has `external_loss`, or the pipeline has failed before.
 * @retval CGP_ENOMEM    Lists or kernels for a size met for the first time could not be made, or (CGP_ELIMIT) not inside the
 *                       planned memory; nothing ran, gradients unchanged.
 * @retval CGP_EDEVICE   A device failed; the message names stage, micro-batch, layer and op. Gradients are undefined,
 *                       parameters and states as before; the pipeline can only be destroyed.
 *
 * Threads: call from the thread that created the pipeline. Blocks until every worker is idle.
 * Cost:    forward and backward FLOPs of the model, plus what the recompute mode redoes. Allocates nothing, but for lists
 *          and kernels when a number of micro-batches or a last size is met for the first time.
 * Source:  Huang et al. 2019, arXiv:1811.06965, section 2; Kim et al. 2020, arXiv:2004.09910.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_step(cgp_pipeline *pipeline,
                                                    const cgp_tensor *const *inputs,
                                                    int n_inputs, double *loss);

/**
 * Run forward of one mini-batch, for a loss that the caller computes; planned with `external_loss`.
 *
 * Dropout is on. cgp_pipeline_backward() is due next, and changes the states: the two take the place of cgp_pipeline_step(). The
 * loss is the caller's, and so it is to look whether it is finite.
 *
 * @param[in]  inputs    As for cgp_pipeline_step(). The data, not the tensors, are borrowed until cgp_pipeline_backward()
 *                       returns (or the pipeline is destroyed), as backward reads them again.
 * @param[out] output    [N, ...] f32, as cgp_model_output_shape(), all micro-batches in order. Caller's.
 *
 * Otherwise as cgp_pipeline_step(). @retval CGP_ESTATE also: not planned with `external_loss`, or cgp_pipeline_backward()
 * is due.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_forward(cgp_pipeline *pipeline,
                                                       const cgp_tensor *const *inputs,
                                                       int n_inputs, const cgp_tensor *output);

/**
 * Run backward of the mini-batch that cgp_pipeline_forward() ran, and leave complete gradients.
 *
 * @param[in] gradient  [N, ...] f32: the loss's gradient with respect to the output. Borrowed until return.
 *
 * @retval CGP_ESTATE   cgp_pipeline_forward() is due.   @retval CGP_EINVAL  `gradient` does not fit the output; it can be
 * called again.   @retval CGP_EDEVICE  As for cgp_pipeline_step().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_backward(cgp_pipeline *pipeline,
                                                        const cgp_tensor *gradient);

/**
 * Update the parameters from the gradients of the last cgp_pipeline_step() or _backward(), on the stages' workers.
 *
 * The rate is that of the optimizer's schedule for this update; the gradients are clipped first if the optimizer says so
 * (the buffers that cgp_pipeline_get_gradient() reads stay as they are).
 *
 * @retval CGP_ESTATE   cgp_pipeline_step() is due: there are no new gradients; or the step's loss, a running statistic that it
 *                      collected or, with `clip_norm`, the gradients' norm is not finite. Parameters, optimizer and states are as
 *                      before that step, its gradients can still be read, and training can go on.   @retval CGP_EDEVICE
 *
 * Source: see cgp_optim.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_optim_step(cgp_pipeline *pipeline);

/** Return the norm of all gradients, before clipping, at the last cgp_optim_step(), also one that was refused; NaN without
 *  `clip_norm`. */
CGP_API double cgp_pipeline_gradient_norm(const cgp_pipeline *pipeline);

/** Return the number of updates done, those before a cgp_pipeline_load() included. */
CGP_API int64_t cgp_pipeline_updates(const cgp_pipeline *pipeline);

/**
 * Stop a run in which no action ends for so long, instead of waiting for ever. It then fails with CGP_EDEVICE; the message
 * names the action that hangs, and cgp_pipeline_report() has the rest. All of a device's update, of its sum of shared gradients,
 * of its change of states, and of its check of what is finite, counts as one action. The time in which the whole process was
 * stopped does not count.
 *
 * A worker that hangs inside a kernel or copy cannot be stopped: the call returns without it, and cgp_pipeline_destroy() leaves
 * its thread and its device behind. It may still read or write the tensors that were given to that call, and, in
 * cgp_pipeline_backward(), to the forward before it: keep them.
 *
 * @param[in] seconds  > 0, or 0 for no limit (at the start).   @retval CGP_EINVAL
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_timeout(cgp_pipeline *pipeline,
                                                           double seconds);

/** Return the report of a run that timed out, "" if none has: what each worker does or waits for, the chain of who waits for
 * whom, the last 50 events. Lines of text. Borrowed until the pipeline is destroyed. */
CGP_API const char *cgp_pipeline_report(const cgp_pipeline *pipeline);

/**
 * Save weights, states, optimizer state, number of steps and seed as the checkpoint of this step in a run's directory.
 *
 * Everything is named by the model, nothing by the layout: it can be loaded by a pipeline with other stages, balance,
 * schedule, recomputation or micro-batches, and training goes on bit for bit (with the same size of micro-batch). The files
 * are written to a temporary directory, synced, and renamed to `directory/step-00000042`; then `directory/latest` points to it, and
 * older ones beyond `keep` are deleted; one that cannot be is logged as a warning. Killed at any moment, the directory holds whole
 * checkpoints only. `directory` may be a link; below it none is followed.
 *
 * A plan for inference saves its weights and states alone, as step 0: the start of a training, which every plan of the model
 * can load, whatever its optimizer and seed. A directory with checkpoints of a training, of a step above 0, is refused.
 *
 * @param[in] directory  Made if missing (its parent is not).   @param[in] keep  Checkpoints to keep, >= 1; 0: all.
 * @param[in] note    A text of the caller's, returned by cgp_pipeline_load(): where the data stand, e.g. NULL: none.
 *
 * @retval CGP_EIO     Not written; what was there is untouched. (If only `latest` could not be set, or the directory not be synced,
 *                     the checkpoint is there; the message says so.)   @retval CGP_ENOMEM  Likewise.
 * @retval CGP_EINVAL  `keep` < 0, or `note` or the name of a parameter or state is not UTF-8.
 * @retval CGP_ESTATE  Gradients wait for cgp_optim_step(); cgp_pipeline_backward() is due; the pipeline has failed; or it is one
 *                     for inference and the directory has a training's checkpoints.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_save(cgp_pipeline *pipeline,
                                                    const char *directory, int keep,
                                                    const char *note);

/** How cgp_pipeline_save_with() saves. */
typedef struct cgp_save_options {
    size_t struct_size;
    int keep;         /**< Checkpoints to keep, >= 1; 0: all. [0] */
    const char *note; /**< A text of the caller's. Borrowed. [NULL] */
    /** Refuse infinite or NaN weights, optimizer states, and running statistics of the library's norms. What a custom op
     *  keeps may rightly be infinite, and is not looked at. [false] */
    bool check_finite;
} cgp_save_options;

/** The defaults in brackets above, with struct_size set. */
static inline cgp_save_options cgp_save_options_default(void) {
    cgp_save_options options = {sizeof(cgp_save_options), 0, NULL, false};
    return options;
}

/**
 * Save as cgp_pipeline_save() does, with options.
 *
 * @param[in] directory  As `directory` of cgp_pipeline_save().
 * @param[in] options    Borrowed; NULL for the defaults.
 *
 * @retval CGP_ESTATE  Also, with `check_finite`: not all is finite. The message names the first such tensor of the files, what
 *                     was found in it and where; nothing was written.   @retval CGP_EINVAL  Also: `struct_size` is not known.
 *
 * Otherwise as cgp_pipeline_save().
 * Cost: with `check_finite`, each device reads its weights and optimizer states once, at the speed of its memory.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_save_with(cgp_pipeline *pipeline,
                                                         const char *directory,
                                                         const cgp_save_options *options);

/**
 * Load a checkpoint of cgp_pipeline_save(): the next step is the one that would have followed it.
 *
 * Everything is checked before anything is changed: SHA-256 of every file, names, shapes, the optimizer.
 *
 * @param[in]  directory  A run's directory (its latest checkpoint), or one checkpoint's.
 * @param[out] note    The text given to cgp_pipeline_save(), "" if none. Owned, free() it. May be NULL.
 *
 * @retval CGP_EIO      No checkpoint there, or unreadable. If reading fails after everything had been read and checked once, the
 *                      pipeline can only be destroyed.
 * @retval CGP_EFORMAT  Damaged: the message has file, offset and reason, and names the whole checkpoint before it, if there is
 *                      one. Or of another model or optimizer: the message has what is there and what was planned.
 * @retval CGP_ESTATE   cgp_pipeline_backward() is due, or the pipeline has failed.   @retval CGP_ENOMEM
 *
 * For an inference plan the optimizer's state is left out. What an inference plan saved has none: the pipeline's becomes zero, and
 * its seed stays.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_load(cgp_pipeline *pipeline,
                                                    const char *directory, char **note);

/**
 * Run forward only, dropout off, and return the loss. Parameters, states and gradients are unchanged; batch norms use the
 * running statistics. N may exceed the planned batch: there are simply more micro-batches.
 *
 * @param[out] loss  Loss sum / count. May be NULL.
 *
 * Otherwise as cgp_pipeline_step(), but legal on every plan of a model with a loss. @retval CGP_EINVAL also: the model has no
 * loss.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_evaluate(cgp_pipeline *pipeline,
                                                        const cgp_tensor *const *inputs,
                                                        int n_inputs, double *loss);

/**
 * Run forward only, dropout off, batch norms with running statistics, and return the model's output. Nothing changes. Any N >= 1. Inputs that only the loss uses may be NULL.
 *
 * @param[out] output  [N, ...] of cgp_model_output_shape() and _dtype(). Caller's.
 *
 * Otherwise as cgp_pipeline_step(), but legal on every plan of a model with an output. @retval CGP_EINVAL also: the model has no
 * output, or `output` does not fit it. @retval CGP_ESTATE also: cgp_pipeline_backward() is due.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_predict(cgp_pipeline *pipeline,
                                                       const cgp_tensor *const *inputs,
                                                       int n_inputs, const cgp_tensor *output);

/** Copy a parameter, 0 .. cgp_model_parameters() - 1, in plain layout to or from the host (all copies of a shared one). @param[in,out] data As many f32 as
 * its shape counts. Borrowed. Legal after a failure too. @retval CGP_EINVAL No such one.
 * @retval CGP_ESTATE To set: cgp_pipeline_backward() is due. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_parameter(cgp_pipeline *pipeline,
                                                             int parameter, float *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_parameter(cgp_pipeline *pipeline,
                                                             int parameter, const float *data);

/** Copy a state, 0 .. cgp_model_states() - 1 (a running statistic), to or from the host. In a model's first step it is at its
 * start; a step that fails, or whose numbers are not finite, leaves it as it was. @param[in,out] data As many f32, or i32, as
 * cgp_model_state_dtype() and _shape() say. Borrowed. Legal after a failure too. @retval CGP_EINVAL No such one. @retval CGP_ESTATE To set:
 * cgp_pipeline_backward() is due. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_state(cgp_pipeline *pipeline, int state,
                                                         void *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_state(cgp_pipeline *pipeline, int state,
                                                         const void *data);

/** Copy the optimizer's state number 0 .. cgp_optim_states() - 1 of a parameter: SGD the momentum buffer; AdamW and Adam the
 * first and second moments; RMSprop the mean square and the momentum buffer. Otherwise as above. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_optimizer_state(cgp_pipeline *pipeline,
                                                                   int parameter, int state,
                                                                   float *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_optimizer_state(cgp_pipeline *pipeline,
                                                                   int parameter, int state,
                                                                   const float *data);

/** Copy the gradient of a parameter that the last step left. @param[out] data As many f32 as the parameter's shape counts.
 * Caller's. @retval CGP_ESTATE No step since the pipeline was made or loaded, cgp_pipeline_backward() is due, an inference plan,
 * or the pipeline has failed. @retval CGP_EINVAL No such parameter. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_gradient(cgp_pipeline *pipeline,
                                                            int parameter, float *data);

/** SHA-256 over all parameters in order, plain layout, little-endian: two runs are bit-equal when it is. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_weights_sha256(cgp_pipeline *pipeline,
                                                              char hex[65]);

/** SHA-256 over all states in order, likewise. @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_state_sha256(cgp_pipeline *pipeline,
                                                            char hex[65]);

/** Bytes that a device asked its backend for, in one piece, and holds. */
CGP_API int64_t cgp_pipeline_allocated_bytes(const cgp_pipeline *pipeline, int device);

/** Measured times of the last run: a step, or its forward or backward alone; of an evaluation or prediction, its last piece of at
 * most 256 micro-batches. */
typedef struct cgp_pipeline_times {
    double seconds; /**< Start of the first action to the end of the last. */
    double
        forward_seconds; /**< Until the last F ends; NaN where the schedule mixes forward and backward; all without backward. */
    double backward_seconds; /**< From there to the end; NaN likewise; all without forward. */
    double bubble; /**< 1 - sum of the times of F, B, I, W, R / (devices x seconds). */
    /** From the end of an action (a transfer is one) to the start of the device's next, where what that needs was there
     * before; median, NaN if there is none, or no memory to sort them. A transfer starts when it has its buffer. */
    double gap_seconds;
    /** From the end of a SEND to the start of the RECV that waited for it; median, NaN if none did, or likewise. */
    double wakeup_seconds;
} cgp_pipeline_times;

/**
 * Measure from now on how long each kernel runs, anew if that was measured before; or stop it. Off when a pipeline is made.
 *
 * @retval CGP_ENOMEM  Nothing is measured.
 * Cost: two looks at the clock for each kernel, some 50 ns.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_measure_layers(cgp_pipeline *pipeline,
                                                              bool measure);

/**
 * Tell what layers cost in all full micro-batches since cgp_pipeline_measure_layers(), as cgp_profile() does, but as they ran:
 * on the devices of the plan, all of them at work. Times are means; recomputations count as forwards.
 *
 * @param[out] costs  [cgp_model_layers()], of micro-batches of cgp_plan_microbatch() samples. Caller's. Unchanged on failure.
 * @retval CGP_ESTATE  Nothing has been measured.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_layer_costs(const cgp_pipeline *pipeline,
                                                           cgp_layer_cost *costs);

/** Return the times of the last run; all NaN before the first. `busy`: [devices] share of `seconds`; may be NULL.
 *  Cost: sorts the run's events. */
CGP_API cgp_pipeline_times cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy);

/**
 * Tell when each action of the last step ran: as it was measured, in seconds from the start of the first action.
 *
 * The lists are those of cgp_plan_schedule(), so that cgp_schedule_svg(), _trace(), _draw_timeline() and _compare() take the
 * two together. The update is not in it.
 *
 * @param[out] out  Filled on success only; free with cgp_schedule_timeline_release().
 *
 * @retval CGP_ESTATE  The last run was none of these lists: no step yet, one of fewer samples than planned, an evaluation or
 *                     prediction, a step in two calls (`external_loss`), or one that failed. The message says which.
 * @retval CGP_ENOMEM
 *
 * Cost: O(actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_last_timeline(const cgp_pipeline *pipeline,
                                                             cgp_schedule_timeline *out);

#ifdef __cplusplus
}
#endif
#endif
