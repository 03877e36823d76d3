/* SPDX-License-Identifier: Apache-2.0 */
/* step.h -- the numbers of a training step: losses, counters, gradients' state, checkpoints. */
#ifndef CGP_SRC_PIPELINE_STEP_H
#define CGP_SRC_PIPELINE_STEP_H

#include <cgpipe/pipeline.h>

#include "pipeline/run/run.h"

/* The first tensor of a device that is not finite. */
typedef struct cgp__nonfinite {
    int64_t tensor;  /* its number (finite.c: states; save.c: cgp__saved_at()); -1: none */
    int64_t element; /* of save.c */
    float value;
} cgp__nonfinite;

typedef struct cgp__step {
    cgp__executor *executor;
    uint64_t seed;
    int64_t steps;                 /* done; in the key of dropout */
    int64_t own_updates, *updates; /* done, by all pipelines that share parameters */
    char *parts;                   /* [ranks] of the exchange before a run (inputs.c) */
    double *packed;                /* [params] squares in the order of their owners' ranks */
    int64_t *loss_counts;          /* [losses] of the mini-batch */
    double *loss_sums;             /* [losses] over its micro-batches */
    float *loss_scales;            /* [losses] weight / count */
    double *squares;               /* [params] sums of their gradients' squares, for clipping */
    cgp__nonfinite *nonfinite;     /* [devices] of the last check */
    double norm;                   /* of the last step's gradients; NaN without clip_norm */
    double gradient_norm;          /* that of the last cgp_optim_step() */
    char refusal[1024];            /* why the last step updates and commits nothing; "": it does */
    bool update_due;               /* gradients wait for cgp_optim_step() */
    bool has_gradients;            /* for cgp_pipeline_get_gradient() */
    cgp_update update;             /* constants of the update */
    cgp_update_values update_values; /* of the one that follows the step */

    const cgp_tensor **no_inputs; /* [inputs] NULL, for a rank that reads none */

    /* Where the caller wants gradients of inputs, as tensors and as the list of a run context. */
    cgp_tensor *input_gradients;
    const cgp_tensor **input_gradient_list;

    /* With an external loss: inputs of the forward whose backward is due, as tensors and as the
     * list of a run context. */
    cgp_tensor *external_inputs;
    const cgp_tensor **external_list;
    const cgp__run *external_run; /* NULL: forward is due */
} cgp__step;

/* step.c: allocate and free. */
cgp_status cgp__step_init(cgp__step *step, cgp__executor *executor, uint64_t seed);
void cgp__step_deinit(cgp__step *step);

/* Return CGP_ESTATE if the pipeline has failed, or a backward is due; the public call that makes
 * gradients. */
cgp_status cgp__step_check_idle(const cgp_pipeline *pipeline);
const char *cgp__step_due(const cgp__step *step);

/* Run lists on all workers, with seed and step of dropout. */
cgp_status cgp__step_run(cgp_pipeline *pipeline, cgp__run_context *context);

/* Check the tensors of a training run, find its lists and run them. */
cgp_status cgp__step_train(cgp_pipeline *pipeline, cgp__run_context *context, int n_inputs);

/* End a step after its last backward: tied gradients, finite check, states, counters. `loss`: 0
 * with an external loss. */
cgp_status cgp__step_end(cgp_pipeline *pipeline, double loss);

/* finite.c: return whether the end of a step checks devices, and ends in an exchange of all ranks.
 * */
static inline bool cgp__finite_checks(const cgp_plan *plan) {
    return plan->model->n_states > 0 || plan->optim.clip_norm > 0;
}

/* finite.c: set norm and refusal once all gradients are complete. */
cgp_status cgp__finite_decide(cgp__step *step, double loss);

/* The first of `nonfinite`; NULL: all tensors are finite. */
const cgp__nonfinite *cgp__finite_first(const cgp__step *step);

/* The tensors of a parameter: its values, its gradient, or its optimizer's state of a number from
 * 0. */
