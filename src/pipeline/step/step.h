/* SPDX-License-Identifier: Apache-2.0 */
/* step.h -- the numbers of a training step: losses, counters, gradients' state, checkpoints. */
#ifndef CGP_SRC_PIPELINE_STEP_H
#define CGP_SRC_PIPELINE_STEP_H

#include <cgpipe/pipeline.h>

#include "pipeline/run/run.h"

/* The first tensor of a device that is not finite. */
typedef struct cgp__nonfinite {
    int64_t tensor;  /* number of a state (finite.c) or of a saved tensor (save.c); -1: none */
    int64_t element; /* set by save.c */
    float value;
} cgp__nonfinite;

typedef struct cgp__step {
    cgp__executor *executor;
    uint64_t seed;
    int64_t steps;                   /* done; part of the key of dropout */
    int64_t own_updates, *updates;   /* done by all pipelines that share the parameters */
    char *parts;                     /* [ranks] parts of the exchange before a run (inputs.c) */
    double *packed;                  /* [params] squares, ordered by their owner's rank */
    int64_t *loss_counts;            /* [losses] of the mini-batch */
    double *loss_sums;               /* [losses] over its micro-batches */
    float *loss_scales;              /* [losses] weight / count */
    double *squares;                 /* [params] sums of squares of the gradient, for clipping */
    cgp__nonfinite *nonfinite;       /* [devices] results of the last check */
    double norm;                     /* norm of the last step's gradients; NaN without clip_norm */
    double gradient_norm;            /* norm used by the last cgp_optim_step() */
    char refusal[1024];              /* why the last step must not update or commit; "": it may */
    bool update_due;                 /* gradients wait for cgp_optim_step() */
    bool has_gradients;              /* cgp_pipeline_get_gradient() may return them */
    cgp_update update;               /* constants of the update */
    cgp_update_values update_values; /* of the update that follows the step */

    const cgp_tensor **no_inputs; /* [inputs] all NULL, for a rank that reads none */

    /* The caller's tensors for gradients of inputs, by value and as the list of a run context. */
    cgp_tensor *input_gradients;
    const cgp_tensor **input_gradient_list;

    /* With an external loss: inputs of the forward whose backward is due, by value and as the list
     * of a run context. */
    cgp_tensor *external_inputs;
    const cgp_tensor **external_list;
    const cgp__run *external_run; /* NULL: forward is due */
} cgp__step;

/* step.c: allocate and free. */
cgp_status cgp__step_init(cgp__step *step, cgp__executor *executor, uint64_t seed);
void cgp__step_deinit(cgp__step *step);

/* Return CGP_ESTATE if the pipeline has failed or a backward is due. Return the name of the public
 * call that is due before an update. */
cgp_status cgp__step_check_idle(const cgp_pipeline *pipeline);
const char *cgp__step_due(const cgp__step *step);

/* Run the context's lists on all workers; set its seed and step for dropout. */
cgp_status cgp__step_run(cgp_pipeline *pipeline, cgp__run_context *context);

/* Check the tensors of a training run, find its lists and run them. */
cgp_status cgp__step_train(cgp_pipeline *pipeline, cgp__run_context *context, int n_inputs);

/* End a step after its last backward: tied gradients, finite check, states, counters. `loss`: 0
 * with an external loss. */
cgp_status cgp__step_end(cgp_pipeline *pipeline, double loss);

/* finite.c: return whether the end of a step checks devices, and so ends in an exchange of all
 * ranks. */
static inline bool cgp__finite_checks(const cgp_plan *plan) {
    return plan->model->n_states > 0 || plan->optim.clip_norm > 0;
}

/* finite.c: set norm and refusal when all gradients are complete. */
cgp_status cgp__finite_decide(cgp__step *step, double loss);

/* Return the entry of `nonfinite` with the lowest tensor; NULL: all tensors are finite. */
const cgp__nonfinite *cgp__finite_first(const cgp__step *step);

/* The tensors of a parameter: its values, its gradient, or the optimizer state of a number from
 * 0. */
