/* SPDX-License-Identifier: Apache-2.0 */
/* train_steps.c -- the steps of cgpipe train. After each step, in this order: a line of metrics, a
 * checkpoint if due, validation if due, progress, and a checkpoint if the run stops here. So the
 * metrics up to a step are on disk before its checkpoint. Validation, which takes long and may
 * fail, comes after both.
 *
 * A step whose samples cannot be used fails before it runs anything, and the steps before it are
 * saved. */
#include "commands/train.h"

#include "common.h"
#include "files.h"
#include "options/epochs.h"
#include "ranks.h"
#include "stop.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define VALIDATION_SEQUENCES 200
#define DEFAULT_CHECKPOINTS 10

/* --- validation --- */

cgp_status cli_train_validate(training *t) {
    int64_t samples = t->facts.samples[CGP_SPLIT_VALIDATION];
    const int64_t max = t->kind == CLI_DATA_RANDOM   ? t->run.options.batch
                        : t->kind == CLI_DATA_TEXT   ? VALIDATION_SEQUENCES
                        : t->kind == CLI_DATA_TOKENS ? VALIDATION_SEQUENCES
                                                     : samples; /* accuracy uses all images */
    samples = samples < max ? samples : max;
    t->validation = cli_no_eval_metrics;
    return cli_session_validate(&t->run.session, t->data, samples, &t->validation);
}

/* --- metrics --- */

static cgp_status log_step(training *t, int64_t i, double loss) {
    if (cli_rank() > 0) return CGP_OK;
    CGP_TRY(cli_run_directory_keep_lock(&t->run.directory));
    const cli_session *session = &t->run.session;
    const double *measured = cli_measured_last(session), seconds = measured[CLI_STEP_SECONDS];
    const double units = (double)(t->run.options.batch * t->units.per_sample);
    const bool clips = session->optim.clip_norm > 0;
    char key[CLI_NUMBER];
    snprintf(key, sizeof key, "%s_per_second", t->units.name);
    json_t *line = json_pack(
        "{s:I, s:o, s:o, s:o*, s:o, s:o, s:o}", "step", (json_int_t)i, "loss", cli_real_json(loss),
        "lr", cli_real_json(cgp_optim_lr_at(&session->optim, i)), "gradient_norm",
        clips ? cli_real_json(cgp_pipeline_gradient_norm(session->pipeline)) : NULL, "seconds",
        cli_real_json(seconds), key, cli_real_json(units / seconds), "bubble",
        cli_real_json(measured[CLI_BUBBLE]));
    return cli_metrics_log(&t->metrics, line);
}

static cgp_status log_validation(training *t) {
    json_t *members = json_object();
    cli_eval_metrics_json(members, &t->validation);
    return cli_metrics_add(&t->metrics, members);
}

/* --- steps --- */

/* Only rank 0 holds the lock, so only it reads stop requests. */
const char *cli_train_stop(const training *t, bool time_is_up) {
    if (t->run.directory.locked && cli_run_directory_take_stop(&t->run.directory))
        cli_stop_note(CLI_STOP_REQUEST);
    return cli_ranks_stop(time_is_up);
}

static bool time_is_up(const training *t) {
    const double limit = 60 * t->run.options.minutes;
    return limit > 0 && cli_seconds() - t->started >= limit;
}

static cgp_status save(training *t) {
    if (cli_rank() == 0) CGP_TRY(cli_metrics_sync(&t->metrics));
    if (cli_rank() == 0) CGP_TRY(cli_run_directory_keep_lock(&t->run.directory));
    return cli_resume_save(&t->run);
}

static cgp_status save_step(training *t, int64_t i) {
    const cli_run_options *options = &t->run.options;
    const bool due = options->save_every.count >= 0
                         ? cli_steps_due(options, options->save_every, i)
                         : cli_train_due(i, cli_train_part(options->steps, DEFAULT_CHECKPOINTS));
    return due || i == options->steps ? save(t) : CGP_OK;
}

/* Validate if due. With --evaluate-every, the last step is always validated. */
static cgp_status validate_step(training *t, int64_t i) {
    const cli_run_options *options = &t->run.options;
    const bool last = i == options->steps && options->evaluate_every.count > 0;
    t->validation = cli_no_eval_metrics;
    if (!last && !cli_steps_due(options, options->evaluate_every, i)) return CGP_OK;
    CGP_TRY(cli_train_validate(t));
    return cli_rank() == 0 && t->validation.samples > 0 ? log_validation(t) : CGP_OK;
}

static cgp_status one_step(training *t, int64_t i) {
    double loss = NAN;
    CGP_TRY(cli_session_step(&t->run.session, t->data, &loss));
    CGP_TRY(log_step(t, i, loss));
    CGP_TRY(save_step(t, i));
    CGP_TRY(validate_step(t, i));
    if (i < t->run.options.steps) t->stopped = cli_train_stop(t, time_is_up(t));
    cli_train_progress(t, i, loss);
    return t->stopped && t->run.saved < i ? save(t) : CGP_OK;
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

cgp_status cli_train_keep(training *t, cgp_status status) {
    cli_session *session = &t->run.session;
    const int64_t step = cli_session_steps(session);
    if (status == CGP_OK || !session->sample_failed || step == 0) return status;
    char *message = cli_text("%s", cgp_message());
    const cgp_status saved = t->run.saved < step ? save(t) : CGP_OK;
    session->sample_failed = saved == CGP_OK;
    if (saved == CGP_OK)
        (void)cgp_fail(status, "%s; step %" PRId64 " is saved", message, step);
    else
        (void)cgp_fail(saved, "%s; step %" PRId64 " cannot be saved: %s", message, step,
                       cgp_message());
    free(message);
    return saved == CGP_OK ? status : saved;
}
