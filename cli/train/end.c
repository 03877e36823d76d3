/* SPDX-License-Identifier: Apache-2.0 */
/* end.c -- the last phase of cgpipe train: validation, results, a sample, JSON. */
#include "train/train.h"

#include "errors.h"
#include "json_value.h"
#include "ranks.h"
#include "report/costs_out.h"
#include "report/output.h"
#include "report/report.h"
#include "report_page/page.h"
#include "session/eval_metrics.h"
#include "session/published.h"
#include "session/published_files.h"
#include "session/run_directory.h"
#include "session/sampler.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- results --- */

static cgp_status make_report(const training *t, json_t **report) {
    const cli_session *session = &t->run.session;
    const double units = (double)(t->run.options.batch * t->data.units.per_sample);
    char key[CLI_NUMBER];
    CGP_TRY(cli_run_json(session, report));
    json_t *o = *report;
    snprintf(key, sizeof key, "%s_per_second", t->data.units.name);
    cli_json_add(o, "{s:o, s:o, s:o, s:n}", key,
                 cli_real_json(units / cli_measured(session, CLI_STEP_SECONDS)), "lr_last",
                 cli_real_json(cgp_optim_lr_at(&session->optim, cli_session_steps(session))),
                 "gradient_norm", cli_real_json(cgp_pipeline_gradient_norm(session->pipeline)),
                 "validation_loss");
    cli_eval_metrics_json(o, &t->validation);
    snprintf(key, sizeof key, "validation_%s", t->data.units.key);
    cli_json_add(o, "{s:I, s:o, s:s?, s:o*}", key, (json_int_t)t->validation.samples,
                 "resumed_from", t->run.resumed ? json_integer(t->run.resumed) : json_null(),
                 "stopped", t->stopped, "run", json_string(t->run.directory.path));
    return CGP_OK;
}

static void print_validation(const training *t) {
    const cli_eval_metrics *v = &t->validation;
    if (v->samples == 0) return;
    fprintf(t->run.out, "validation   loss %.4f over %" PRId64 " %s", cli_plain(v->loss),
            v->samples, t->data.units.sample);
    if (isnan(v->top1) && isnan(v->iou) && strcmp(t->data.units.name, "tokens") == 0)
        fprintf(t->run.out, " (nats a token)");
    if (!isnan(v->top1))
        fprintf(t->run.out, ", top-1 %.2f %%, top-5 %.2f %%", 100 * v->top1, 100 * v->top5);
    if (!isnan(v->iou)) fprintf(t->run.out, ", IoU %.4f", v->iou);
    fputc('\n', t->run.out);
}

#define WEIGHTS CLI_LATEST "/weights.safetensors"

/* Unless --verbose, print at most 9 lines, including the lines for a trace, a sample, the
 * report and a stop. */
static void print_results(const training *t, const json_t *report) {
    const cli_session *session = &t->run.session;
    fputc('\n', t->run.out);
    print_validation(t);
    if (session->measures.steps > 0 && t->run.options.verbose)
        cli_print_result(t->run.out, session);
    else if (session->measures.steps > 0)
        cli_print_result_line(t->run.out, session);
    else
        fprintf(t->run.out,
                "no step      the run has done all its %" PRId64 " (--steps N for more)\n",
                t->run.options.steps);
    const json_t *simulated = json_object_get(report, "run_seconds_simulated");
    if (session->measures.steps > 0 && simulated)
        cli_print_prediction(t->run.out, session, json_number_value(simulated),
                             t->run.options.costs);
    if (t->run.saved > 0 && t->run.options.verbose)
        fprintf(t->run.out, "checkpoint   %s/step-%08" PRId64 "\n",
                cli_shown(t->run.directory.path), t->run.saved);
    /* A checkpoint has the file WEIGHTS only if a single rank wrote the checkpoint. */
    const bool one = cli_run_directory_has(&t->run.directory, WEIGHTS);
    fprintf(t->run.out, "weights      %s/%s\n", cli_shown(t->run.directory.path),
            one ? WEIGHTS : CLI_LATEST);
    fprintf(t->run.out, "weights_sha256 %s\n",
            json_string_value(json_object_get(report, "weights_sha256")));
}

/* --- sample --- */

/* Open the tokenizer that the run keeps, if the data is for a tokenizer. All ranks open it, because
 * each of them converts the prompt. */
static cgp_status open_tokenizer(cgp_tokenizer **tokenizer, const training *t) {
    if (t->data.vocab == 0) return CGP_OK;
    char *published = NULL;
    cgp_status status = cli_run_published(&published, &t->run.directory);
    if (status == CGP_OK)
        status = cli_tokenizer_open(tokenizer, published ? published : CLI_PUBLISHED);
    free(published);
    return cli_ranks_agree(status);
}

