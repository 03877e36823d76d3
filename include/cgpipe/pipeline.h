/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h -- run a plan: one worker thread per device, each with its action list.
 *
 * Threads: the thread that created a pipeline makes all calls on it; each blocks until every worker
 * is idle. Several pipelines may run side by side. In a child that fork() made since, every call
 * returns CGP_ESTATE (see base.h). */
#ifndef CGPIPE_PIPELINE_H
#define CGPIPE_PIPELINE_H

#include <cgpipe/ext/transport.h>
#include <cgpipe/partition.h>
#include <cgpipe/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_pipeline cgp_pipeline;

/**
 * Create the devices and workers of a plan, allocate all planned bytes, and initialize parameters
 * and states.
 *
 * @param[out] out   Owned by the caller, see cgp_pipeline_destroy().
 * @param[in]  plan  Borrowed until the pipeline is destroyed.
 * @param[in]  seed  Of the initial weights and of dropout.
 *
 * @retval CGP_ELIMIT   The devices together need more memory than the machine, or their hardware, has available.
 * @retval CGP_ENOMEM   Out of memory; nothing is left behind.
 * @retval CGP_EDEVICE  A device or kernel could not be created.   @retval CGP_EINVAL  CGP_CPU_ISA names instructions that the
 *                      machine does not have.
 *
 * Threads: the calling thread owns the pipeline and makes all other calls.
 * Cost:    touches all planned bytes; creates the kernels of a full mini-batch.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan,
                                                      uint64_t seed);

/**
 * Create this rank's part of a pipeline that several ranks run together: the devices that the plan
 * gives to it.
 *
 * The ranks agree on an instruction set before a kernel is made (cgp_pipeline_isa()), and compare
 * what those of each host need with the memory that it has before any is allocated.
 *
 * From here on every function that takes the pipeline is collective, but cgp_pipeline_reads(),
 * _rank(), _isa(), _libm(), _report(), _diagnosis(), _updates(), _gradient_norm(), _last_loss() and
 * _allocated_bytes(): the user threads of all ranks make the same calls in the same order, with the
 * same arguments but data. Inputs that no stage of this rank reads may be NULL
 * (cgp_pipeline_reads()); so may the list, where no input is read. The loss and norms come back on
 * every rank; forward and predict fill an output, backward takes its gradient, on the rank of the
 * output's stage, where others may pass NULL, for the list if they have none; getters deliver, and
 * hashes are filled, where the data are not NULL; a setter reads data on the ranks that have the
 * tensor. Each rank writes its part of a checkpoint. A refused argument is refused on all ranks,
 * and nothing ran.
 *
 * @param[in] transport     Between the ranks; NULL: the plan is for one.   @param[in] communicator  This rank's; as many ranks as
 *                          the plan's. For one pipeline at a time. Borrowed until it is destroyed; if a worker hangs then
 *                          (cgp_pipeline_set_timeout()), its links stay open: keep the communicator until the process ends.
 *
 * @retval CGP_EINVAL  The ranks differ in number, in their seeds, in their plans' cgp_plan_hash(),
 * or in the results of their libm.
 * @retval CGP_ELIMIT  On all ranks: those of a host together need more memory than it has.   @retval CGP_EPEER  Another rank
 * failed, or this one's communicator was stopped; here and in every later call, which may return
 * CGP_ESTATE instead. Getters deliver nothing. The pipeline can only be destroyed. Otherwise as
 * cgp_pipeline_create().
 *
 * Threads: as cgp_pipeline_create().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_create_on(cgp_pipeline **out, const cgp_plan *plan,
                                                         uint64_t seed,
                                                         const cgp_transport *transport,
                                                         cgp_communicator *communicator);

/**
 * Find a transport: "inproc", or one of a plug-in (cgpipe/ext/plugin.h), "mpi". Its
 * communicator_create() makes this rank's communicator, its communicator_destroy() ends it, behind
 * the pipeline.
 *
 * @param[out] out   Static. Unchanged after a failure.
 * @param[in]  name  Borrowed for the call.
 *
 * @retval CGP_EINVAL  There is none of this name; the message says which there are, and why a
 * plug-in was left out.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_transport_find(const cgp_transport **out, const char *name);

/**
 * Create a pipeline that uses the parameters, gradients, optimizer state, states and number of
 * updates of another: for a second plan of the same model, say of another batch or for inference.
 * It allocates only the rest.
 *
 * Both see each other's changes; gradients are those of the last step of either. The seed of
 * dropout follows from the owner's and the number of its sharers, so that no two use the same
 * masks. Checkpoints are the owner's affair. Calls on both come from one thread. A forward of each
 * may wait for its backward; running statistics are then those of the one that ends last (with
 * `deferred_batch_norm`, of both).
 *
 * @param[out] out    Owned by the caller: destroy it before the owner.
 * @param[in]  plan   Borrowed until the pipeline is destroyed.
 * @param[in]  owner  Of what is shared. It may be one that shares itself.
 *
 * @retval CGP_EINVAL  Parameters, gradients or states of the plans differ, or lie at different
 * places (plan with the same stages,
 *                     schedule, balance and optimizer), a plan is for several ranks, or a device has memory of its own; the message
 *                     has the first difference.
 * @retval CGP_ESTATE  The owner has failed.
 *
 * Otherwise as cgp_pipeline_create().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_create_sharing(cgp_pipeline **out,
                                                              const cgp_plan *plan,
                                                              cgp_pipeline *owner);

/** Where a rank runs. Texts are borrowed until the pipeline is destroyed. */
typedef struct cgp_rank_info {
    const char *host;  /**< The name of its host. */
    const char *cores; /**< Those that it may run on, "0-3,8"; "": not known. */
} cgp_rank_info;

