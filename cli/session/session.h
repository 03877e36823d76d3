/* SPDX-License-Identifier: Apache-2.0 */
/* session.h -- a model, its plan and its pipeline, made from the run options; and the measures of
 * its steps. */
#ifndef CGPIPE_CLI_SESSION_H
#define CGPIPE_CLI_SESSION_H

#include "session/eval_metrics.h"

#include <cgpipe/data.h>
#include "session/inputs.h"
#include "session/model.h"

/* The measures of a step: seconds, those of a step with the update, of the update, those of the
 * others without, NaN where there are none; fractions: the bubble, and how busy device 0 was,
 * behind which the others follow. */
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
    const cli_run_options *options;  /* Borrowed. */
    cli_model of;                    /* the model that the command line names */
    char model_spec[CLI_MODEL_SPEC]; /* all sizes written out */
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    cgp_optim optim;
    void *inputs, *targets; /* [batch, ...] of the model's two inputs */
    float *output;          /* [batch, ...] of the model's output, if it has eval metrics */
    cli_measures measures;
    cgp_schedule_timeline timeline; /* of the last step, for --trace */
    int64_t steps_before;           /* updates before this process */
    int64_t position;               /* of the next training sample in the data */
    int64_t samples;                /* training samples seen, over all processes and data */
    /* The last failure was one of samples, which could not be read or which the model refuses: on
     * all ranks alike, and nothing ran. */
    bool sample_failed;
    char fault[512];         /* CGP_FAULT of a rank, as a terminal may show it; "": none */
    int64_t resident_before; /* VmHWM before the pipeline was made */
    int64_t resident_growth; /* its growth until the last step */
} cli_session;

/* Make the model of MODEL; make model and plan; make the plan of the model made before. The first
 * two clear *session first; release it in any case. */
CGP_MUST_CHECK cgp_status cli_session_model(cli_session *session, const cli_run_options *options,
                                            const cli_model *model);
CGP_MUST_CHECK cgp_status cli_session_plan(cli_session *session, const cli_run_options *options,
                                           const cli_model *model);
CGP_MUST_CHECK cgp_status cli_session_make_plan(cli_session *session);

/* Tell whether a run is this process's alone, though there may be others: --transport inproc. */
bool cli_runs_alone(const cli_run_options *options);

/* Make the pipeline, of all ranks or of this process alone. */
CGP_MUST_CHECK cgp_status cli_session_create(cli_session *session);

/* Make the pipeline, and memory for the measures of --steps. With --costs-out its layers are
 * measured, except in the first two steps. */
CGP_MUST_CHECK cgp_status cli_session_start(cli_session *session);

/* Tell whether this rank reads data in a step, by the plan. */
bool cli_session_reads(const cli_session *session);

/* Train on a mini-batch: step, update, measure. `loss` may be NULL. */
CGP_MUST_CHECK cgp_status cli_session_step_on(cli_session *session, const cgp_tensor *const *inputs,
                                              int n_inputs, double *loss);

/* Train on the next mini-batch of `data`, likewise. NULL: this rank reads none. */
CGP_MUST_CHECK cgp_status cli_session_step(cli_session *session, cgp_data *data, double *loss);

/* Return the number of updates, over all processes. */
int64_t cli_session_steps(const cli_session *session);

/* Evaluate the first `samples` of the validation split of `data`, likewise; all NaN if a signal
 * came. */
CGP_MUST_CHECK cgp_status cli_session_validate(cli_session *session, cgp_data *data,
                                               int64_t samples, cli_eval_metrics *metrics);

void cli_session_release(cli_session *session);

/* Make a list of one name a device, of --stages and --devices; NULL: the default. Freed by the
 * caller; the names are borrowed. */
CGP_MUST_CHECK cgp_status cli_devices_expand(const char ***devices, const cli_run_options *options);

/* Return the rank that has an output of the model, and the one that has its losses. */
int cli_output_rank(const cgp_plan *plan, int output);
int cli_loss_rank(const cgp_plan *plan);

/* Run forward for one of the model's outputs alone. `tensor`: on the other ranks than that output's
 * not written. */
CGP_MUST_CHECK cgp_status cli_predict_one(cgp_pipeline *pipeline, const cgp_model *model,
                                          const cgp_tensor *const *inputs, int n_inputs, int output,
                                          const cgp_tensor *tensor);

/* Sum the bytes of all devices: as planned, without stages; as allocated. */
cgp_plan_device cli_plan_total(const cgp_plan *plan);
int64_t cli_allocated_bytes(const cli_session *session);

/* Return the median of all steps but the first two; of device `d`: CLI_BUSY + d. */
double cli_measured(const cli_session *session, int measure);

/* Return the values of the last step, by cli_measure. Borrowed until the next one. */
const double *cli_measured_last(const cli_session *session);

#endif