enum { CGP__VALUES = -1, CGP__GRADIENT = -2 };

/* parameters.c: return the data of a tensor, of the copy on the worker's device. */
float *cgp__copy_data(const cgp__worker *worker, const cgp__copy *copy, int tensor);

/* Return the copy at a parameter's first use; the worker of its device owns the parameter. */
static inline const cgp__copy *cgp__owner_of(const cgp_plan *plan, int parameter) {
    return &plan->copies[plan->first_copy[parameter]];
}

/* Copy a tensor to the host: cgp__parameter_read() on the owner's rank, cgp__parameter_bring() on
 * all ranks. The latter is collective. */
cgp_status cgp__parameter_read(const cgp__executor *executor, int parameter, int tensor,
                               float *out);
cgp_status cgp__parameter_bring(const cgp__executor *executor, int parameter, int tensor,
                                float *out);

/* Return whether a device of this rank has a copy of the parameter. Copy a tensor from the host to
 * all such devices. */
bool cgp__parameter_is_here(const cgp__executor *executor, int parameter);
cgp_status cgp__parameter_write(const cgp__executor *executor, int parameter, int tensor,
                                const float *in);

/* tied.c: add up the gradients of tied parameters (those with several uses) after the last
 * backward. */
cgp_status cgp__tied_sum(cgp__executor *executor);

/* parameters.c: the job that sets a device's parameters and states to their initial values.
 * Argument: uint64_t seed. */
cgp_status cgp__job_initialize(cgp__worker *worker, void *seed);

/* states.c: set a device's states to their initial values; move what a step accumulated into all
 * states. */
cgp_status cgp__states_initialize(cgp__worker *worker);
cgp_status cgp__states_commit(cgp_pipeline *pipeline);

/* Look for states of the worker's device that a commit would make nonfinite. Write the answers to
 * its words from *n on, and advance *n. When the words are fetched, return the first such state;
 * -1: none. */
cgp_status cgp__states_check(cgp__worker *worker, int *n);
int cgp__states_first_nonfinite(const cgp__worker *worker);

/* Copy a state on its rank: to `out`, or from `in`, on the host. */
cgp_status cgp__state_move(const cgp_pipeline *pipeline, int state, void *out, const void *in);

/* Return the data of a state that the worker checks before a save. NULL: on another device, of a
 * custom op, or not f32. */
const float *cgp__state_data(const cgp__worker *worker, int state);

/* inputs.c: check the caller's tensors of a run before anything runs, and find its number of
 * samples. With with_loss, fill loss_counts and loss_scales. Collective. */
cgp_status cgp__inputs_check(cgp__step *step, const cgp__run_context *context, int n_inputs,
                             int64_t *samples);

/* Return the caller's list, or a list of NULLs if it is NULL: a rank that reads no input may pass
 * NULL. */
const cgp_tensor *const *cgp__inputs_or_none(const cgp__step *step,
                                             const cgp_tensor *const *inputs);

/* Return the bytes of a rank's part of the exchange in cgp__inputs_check(). */
size_t cgp__inputs_part_bytes(const cgp_model *model);

/* Check the caller's tensors for gradients of inputs. After the run, zero the gradients that no
 * stage computes. */
cgp_status cgp__inputs_check_gradients(const cgp__step *step, int64_t samples);
void cgp__inputs_zero_gradients(const cgp__step *step);

/* The tensors that the caller passes: all outputs, the outputs that it wants, or the gradients of
 * outputs that have one. */
typedef enum cgp__wanted { CGP__ALL_OUTPUTS, CGP__SOME_OUTPUTS, CGP__OUTPUT_GRADIENTS } cgp__wanted;

/* Check tensors against the model's outputs whose stages are on this rank. *samples: expected
 * number; if 0, it is set from the first tensor. */
cgp_status cgp__inputs_check_outputs(const cgp__executor *executor, cgp__wanted wanted,
                                     const cgp_tensor *const *tensors, int n, int64_t *samples);

#endif
