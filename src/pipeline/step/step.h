/* SPDX-License-Identifier: Apache-2.0 */
/* step.h -- the data of training steps: losses, counters and the state of gradients. */
#ifndef CGP_SRC_PIPELINE_STEP_STEP_H
#define CGP_SRC_PIPELINE_STEP_STEP_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/pipeline.h>

typedef struct cgp__evidence cgp__evidence;
typedef struct cgp__nonfinite cgp__nonfinite;
typedef struct cgp__run cgp__run;
typedef struct cgp__run_context cgp__run_context;

/* Accumulation of the gradients of several steps (accumulate.c). */
typedef struct cgp__accumulation {
    bool on;          /* set if steps accumulate gradients (cgp_pipeline_set_accumulation()) */
    int64_t *targets; /* [losses] divisors that cgp_pipeline_set_targets() has set; 0: not set (see
                       * loss_divisors) */
} cgp__accumulation;

/* The number of updates and the state of the gradients. Pipelines that share gradients all use the
 * struct of the pipeline that owns the gradients. */
typedef struct cgp__shared {
    int64_t updates;
    bool update_due;    /* set if gradients wait for cgp_optim_step() */
    bool has_gradients; /* set if cgp_pipeline_get_gradient() may return gradients */
    bool open;          /* set if tied gradients are not yet added up */
    bool partial;       /* set if a replica has only its parts of untied gradients */
    bool has_norm;      /* set if `norm` is computed */
    bool clipped;       /* set if cgp_pipeline_clip_grad_norm() has set `scale` since the last
                         * update */
    double scale;       /* factor of cgp_pipeline_clip_grad_norm() */
    double norm;        /* norm of the gradients; NaN if not computed */
    char refusal[1024]; /* reason why the update is refused; "": the update is not refused */
} cgp__shared;

/* Written by the caller's thread, except where a comment names a worker. */
typedef struct cgp__step {
    uint64_t seed;
    int64_t steps;            /* steps done; part of the key of dropout */
    cgp__shared own, *shared; /* `shared` points to `own` of this pipeline, or of the pipeline that
                               * owns the memory */
    char *parts;              /* [ranks] parts of the exchange before a run (inputs.c) */
    double *packed;           /* [params] sums of squares, ordered by the rank of the owner */
    int64_t *loss_counts;     /* [losses] number of terms of each loss sum, such as the number of
                               * targets */
    double *loss_divisors;    /* [losses] each divisor is 1, the loss's count, a sum of weights, or
                               * the divisor that the caller set */
    double *loss_sums;        /* [losses] sums over the micro-batches */
    double *step_sums;        /* [losses] loss_sums of the last training step, for the digest of
                               * that step */
    float *loss_scales;       /* [losses] weight / divisor */
    bool squared;             /* set if the check of devices also sums the squares of gradients */
    double *lr;               /* [1 + groups] rates that the caller set; NaN: the plan's rate */
    double lr_factor;         /* factor of the groups' rates; the LR schedule sets it */
    double gradient_norm;     /* norm used by the last cgp_optim_step() */
    cgp__accumulation accumulation;
    cgp_update update; /* constants of the update */
    /* [1 + groups] values of the update, set in each step: first for parameters in no group, then
     * for each group. Between a step and its update, update_values[0] has the values of rank 0. */
    cgp_update_values *update_values;

    /* [params] sum of squares of each gradient, for clipping; written by the worker of the
     * parameter's owner. */
    double *squares;
    /* [devices] results of the last check; written by the device's worker. */
    cgp__nonfinite *nonfinite;

    cgp__evidence *evidence;      /* hashes of the next step; NULL: none are made */
    struct cgp__digests *digests; /* memory of digest.c; NULL: no digest was computed */

    const cgp_tensor **no_inputs; /* [inputs] all entries are NULL; used if the caller passes no
                                   * inputs */

    /* The caller's tensors for gradients of inputs: an array of tensors, and the list of pointers
     * for a run context. */
    cgp_tensor *input_gradients;
    const cgp_tensor **input_gradient_list;

    /* Used if the loss is external. The inputs of the forward whose backward is due: an array of
     * tensors, and the list of pointers for a run context. */
    cgp_tensor *external_inputs;
    const cgp_tensor **external_list;
    const cgp__run *external_run; /* action lists of a forward whose backward is due; NULL: a
                                   * forward is due next */
} cgp__step;

/* These functions allocate and free the memory to which a cgp__step points. */
cgp_status cgp__step_init(cgp__step *step, const cgp_plan *plan, uint64_t seed);
void cgp__step_deinit(cgp__step *step);

/* cgp__step_check_idle() returns CGP_ESTATE if the pipeline has failed or a backward is due.
 * cgp__step_check_training() returns CGP_ESTATE if the pipeline has failed or is planned for
 * inference. cgp__step_due() returns the name of the public call that is due before an update. */
cgp_status cgp__step_check_idle(const cgp_pipeline *pipeline);
cgp_status cgp__step_check_training(const cgp_pipeline *pipeline);
const char *cgp__step_due(const cgp_pipeline *pipeline);

/* Set the context's seed and step number for dropout, and run the context's action lists on all
 * workers. */
cgp_status cgp__step_run(cgp_pipeline *pipeline, cgp__run_context *context);

/* Check the caller's tensors for a training run, then find and run the action lists. */
cgp_status cgp__step_train(cgp_pipeline *pipeline, cgp__run_context *context, int n_inputs);

/* Return CGP_ESTATE if the next backward would add to clipped gradients. Called before a forward or
 * a step. */
cgp_status cgp__accumulate_check(const cgp_pipeline *pipeline);

/* Let all ranks agree on a status, and on whether the backward adds to gradients. Called before a
 * backward. Collective. */
cgp_status cgp__accumulate_agree(const cgp_pipeline *pipeline, cgp_status status);

/* Find the action lists of a backward of `samples` samples. If accumulation is on, these lists add
 * to the gradients that wait for an update. Called before a backward. Collective. */
cgp_status cgp__accumulate_find(cgp_pipeline *pipeline, int64_t samples, const cgp__run **out);

/* Prepare the gradients for a backward. If the backward adds to tied gradients that are already
 * added up, separate the buffers of their uses (cgp__tied_separate()). */
cgp_status cgp__accumulate_begin(cgp_pipeline *pipeline);

/* Complete open gradients: add up tied gradients and, if the optimizer has a clip_norm, compute the
 * norm. */
cgp_status cgp__accumulate_close(cgp_pipeline *pipeline);

/* Do the same and, if replicas have only parts of gradients, exchange these parts. Collective. */
cgp_status cgp__accumulate_complete(cgp_pipeline *pipeline);

/* Return true if gradients can be read: a step has run, and no backward is due. */
static inline bool cgp__step_has_gradients(const cgp__step *step) {
    return step->shared->has_gradients && !step->external_run;
}

/* Free the memory of digests (digest.c). */
void cgp__digests_destroy(struct cgp__digests *digests);

/* End a step after its last backward: reduce gradients over the replicas, add up tied gradients,
 * check that numbers are finite, commit states, and update counters. `loss` is 0 if the loss is
 * external. */
cgp_status cgp__step_end(cgp_pipeline *pipeline, const cgp__run *run, double loss);

#endif
