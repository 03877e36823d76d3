/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h -- run a plan: one worker thread per device, each with its own list of actions.
 *
 * Threads: the thread that created a pipeline makes all calls on it; each call blocks until every
 * worker is idle. Several pipelines may run concurrently. In a child process created later by
 * fork(), every call returns CGP_ESTATE (see base.h). */
#ifndef CGPIPE_PIPELINE_H
#define CGPIPE_PIPELINE_H

#include <cgpipe/ext/transport.h>
#include <cgpipe/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_pipeline cgp_pipeline;

/**
 * Create the devices and workers of a plan, allocate all planned bytes, and initialize parameters
 * and states.
 *
 * The replicas of a plan with one rank are threads of this process. Each has the planned devices
 * and bytes, and all of them run every later call. Results are those of replica 0. Tensors of
 * replicas cannot be viewed (cgp_pipeline_parameter_tensor()), only copied.
 *
 * @param[out] out   Owned by the caller, see cgp_pipeline_destroy().
 * @param[in]  plan  Borrowed until the pipeline is destroyed.
 * @param[in]  seed  Seed of the initial weights and of dropout.
 *
 * @retval CGP_ELIMIT   The devices together need more memory than the machine, or their hardware,
 *                      has available.
 * @retval CGP_ENOMEM   Out of memory; everything was freed.
 * @retval CGP_EDEVICE  A device or a kernel could not be created.
 * @retval CGP_EINVAL   CGP_CPU_ISA names instructions that the machine does not have. Or the plan
 *                      has replicas and a device with memory of its own. Each replica then needs a
 *                      process (cgp_pipeline_create_on()).
 *
 * Threads: the calling thread owns the pipeline and makes all other calls.
 * Cost:    touches all planned bytes; creates the kernels of a full mini-batch.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan,
                                                      uint64_t seed);

/**
 * Create this rank's part of a pipeline that several ranks run together: the devices that the plan
 * assigns to it.
 *
 * Before any kernel is created, the ranks agree on an instruction set (cgp_pipeline_isa()). Before
 * any memory is allocated, the need of all ranks on a host is compared with the memory available
 * there.
 *
 * After this call, every function that takes the pipeline is collective. The user threads of all
 * ranks make the same calls in the same order, with the same arguments except for data. Exceptions
 * are cgp_pipeline_reads(), _rank(), _isa(), _libm(), _report(), _diagnosis(), _updates(),
 * _gradient_norm(), _last_loss() and _allocated_bytes().
 *
 * - Inputs that no stage of this rank reads may be NULL (cgp_pipeline_reads()). If this rank reads
 *   no input, the whole list may be NULL.
 * - The loss and norms are returned on every rank.
 * - forward and predict fill an output on the rank of the output's stage, and backward takes the
 *   gradient of the output on the same rank. Other ranks may pass NULL for that output, and for the
 *   whole list if they have no output.
 * - Getters and hashes fill the argument on every rank that does not pass NULL. A setter reads the
 *   data on the ranks that have the tensor.
 * - Each rank writes its part of a checkpoint.
 * - An argument that one rank refuses is refused on all ranks, and nothing runs.
 * - The settings of cgp_pipeline_set_accumulation(), _set_lr(), _set_seed(), _set_targets() and
 *   _set_updates() are compared before each step. If they differ, the step is refused on all ranks
 *   with CGP_EINVAL; the message has both values.
 *
 * @param[in] transport     The transport between the ranks. NULL: the plan is for one rank.
 * @param[in] communicator  This rank's communicator, with as many ranks as the plan, times its
 *                          `replicas`. It serves one pipeline at a time. Borrowed until the
 *                          pipeline is destroyed. If a worker hangs at that time
 *                          (cgp_pipeline_set_timeout()), its links stay open: keep the communicator
 *                          until the process ends.
 *
 * @retval CGP_EINVAL  The ranks disagree on the number of ranks, the seed, the plan's
 *                     cgp_plan_hash(), or the results of libm.
 * @retval CGP_ELIMIT  The ranks of a host together need more memory than the host has. All ranks
 *                     return this.
 * @retval CGP_EPEER   Another rank failed, or this rank's communicator was stopped. Every later
 *                     call returns CGP_EPEER or CGP_ESTATE; getters return nothing. The caller can
 *                     only destroy the pipeline.
 *
 * All else is as in cgp_pipeline_create().
 *
 * Threads: as cgp_pipeline_create().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_create_on(cgp_pipeline **out, const cgp_plan *plan,
                                                         uint64_t seed,
                                                         const cgp_transport *transport,
                                                         cgp_communicator *communicator);

/**
 * Find a transport: "inproc", or a plug-in's transport (cgpipe/ext/plugin.h), such as "mpi". Its
 * communicator_create() makes this rank's communicator. Destroy the communicator with its
 * communicator_destroy(), after the pipeline.
 *
 * @param[out] out   The transport, which is static. Unchanged after a failure.
 * @param[in]  name  Borrowed for the call.
 *
 * @retval CGP_EINVAL  No transport has this name. The message lists the transports, and says why a
 *                     plug-in was left out.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_transport_find(const cgp_transport **out, const char *name);

/**
 * Create a pipeline that shares the parameters, gradients, optimizer state, states and update count
 * of another pipeline. It runs a second plan of the same model, for example with another batch size
 * or for inference. Only memory that is not shared is allocated.
 *
 * Both pipelines see each other's changes. Gradients that wait for an update belong to both
 * pipelines. A step of either pipeline overwrites these gradients or, if the step accumulates, adds
 * to them. Either pipeline may read these gradients, clip them, update parameters from them, or
 * forget them. cgp_pipeline_set_accumulation(), _set_targets() and _set_lr() apply to one pipeline.
 * The dropout seed is derived from the owner's seed and the number of pipelines that share its
 * memory, so no two pipelines use the same masks. Checkpoints are saved and loaded through the
 * owner. One thread makes the calls on both pipelines. Both pipelines may be between a forward and
 * its backward at the same time. In that case the running statistics come from the pipeline whose
 * backward ends last or, with `deferred_batch_norm`, from both.
 *
 * @param[out] out    Owned by the caller: destroy it before the owner.
 * @param[in]  plan   Borrowed until the pipeline is destroyed.
 * @param[in]  owner  Owner of the shared memory. It may itself share another pipeline's memory.
 *
 * @retval CGP_EINVAL  Parameters, gradients or states of the plans differ, or lie at different
 *                     offsets (give both plans the same stages, schedule, balance and optimizer).
 *                     Or a plan is for several ranks, or a device has memory of its own, or the
 *                     owner's replicas are threads. The message has the first difference.
 * @retval CGP_ESTATE  The owner has failed.
 *
 * All else is as in cgp_pipeline_create().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_create_sharing(cgp_pipeline **out,
                                                              const cgp_plan *plan,
                                                              cgp_pipeline *owner);

/** The host and process of a rank. Texts are borrowed until the pipeline is destroyed. */
typedef struct cgp_rank_info {
    const char *host;  /**< Name of the rank's host. */
    const char *cores; /**< Cores that the rank may run on, such as "0-3,8"; "": not known. */
} cgp_rank_info;

