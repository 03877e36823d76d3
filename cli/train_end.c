/* SPDX-License-Identifier: Apache-2.0 */
/* train_end.c -- cgpipe train after its last step: validation, results, a sample, JSON. */
#include "train.h"

#include "common.h"
#include "report.h"
#include "sampler.h"
#include "stop.h"
#include "trace.h"
#include "weights.h"

#include <inttypes.h>
#include <math.h>

/* --- results --- */

static cgp_status make_report(const training *t, json_t **report) {
    const cli_session *e = &t->session;
    const double units = (double)(t->options.batch * t->words.units);
    char key[CLI_NUMBER];
    CGP_TRY(cli_run_json(e, report));
    json_t *o = *report;
    snprintf(key, sizeof key, "%s_per_second", t->words.unit);
    json_object_set_new(o, key, cli_real_json(units / cli_measured(e, e->measures.step)));
    json_object_set_new(o, "lr_last",
                        cli_real_json(cgp_optim_lr_at(&e->optim, cli_session_steps(e))));
    json_object_set_new(o, "gradient_norm",
                        cli_real_json(cgp_pipeline_gradient_norm(e->pipeline)));
    json_object_set_new(o, "validation_loss", json_null());
    cli_eval_metrics_json(o, &t->validation);
    snprintf(key, sizeof key, "validation_%s", t->words.sample);
    json_object_set_new(o, key, json_integer(t->validation.samples));
    json_object_set_new(o, "resumed_from", t->resumed ? json_integer(t->resumed) : json_null());
    json_object_set_new(o, "stopped", t->stopped ? json_string(t->stopped) : json_null());
    json_object_set_new(o, "run", json_string(t->directory.path));
    return CGP_OK;
}

static void print_validation(const training *t) {
    const cli_eval_metrics *v = &t->validation;
    if (v->samples == 0) return;
    fprintf(t->out, "validation   loss %.4f over %" PRId64 " %s", cli_plain(v->loss),
            v->samples, t->words.sample);
    if (isnan(v->top1) && isnan(v->iou)) fprintf(t->out, " (nats a token)");
    if (!isnan(v->top1))
        fprintf(t->out, ", top-1 %.2f %%, top-5 %.2f %%", 100 * v->top1, 100 * v->top5);
    if (!isnan(v->iou)) fprintf(t->out, ", IoU %.4f", v->iou);
    fputc('\n', t->out);
}

/* At most 8 lines in all, with those of a trace, a sample and a stop, unless --verbose. */
static void print_results(const training *t, const json_t *report) {
    const cli_session *e = &t->session;
    fputc('\n', t->out);
    print_validation(t);
    if (e->measures.steps > 0 && t->options.verbose)
        cli_print_result(t->out, e);
    else if (e->measures.steps > 0)
        cli_print_result_line(t->out, e);
    else
        fprintf(t->out, "no step      the run has all its %" PRId64 " (--steps N for more)\n",
                t->options.steps);
    if (t->saved > 0 && t->options.verbose)
        fprintf(t->out, "checkpoint   %s/step-%08" PRId64 "\n", cli_shown(t->directory.path),
                t->saved);
    fprintf(t->out, "weights      %s\n", cli_shown(t->directory.weights));
    fprintf(t->out, "weights_sha256 %s\n",
            json_string_value(json_object_get(report, "weights_sha256")));
}

/* --- sample --- */

static cgp_status sample(cli_sampler *sampler, const training *t) {
    const cli_run_options *s = &t->options;
    const cli_sampling sampling = {.prompt = s->prompt,
                                   .length = s->sample,
                                   .temperature = s->temperature,
                                   .top_k = s->top_k,
                                   .seed = (uint64_t)s->seed,
                                   .out = cli_asked(s),
                                   .escape = true};
    CGP_TRY(cli_sampler_plan(sampler, &t->session.spec.gpt2, NULL, (int)s->threads_per_device));
    CGP_TRY(cli_sampler_start(sampler));
    CGP_TRY(cli_weights_copy(t->session.pipeline, sampler->pipeline, sampler->model));
    fprintf(t->out, "sample of %" PRId64 " characters\n", s->sample);
    CGP_TRY(cli_sampler_run(sampler, &sampling));
    fputc('\n', sampling.out);
    return CGP_OK;
}

static cgp_status print_sample(const training *t) {
    cli_sampler sampler = {0};
    if (t->options.sample == 0) return CGP_OK;
    const cgp_status status = sample(&sampler, t);
    cli_sampler_release(&sampler);
    return status == CGP_EIO && cli_stop_closed() ? CGP_OK : status;
}

/* --- the end --- */

cgp_status cli_train_end(training *t) {
    json_t *report = NULL;
    const bool complete = !t->stopped;
    if (complete && t->validation.samples == 0) CGP_TRY(cli_train_validate(t));
    if (complete) t->stopped = cli_stop_signal();
    CGP_TRY(make_report(t, &report));
    print_results(t, report);
    cgp_status status = cli_trace_write(t->out, &t->session);
    if (status == CGP_OK && !t->stopped) status = print_sample(t);
    if (!t->stopped) t->stopped = cli_stop_signal();
    if (status == CGP_OK) status = cli_json_write(&t->options, json_incref(report));
    fflush(t->out);
    if (!t->stopped) t->stopped = cli_stop_signal(); /* its end had no reader */
    json_decref(report);
    return status;
}

int cli_train_stopped(const training *t) {
    const int64_t step = cli_session_steps(&t->session), steps = t->options.steps;
    const bool resumable = t->metrics.file || t->before;
    const char *signal = cli_stop_signal();
    FILE *out = signal ? stderr : t->out;
    if (cli_stop_closed()) return CLI_CLOSED; /* this has none either */
    fflush(t->out);
    fprintf(out, "%s%s: stopped ", signal ? "cgpipe: " : "", signal ? signal : "--minutes");
    if (t->session.measures.steps > 0)
        fprintf(out, "after step %" PRId64 " of %" PRId64 ", which is saved", step, steps);
    else
        fprintf(out, step < steps ? "before a step" : "after the last step");
    if (step < steps && resumable)
        fprintf(out, " (cgpipe train --resume --run %s goes on)", cli_shown(t->directory.path));
    fputc('\n', out);
    return signal ? CLI_STOPPED : CLI_OK;
}