/** Return where a rank runs, 0 .. ranks - 1; all NULL: there is no such rank. */
CGP_API cgp_rank_info cgp_pipeline_rank(const cgp_pipeline *pipeline, int rank);

/** Return the instruction set of the kernels, the lowest that a rank has: "v3", "v4" (x86-64), or,
 *  in bf16, "v4-bf16" or "amx", as in CGP_CPU_ISA. NULL: the devices' backends have one kind of
 *  kernels. Static. Other instruction sets may give other bits. */
CGP_API const char *cgp_pipeline_isa(const cgp_pipeline *pipeline);

/** Return a digest of libm's results, the same on all ranks: 16 hex digits. Where it differs, so
 *  may initial weights, learning rates and losses, in their last bit. Borrowed until the pipeline
 *  is destroyed. */
CGP_API const char *cgp_pipeline_libm(const cgp_pipeline *pipeline);

/** Return whether a stage of this rank reads a model input, 0 .. inputs - 1. Without ranks, whether
 *  any does. */
CGP_API bool cgp_pipeline_reads(const cgp_pipeline *pipeline, int input);

/**
 * Compare what a plan needs with the memory that is available now, as cgp_pipeline_create() does:
 * of the machine, and of the hardware whose devices have memory of their own. Of a plan for several
 * ranks, as if this machine were each rank's.
 *
 * @param[in]  plan       Borrowed for the call.
 * @param[out] available  Bytes of the machine, also on failure; INT64_MAX if the system does not
 * say. May be NULL.
 *
 * @retval CGP_ELIMIT   The plan needs more; the message suggests how to reduce it.   @retval CGP_EINVAL  `plan` is NULL.
 * @retval CGP_EDEVICE  A device's hardware is not on this machine.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_check_memory(const cgp_plan *plan,
                                                            int64_t *available);

/** Stop the workers and free everything. Accepts NULL. Legal in every state, also after a failure.
 *  */
CGP_API void cgp_pipeline_destroy(cgp_pipeline *pipeline);