/** Return the host and cores of a rank, 0 .. ranks - 1. All fields are NULL if there is no such
 *  rank. */
CGP_API cgp_rank_info cgp_pipeline_rank(const cgp_pipeline *pipeline, int rank);

/** Return the instruction set of the kernels, the lowest among the ranks: "v3" or "v4" (x86-64) or,
 *  in bf16, "v4-bf16" or "amx", as in CGP_CPU_ISA. NULL: the devices' backends have only one set of
 *  kernels. The string is static. With other instruction sets, results may have other bits. */
CGP_API const char *cgp_pipeline_isa(const cgp_pipeline *pipeline);

/** Return a digest of libm's results as 16 hex digits. It is the same on all ranks. Runs with
 *  different digests may differ in the last bit of initial weights, learning rates and losses.
 *  Borrowed until the pipeline is destroyed. */
CGP_API const char *cgp_pipeline_libm(const cgp_pipeline *pipeline);

/** Return how the messages of an edge pass between two ranks: "device memory" if the receiver
 *  copies from the device memory of the sender's process, else "host memory". NULL: both ends are
 *  on one rank, or `edge` is not in 0 .. cgp_plan_edges() - 1. The string is static, and the same
 *  on all ranks. */
CGP_API const char *cgp_pipeline_edge_path(const cgp_pipeline *pipeline, int edge);

