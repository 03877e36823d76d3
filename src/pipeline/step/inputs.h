/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.h -- checks the caller's tensors before anything runs. */
#ifndef CGP_SRC_PIPELINE_STEP_INPUTS_H
#define CGP_SRC_PIPELINE_STEP_INPUTS_H

#include <cgpipe/pipeline.h>

typedef struct cgp__run_context cgp__run_context;
typedef struct cgp__setup cgp__setup;
typedef struct cgp__step cgp__step;

/* Check the caller's tensors for a run, and set *samples to the run's number of samples. If
 * context->with_loss, also set the step's loss_counts, loss_divisors and loss_scales.
 * Collective. */
cgp_status cgp__inputs_check(cgp_pipeline *pipeline, const cgp__run_context *context, int n_inputs,
                             int64_t *samples);

/* Return the caller's list of inputs. If this list is NULL, return a list of NULLs, because a rank
 * that reads no input may pass NULL. */
const cgp_tensor *const *cgp__inputs_or_none(const cgp__step *step,
                                             const cgp_tensor *const *inputs);

/* Return true if the caller has set the divisors of the losses (cgp_pipeline_set_targets()). */
bool cgp__inputs_has_targets(const cgp_pipeline *pipeline);

/* Return the bytes of a rank's part of the exchange in cgp__inputs_check(). */
size_t cgp__inputs_part_bytes(const cgp__setup *setup);

/* The first function checks the caller's tensors for gradients of inputs. If no stage computes the
 * gradient of an input, the second function sets this gradient to zero after the run. */
cgp_status cgp__inputs_check_gradients(const cgp_pipeline *pipeline, int64_t samples);
void cgp__inputs_zero_gradients(const cgp_pipeline *pipeline);

/* The tensors that the caller passes: one for each output, some of these, or a gradient for each
 * output that has a gradient. */
typedef enum cgp__wanted { CGP__ALL_OUTPUTS, CGP__SOME_OUTPUTS, CGP__OUTPUT_GRADIENTS } cgp__wanted;

/* Check tensors against the model's outputs whose stages are on this rank. *samples is the expected
 * number of samples. If *samples is 0, it is set from the first tensor. */
cgp_status cgp__inputs_check_outputs(const cgp_pipeline *pipeline, cgp__wanted wanted,
                                     const cgp_tensor *const *tensors, int n, int64_t *samples);

#endif