enum { CGP__VALUES = -1, CGP__GRADIENT = -2 };

/* parameters.c: the data of a tensor, for the copy on the worker's device. */
float *cgp__copy_data(const cgp__worker *worker, const cgp__copy *copy, int tensor);

/* The copy that belongs to a parameter's first use; its device's worker owns the parameter. */
static inline const cgp__copy *cgp__owner_of(const cgp_plan *plan, int parameter) {
    return &plan->copies[plan->first_copy[parameter]];
}

/* Copy a tensor to the host, on the owner's rank; or from there to all ranks. The latter is
 * collective. */
cgp_status cgp__parameter_read(const cgp__executor *executor, int parameter, int tensor,
                               float *out);
cgp_status cgp__parameter_bring(const cgp__executor *executor, int parameter, int tensor,
                                float *out);

/* Return whether a device of this rank has a copy of the parameter; copy a tensor from the host to
 * all that do. */
bool cgp__parameter_is_here(const cgp__executor *executor, int parameter);
cgp_status cgp__parameter_write(const cgp__executor *executor, int parameter, int tensor,
                                const float *in);

/* tied.c: add up the gradients of parameters with several uses, after the last backward. */
cgp_status cgp__tied_sum(cgp__executor *executor);

/* parameters.c: a job; set parameters and states of a device to their initial values. Argument:
 * uint64_t seed. */
cgp_status cgp__job_initialize(cgp__worker *worker, void *seed);

/* states.c: set a device's states to their initial values; move what a step accumulated into all
 * states. */
cgp_status cgp__states_initialize(cgp__worker *worker);
cgp_status cgp__states_commit(cgp_pipeline *pipeline);

/* Look for states of the worker's device that a commit would make nonfinite: the answers go to
 * words, *n of them so far. Then, when the words are fetched: the first such state, -1: none. */
cgp_status cgp__states_check(cgp__worker *worker, int *n);
int cgp__states_first_nonfinite(const cgp__worker *worker);

/* Copy a state between the host and its device, on its rank: to `out`, or from `in`. */
cgp_status cgp__state_move(const cgp_pipeline *pipeline, int state, void *out, const void *in);

/* The data of a state of a built-in op, which the worker checks before a save. NULL: another
 * worker's, or not checked. */
const float *cgp__state_data(const cgp__worker *worker, int state);

/* inputs.c: check the caller's tensors of a run before anything runs, and find its number of
 * samples; with_loss: fill loss_counts and loss_scales. */
cgp_status cgp__inputs_check(cgp__step *step, const cgp__run_context *context, int n_inputs,
                             int64_t *samples);

/* Return the caller's list, or one without tensors for NULL: legal on one of several ranks, if it
 * reads none. */
const cgp_tensor *const *cgp__inputs_or_none(const cgp__step *step,
                                             const cgp_tensor *const *inputs);

/* Bytes of a rank's part of the exchange that cgp__inputs_check() makes. Collective. */
size_t cgp__inputs_part_bytes(const cgp_model *model);

/* Check the caller's tensors for gradients of inputs that stages of this rank make; after the run,
 * write those that none makes. */
cgp_status cgp__inputs_check_gradients(const cgp__step *step, int64_t samples);
void cgp__inputs_zero_gradients(const cgp__step *step);

/* The caller's tensors of all outputs; of those that it wants; the gradients of those that have
 * one. */
typedef enum cgp__wanted { CGP__ALL_OUTPUTS, CGP__SOME_OUTPUTS, CGP__OUTPUT_GRADIENTS } cgp__wanted;

/* Check tensors against those outputs of the model whose stages are on this rank. *samples: their
 * number; 0: not known, then set to that of the first tensor. */
cgp_status cgp__inputs_check_outputs(const cgp__executor *executor, cgp__wanted wanted,
                                     const cgp_tensor *const *tensors, int n, int64_t *samples);

#endif