static cgp_status sample(cli_sampler *sampler, const training *t, cgp_tokenizer *tokenizer) {
    const cli_run_options *options = &t->run.options;
    const cli_session *session = &t->run.session;
    const cli_sampling sampling = {.options = options,
                                   .length = options->sample,
                                   .out = cli_result_stream(options),
                                   .escape = true};
    cli_text_sizes sizes;
    CGP_TRY(cli_model_expect_text(&sizes, session->model, "--sample"));
    cli_sampler_start(sampler, session->pipeline, session->model, session->plan, sizes, 0,
                      tokenizer);
    fprintf(t->run.out, "sample of %" PRId64 " %s\n", options->sample,
            tokenizer ? "tokens" : "characters");
    CGP_TRY(cli_sampler_run(sampler, &sampling));
    fputc('\n', sampling.out);
    return CGP_OK;
}

static cgp_status print_sample(const training *t) {
    cli_sampler sampler = {0};
    cgp_tokenizer *tokenizer = NULL;
    bool lost = cli_output_failed(); /* text for standard output has been lost */
    if (t->run.options.sample == 0) return CGP_OK;
    CGP_TRY(cli_ranks_broadcast(0, &lost, sizeof lost));
    if (lost) return CGP_OK;
    cgp_status status = open_tokenizer(&tokenizer, t);
    if (status == CGP_OK) status = sample(&sampler, t, tokenizer);
    cli_sampler_release(&sampler);
    cgp_tokenizer_destroy(tokenizer);
    return status;
}

/* --- the end --- */

/* Write measured.json and report.html on rank 0. A failure is only a warning. */
static void write_report(training *t, const json_t *report) {
    const bool stopped = cli_session_steps(&t->run.session) < t->run.options.steps;
    const char *state = stopped ? "stopped" : "complete", *text = stopped ? t->stopped : NULL;
    if (cli_rank() > 0 || !t->recorder.directory || !t->run.directory.locked) return;
    cli_recorder_end(&t->recorder, &t->run.session, state, text, report);
    if (cli_page_of_training(&t->run.directory, &t->run.session, state, text) != CGP_OK)
        cli_warn();
    else if (!cli_output_failed())
        fprintf(t->run.out, "report       %s/" CLI_REPORT "\n", cli_shown(t->run.directory.path));
    cli_output_flush(t->run.out);
}

cgp_status cli_train_end(training *t) {
    json_t *report = NULL;
    const bool complete = !t->stopped;
    if (complete && t->validation.samples == 0) CGP_TRY(cli_train_validate(t));
    if (complete) (void)cli_train_stop(t, false);
    CGP_TRY(make_report(t, &report));
    print_results(t, report);
    cgp_status status = cli_ranks_agree(cli_trace_write(t->run.out, &t->run.session));
    if (status == CGP_OK && t->run.options.costs_out && t->run.session.measures.steps > 0)
        status = cli_ranks_agree(cli_costs_out_write(t->run.out, &t->run.session));
    if (status == CGP_OK) /* the JSON comes before the sample, which may fail */
        status = cli_ranks_agree(cli_json_write(&t->run.options, json_incref(report)));
    if (status == CGP_OK && !t->stopped) status = print_sample(t);
    if (status == CGP_OK && !t->stopped) (void)cli_train_stop(t, false);
    cli_output_flush(t->run.out);
    if (status == CGP_OK) write_report(t, report);
    if (cli_ranks() == 1 && cli_stop_signal())
        t->stopped = cli_stop_signal(); /* the last write may have raised SIGPIPE */
    json_decref(report);
    return status;
}

int cli_train_stopped(const training *t) {
    const int64_t step = cli_session_steps(&t->run.session), steps = t->run.options.steps;
    const bool resumable = t->metrics.file || t->run.before;
    const char *signal = strcmp(t->stopped, "time") == 0 ? NULL : t->stopped;
    FILE *out = signal ? stderr : t->run.out;
    if (signal && strcmp(signal, "SIGPIPE") == 0) return CLI_CLOSED; /* the reader is gone */
    if (cli_rank() > 0) return signal ? CLI_STOPPED : CLI_OK;
    cli_output_flush(t->run.out);
    fprintf(out, "%s%s: stopped ", signal ? "cgpipe: " : "", signal ? signal : "--minutes");
    if (t->run.session.measures.steps > 0)
        fprintf(out, "after step %" PRId64 " of %" PRId64 ", which is saved", step, steps);
    else
        fprintf(out, step < steps ? "before a step" : "after the last step");
    if (step < steps && resumable)
        fprintf(out, " (cgpipe train --resume --run %s continues)",
                cli_shown(t->run.directory.path));
    fputc('\n', out);
    return signal ? CLI_STOPPED : CLI_OK;
}
