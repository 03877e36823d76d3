/* SPDX-License-Identifier: Apache-2.0 */
/* session.h -- a model, its plan and its pipeline, made from the run options, and the measurements
 * of its steps. */
#ifndef CGPIPE_CLI_SESSION_H
#define CGPIPE_CLI_SESSION_H

#include <cgpipe/data.h>
#include "session/model.h"

typedef struct cli_eval_metrics cli_eval_metrics;
typedef struct cli_run_options cli_run_options;

/* The measurements of a step; NaN: not available. Times are in seconds; only CLI_STEP_SECONDS
 * includes the update. The bubble is a fraction. Entry CLI_BUSY + d is the fraction of the time in
 * which device d was busy. */
typedef enum cli_measure {
    CLI_STEP_SECONDS,
    CLI_UPDATE_SECONDS,
    CLI_RUN_SECONDS,
    CLI_FORWARD_SECONDS,
    CLI_BACKWARD_SECONDS,
    CLI_GAP_SECONDS,
    CLI_WAKEUP_SECONDS,
    CLI_BUBBLE,
    CLI_BUSY
} cli_measure;

typedef struct cli_measures {
    int64_t steps;
    double *values; /* [--steps][CLI_BUSY + devices] */
    double loss_first, loss_last;
} cli_measures;

typedef struct cli_session {
    const cli_run_options *options;  /* borrowed */
    cli_model of;                    /* the model that the command line names */
    char model_spec[CLI_MODEL_SPEC]; /* the model's text with all sizes */
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    cgp_optim optim;
    cgp_optim_group *groups; /* the parameter groups of `optim` */
    void *inputs, *targets;  /* [batch, ...] buffers for the model's two inputs */
    float *output;           /* [batch, ...] the model's output, if the model has eval metrics */
    cli_measures measures;
    cgp_schedule_timeline timeline; /* the last step's timeline, for --trace */
    int64_t steps_before;           /* number of updates before this process started */
    int64_t position;               /* index of the next training sample in the data */
    /* Number of training samples seen, over all starts of the run and all its data. */
    int64_t samples;
    /* The last failure was caused by samples that could not be read or that the model refused, and
     * nothing was run. This member has the same value on all ranks. */
    bool sample_failed;
    char fault[512];         /* CGP_FAULT of a rank, escaped for a terminal; "": none */
    int64_t resident_before; /* peak resident memory (VmHWM) before the pipeline was made */
    int64_t resident_growth; /* growth of the peak until the last step */
} cli_session;

/* The first function makes the model. The second function makes the model and its plan. The third
 * function makes only the plan; the model must exist. The first two clear *session. Release
 * *session in any case. */
CGP_MUST_CHECK cgp_status cli_session_model(cli_session *session, const cli_run_options *options,
                                            const cli_model *model);
CGP_MUST_CHECK cgp_status cli_session_plan(cli_session *session, const cli_run_options *options,
                                           const cli_model *model);
CGP_MUST_CHECK cgp_status cli_session_make_plan(cli_session *session);

/* Create the pipeline, across all ranks or for this process alone. */
CGP_MUST_CHECK cgp_status cli_session_create(cli_session *session);

/* Create the pipeline, and allocate memory for the measurements of --steps. With --costs-out or
 * --ops the pipeline also measures its layers. If there are more than two steps, the first two are
 * not measured. */
CGP_MUST_CHECK cgp_status cli_session_start(cli_session *session);

/* Tell whether this rank reads data in a step, according to the plan. */
bool cli_session_reads(const cli_session *session);

/* Train on a mini-batch: step, update, measure. `loss` may be NULL. */
CGP_MUST_CHECK cgp_status cli_session_step_on(cli_session *session, const cgp_tensor *const *inputs,
                                              int n_inputs, double *loss);

/* Like cli_session_step_on(), with the next mini-batch of `data`. `data` is NULL if this rank reads
 * no data. */
CGP_MUST_CHECK cgp_status cli_session_step(cli_session *session, cgp_data *data, double *loss);

/* Keep the state before a step that will be replayed. After the step, run it again on other devices
 * and compare. @retval CGP_EDIFFERS The step differs from its replay. */
CGP_MUST_CHECK cgp_status cli_session_keep(const cli_session *session);
CGP_MUST_CHECK cgp_status cli_session_replay(const cli_session *session);

/* Return the number of updates over all starts of the run. */
int64_t cli_session_steps(const cli_session *session);

/* Evaluate the first `samples` samples in the validation split of `data`. `data` is NULL if this
 * rank reads no data. If a signal came, all metrics are NaN. */
CGP_MUST_CHECK cgp_status cli_session_validate(cli_session *session, cgp_data *data,
                                               int64_t samples, cli_eval_metrics *metrics);

void cli_session_release(cli_session *session);

/* Return this rank's number in the plan: with replicas, its number in its replica. */
int cli_plan_rank(const cgp_plan *plan);

/* Return the rank of the plan that computes an output of the model. */
int cli_output_rank(const cgp_plan *plan, int output);

/* Run forward for only one of the model's outputs. `tensor` is written on the output's rank
 * only. */
CGP_MUST_CHECK cgp_status cli_predict_one(cgp_pipeline *pipeline, const cgp_model *model,
                                          const cgp_tensor *const *inputs, int n_inputs, int output,
                                          const cgp_tensor *tensor);

/* The first function returns the planned bytes, summed over all devices (the member `stages` is not
 * set). The second function returns the sum of the allocated bytes. */
cgp_plan_device cli_plan_total(const cgp_plan *plan);
int64_t cli_allocated_bytes(const cli_session *session);

/* Return the median of a measurement over all steps but the first two. For device `d`, `measure` is
 * CLI_BUSY + d. */
double cli_measured(const cli_session *session, int measure);

/* Return the last step's values, indexed by cli_measure. Borrowed until the next step. */
const double *cli_measured_last(const cli_session *session);

#endif
