/* SPDX-License-Identifier: Apache-2.0 */
/* open.c -- the phases of cgpipe train before its first step: check data and directory, make the
 * pipeline, load the checkpoint, begin the run in its directory. */
#include "train/train.h"

#include "files.h"
#include "ranks.h"
#include "options/resolve.h"
#include "report/output.h"
#include "report/report.h"
#include "session/diagnosis.h"
#include "session/record.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- data and directory --- */

/* Fail with the message of an earlier failure, which names the text instead of its tokens. */
static cgp_status name_text(const training *t) {
    const cli_run_options *options = &t->run.options;
    const char *texts[2] = {options->data.values[0], options->validation};
    char *message = cli_text("%s", cgp_message());
    for (int k = 0; k < 2 && t->data.tokens.paths[k]; k++) {
        char *name = cli_text("the tokens of %s", texts[k]);
        char *named = cli_replaced(message, t->data.tokens.paths[k], name);
        free(message);
        free(name);
        message = named;
    }
    (void)cgp_fail(CGP_EINVAL, "%s", message);
    free(message);
    return CGP_EINVAL;
}

cgp_status cli_train_open_data(training *t) {
    const cli_session *session = &t->run.session;
    const cli_tokens *tokens = &t->data.tokens;
    cli_run_options options = t->run.options;
    if (t->data.tokenized) options.data = (cli_names){(const char *const *)&tokens->paths[0], 1};
    if (tokens->paths[1]) options.validation = tokens->paths[1];
    const cgp_status status =
        cli_data_open(&t->data.source, &options, session->model, &session->of);
    return status == CGP_EINVAL && t->data.tokenized ? name_text(t) : status;
}

/* Fail if another process began or resumed a run in the directory before this process locked the
 * directory. */
static cgp_status check_meanwhile(const training *t) {
    json_t *now = NULL;
    CGP_TRY(cli_resume_check_free(&t->run));
    if (!t->run.before) return CGP_OK;
    CGP_TRY(cli_record_read(&t->run.directory, &now));
    const bool same = json_equal(now, t->run.before);
    json_decref(now);
    if (same) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: another cgpipe train has changed it meanwhile (start again)",
                    t->run.directory.record);
}

/* Tell whether this start is the first with its --tensorboard. If not, the event files in there are
 * those of this run. */
static bool begins_events(const training *t) {
    const json_t *options = json_object_get(t->run.before, "options");
    const char *before = json_string_value(json_object_get(options, "tensorboard"));
    if (cli_record_starts(t->run.before) == 0 || !before || !t->run.options.tensorboard)
        return true;
    char *now = cli_absolute_path(t->run.options.tensorboard);
    const bool same = strcmp(before, now) == 0;
    free(now);
    return !same;
}

/* Open and check files. The run's directory is made last, when nothing else can fail. If it stays
 * empty, it is removed. */
static cgp_status check_files(training *t) {
    const cli_run_options *options = &t->run.options;
    const bool writes = cli_rank() == 0;
    if (writes) CGP_TRY(cli_run_directory_check(&t->run.directory));
    if (writes) CGP_TRY(cli_resume_check_free(&t->run));
    CGP_TRY(cli_json_check(options));
    CGP_TRY(cli_trace_check(options));
    if (writes) CGP_TRY(cli_events_check(options, begins_events(t)));
    if (options->costs_out && writes) CGP_TRY(cli_file_check(options->costs_out));
    if (!t->data.source && (writes || cli_session_reads(&t->run.session)))
        CGP_TRY(cli_train_open_data(t));
    if (t->data.source) CGP_TRY(cli_data_facts_of(t->data.source, &t->data.facts));
    if (!writes) return CGP_OK;
    CGP_TRY(cli_run_directory_make(&t->run.directory));
    return check_meanwhile(t);
}

/* Send size and identity of rank 0's data to all ranks. Ranks may have disks of their own, so check
 * that all have the same data. */
static cgp_status share_facts(training *t) {
    char own[65];
    memcpy(own, t->data.facts.identity, sizeof own);
    CGP_TRY(cli_ranks_broadcast(0, &t->data.facts, sizeof t->data.facts));
    memcpy(t->run.identity, t->data.facts.identity, sizeof t->run.identity);
    const bool same = !t->data.source || strcmp(own, t->data.facts.identity) == 0;
    return cli_ranks_agree(
        same ? CGP_OK
             : cgp_fail(CGP_EINVAL,
                        "data: identity is %.8s, on rank 0 %.8s (use the same files on all ranks)",
                        own, t->data.facts.identity));
}

/* Tell whether this start resumes a run. If it does, only changes are printed. */
static bool continues(const training *t) {
    return t->run.before && cli_record_starts(t->run.before) > 0;
}

static void print_data(const training *t) {
    char train[CLI_NUMBER], validation[CLI_NUMBER];
    cli_grouped(t->data.facts.samples[CGP_SPLIT_TRAIN], train);
    cli_grouped(t->data.facts.samples[CGP_SPLIT_VALIDATION], validation);
    if (t->data.kind == CLI_DATA_RANDOM)
        fprintf(t->run.out, "data         random tokens, without end\n");
    else if (t->data.kind == CLI_DATA_SHAPES)
        fprintf(t->run.out, "data         drawn shapes, without end, %s for validation\n",
                validation);
    else if (t->data.kind == CLI_DATA_PLUGIN && t->data.facts.samples[CGP_SPLIT_TRAIN] == INT64_MAX)
        fprintf(t->run.out, "data         %s of the plug-in, without end, %s for validation\n",
                t->data.units.sample, validation);
    else if (t->data.kind == CLI_DATA_PLUGIN)
        fprintf(t->run.out, "data         %s %s of the plug-in, %s for validation\n", train,
                t->data.units.sample, validation);
    else if (t->data.kind > CLI_DATA_SHAPES)
        fprintf(t->run.out, "data         %s images, %s for validation\n", train, validation);
    else
        fprintf(t->run.out, "data         %s sequences of %" PRId64 " %s, %s for validation\n",
                train, t->data.facts.sequence,
                t->data.kind == CLI_DATA_TEXT && !t->data.tokenized ? "bytes" : "tokens",
                validation);
}