/** Return true if a stage of this rank reads model input 0 .. inputs - 1. In a pipeline without
 *  ranks, return true if any stage reads it. */
CGP_API bool cgp_pipeline_reads(const cgp_pipeline *pipeline, int input);

/**
 * Compare the memory that a plan needs with the memory available at present, as
 * cgp_pipeline_create() does: on the machine, and on hardware with memory of its own. All ranks of
 * a plan are assumed to run on machines like this one.
 *
 * @param[in]  plan       Borrowed for the call.
 * @param[out] available  Bytes that the machine has available, also on failure; INT64_MAX if the
 *                        system does not report them. May be NULL.
 *
 * @retval CGP_ELIMIT   The plan needs more memory; the message suggests how to reduce the need.
 * @retval CGP_EINVAL   `plan` is NULL.
 * @retval CGP_EDEVICE  A device's hardware is not on this machine.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_check_memory(const cgp_plan *plan,
                                                            int64_t *available);

/** Stop the workers and free everything. Accepts NULL. Legal in every state, even after a failure.
 *  If device memory is shared between ranks (cgp_pipeline_edge_path()), the call is collective: it
 *  waits until all other ranks make this call, or until a rank has failed. A rank that fails by
 *  itself must first call the transport's fail(). In that case, device memory that another process
 *  may still use is not freed. */
CGP_API void cgp_pipeline_destroy(cgp_pipeline *pipeline);

