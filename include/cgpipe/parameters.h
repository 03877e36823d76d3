/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h -- the tensors of a pipeline: parameters, gradients, optimizer state and running
 * statistics. Calls copy them to and from the host, view them in place, or hash them.
 *
 * Threads and ranks: as in cgpipe/pipeline.h, see cgp_pipeline_create_on(). */
#ifndef CGPIPE_PARAMETERS_H
#define CGPIPE_PARAMETERS_H

#include <cgpipe/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Copy a parameter, 0 .. cgp_model_parameters() - 1, in plain layout to the host (get) or from the
 *  host (set). The set call writes all copies of a tied parameter. Both calls are legal after a
 *  failure too.
 *  @param[in,out] data One f32 per element of its shape. Borrowed.
 *  @retval CGP_EINVAL There is no such parameter.
 *  @retval CGP_ESTATE A parameter cannot be set while cgp_pipeline_backward() is due. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_parameter(cgp_pipeline *pipeline, int parameter,
                                                             float *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_parameter(cgp_pipeline *pipeline, int parameter,
                                                             const float *data);

/** Copy a state, 0 .. cgp_model_states() - 1 (a running statistic), to or from the host. A state
 *  starts at its initial value. A step that fails, or whose numbers are not finite, does not change
 *  the state. Both calls are legal after a failure too.
 *  @param[in,out] data One f32 or i32 per element, see cgp_model_state_dtype() and _shape().
 *      Borrowed.
 *  @retval CGP_EINVAL There is no such state.
 *  @retval CGP_ESTATE A state cannot be set while cgp_pipeline_backward() is due. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_state(cgp_pipeline *pipeline, int state,
                                                         void *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_state(cgp_pipeline *pipeline, int state,
                                                         const void *data);

/** Copy one of a parameter's optimizer states, 0 .. cgp_optim_states() - 1. SGD has the momentum
 *  buffer, AdamW and Adam have the first and second moments, and RMSprop has the mean square and
 *  the momentum buffer. All else is as in cgp_pipeline_get_parameter(). */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_optimizer_state(cgp_pipeline *pipeline,
                                                                   int parameter, int state,
                                                                   float *data);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_set_optimizer_state(cgp_pipeline *pipeline,
                                                                   int parameter, int state,
                                                                   const float *data);

/** Copy the gradient of a parameter from the last step.
 *  @param[out] data One f32 per element of the parameter's shape. The caller's memory.
 *  @retval CGP_ESTATE There has been no step since the pipeline was created or loaded,
 *      cgp_pipeline_backward() is due, the plan is for inference, or the pipeline has failed.
 *  @retval CGP_EINVAL There is no such parameter. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_get_gradient(cgp_pipeline *pipeline, int parameter,
                                                            float *data);

/**
 * View a parameter, its gradient, or a state in place, in plain layout. Nothing is copied, and data
 * may be read and written between calls. The view of a tied parameter is its first copy. The
 * gradient of a tied parameter is the sum over all its uses; it is complete after a step or, while
 * steps accumulate, after cgp_pipeline_complete_gradients(). With `shard_optimizer` and without a
 * clip_norm, a gradient has only this replica's parts until that call.
 *
 * After writes to parameters, call cgp_pipeline_parameters_changed(). A step overwrites gradients.
 * If backward reaches no use of a parameter, the step sets the parameter's gradient to zero.
 *
 * @param[out] out  The pipeline (or its owner, see cgp_pipeline_create_sharing()) owns the data and
 *                  frees them when it is destroyed.
 *
 * @retval CGP_EINVAL  There is no such parameter or state.
 * @retval CGP_ESTATE  The device does not share the host's memory, or belongs to another rank. For
 *                     a gradient, also: the plan is for inference.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_parameter_tensor(cgp_pipeline *pipeline,
                                                                int parameter, cgp_tensor *out);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_gradient_tensor(cgp_pipeline *pipeline,
                                                               int parameter, cgp_tensor *out);
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_state_tensor(cgp_pipeline *pipeline, int state,
                                                            cgp_tensor *out);

/** A tensor of a pipeline. */
typedef enum cgp_tensor_kind {
    CGP_TENSOR_PARAMETER, /**< Values of a parameter. */
    CGP_TENSOR_GRADIENT,  /**< Gradient of a parameter. */
    CGP_TENSOR_STATE
} cgp_tensor_kind;

/**
 * View a parameter, its gradient, or a state in the memory of a device that does not share the
 * host's memory, for libraries that work on such devices. All else is as in
 * cgp_pipeline_parameter_tensor().
 *
 * @param[in]  index   Number of the parameter or state.
 * @param[out] device  The device of the plan that has the memory; see cgp_pipeline_stream().
 * @param[out] out     `data` is an address in device memory, which the host cannot read.
 *
 * @retval CGP_EINVAL  There is no such kind, parameter or state.
 * @retval CGP_ESTATE  The device uses the host's memory, or belongs to another rank. Or the plan is
 *                     for inference, and so has no gradients.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_device_tensor(cgp_pipeline *pipeline,
                                                             cgp_tensor_kind kind, int index,
                                                             int *device, cgp_tensor *out);

/** Return the backend's handle of the queue on which a device, 0 .. devices - 1, computes and
 *  copies the caller's tensors. In CUDA, it is a cudaStream_t. NULL: the device has no such handle,
 *  or belongs to another rank. Valid until the pipeline is destroyed.
 *
 *  Tensors in device memory may still be in use by the caller's own work. Make the queue wait for
 *  that work before a call. When the call returns, all copies of the call are complete. */
CGP_API void *cgp_pipeline_stream(const cgp_pipeline *pipeline, int device);

/** Update the other copies of tied parameters, and packed parameters, after writes through
 *  cgp_pipeline_parameter_tensor(). @retval CGP_ESTATE cgp_pipeline_backward() is due, or the
 *  pipeline has failed. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_parameters_changed(cgp_pipeline *pipeline);

/** Return the SHA-256 of all parameters in order, in plain layout, little-endian. Bit-identical
 *  runs have equal hashes. */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_weights_sha256(cgp_pipeline *pipeline, char hex[65]);

/** Return the SHA-256 of all states in order, in the same form as cgp_pipeline_weights_sha256().
 *  @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_state_sha256(cgp_pipeline *pipeline, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
