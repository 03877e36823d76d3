/* SPDX-License-Identifier: Apache-2.0 */
/* train_steps.c -- the steps of cgpipe train. After each one, in this order: validation if it is due, a line of metrics,
 * progress, a checkpoint if it is due or the run stops here. So the lines up to its step are on the disk before a checkpoint
 * is. */
#include "commands/train.h"

#include "common.h"
#include "files.h"
#include "options/epochs.h"
#include "report/progress.h"
#include "stop.h"

#include <math.h>

#define VALIDATION_SEQUENCES 200
#define DEFAULT_LINES 20
#define DEFAULT_CHECKPOINTS 10
#define REDRAW_SECONDS 0.1

/* Return steps / parts, at least 1. */
static int64_t one_of(int64_t steps, int64_t parts) {
    return steps > parts ? steps / parts : 1;
}

static bool due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

/* --- validation --- */

cgp_status cli_train_validate(training *t) {
    int64_t samples = cgp_data_samples(t->data, CGP_SPLIT_VALIDATION);
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
    if (!due(i, every) && !(every > 0 && i == t->run.options.steps)) return CGP_OK;
    return cli_train_validate(t);
}

/* --- progress --- */

/* Print the line of step `i`. The eta takes the mean time of this process' steps. */
static void print_line(training *t, int64_t i, double loss, bool last) {
    const cli_session *session = &t->run.session;
    const double now = cli_seconds(),
                 units = (double)(t->run.options.batch * t->units.per_sample);
    char validation[3 * CLI_NUMBER];
    cli_eval_metrics_text(&t->validation, validation, sizeof validation);
    const cli_progress progress = {
        .step = i,
        .steps = t->run.options.steps,
        .loss = loss,
        .validation = validation,
        .lr = cgp_optim_lr_at(&session->optim, i),
        .norm =
            session->optim.clip_norm > 0 ? cgp_pipeline_gradient_norm(session->pipeline) : NAN,
        .per_second = (double)(i - t->steps_shown) * units / t->seconds_since,
        .unit = t->units.short_name,
        .elapsed = now - t->started,
        .eta = last ? NAN
                    : (now - t->steps_started) * (double)(t->run.options.steps - i) /
                          (double)(i - t->run.resumed),
        .bubble = cli_measured_last(session)[CLI_BUBBLE],
        .peak_bytes = cli_peak_resident_bytes(),
    };
    cli_progress_print(t->run.out, &progress, last || *validation);
    t->drawn = now;
}

/* On a terminal show steps that are not due too, at most every REDRAW_SECONDS. */
static bool redraws(const training *t) {
    return cli_progress_rewrites(t->run.out) && cli_seconds() - t->drawn >= REDRAW_SECONDS;
}

/* Print the line of step `i`, counted from 1 over all processes, if it is due. */
static void print_progress(training *t, int64_t i, double loss) {
    if (t->run.options.quiet) return;
    const cli_session *session = &t->run.session;
    const cli_run_options *options = &t->run.options;
    const int64_t interval =
        options->interval ? options->interval : one_of(options->steps, DEFAULT_LINES);
    const bool last = i == options->steps || t->stopped;
    const bool shown =
        due(i, interval) || last || session->measures.steps == 1 || t->validation.samples > 0;
    t->seconds_since += cli_measured_last(session)[CLI_STEP_SECONDS];
    if (!shown && !redraws(t)) return;
    print_line(t, i, loss, last);
    if (!shown) return;
    t->steps_shown = i;
    t->seconds_since = 0;
}

/* --- metrics --- */

static cgp_status log_step(training *t, int64_t i, double loss) {
    const cli_session *session = &t->run.session;
    const double *measured = cli_measured_last(session), seconds = measured[CLI_STEP_SECONDS];
    const double units = (double)(t->run.options.batch * t->units.per_sample);
    const bool clips = session->optim.clip_norm > 0;
    char key[CLI_NUMBER];
    snprintf(key, sizeof key, "%s_per_second", t->units.name);
    json_t *line =
        json_pack("{s:o, s:o, s:o*, s:o, s:o, s:o}", "loss", cli_real_json(loss), "lr",
                  cli_real_json(cgp_optim_lr_at(&session->optim, i)), "gradient_norm",
                  clips ? cli_real_json(cgp_pipeline_gradient_norm(session->pipeline)) : NULL,
                  "seconds", cli_real_json(seconds), key, cli_real_json(units / seconds),
                  "bubble", cli_real_json(measured[CLI_BUBBLE]));
    cli_eval_metrics_json(line, &t->validation);
    return cli_metrics_log(&t->metrics, i, line);
}

/* --- steps --- */

/* Return the reason to end after this step, though it is not the last: a signal's name or "time". NULL: none. */
static const char *stop_reason(const training *t) {
    if (cli_stop_signal()) return cli_stop_signal();
    const double limit = 60 * t->run.options.minutes;
    return limit > 0 && cli_seconds() - t->started >= limit ? "time" : NULL;
}

static cgp_status save_step(training *t, int64_t i) {
    const cli_run_options *options = &t->run.options;
    const int64_t every = options->save_every.count >= 0
                              ? cli_steps_of(options, options->save_every)
                              : one_of(options->steps, DEFAULT_CHECKPOINTS);
    if (!due(i, every) && i != options->steps && !t->stopped) return CGP_OK;
    CGP_TRY(cli_metrics_sync(&t->metrics));
    return cli_resume_save(&t->run);
}

static cgp_status one_step(training *t, int64_t i) {
    double loss = NAN;
    CGP_TRY(cli_session_step(&t->run.session, t->data, &loss));
    CGP_TRY(validate_step(t, i));
    CGP_TRY(log_step(t, i, loss));
    if (i < t->run.options.steps) t->stopped = stop_reason(t);
    print_progress(t, i, loss);
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
    /* End the progress line before the message of a failure. */
    if (status != CGP_OK && t->run.session.measures.steps > 0 &&
        cli_progress_rewrites(t->run.out))
        fputc('\n', t->run.out);
    return status;
}