/**
 * Run forward and backward of one mini-batch under the pipeline's schedule.
 *
 * The mini-batch is split along its leading dimension into micro-batches of the planned size; the
 * last one may be smaller. Gradients are overwritten: the first micro-batch writes them, the others
 * add, in ascending order. Update the parameters with cgp_optim_step() afterwards.
 *
 * States (running statistics) change at the end, if the step succeeded and its numbers are finite:
 * the loss, the accumulators of built-in norms and, with `clip_norm`, the norm of the gradients.
 * Otherwise no state changes, and cgp_optim_step() returns the reason. Each micro-batch updates
 * them, in the order of the forwards in the schedule's lists (ascending in every built-in schedule;
 * with `deferred_batch_norm`, once per mini-batch); recomputed forwards do not.
 *
 * @param[in]  pipeline  Pipeline to run. Borrowed.
 * @param[in]  inputs    One tensor per model input, in order of declaration, each [N, ...] on the host, all with the
 *                       same N, 1 <= N <= the planned batch. Borrowed until return.
 * @param[in]  n_inputs  Number of tensors in `inputs`.
 * @param[out] loss      Loss sum / count over the mini-batch, dimensionless. May be NULL.
 *
 * @retval CGP_OK        The step ran; gradients are complete on every stage, even if they or the loss are not finite.
 * @retval CGP_EINVAL    An input does not fit the model, an integer is out of range, or the loss has no targets; nothing
 *                       ran, gradients unchanged.
 * @retval CGP_ESTATE    The plan is for inference or has `external_loss`, or the pipeline has failed before.
 * @retval CGP_ENOMEM    Lists or kernels for a new size could not be created, or (CGP_ELIMIT) not inside the planned memory;
 *                       nothing ran, gradients unchanged.
 * @retval CGP_EDEVICE   A device failed; the message names stage, micro-batch, layer and op. Gradients are undefined,
 *                       parameters and states as before; the pipeline can only be destroyed.
 *
 * Threads: call from the thread that created the pipeline. Blocks until every worker is idle.
 * Cost:    forward and backward FLOPs of the model, plus recomputation. Allocates nothing, except lists and kernels for a new
 *          number of micro-batches or size of the last one.
 * Source:  Huang et al. 2019, arXiv:1811.06965, section 2; Kim et al. 2020, arXiv:2004.09910.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_step(cgp_pipeline *pipeline,
                                                    const cgp_tensor *const *inputs, int n_inputs,
                                                    double *loss);

/**
 * Run forward of one mini-batch, for a loss that the caller computes (external loss); planned with
 * `external_loss`.
 *
 * Dropout is on. cgp_pipeline_backward() is due next and changes the states; the two calls replace
 * cgp_pipeline_step(). The caller checks that its loss is finite.
 *
 * @param[in]  inputs    As for cgp_pipeline_step(). The data, not the tensors, are borrowed until cgp_pipeline_backward()
 *                       returns (or the pipeline is destroyed), as backward reads them again.
 * @param[out] outputs   One tensor per output of the model, in order of declaration, each [N, ...] as cgp_model_output_shape() and
 *                       _dtype() say, all micro-batches in order. Caller's; the list is borrowed until return.
 * @param[in]  n_outputs Number of tensors in `outputs`.
 *
 * Otherwise as cgp_pipeline_step(). @retval CGP_ESTATE also: not planned with `external_loss`, or
 * cgp_pipeline_backward() is due.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_forward(cgp_pipeline *pipeline,
                                                       const cgp_tensor *const *inputs,
                                                       int n_inputs,
                                                       const cgp_tensor *const *outputs,
                                                       int n_outputs);

/**
 * Run backward of the mini-batch of cgp_pipeline_forward(), and leave complete gradients.
 *
 * @param[in] gradients    One tensor per output: the loss's gradient with respect to it, [N, ...] f32. NULL where the output has none:
 *                         i32, or made without a parameter or an input that has one. Borrowed until return.
 * @param[in] n_gradients  Number of tensors in `gradients`: that of the outputs.
 *
 * @retval CGP_ESTATE   cgp_pipeline_forward() is due.   @retval CGP_EINVAL  A gradient does not fit its output; the
 * call may be repeated.   @retval CGP_EDEVICE  As for cgp_pipeline_step().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_backward(cgp_pipeline *pipeline,
                                                        const cgp_tensor *const *gradients,
                                                        int n_gradients);

/**
 * Say where the following steps, or backwards, put the gradients of inputs.
 *
 * A gradient has the loss's derivative with respect to each element, as if the mini-batch were one
 * sum; zeros where no op that the losses (or outputs) depend on reads the input.
 *
 * @param[in] gradients  One tensor per model input, in order of declaration, [N, ...] f32 on the
 * host with the N of the step. NULL: not
 *                       wanted. The data, not the tensors, are borrowed until they are replaced or the pipeline is destroyed.
 *                       NULL: none at all. Of several ranks those write that have the first stage that makes a part of it; each
 *                       may give all.
 * @param[in] n_inputs   Number of tensors in `gradients`; 0 for NULL.
 *
 * @retval CGP_EINVAL    The input has no gradient (cgp_model_input_gradient()), or another number of inputs. That a tensor does not fit
 *                       is an error of the step, before it runs.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_input_gradients(
    cgp_pipeline *pipeline, const cgp_tensor *const *gradients, int n_inputs);

/**
 * End the mini-batch of cgp_pipeline_forward() without its backward: its inputs are free, and
 * states change as behind the backward. The buffers of gradients stay as they are, but count as
 * none: cgp_optim_step() and cgp_pipeline_get_gradient() want new ones.
 *
 * @retval CGP_ESTATE  cgp_pipeline_forward() is due.   @retval CGP_EDEVICE  As for cgp_pipeline_step().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_skip_backward(cgp_pipeline *pipeline);

/**
 * Set the seed of dropout: the masks of the following steps are those of the first steps of a new
 * pipeline with this seed. Checkpoints have it, as any seed.
 *
 * @param[in] seed  Any, the same on all ranks.
 *
 * @retval CGP_ESTATE  cgp_pipeline_backward() is due, or the pipeline has failed.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_seed(cgp_pipeline *pipeline, uint64_t seed);

/**
 * Update the parameters from the gradients of the last cgp_pipeline_step() or _backward(), on the
 * stages' workers.
 *
 * The learning rate is that of the optimizer's schedule for this update. With `clip_norm`, the
 * gradients are clipped first (the buffers that cgp_pipeline_get_gradient() reads do not change).
 *
 * @retval CGP_ESTATE   cgp_pipeline_step() is due: there are no new gradients; or the step's loss, one of its running
 *                      statistics or, with `clip_norm`, the gradients' norm is not finite. Parameters, optimizer and states are
 *                      as before that step, its gradients can still be read, and training can continue.   @retval CGP_EDEVICE
 *
 * Source: see cgp_optim.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_optim_step(cgp_pipeline *pipeline);

/** Return the norm of all gradients, before clipping, at the last cgp_optim_step(), refused or not;
 *  NaN without `clip_norm`. */