/* Print where the weights of a new run come from. */
static void print_weights(const training *t) {
    const cli_model *model = &t->run.session.of;
    if (!*model->directory || t->run.before) return;
    fprintf(t->run.out, "weights      of %s\n", cli_shown(model->directory));
    if (model->shortened)
        fprintf(t->run.out,
                "note         a sample has %" PRId64 " tokens, the model takes up to %" PRId64
                " (%s:seq=N)\n",
                model->spec.llama.sequence, model->longest, cli_shown(model->directory));
}

/* Unless --verbose is given, print at most 12 lines before the first step, including the lines of
 * cli_resume_load(). */
static cgp_status print_start(const training *t) {
    const bool verbose = t->run.options.verbose, brief = continues(t) && !verbose;
    print_weights(t);
    if (!brief) cli_train_print_tokens(t);
    if (!brief) print_data(t);
    fprintf(t->run.out, "run          %s\n", cli_shown(t->run.directory.path));
    if (t->run.options.auto_devices)
        fprintf(t->run.out, "devices      auto: %s\n", t->run.options.auto_devices);
    if (t->fitted) fprintf(t->run.out, "search       %s\n", t->fitted);
    if (!brief && cli_leaves_gpu(&t->run.options))
        fprintf(t->run.out, "devices      cpu, though a GPU is here: --devices cuda:0\n");
    if (verbose)
        CGP_TRY(cli_print_plan(t->run.out, &t->run.session));
    else
        cli_print_summary(t->run.out, &t->run.session, brief);
    if (!brief) fputc('\n', t->run.out);
    cli_output_flush(t->run.out);
    return CGP_OK;
}

cgp_status cli_train_open(training *t) {
    CGP_TRY(cli_train_tokenize(t));
    if (t->data.tokens.stopped) return CGP_OK;
    CGP_TRY(cli_ranks_agree(check_files(t)));
    CGP_TRY(share_facts(t));
    return print_start(t);
}

/* --- pipeline and run --- */

/* Load the weights of MODEL, a directory, if no checkpoint was loaded. A run that was killed before
 * its first checkpoint has recorded that directory. */
static cgp_status load_published(training *t) {
    const cli_session *session = &t->run.session;
    const char *text = cli_record_weights(t->run.before);
    cli_model model = session->of;
    if (t->run.loaded) return CGP_OK;
    if (!*model.directory && text) CGP_TRY(cli_model_parse(&model, text, 0, NULL, NULL));
    if (!*model.directory) return CGP_OK;
    t->published = true;
    return cli_model_load(&model, session->model, session->pipeline);
}

cgp_status cli_train_make(training *t) {
    CGP_TRY(cli_session_start(&t->run.session));
    cli_print_ranks(t->run.out, &t->run.session);
    if (t->run.options.verbose) cli_print_edges(t->run.out, &t->run.session);
    if (cli_ranks() > 1) /* a single rank has checked its directory already */
        CGP_TRY(cli_run_directory_check_ranks(&t->run.directory, t->run.session.pipeline));
    CGP_TRY(cgp_pipeline_set_timeout(t->run.session.pipeline, t->run.options.timeout));
    CGP_TRY(
        cli_diagnosis_begin(t->run.session.pipeline, &t->run.directory, t->run.options.timeout));
    CGP_TRY(cli_resume_load(&t->run));
    CGP_TRY(load_published(t));
    cli_output_flush(t->run.out);
    return CGP_OK;
}

/* Write run.json, and open digests and metrics. From here on, the directory has this run. */
static cgp_status write_run(training *t) {
    const int64_t every = t->run.options.digest_every, step = t->run.resumed;
    if (cli_rank() > 0) return CGP_OK;
    CGP_TRY(cli_digests_check(&t->run.directory, t->run.session.plan, step, every));
    cli_run_directory_clean(&t->run.directory);
    if (cli_ranks() == 1) cli_diagnosis_clear(&t->run.directory);
    if (t->run.options.overwrite) CGP_TRY(cli_run_directory_clear(&t->run.directory));
    CGP_TRY(cli_train_keep_published(t));
    CGP_TRY(
        cli_record_write(&t->run.directory, t->run.before, &t->run.session, step, &t->run.record));
    cli_run_directory_drop_report(&t->run.directory);
    if (t->run.options.from_step >= 0)
        CGP_TRY(cli_run_directory_drop_after(&t->run.directory, t->run.options.from_step));
    CGP_TRY(cli_digests_open(&t->digests, &t->run.directory, t->run.session.plan, step, every));
    CGP_TRY(cli_metrics_open(&t->metrics, &t->run.directory, step));
    CGP_TRY(cli_events_open(&t->metrics.events, &t->run.options, step));
    t->recorder.directory = &t->run.directory;
    t->recorder.start = cli_record_starts(t->run.record);
    if (t->metrics.last < step)
        fprintf(t->run.out, "warning      %s: no lines after step %" PRId64 "\n",
                cli_shown(t->run.directory.metrics), t->metrics.last);
    return CGP_OK;
}

cgp_status cli_train_begin(training *t) {
    CGP_TRY(cli_ranks_agree(write_run(t)));
    /* After this checkpoint, the run does not need the directory of the weights. */
    return t->published ? cli_train_save(t) : CGP_OK;
}