/**
 * Run forward and backward of one mini-batch under the pipeline's schedule.
 *
 * The mini-batch is split along its leading dimension into micro-batches of the planned size; the
 * last micro-batch may be smaller. Gradients are overwritten: the first micro-batch writes them,
 * and the other micro-batches add to them, in ascending order (cgp_pipeline_set_accumulation() and
 * the plan's gradient_groups change this). Update the parameters with cgp_optim_step() afterwards.
 *
 * With `replicas`, every rank passes all samples of the mini-batch, and each replica runs its share
 * of the micro-batches. Losses, counts of targets and dropout masks are the same as without
 * replicas. A replica without micro-batches takes part in the sum of gradients.
 *
 * States (running statistics) change at the end of the step, if the step succeeded and its numbers
 * are finite. These numbers are the loss, the accumulators of built-in norms and, with `clip_norm`,
 * the norm of the gradients. Otherwise no state changes, and cgp_optim_step() returns the reason.
 *
 * Each micro-batch updates the states, in the order of the forwards in the schedule's lists
 * (ascending in every built-in schedule). With `deferred_batch_norm`, the states are updated once
 * per mini-batch. Recomputed forwards do not update the states.
 *
 * @param[in]  pipeline  Pipeline to run. Borrowed.
 * @param[in]  inputs    One tensor per model input, in order of declaration, each [N, ...], all
 *                       with the same N, 1 <= N <= the planned batch. Borrowed until return, or,
 *                       after CGP_EDEVICE, until the pipeline is destroyed. The data are in host
 *                       memory. f32 may also be in memory of a GPU, if all devices that read it are
 *                       GPUs: see cgp_pipeline_stream(). The same holds for outputs and gradients
 *                       of a run.
 * @param[in]  n_inputs  Number of tensors in `inputs`.
 * @param[out] loss      Loss of the mini-batch: sum / count, dimensionless. With
 *                       cgp_pipeline_set_targets(), it is sum / the number that was set. May be
 *                       NULL.
 *
 * @retval CGP_OK        The step ran; gradients are complete on every stage, even if they or the
 *                       loss are not finite.
 * @retval CGP_EINVAL    An input does not fit the model, an integer is out of range, or the loss
 *                       has no targets. Nothing ran; gradients are unchanged.
 * @retval CGP_ESTATE    The plan is for inference or has `external_loss`, or the pipeline has
 *                       failed before.
 * @retval CGP_ENOMEM    Lists or kernels for a new size could not be created, or (CGP_ELIMIT) do
 *                       not fit the planned memory. Nothing ran; gradients are unchanged.
 * @retval CGP_EDEVICE   A device failed; the message names stage, micro-batch, layer and op.
 *                       Gradients are undefined; parameters and states are unchanged. The caller
 *                       can only destroy the pipeline.
 *
 * Threads: call from the thread that created the pipeline. Blocks until every worker is idle. Cost:
 * forward and backward FLOPs of the model, plus recomputation. The call allocates nothing, except
 * lists and kernels for a new number of micro-batches or a new size of the last micro-batch.
 * Source: Huang et al. 2019, arXiv:1811.06965, section 2; Kim et al. 2020, arXiv:2004.09910.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_step(cgp_pipeline *pipeline,
                                                    const cgp_tensor *const *inputs, int n_inputs,
                                                    double *loss);

/**
 * Run forward of one mini-batch, for a loss that the caller computes. The plan must have
 * `external_loss`.
 *
 * Dropout is on. cgp_pipeline_backward() must follow, and changes the states; the two calls replace
 * cgp_pipeline_step(). The caller checks that its loss is finite.
 *
 * @param[in]  inputs    As for cgp_pipeline_step(). Backward reads the data again. So the data are
 *                       borrowed until cgp_pipeline_backward() returns, or the pipeline is
 *                       destroyed. The cgp_tensor structs are borrowed for this call only.
 * @param[out] outputs   One tensor per output of the model, in order of declaration, each [N, ...]
 *                       with all micro-batches in order. cgp_model_output_shape() and _dtype()
 *                       return the shape and type. The caller's memory; the list is borrowed until
 *                       return.
 * @param[in]  n_outputs Number of tensors in `outputs`.
 *
 * @retval CGP_ESTATE  Also: the plan has no `external_loss`, or cgp_pipeline_backward() is due.
 *
 * All else is as in cgp_pipeline_step().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_forward(cgp_pipeline *pipeline,
                                                       const cgp_tensor *const *inputs,
                                                       int n_inputs,
                                                       const cgp_tensor *const *outputs,
                                                       int n_outputs);

/**
 * Run backward of the mini-batch of cgp_pipeline_forward(). Afterwards the gradients are complete.
 *
 * @param[in] gradients    One tensor per output: the gradient of the loss with respect to this
 *                         output, [N, ...] f32. NULL for an output without a gradient. An output
 *                         has no gradient if it is i32, or if it depends on no parameter and on no
 *                         input with a gradient. Borrowed until return.
 * @param[in] n_gradients  Number of tensors in `gradients`, equal to the number of outputs.
 *
 * @retval CGP_ESTATE   cgp_pipeline_forward() is due.
 * @retval CGP_EINVAL   A gradient does not fit its output; the call may be repeated.
 * @retval CGP_EDEVICE  As for cgp_pipeline_step().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_backward(cgp_pipeline *pipeline,
                                                        const cgp_tensor *const *gradients,
                                                        int n_gradients);

/**
 * Turn gradient accumulation on or off. By default it is off.
 *
 * If it is on, cgp_pipeline_step() or cgp_pipeline_backward() adds its gradients to the gradients
 * that wait for cgp_optim_step(), as PyTorch's backward() does. The first such call after an
 * update, or after cgp_pipeline_zero_grad(), overwrites the gradients. So the update uses the sum
 * of the gradients of all steps since the last update. Gradients are added in ascending order of
 * micro-batches, as if the steps formed one mini-batch. Only the dropout masks differ from the
 * masks of one mini-batch.
 *
 * With gradient groups, the first group of a step adds to the earlier gradients. Then the groups of
 * this step are added as without accumulation.
 *
 * While accumulation is on, cgp_optim_step() computes the norm for `clip_norm`; the steps do not.
 * States change at the end of each step, even if that norm is later found not to be finite. If the
 * numbers of one step are not finite, later steps that add to it change no state, and
 * cgp_optim_step() returns the reason.
 *
 * @param[in] accumulate  The same on all ranks.
 *
 * @retval CGP_ESTATE  The plan is for inference, or the pipeline has failed.
 *
 * Cost: the first step that adds makes its own lists, as for a new number of samples. If the
 * gradients of tied parameters were read or updated before, that step also zeroes all but one
 * buffer of each such gradient.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_accumulation(cgp_pipeline *pipeline,
                                                                bool accumulate);

/**
 * Set a divisor for each loss: later steps divide the loss's sum by it, instead of by the number of
 * the loss's targets in the mini-batch.
 *
 * To get the gradient of the loss over all samples of several steps, accumulate over the steps and
 * set the total number of their targets. The result is bit-identical to one mini-batch if every
 * step but the last has a multiple of the planned micro-batch size. With this setting, all targets
 * of a mini-batch may be ignored.
 *
 * @param[in] targets   A number >= 1 for each loss, in the order in which the losses were added to
 *                      the model. The same on all ranks. Borrowed for the call. NULL: sums are
 *                      divided by the numbers of targets, as by default.
 * @param[in] n_losses  Number of elements in `targets`; 0 for NULL.
 *
 * @retval CGP_EINVAL  An element of `targets`, or the number of losses, is wrong.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_targets(cgp_pipeline *pipeline,
                                                           const int64_t *targets, int n_losses);

/**
 * Forget the gradients that wait for cgp_optim_step(): the next step overwrites them.
 *
 * @retval CGP_ESTATE  The plan is for inference, or the pipeline has failed.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_zero_grad(cgp_pipeline *pipeline);

/**
 * Complete the gradients of steps that accumulate: add the gradients of all uses of each tied
 * parameter. With `shard_optimizer`, replicas also exchange their parts of gradients. Before this
 * call, a view (cgp_pipeline_gradient_tensor(), _device_tensor()) of such a gradient may have only
 * a part of the sum. Gradients that are already complete do not change. Later steps may still add
 * to them.
 *
 * cgp_pipeline_clip_grad_norm() and cgp_pipeline_get_gradient() do this too. cgp_optim_step() adds
 * the uses, but leaves parts where they are. A step without accumulation leaves complete gradients,
 * except with `shard_optimizer`.
 *
 * @retval CGP_ESTATE  There are no gradients, as for cgp_pipeline_get_gradient().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_complete_gradients(cgp_pipeline *pipeline);

/**
 * Clip the norm of the gradients that wait for cgp_optim_step(): the update multiplies them by
 * min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does. The optimizer's `clip_norm`,
 * if any, applies to the result. The buffers that cgp_pipeline_get_gradient() reads do not change.
 *
 * @param[in]  max_norm  Largest norm, >= 0 or infinite. The same on all ranks.
 * @param[out] norm      Norm of all gradients before this call. May be NULL.
 *
 * @retval CGP_OK      The norm is set. It may be infinite or NaN; in that case cgp_optim_step()
 *                     returns CGP_ESTATE.
 * @retval CGP_EINVAL  `max_norm` is negative or NaN.
 * @retval CGP_ESTATE  No gradients wait for an update, or the pipeline has failed. A later
 *                     cgp_pipeline_step() or _forward() also returns CGP_ESTATE, and runs nothing,
 *                     if its gradients would be added to clipped gradients.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_clip_grad_norm(cgp_pipeline *pipeline,
                                                              double max_norm, double *norm);

/**
 * Set the tensors to which later calls of cgp_pipeline_step() or cgp_pipeline_backward() write the
 * gradients of inputs.
 *
 * A gradient is the derivative of the whole mini-batch's loss with respect to each element. It is
 * zero if the losses (or outputs) do not depend on the input.
 *
 * @param[in] gradients  One tensor per model input, in order of declaration, [N, ...] f32 on the
 *                       host with the N of the step. An element is NULL if its gradient is not
 *                       wanted; a NULL list means that no gradient is wanted. The data (not the
 *                       cgp_tensor structs) are borrowed until they are replaced or the pipeline is
 *                       destroyed. With several ranks, the rank of the first stage that computes a
 *                       part of a gradient writes it; every rank may pass all tensors.
 * @param[in] n_inputs   Number of tensors in `gradients`; 0 for NULL.
 *
 * @retval CGP_EINVAL    The input has no gradient (cgp_model_input_gradient()), or the number of
 *                       inputs is wrong. (The next step refuses a tensor of the wrong shape before
 *                       it runs.)
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_input_gradients(
    cgp_pipeline *pipeline, const cgp_tensor *const *gradients, int n_inputs);

/**
 * End the mini-batch of cgp_pipeline_forward() without its backward. The call releases the inputs.
 * It updates the states if their new values are finite.
 *
 * The gradient buffers keep their contents. If steps accumulate, gradients that wait for
 * cgp_optim_step() continue to wait, and cgp_optim_step() does not refuse them because of this
 * mini-batch. Otherwise the contents of the buffers do not count as new gradients: cgp_optim_step()
 * and cgp_pipeline_get_gradient() need a new step.
 *
 * @retval CGP_ESTATE   cgp_pipeline_forward() is due.
 * @retval CGP_EDEVICE  As for cgp_pipeline_step().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_skip_backward(cgp_pipeline *pipeline);

/**
 * Set the dropout seed. The following steps use the same masks as the first steps of a new pipeline
 * with this seed. Checkpoints save it like any seed.
 *
 * @param[in] seed  Any number, the same on all ranks.
 *
 * @retval CGP_ESTATE  cgp_pipeline_backward() is due, or the pipeline has failed.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_seed(cgp_pipeline *pipeline, uint64_t seed);

/**
 * Update the parameters from the gradients of the last cgp_pipeline_step() or _backward(), on the
 * stages' workers.
 *
 * The optimizer's schedule gives the learning rate of this update. With `clip_norm`, the
 * gradients are clipped first (the buffers that cgp_pipeline_get_gradient() reads do not change).
 *
 * @retval CGP_ESTATE   There are no new gradients: cgp_pipeline_step() is due. Or the step's loss,
 *                      one of its running statistics or, with `clip_norm`, the norm of the
 *                      gradients is not finite. Then parameters, optimizer and states have the
 *                      values from before that step, its gradients can still be read, and training
 *                      can continue.
 * @retval CGP_EDEVICE  A device failed.
 *
 * Source: see cgp_optim.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_optim_step(cgp_pipeline *pipeline);

/**
 * Set the learning rate of later updates. It replaces the rate from the optimizer and its schedule.
 * Checkpoints do not save this rate.
 *
 * Groups with a learning rate of their own keep their rate; cgp_pipeline_set_group_lr() sets that
 * rate.
 *
 * @param[in] lr  The rate, >= 0, the same on all ranks. NaN, the default: the optimizer's rate.
 *
 * @retval CGP_EINVAL  `lr` is negative or infinite.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_lr(cgp_pipeline *pipeline, double lr);

/** Set the learning rate of parameter group 0 .. cgp_optim.n_groups - 1 for later updates. NaN, the
 *  default: the group's rate in the plan. All else is as in cgp_pipeline_set_lr().
 *  @retval CGP_EINVAL There is no such group, or `lr` is negative or infinite. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_group_lr(cgp_pipeline *pipeline, int group,
                                                            double lr);

/**
 * Set the number of updates so far. Bias correction and the learning rate's schedule use this
 * number. It becomes the step of the next checkpoint. Set the matching moments with
 * cgp_pipeline_set_optimizer_state().
 *
 * @param[in] updates  >= 0, the same on all ranks.
 *
 * @retval CGP_EINVAL
 * @retval CGP_ESTATE  Gradients wait for cgp_optim_step(), or cgp_pipeline_backward() is due, or
 *                     the pipeline has failed.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_updates(cgp_pipeline *pipeline, int64_t updates);

/** Return the norm of all gradients before clipping, from the last cgp_optim_step(), even if that
 *  call refused to update. NaN if neither the optimizer's `clip_norm` nor
 *  cgp_pipeline_clip_grad_norm() needed the norm. */
