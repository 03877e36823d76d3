/* SPDX-License-Identifier: Apache-2.0 */
/* train_steps.c -- the steps of cgpipe train. After each one, in this order: validation if it is due, a line of metrics,
 * progress, a checkpoint if it is due or the run stops here. So the lines up to its step are on the disk before a checkpoint
 * is. */
#include "commands/train.h"

#include "common.h"
#include "files.h"
#include "options/epochs.h"
#include "ranks.h"
#include "stop.h"

#include <math.h>

#define VALIDATION_SEQUENCES 200
#define DEFAULT_CHECKPOINTS 10

/* --- validation --- */

cgp_status cli_train_validate(training *t) {
    int64_t samples = t->facts.samples[CGP_SPLIT_VALIDATION];
    const int64_t max = t->kind == CLI_DATA_RANDOM   ? t->run.options.batch
                        : t->kind == CLI_DATA_TEXT   ? VALIDATION_SEQUENCES
                        : t->kind == CLI_DATA_TOKENS ? VALIDATION_SEQUENCES
                                                     : samples; /* accuracy needs all images */
    samples = samples < max ? samples : max;
    t->validation = cli_no_eval_metrics;
    return cli_session_validate(&t->run.session, t->data, samples, &t->validation);
}

/* With --evaluate-every the last step is always evaluated. */
static cgp_status validate_step(training *t, int64_t i) {
    const int64_t every = cli_steps_of(&t->run.options, t->run.options.evaluate_every);
    t->validation = cli_no_eval_metrics;
    if (!cli_train_due(i, every) && !(every > 0 && i == t->run.options.steps)) return CGP_OK;
    return cli_train_validate(t);
}

/* --- metrics --- */

static cgp_status log_step(training *t, int64_t i, double loss) {
    if (cli_rank() > 0) return CGP_OK;
    const cli_session *session = &t->run.session;
    const double *measured = cli_measured_last(session), seconds = measured[CLI_STEP_SECONDS];
    const double units = (double)(t->run.options.batch * t->units.per_sample);
    const bool clips = session->optim.clip_norm > 0;
    char key[CLI_NUMBER];
    snprintf(key, sizeof key, "%s_per_second", t->units.name);
    json_t *line =
        json_pack("{s:I, s:o, s:o, s:o*, s:o, s:o, s:o}", "step", (json_int_t)i, "loss",
                  cli_real_json(loss), "lr", cli_real_json(cgp_optim_lr_at(&session->optim, i)),
                  "gradient_norm",
                  clips ? cli_real_json(cgp_pipeline_gradient_norm(session->pipeline)) : NULL,
                  "seconds", cli_real_json(seconds), key, cli_real_json(units / seconds),
                  "bubble", cli_real_json(measured[CLI_BUBBLE]));
    cli_eval_metrics_json(line, &t->validation);
    return cli_metrics_log(&t->metrics, line);
}

/* --- steps --- */

/* Rank 0 has the lock, and with it the requests. */
const char *cli_train_stop(const training *t, bool time_is_up) {
    if (t->run.directory.locked && cli_run_directory_take_stop(&t->run.directory))
        cli_stop_note(CLI_STOP_REQUEST);
    return cli_ranks_stop(time_is_up);
}

static bool time_is_up(const training *t) {
    const double limit = 60 * t->run.options.minutes;
    return limit > 0 && cli_seconds() - t->started >= limit;
}

static cgp_status save_step(training *t, int64_t i) {
    const cli_run_options *options = &t->run.options;
    const int64_t every = options->save_every.count >= 0
                              ? cli_steps_of(options, options->save_every)
                              : cli_train_part(options->steps, DEFAULT_CHECKPOINTS);
    if (!cli_train_due(i, every) && i != options->steps && !t->stopped) return CGP_OK;
    if (cli_rank() == 0) CGP_TRY(cli_metrics_sync(&t->metrics));
    return cli_resume_save(&t->run);
}

static cgp_status one_step(training *t, int64_t i) {
    double loss = NAN;
    CGP_TRY(cli_session_step(&t->run.session, t->data, &loss));
    CGP_TRY(validate_step(t, i));
    CGP_TRY(log_step(t, i, loss));
    if (i < t->run.options.steps) t->stopped = cli_train_stop(t, time_is_up(t));
    cli_train_progress(t, i, loss);
    return save_step(t, i);
}

cgp_status cli_train_steps(training *t) {
    cgp_status status = CGP_OK;
    t->steps_shown = t->run.resumed;
    t->steps_started = cli_seconds();
    for (int64_t i = t->run.resumed + 1; i <= t->run.options.steps; i++) {
        if (status == CGP_OK) status = one_step(t, i);
        if (status != CGP_OK || t->stopped) break;
    }
    if (status != CGP_OK) cli_train_progress_end(t);
    return status;
}