CGP_API double cgp_pipeline_gradient_norm(const cgp_pipeline *pipeline);

/** Return the number of updates, including those before a cgp_pipeline_load(). */
CGP_API int64_t cgp_pipeline_updates(const cgp_pipeline *pipeline);

/**
 * Stop a run in which no action ends for `seconds`. It fails with CGP_EDEVICE; the message names
 * the action that hangs, and cgp_pipeline_report() has the details. A device's update, its sum of
 * tied gradients, its commit of states, and its check for finite numbers, each count as one action.
 * Time in which the whole process was stopped does not count.
 *
 * With several ranks the limit is one of all of them: none gives up while an action of any ends.
 * The rank whose worker hangs ends first, the others' calls with CGP_EPEER and its message; a
 * message that does not come ends the call with CGP_EPEER, too. From here on each rank also lets
 * the others know that it lives, at any time, and a rank that is silent for `seconds`, because it
 * was killed or stopped, or its host cannot be reached, ends the calls of all others: "rank 2:
 * silent for 3.1 s (...)". A rank that is in code of the program's own between calls is waited for.
 * The ends come at most 2 s after the limit.
 *
 * A worker that hangs inside a kernel or copy cannot be stopped: the call returns without it, and
 * cgp_pipeline_destroy() leaves its thread and its device behind. It, or, where the device runs
 * ahead, the actions that it was given, may still read and write the tensors of that call, and, in
 * cgp_pipeline_backward(), of the forward before it: keep them.
 *
 * @param[in] seconds  > 0, or 0 for no limit (the default); the same on all ranks.   @retval CGP_EINVAL
 * @retval CGP_ENOMEM  The thread that lets the others know could not be started.   @retval CGP_EPEER  Another rank has failed.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_timeout(cgp_pipeline *pipeline, double seconds);

/** Return the report of a run that timed out, "" if none has: the state of each worker, the longest
 * chain of waiting devices, the last 50 events. Lines of text. Borrowed until the pipeline is
 * destroyed. */
CGP_API const char *cgp_pipeline_report(const cgp_pipeline *pipeline);