CGP_API double cgp_pipeline_gradient_norm(const cgp_pipeline *pipeline);

/** Return the number of updates, including the updates before a cgp_pipeline_load(). */
CGP_API int64_t cgp_pipeline_updates(const cgp_pipeline *pipeline);

/**
 * Stop a run in which no action ends for `seconds`. The run fails with CGP_EDEVICE. The message
 * names the hanging action, and cgp_pipeline_report() returns the details. A device's update, its
 * sum of tied gradients, its commit of states, and its check for finite numbers each count as one
 * action. With replicas, each part of the gradients that arrives counts as one action too. Time in
 * which the whole process was stopped does not count.
 *
 * With several ranks there is one limit for all: no rank gives up while actions still end on any
 * rank. The rank whose worker hangs fails first; the calls of the other ranks end with CGP_EPEER
 * and that rank's message. A message that does not arrive also ends the call with CGP_EPEER.
 *
 * After this call, each rank also sends heartbeats to the others, during calls and between them. A
 * rank may be silent because it was killed or stopped, or because its host cannot be reached. After
 * `seconds` of silence, the calls of all other ranks end: "rank 2: silent for 3.1 s (...)". While a
 * rank runs the program's own code between calls, the others wait for it. The calls end at most 2 s
 * after the limit.
 *
 * A worker that hangs inside a kernel or copy cannot be stopped. The call returns without it, and
 * cgp_pipeline_destroy() leaks its thread and its device. Keep the tensors of that call and, in
 * cgp_pipeline_backward(), the tensors of the forward before it. The thread, or actions already
 * enqueued on an asynchronous device, may still read and write them.
 *
 * @param[in] seconds  The limit, > 0, the same on all ranks; 0, the default: no limit.
 *
 * @retval CGP_EINVAL
 * @retval CGP_ENOMEM  The heartbeat thread could not be started.
 * @retval CGP_EPEER   Another rank has failed.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_timeout(cgp_pipeline *pipeline, double seconds);

/** Return the report of a run that timed out as lines of text; "" if no run has timed out. It
 *  contains the state of each worker, the longest chain of waiting devices, and the last 50 events.
 *  Borrowed until the pipeline is destroyed. */
