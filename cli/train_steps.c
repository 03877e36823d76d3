/* SPDX-License-Identifier: Apache-2.0 */
/* train_steps.c -- the steps of cgpipe train. After each one, in this order: validation if it
 * is due, a line of metrics, progress, a checkpoint if it is due or the run stops here. So a
 * checkpoint never comes without the lines up to its step. */
#include "train.h"

#include "common.h"
#include "progress.h"
#include "report.h"
#include "stop.h"

#include <inttypes.h>
#include <math.h>

#define VALIDATION_WINDOWS 200
#define DEFAULT_LINES 20
#define DEFAULT_CHECKPOINTS 10
#define REDRAW_SECONDS 0.1

/* A share of the steps, at least 1. */
static int64_t share(int64_t steps, int64_t parts) {
    return steps > parts ? steps / parts : 1;
}

static bool due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

/* --- validation --- */

cgp_status cli_train_validate(training *t) {
    int64_t samples = cgp_data_samples(t->data, CGP_SPLIT_VALIDATION);
    const int64_t max = t->kind == CLI_DATA_RANDOM   ? t->options.batch
                        : t->kind == CLI_DATA_TEXT   ? VALIDATION_WINDOWS
                        : t->kind == CLI_DATA_TOKENS ? VALIDATION_WINDOWS
                                                     : samples; /* accuracy is of all images */
    samples = samples < max ? samples : max;
    t->validation = cli_no_eval_metrics;
    return cli_session_validate(&t->session, t->data, samples, &t->validation);
}

/* With --evaluate-every the last step is always one of them. */
static cgp_status validate_step(training *t, int64_t i) {
    const int64_t every = t->options.evaluate_every;
    t->validation = cli_no_eval_metrics;
    if (!due(i, every) && !(every > 0 && i == t->options.steps)) return CGP_OK;
    return cli_train_validate(t);
}

/* --- progress --- */

/* The line of step `i`. The rest of the steps is expected to take as long as those of this process did. */
static void print_line(training *t, int64_t i, double loss, bool last) {
    const cli_session *e = &t->session;
    const cli_measures *m = &e->measures;
    const double now = cli_seconds(), units = (double)(t->options.batch * t->words.units);
    char validation[3 * CLI_NUMBER];
    cli_eval_metrics_text(&t->validation, validation, sizeof validation);
    const cli_progress progress = {
        .step = i,
        .steps = t->options.steps,
        .loss = loss,
        .validation = validation,
        .lr = cgp_optim_lr_at(&e->optim, i),
        .norm = e->optim.clip_norm > 0 ? cgp_pipeline_gradient_norm(e->pipeline) : NAN,
        .per_second = (double)(i - t->steps_shown) * units / t->seconds_since,
        .unit = t->words.brief,
        .elapsed = now - t->started,
        .eta = last ? NAN
                    : (now - t->steps_started) * (double)(t->options.steps - i) /
                          (double)(i - t->resumed),
        .bubble = m->bubble[m->steps - 1],
        .peak_bytes = cli_peak_resident_bytes(),
    };
    cli_progress_print(t->out, &progress, last || *validation);
    t->drawn = now;
}

/* On a terminal a step that is not due is shown all the same, but not more often than an eye follows. */
static bool redraws(const training *t) {
    return cli_progress_rewrites(t->out) && cli_seconds() - t->drawn >= REDRAW_SECONDS;
}

/* The line of step `i`, counted from 1 over all processes. */
static void print_progress(training *t, int64_t i, double loss) {
    if (t->options.quiet) return;
    const cli_measures *m = &t->session.measures;
    const cli_run_options *s = &t->options;
    const int64_t interval = s->interval ? s->interval : share(s->steps, DEFAULT_LINES);
    const bool last = i == s->steps || t->stopped;
    const bool shown = due(i, interval) || last || m->steps == 1 || t->validation.samples > 0;
    t->seconds_since += m->step[m->steps - 1];
    if (!shown && !redraws(t)) return;
    print_line(t, i, loss, last);
    if (!shown) return;
    t->steps_shown = i;
    t->seconds_since = 0;
}

/* --- metrics --- */

static cgp_status log_step(training *t, int64_t i, double loss) {
    const cli_session *e = &t->session;
    const cli_measures *m = &e->measures;
    const double seconds = m->step[m->steps - 1];
    const double units = (double)(t->options.batch * t->words.units);
    char key[CLI_NUMBER];
    json_t *line = json_object();
    json_object_set_new(line, "loss", cli_real_json(loss));
    json_object_set_new(line, "lr", cli_real_json(cgp_optim_lr_at(&e->optim, i)));
    if (e->optim.clip_norm > 0)
        json_object_set_new(line, "gradient_norm",
                            cli_real_json(cgp_pipeline_gradient_norm(e->pipeline)));
    json_object_set_new(line, "seconds", cli_real_json(seconds));
    snprintf(key, sizeof key, "%s_per_second", t->words.unit);
    json_object_set_new(line, key, cli_real_json(units / seconds));
    json_object_set_new(line, "bubble", cli_real_json(m->bubble[m->steps - 1]));
    cli_eval_metrics_json(line, &t->validation);
    return cli_metrics_log(&t->metrics, i, line);
}

/* --- steps --- */

/* Why the run ends after this step, though it is not the last: a signal's name or "time". */
static const char *stop_reason(const training *t) {
    if (cli_stop_signal()) return cli_stop_signal();
    const double limit = 60 * t->options.minutes;
    return limit > 0 && cli_seconds() - t->started >= limit ? "time" : NULL;
}

static cgp_status save_step(training *t, int64_t i) {
    const cli_run_options *s = &t->options;
    const int64_t every =
        s->save_every >= 0 ? s->save_every : share(s->steps, DEFAULT_CHECKPOINTS);
    if (!due(i, every) && i != s->steps && !t->stopped) return CGP_OK;
    return cli_resume_save(t);
}

static cgp_status one_step(training *t, int64_t i) {
    double loss = NAN;
    CGP_TRY(cli_session_step(&t->session, t->data, &loss));
    CGP_TRY(validate_step(t, i));
    CGP_TRY(log_step(t, i, loss));
    if (i < t->options.steps) t->stopped = stop_reason(t);
    print_progress(t, i, loss);
    return save_step(t, i);
}

cgp_status cli_train_steps(training *t) {
    cgp_status status = CGP_OK;
    t->steps_shown = t->resumed;
    t->steps_started = cli_seconds();
    for (int64_t i = t->resumed + 1; i <= t->options.steps; i++) {
        if (status == CGP_OK) status = one_step(t, i);
        if (status != CGP_OK || t->stopped) break;
    }
    /* The message of a failure does not follow the progress on its line. */
    if (status != CGP_OK && t->session.measures.steps > 0 && cli_progress_rewrites(t->out))
        fputc('\n', t->out);
    return status;
}