/**
 * Describe what this rank does, what each of its devices runs or waits for, what it knows of the
 * other ranks, and its last 100 actions, as a JSON object, whose keys docs/reference/diagnosis.md
 * lists: of the moment of its failure, or, if it has not failed, of now. Not collective.
 * `cgpipe diagnose` finds the culprit in those of several ranks.
 *
 * @param[in]  reason  Part of it. Borrowed.
 * @param[in]  idle    Describe a call in progress only if it waits and nothing has ended on any rank for so many seconds, >= 0; 0: in
 *                     any case.
 * @param[out] text    Owned, free() it. NULL: less than `idle` has passed.
 *
 * @retval CGP_EINVAL  `idle`, or an argument is NULL.   @retval CGP_ESTATE  Of another process.   @retval CGP_ENOMEM
 *
 * Threads: any, also while the owner is in a call, but that which destroys the pipeline.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_diagnosis(cgp_pipeline *pipeline, const char *reason,
                                                         double idle, char **text);

/**
 * Save weights, states, optimizer state, number of steps and seed as the checkpoint of this step in
 * a run's directory.
 *
 * Names are the model's and independent of the layout: a pipeline with other stages, balance,
 * schedule, recomputation or micro-batches can load the checkpoint, and training continues bit for
 * bit (with the same size of micro-batch). The files are written to a temporary directory, synced,
 * and renamed to `directory/step-00000042`; then `directory/latest` points to it, and older ones
 * beyond `keep` are deleted (failures are logged as warnings). After a kill at any time, the
 * directory has complete checkpoints only. `directory` may be a link; below it none is followed.
 *
 * Of several ranks each writes its own tensors, to one directory that all of them see; rank 0
 * renames it when all are done. The files have other names then (<cgpipe/checkpoint.h>), and any
 * number of ranks can load them.
 *
 * A plan for inference saves weights and states only, as step 0: the start of a training, which
 * every plan of the model can load, with any optimizer and seed. A directory with checkpoints of a
 * training, of a step above 0, is refused.
 *
 * @param[in] directory  Created if missing (its parent is not).   @param[in] keep  Checkpoints to keep, >= 1; 0: all.
 * @param[in] note    A text that cgp_pipeline_load() returns, say the position in the data. Borrowed. NULL: none.
 *
 * @retval CGP_EIO     Not written; the directory is unchanged. (If only `latest` could not be set, or the directory not be
 *                     synced, the checkpoint exists; the message says so.) Or a rank has another directory under this path, on
 *                     storage of its host.   @retval CGP_ENOMEM  Likewise.
 * @retval CGP_EINVAL  `keep` < 0, or `note` or the name of a parameter or state is not UTF-8.
 * @retval CGP_ESTATE  cgp_optim_step() or cgp_pipeline_backward() is due; the pipeline has failed;
 * or it is for inference and
 *                     the directory has a training's checkpoints.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_save(cgp_pipeline *pipeline, const char *directory,
                                                    int keep, const char *note);

/** Options of cgp_pipeline_save_with(). */
typedef struct cgp_save_options {
    size_t struct_size;
    int keep;         /**< Checkpoints to keep, >= 1; 0: all. [0] */
    const char *note; /**< See cgp_pipeline_save(). Borrowed. [NULL] */
    /** Refuse infinite or NaN weights, optimizer states, and running statistics of built-in norms.
     *  States of custom ops may be infinite and are not checked. [false] */
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
 * @param[in] directory  As for cgp_pipeline_save().
 * @param[in] options    Borrowed; NULL for the defaults.
 *
 * @retval CGP_ESTATE  Also, with `check_finite`: a number is not finite. The message has the first
 * such tensor of the files, the
 *                     value and its index; nothing is written.   @retval CGP_EINVAL  Also: `struct_size` is not known.
 *
 * Otherwise as cgp_pipeline_save().
 * Cost: with `check_finite`, each device reads its weights and optimizer states once, at the speed
 * of its memory.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_save_with(cgp_pipeline *pipeline,
                                                         const char *directory,
                                                         const cgp_save_options *options);

/**
 * Check that a checkpoint can be saved in a directory: it can be written to, and all ranks see the
 * same one. A training calls it before its first step; cgp_pipeline_save() checks it again. What it
 * writes is deleted.
 *
 * @param[in] directory  As for cgp_pipeline_save().
 *
 * @retval CGP_EIO     Not so; the message has host and path.   @retval CGP_ENOMEM
 * @retval CGP_ESTATE  The pipeline has failed, or is for inference and a training's checkpoints are
 * there.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_check_directory(cgp_pipeline *pipeline,
                                                               const char *directory);

/**
 * Load a checkpoint of cgp_pipeline_save(), its seed too: the next step is the one that followed
 * it.
 *
 * Everything is checked before anything is changed: SHA-256 of every file, names, shapes, the
 * optimizer. Ranks that see the same directory share out the bytes to check; each reads the tensors
 * that its devices use.
 *
 * @param[in]  directory  A run's directory (its latest checkpoint), or one checkpoint's.
 * @param[out] note    The text given to cgp_pipeline_save(), "" if none. Owned, free() it. May be NULL.
 *
 * @retval CGP_EIO      No checkpoint, or unreadable. If reading fails after everything was read and checked once, the
 *                      pipeline can only be destroyed.
 * @retval CGP_EFORMAT  Damaged: the message has file, offset and reason, and names the complete
 * checkpoint before it, if there
 *                      is one. Or of another model or optimizer: the message has the checkpoint's and the plan's.
 * @retval CGP_ESTATE   cgp_pipeline_backward() is due, or the pipeline has failed.   @retval CGP_ENOMEM
 * @retval CGP_EINVAL   The ranks found different checkpoints; the message has both.
 *
 * An inference plan ignores the optimizer's state. A checkpoint of an inference plan has none: the
 * pipeline's becomes zero, and its seed does not change.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_load(cgp_pipeline *pipeline, const char *directory,
                                                    char **note);

/**
 * Run forward only, dropout off, and return the loss. Parameters, states and gradients are
 * unchanged; batch norms use the running statistics. N may exceed the planned batch: more
 * micro-batches run.
 *
 * @param[out] loss  Loss sum / count. NULL: not wanted, on all ranks alike; then all targets may be
 * ignored.
 *
 * Otherwise as cgp_pipeline_step(), but legal on every plan of a model with a loss. @retval
 * CGP_EINVAL also: the model has no loss.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_evaluate(cgp_pipeline *pipeline,
                                                        const cgp_tensor *const *inputs,
                                                        int n_inputs, double *loss);

/** What a loss of the model has summed up over a mini-batch. */
typedef struct cgp_loss_part {
    double weight; /**< Of the loss in the model's. */
    double sum;    /**< Over its targets. */
    int64_t count; /**< Of its targets, without those that are ignored. */
} cgp_loss_part;

/**
 * Return the part of a loss in the last cgp_pipeline_step() or cgp_pipeline_evaluate(), whose
 * result is the sum over all losses of weight sum / count. Sums and counts of several calls add up,
 * so that the loss of all their samples is not the mean of the calls' losses where targets are
 * ignored.
 *
 * @param[in] loss  0, 1, ..., in the order in which the model got them.
 * @return All 0: there is no such loss. Sum and count are undefined after a failure.
 */
CGP_API cgp_loss_part cgp_pipeline_last_loss(const cgp_pipeline *pipeline, int loss);

/**
 * Run forward only, dropout off, batch norms with running statistics, and return the model's
 * outputs. Nothing changes, but for caches (cgp_cached_attention()), which micro-batches write in
 * order. Any N >= 1. Inputs that only the loss reads may be NULL.
 *
 * @param[out] outputs   As for cgp_pipeline_forward(), but NULL for those that are not wanted.
 * @param[in]  n_outputs Number of tensors in `outputs`: that of the model's.
 *
 * Otherwise as cgp_pipeline_step(), but legal on every plan of a model with an output. @retval
 * CGP_EINVAL also: the model has no output, or a tensor does not fit its output. @retval CGP_ESTATE
 * also: cgp_pipeline_backward() is due.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_predict(cgp_pipeline *pipeline,
                                                       const cgp_tensor *const *inputs,
                                                       int n_inputs,
                                                       const cgp_tensor *const *outputs,
                                                       int n_outputs);

/** Copy a parameter, 0 .. cgp_model_parameters() - 1, in plain layout to or from the host (all
 * copies of a tied one).
 * @param[in,out] data One f32 per element of its shape. Borrowed. Legal after a failure too.
 * @retval CGP_EINVAL No such one.
 * @retval CGP_ESTATE To set: cgp_pipeline_backward() is due. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_parameter(cgp_pipeline *pipeline, int parameter,
                                                             float *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_parameter(cgp_pipeline *pipeline, int parameter,
                                                             const float *data);

/** Copy a state, 0 .. cgp_model_states() - 1 (a running statistic), to or from the host. It begins
 * at its initial value; a step that fails, or whose numbers are not finite, does not change it.
 * @param[in,out] data One f32 or i32 per element, as cgp_model_state_dtype() and _shape() say.
 * Borrowed. Legal after a failure too. @retval CGP_EINVAL No such one. @retval CGP_ESTATE To set:
 * cgp_pipeline_backward() is due. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_state(cgp_pipeline *pipeline, int state,
                                                         void *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_state(cgp_pipeline *pipeline, int state,
                                                         const void *data);

/** Copy the optimizer's state number 0 .. cgp_optim_states() - 1 of a parameter: SGD the momentum
 * buffer; AdamW and Adam the first and second moments; RMSprop the mean square and the momentum
 * buffer. Otherwise as above. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_optimizer_state(cgp_pipeline *pipeline,
                                                                   int parameter, int state,
                                                                   float *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_optimizer_state(cgp_pipeline *pipeline,
                                                                   int parameter, int state,
                                                                   const float *data);

/** Copy the gradient of a parameter in the last step. @param[out] data One f32 per element of the
 * parameter's shape. Caller's. @retval CGP_ESTATE No step since the pipeline was created or loaded,
 * cgp_pipeline_backward() is due, an inference plan, or the pipeline has failed. @retval CGP_EINVAL
 * No such parameter. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_gradient(cgp_pipeline *pipeline, int parameter,
                                                            float *data);

/**
 * View a parameter, its gradient, or a state where it lies, in plain layout: nothing is copied, and
 * data may be read and written between calls. Of a tied parameter it is the first copy; its
 * gradient is the sum over all uses, once a step has ended.
 *
 * After writes to parameters call cgp_pipeline_parameters_changed(). A step writes gradients, and
 * leaves zeros where backward reaches no use.
 *
 * @param[out] out  Its data are the pipeline's and end with it (or with the owner,
 * cgp_pipeline_create_sharing()).
 *
 * @retval CGP_EINVAL  No such one.   @retval CGP_ESTATE  The device has memory of its own, or is another rank's; of a gradient: the plan
 * is for inference.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_parameter_tensor(cgp_pipeline *pipeline,
                                                                int parameter, cgp_tensor *out);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_gradient_tensor(cgp_pipeline *pipeline,
                                                               int parameter, cgp_tensor *out);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_state_tensor(cgp_pipeline *pipeline, int state,
                                                            cgp_tensor *out);

/** Let what follows from the parameters follow a write through cgp_pipeline_parameter_tensor(): the
 * other copies of tied ones, and packed ones. @retval CGP_ESTATE cgp_pipeline_backward() is due, or
 * the pipeline has failed. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_parameters_changed(cgp_pipeline *pipeline);

/** Return the SHA-256 over all parameters in order, plain layout, little-endian; equal for
 *  bit-equal runs. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_weights_sha256(cgp_pipeline *pipeline, char hex[65]);

/** Return the SHA-256 over all states in order, likewise. @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_state_sha256(cgp_pipeline *pipeline, char hex[65]);

/** Return the bytes that a device has allocated, in one piece. */
CGP_API int64_t cgp_pipeline_allocated_bytes(const cgp_pipeline *pipeline, int device);

/** Find the bytes that the driver of each device's hardware and other programs have taken beside
 *  what this process has allocated there: cgp_backend_driver_bytes(). Devices of one ordinal have
 *  the same figure.
 *  @param[out] bytes [devices]; INT64_MAX: not known. @retval CGP_EDEVICE */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_driver_bytes(cgp_pipeline *pipeline, int64_t *bytes);

/** Measured times of the last run: a step, or its forward or backward alone; of an evaluation or
 * prediction, its last piece of at most 256 micro-batches. */
typedef struct cgp_pipeline_times {
    double seconds; /**< Start of the first action to the end of the last. */
    /** Until the last F ends. NaN if the schedule mixes forward and backward; `seconds` without
     *  backward. */
    double forward_seconds;
    double backward_seconds; /**< From there to the end; NaN likewise; `seconds` without forward. */
    double bubble;           /**< 1 - sum of the times of F, B, I, W, R / (devices x seconds). */
    /** From the end of an action (or transfer) to the start of the device's next one, if that did
     * not wait; median, NaN if there is none, or out of memory. A transfer starts when it has its
     * buffer. */
    double gap_seconds;
    /** Wake-up latency: from the end of a SEND to the start of the RECV that waited for it; median,
     * NaN if none did, or likewise. */
    double wakeup_seconds;
} cgp_pipeline_times;

/**
 * Start measuring the time of each kernel, from zero; or stop. Off by default.
 *
 * @retval CGP_ENOMEM  Nothing is measured.
 * Cost: reads the clock twice per kernel, about 50 ns.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_measure_layers(cgp_pipeline *pipeline, bool measure);

/**
 * Return the costs of layers in all full micro-batches since cgp_pipeline_measure_layers(), as
 * cgp_profile(), but measured in the run: on the devices of the plan, all of them busy. Times are
 * means; recomputations count as forwards.
 *
 * @param[out] costs  [cgp_model_layers()], of micro-batches of cgp_plan_microbatch() samples.
 * Caller's. Unchanged on failure.
 * @retval CGP_ESTATE  Nothing has been measured.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_layer_costs(const cgp_pipeline *pipeline,
                                                           cgp_layer_cost *costs);

/** Kinds of ops, built-in and custom, at most. */
#define CGP_OP_TIMES 64

/** The kernels of one kind of op, by direction: F, I and W (`cgp_layer_cost`). */
typedef struct cgp_op_time {
    const char *op;    /**< As graph files name it, or "custom". Static. */
    int64_t runs[3];   /**< Recomputations count as F. */
    double seconds[3]; /**< Of all runs on all devices, also where they ran at once. */
    double flops[3];   /**< Of all runs. */
    /** Of the operands of all runs, as if each came from memory and went there once, and one that
     *  is added to both: what no cache can save where each kernel's operands are larger than it. */
    double bytes[3];
} cgp_op_time;

/**
 * Return what kernels took, by kind of op, in all full micro-batches since
 * cgp_pipeline_measure_layers(). Copies between programs, messages and updates are in none.
 *
 * @param[out] times  [CGP_OP_TIMES] Those of the kinds that ran, the longest first. Caller's.
 * Unchanged on failure.
 * @param[out] n      Their number.
 * @retval CGP_ESTATE  Nothing has been measured.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_op_times(const cgp_pipeline *pipeline,
                                                        cgp_op_time *times, int *n);

/**
 * Measure every layer as in training: make a pipeline, run a step and an update to warm up, then
 * `steps` more, all of them on random numbers, and destroy it. The times are medians over the
 * steps; `update_seconds` is the update's time in proportion to the parameters.
 *
 * cgp_profile() runs kernels one by one, in less memory. In a step the operands of most kernels are
 * in no cache, and what follows in a program follows: these times add up to the step's. With more
 * plans, a pipeline of each trains at the same time, on a thread of its own: devices that run at
 * once share caches, the bandwidth of memory and the power of the chip, as the stages of a pipeline
 * do.
 *
 * @param[in]  plans    [n_plans] Plans for training of one rank; a plan may stand there several times. The first is measured; for
 *                      the costs of a device alone it has one stage. A model without losses gets random gradients. Borrowed.
 * @param[in]  n_plans  1 to 1024.
 * @param[in]  steps    1 to 1000.
 * @param[out] costs    [layers of the first plan's model], of micro-batches of cgp_plan_microbatch() samples. Caller's. Unchanged on
 *                      failure.
 *
 * @retval CGP_EINVAL  A number that is out of range, or no plan.   @retval CGP_EDEVICE  A kernel failed.
 * @retval CGP_ELIMIT  The pipelines together need more memory than the machine has.   @retval CGP_ENOMEM
 * @retval CGP_ESTATE  A plan is for inference.
 *
 * Threads: any. Blocks.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_profile_steps(const cgp_plan *const *plans, int n_plans,
                                                    int steps, cgp_layer_cost *costs);

/** Return the times of the last run; all NaN before the first. `busy`: [devices] busy time /
 *  `seconds`; may be NULL. Cost: sorts the run's events. */
CGP_API cgp_pipeline_times cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy);

/**
 * Return the measured start and end of each action of the last step, in seconds from the start of
 * the first action.
 *
 * The lists are those of cgp_plan_schedule(), so that cgp_schedule_svg(), _trace(),
 * _draw_timeline() and _compare() take both. The update is not included.
 *
 * @param[out] out  Filled on success only; free with cgp_schedule_timeline_release().
 *
 * @retval CGP_ESTATE  The last run was not one of these lists: no step yet, one of fewer samples
 * than planned, an evaluation or
 *                     prediction, a step in two calls (`external_loss`), or a failed one. The message says which.
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