CGP_API const char *cgp_pipeline_report(const cgp_pipeline *pipeline);

/**
 * Describe this rank as a JSON object: its current call, what each of its devices runs or waits
 * for, its view of the other ranks, and its last 100 actions. The object describes the state at the
 * first failure or, without a failure, the current state. docs/reference/diagnosis.md lists the
 * keys. The call is not collective. `cgpipe diagnose` finds the failed rank from the descriptions
 * of several ranks.
 *
 * @param[in]  reason  Text to include. Borrowed.
 * @param[in]  idle Seconds, >= 0. A call in progress is described only if it waits, and no action
 *                     has ended on any rank for `idle` seconds. 0: it is always described.
 * @param[out] text    The text, owned by the caller, who calls free(). NULL: there is nothing to
 *                     describe, because `idle` seconds have not passed.
 *
 * @retval CGP_EINVAL  `idle` is invalid, or an argument is NULL.
 * @retval CGP_ESTATE  The pipeline belongs to another process.
 * @retval CGP_ENOMEM
 *
 * Threads: any, also while the owner is in a call other than cgp_pipeline_destroy().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_diagnosis(cgp_pipeline *pipeline, const char *reason,
                                                         double idle, char **text);

/**
 * Run forward only, with dropout off, and return the loss. Parameters, states and gradients do not
 * change; batch norms use the running statistics. N may exceed the planned batch; in that case more
 * micro-batches run.
 *
 * @param[out] loss  Loss: sum / count. NULL on all ranks: the loss is not wanted; in that case all
 *                   targets may be ignored without error.
 *
 * @retval CGP_EINVAL  Also: the model has no loss.
 *
 * All else is as in cgp_pipeline_step(), but every plan of a model with a loss allows the call.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_evaluate(cgp_pipeline *pipeline,
                                                        const cgp_tensor *const *inputs,
                                                        int n_inputs, double *loss);

/** Sum of one loss of the model over a mini-batch. */
typedef struct cgp_loss_part {
    double weight; /**< Factor of this loss in the model's loss. */
    double sum;    /**< Sum of this loss over its targets. */
    int64_t count; /**< Number of this loss's targets that are not ignored. */
    /** Divisor of the sum: the count, or the sum of the targets' weights; 1 for a loss that is not
     *  divided. */
    double divisor;
} cgp_loss_part;

/**
 * Return one loss's part of the result of the last cgp_pipeline_step() or cgp_pipeline_evaluate().
 * The result is the sum of weight x sum / divisor over all losses. To get the loss over several
 * calls, add up their sums and divisors: the mean of the calls' losses is wrong if targets are
 * ignored.
 *
 * @param[in] loss  The loss's number: 0, 1, ..., in the order in which the losses were added to the
 *                  model.
 * @return The part; all fields are 0 if there is no such loss. Sum and count are undefined after a
 * failure.
 */
CGP_API cgp_loss_part cgp_pipeline_last_loss(const cgp_pipeline *pipeline, int loss);

/**
 * Run forward only, and return the model's outputs. Dropout is off, and batch norms use their
 * running statistics. Nothing changes except caches (cgp_cached_attention()), which micro-batches
 * write in order. N may be any number >= 1. Inputs that only the loss reads may be NULL.
 *
 * @param[out] outputs   As for cgp_pipeline_forward(), but NULL for outputs that are not wanted.
 * @param[in]  n_outputs Number of tensors in `outputs`, equal to the model's number of outputs.
 *
 * @retval CGP_EINVAL  Also: the model has no output, or a tensor does not fit its output.
 * @retval CGP_ESTATE  Also: cgp_pipeline_backward() is due.
 *
 * All else is as in cgp_pipeline_step(), but every plan of a model with an output allows the call.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_predict(cgp_pipeline *pipeline,
                                                       const cgp_tensor *const *inputs,
                                                       int n_inputs,
                                                       const cgp_tensor *const *outputs,
                                                       int n_outputs);

/** Return the number of bytes that a device has allocated. They are one block. */
CGP_API int64_t cgp_pipeline_allocated_bytes(const cgp_pipeline *pipeline, int device);

/** Find the number of bytes that the driver and other programs hold on each device's hardware.
 *  Bytes that this process has allocated there are not counted: see cgp_backend_driver_bytes().
 *  Devices of one ordinal have the same value.
 *  @param[out] bytes [devices]; INT64_MAX: not known. @retval CGP_EDEVICE */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_driver_bytes(cgp_pipeline *pipeline, int64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
