/* SPDX-License-Identifier: Apache-2.0 */
/* resume.c -- resume a run: its options from run.json, its state from a checkpoint.
 *
 * A checkpoint carries a note, a JSON text:
 *
 *     position            index of the next training sample in the data
 *     samples             number of samples that training has used, also before --new-data
 *     data                identity of the data (cgp_data_identity)
 *     batch, microbatch   sizes in samples
 *     threads_per_device, devices, precision, convolution, steps, isa, libm
 *                         values at the time of the checkpoint, for the warnings below
 *     model, options, starts
 *                         model and options of run.json and its number of starts, to detect later
 *                         edits
 *
 * A change that makes the results differ from those of an uninterrupted run is refused or
 * printed. */
#include "session/resume.h"

#include "options/changes.h"
#include "options/inherit.h"
#include "options/json.h"
#include "options/options.h"
#include "options/resolve.h"
#include "ranks.h"
#include "session/entries.h"
#include "session/not_a_run.h"
#include "session/record.h"
#include "text.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- options --- */

/* Refuse another seed or optimizer. The checkpoint has the state of the optimizer, and the order of
 * the data and dropout follow from the seed. A run of converted weights has no seed and no
 * optimizer yet, so it takes any. */
static cgp_status check_same(const cli_run *run, const json_t *options) {
    const cli_run_options *run_options = &run->options;
    const json_t *seed = json_object_get(options, "seed");
    const char *optimizer = json_string_value(json_object_get(options, "optimizer"));
    if (seed && run_options->given[CLI_OPTION_SEED] &&
        json_integer_value(seed) != run_options->seed)
        return cgp_fail(CGP_EINVAL,
                        "--seed %" PRId64 ": the run has seed %" JSON_INTEGER_FORMAT
                        " and keeps it (leave it out, or another --run)",
                        run_options->seed, json_integer_value(seed));
    if (run_options->given[CLI_OPTION_OPTIMIZER] && optimizer &&
        strcmp(optimizer, run_options->optimizer) != 0)
        return cgp_fail(CGP_EINVAL,
                        "--optimizer %s: the run has %s and keeps it (leave it out, or another "
                        "--run)",
                        run_options->optimizer, optimizer);
    return CGP_OK;
}

static cgp_status inherit(cli_run *run) {
    const json_t *options = json_object_get(run->before, "options");
    CGP_TRY(check_same(run, options));
    if (cli_run_options_inherit(&run->options, options) != CGP_OK)
        return cgp_fail(CGP_EFORMAT, "%s: %s", run->directory.record, cgp_message());
    if (!run->options.given[CLI_OPTION_GRADIENT_GROUPS] &&
        !cli_option_in(options, CLI_OPTION_GRADIENT_GROUPS))
        run->options.gradient_groups = 1; /* a run of an older cgpipe */
    if (run->options.operand) {
        run->options.operand =
            cli_run_options_keep(&run->options, cli_record_keys(run->before, run->options.operand));
        return CGP_OK;
    }
    run->options.operand = cli_record_path(run->before);
    run->options.operand_source = run->directory.record;
    return CGP_OK;
}

/* Read run.json, if the directory has a run. */
static cgp_status find_record(cli_run *run) {
    const cli_run_options *options = &run->options;
    if (run->directory.fd >= 0 && cli_run_directory_has(&run->directory, CLI_REPLACED))
        CGP_TRY(cli_run_directory_check(&run->directory)); /* may bring back the old run */
    if (cli_run_directory_has(&run->directory, CLI_RECORD))
        return cli_record_read(&run->directory, &run->before);
    if (cli_run_directory_has_run(&run->directory))
        return cgp_fail(CGP_EFORMAT,
                        "run directory %s: has parts of a run but no run.json (--overwrite deletes "
                        "them and starts over)",
                        run->directory.path);
    if (options->operand && options->data.count > 0 && options->from_step < 0) return CGP_OK;
    CGP_TRY(cli_suggest_run(&run->directory));
    return cgp_fail(CGP_EINVAL,
                    "--resume: %s has no run yet (MODEL and --data start one; or another --run)",
                    run->directory.path);
}

static cgp_status no_memory(void) {
    return cgp_fail(CGP_ENOMEM, CLI_RECORD ": out of memory");
}

/* Broadcast a text (or NULL) from rank 0 to all ranks. The caller owns it. */
static cgp_status share_text(char **text) {
    int64_t bytes = *text ? (int64_t)strlen(*text) + 1 : 0;
    CGP_TRY(cli_ranks_broadcast(0, &bytes, sizeof bytes));
    if (bytes == 0) return CGP_OK;
    if (!*text) *text = cli_calloc((size_t)bytes, 1);
    return cli_ranks_broadcast(0, *text, (size_t)bytes);
}

/* Give all ranks the same contents of run.json. Only rank 0 reads the directory, because a shared
 * file system may show an older state to other ranks. */
static cgp_status share_record(cli_run *run) {
    cgp_status status = cli_rank() == 0 ? find_record(run) : CGP_OK;
    char *text = run->before ? json_dumps(run->before, JSON_COMPACT) : NULL;
    if (run->before && !text) status = no_memory();
    status = cli_ranks_follow(status);
    if (status == CGP_OK) status = share_text(&text);
    if (status == CGP_OK && text && !run->before && !(run->before = json_loads(text, 0, NULL)))
        status = no_memory();
    free(text);
    return status;
}

cgp_status cli_resume_options(cli_run *run) {
    if (!run->options.resume) return CGP_OK;
    CGP_TRY(share_record(run));
    if (run->before)
        CGP_TRY(inherit(run));
    else
        cli_stages_by_ranks(&run->options);
    return cli_run_options_resolve(&run->options);
}

cgp_status cli_resume_check_free(const cli_run *run) {
    if (run->options.resume || run->options.overwrite ||
        !cli_run_directory_has_run(&run->directory))
        return CGP_OK;
    return cgp_fail(CGP_EIO,
                    "run directory %s: has a run already (--resume continues it, --overwrite "
                    "deletes it; or another --run)",
                    run->directory.path);
}

cgp_status cli_resume_check_model(const cli_run *run) {
    if (!run->before) return CGP_OK;
    return cli_record_check_model(run->before, &run->session.of, run->session.model_spec,
                                  run->options.operand, run->options.new_model);
}

/* --- note --- */

/* Write the kinds of a plan's devices: "cpu" for "cpu:0,cpu:1", "cpu,ref" for a mixture. */
static void device_kinds(const cgp_plan *plan, char *text, size_t size) {
    *text = '\0';
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        char kind[32];
        const char *name = cgp_plan_device_at(plan, d)->name;
        snprintf(kind, sizeof kind, "%.*s", (int)strcspn(name, ":"), name);
        const size_t used = strlen(text);
        if (!strstr(text, kind)) snprintf(text + used, size - used, "%s%s", used ? "," : "", kind);
    }
}

static json_t *make_note(const cli_run *run) {
    const cli_session *session = &run->session;
    char kinds[64];
    device_kinds(session->plan, kinds, sizeof kinds);
    json_t *note =
        json_pack("{s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:I}", "program",
                  "cgpipe " CGP_VERSION, "model", session->model_spec, "position",
                  (json_int_t)session->position, "samples", (json_int_t)session->samples, "data",
                  run->identity, "batch", (json_int_t)run->options.batch, "microbatch",
                  (json_int_t)cgp_plan_microbatch(session->plan), "threads_per_device",
                  (json_int_t)run->options.threads_per_device, "devices", kinds, "precision",
                  run->options.precision, "convolution", run->options.convolution, "steps",
                  (json_int_t)run->options.steps);
    const char *isa = cgp_pipeline_isa(session->pipeline);
    if (isa) json_object_set_new(note, "isa", json_string(isa));
    json_object_set_new(note, "libm", json_string(cgp_pipeline_libm(session->pipeline)));
    cli_record_file(note, &session->of);
    if (run->record) cli_record_note(note, run->record);
    return note;
}

cgp_status cli_resume_save(cli_run *run) {
    cgp_save_options options = cgp_save_options_default();
    options.keep = (int)(run->options.keep < INT_MAX ? run->options.keep : INT_MAX);
    options.check_finite = true;
    cgp_status status =
        cli_run_directory_save(&run->directory, run->session.pipeline, options, make_note(run));
    /* No update is pending here, so CGP_ESTATE means that weights are not finite. */
    if (status == CGP_ESTATE)
        status = cgp_fail(status, "step %" PRId64 ": %s; a smaller --lr or --clip may help",
                          cli_session_steps(&run->session), cgp_message());
    if (status == CGP_OK) run->saved = cli_session_steps(&run->session);
    return status;
}

/* --- differences --- */

/* Warn of changes that only affect rounding. */
static void warn_rounding(const cli_run *run, const json_t *note, const json_t *now) {
    const json_int_t before = json_integer_value(json_object_get(note, "microbatch"));
    const json_int_t after = json_integer_value(json_object_get(now, "microbatch"));
    const json_t *had = json_object_get(note, "devices"), *has = json_object_get(now, "devices");
    const bool devices = !json_equal(had, has);
    if (before == after && !devices) return;
    fprintf(run->out, "warning      ");
    if (devices)
        fprintf(run->out, "devices: %s before, %s now%s",
                json_is_string(had) ? cli_shown(json_string_value(had)) : "?",
                json_string_value(has), before != after ? "; " : "");
    if (before != after)
        fprintf(run->out, "samples in a micro-batch: %lld before, %lld now", (long long)before,
                (long long)after);
    fprintf(run->out, ": equal up to rounding only\n");
}

/* Return a string or integer field of a checkpoint's note as text for display. */
static const char *shown(const json_t *value, char number[CLI_NUMBER]) {
    if (json_is_string(value)) return cli_shown(json_string_value(value));
    snprintf(number, CLI_NUMBER, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return number;
}

static void warn_number(const cli_run *run, const json_t *note, const json_t *now, const char *key,
                        const char *consequence) {
    const json_t *before = json_object_get(note, key), *after = json_object_get(now, key);
    char had[CLI_NUMBER], has[CLI_NUMBER];
    if (!json_equal(before, after))
        fprintf(run->out, "warning      %s: %s before, %s now: %s\n", key, shown(before, had),
                shown(after, has), consequence);
}

/* Warn if a text changed. A note may lack the text, because an older cgpipe wrote the note, or
 * because the devices do not have the property. */
static void warn_text(const cli_run *run, const json_t *note, const json_t *now, const char *key,
                      const char *name) {
    const char *before = json_string_value(json_object_get(note, key)),
               *after = json_string_value(json_object_get(now, key));
    if (before && after && strcmp(before, after) != 0)
        fprintf(run->out, "warning      %s: %s before, %s now: equal up to rounding only\n", name,
                cli_shown(before), after);
}

/* --- loading --- */

/* Return the number of samples seen. Notes of an older cgpipe only have the position. */
static int64_t samples_of(const json_t *note) {
    const json_int_t samples = json_integer_value(json_object_get(note, "samples"));
    return samples > 0 ? samples : json_integer_value(json_object_get(note, "position"));
}

static cgp_status check_data(cli_run *run, const json_t *note) {
    const char *before = json_string_value(json_object_get(note, "data"));
    run->session.position = json_integer_value(json_object_get(note, "position"));
    run->session.samples = samples_of(note);
    if (before && strcmp(before, run->identity) == 0) return CGP_OK;
    if (run->options.new_data) {
        fprintf(run->out, "warning      data: differ from the run's: read from their beginning\n");
        run->session.position = 0;
        return CGP_OK;
    }
    return cgp_fail(CGP_EINVAL,
                    "data: differ from the run's (identity %.8s, the run's %.8s; give the same "
                    "--data and --validation, or --new-data to continue with these)",
                    run->identity, before ? before : "?");
}

/* Return the SHA-256 of a plug-in in a list; NULL: the list does not contain the plug-in. */
static const char *plugin_file(const json_t *plugins, const char *name) {
    for (size_t i = 0; name && i < json_array_size(plugins); i++) {
        const json_t *plugin = json_array_get(plugins, i);
        const char *other = json_string_value(json_object_get(plugin, "name"));
        if (other && strcmp(other, name) == 0)
            return json_string_value(json_object_get(plugin, "sha256"));
    }
    return NULL;
}

/* Warn if a plug-in of the same name is a different file. */
static void warn_plugins(const cli_run *run) {
    const json_t *before = json_object_get(run->before, "plugins");
    json_t *plugins = cli_record_plugins(&run->session);
    for (size_t i = 0; i < json_array_size(plugins); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(plugins, i), "name"));
        const char *had = plugin_file(before, name), *has = plugin_file(plugins, name);
        if (had && has && strcmp(had, has) != 0)
            fprintf(run->out,
                    "warning      plug-in %s: another file, SHA-256 %.8s before, %.8s now\n",
                    cli_shown(name), cli_shown(had), has);
    }
    json_decref(plugins);
}

/* Tell whether cgpipe convert wrote the note. If so, the run has not read any data. */
static bool is_converted(const json_t *note) {
    static const char ours[] = "cgpipe ";
    const char *program = json_string_value(json_object_get(note, "program"));
    return program && strncmp(program, ours, sizeof ours - 1) == 0 &&
           !json_object_get(note, "data") &&
           json_integer_value(json_object_get(note, "position")) == 0;
}

/* Compare this start with the run that wrote the note. Refuse some differences, and print the
 * others. */
static cgp_status compare(cli_run *run, json_t *note) {
    bool checked = false;
    CGP_TRY(cli_record_check(&run->directory, run->before, note, &run->options, &checked));
    if (!checked)
        fprintf(run->out,
                "note         saved by an older cgpipe: edits of run.json are not detected\n");
    CGP_TRY(check_data(run, note));
    json_t *now = make_note(run);
    if (!json_is_string(json_object_get(note, "precision"))) /* note of an older cgpipe */
        json_object_set_new(note, "precision", json_string("f32"));
    if (!json_is_string(json_object_get(note, "convolution"))) /* note of an older cgpipe */
        json_object_set_new(note, "convolution", json_string("direct"));
    warn_rounding(run, note, now);
    warn_plugins(run);
    warn_text(run, note, now, "isa", "instruction set");
    warn_text(run, note, now, "libm", "results of libm");
    warn_number(run, note, now, "batch", "other steps from here on");
    warn_number(run, note, now, "precision", "other rounding from here on");
    warn_number(run, note, now, "convolution", "other rounding from here on");
    if (strcmp(run->options.lr_schedule, "cosine") == 0)
        warn_number(run, note, now, "steps", "the learning rate follows another cosine");
    json_decref(now);
    return CGP_OK;
}

static cgp_status take_note(cli_run *run, const char *text) {
    json_t *note = cli_note_read(text);
    const json_t *position = json_object_get(note, "position");
    cgp_status status = CGP_OK;
    if (!json_is_integer(position) || json_integer_value(position) < 0)
        status =
            cgp_fail(CGP_EFORMAT,
                     "run directory %s: the checkpoint has no note of cgpipe train (it was saved "
                     "by another program)",
                     run->directory.path);
    else if (!is_converted(note))
        status = compare(run, note);
    json_decref(note);
    return status;
}

cgp_status cli_resume_progress(cli_run *run) {
    cli_progress *done = &run->done;
    char *text = NULL;
    if (!run->before || cli_run_directory_newest(&run->directory) == CLI_NO_STEP) return CGP_OK;
    CGP_TRY(cli_run_directory_find(&run->directory, run->options.from_step, &done->steps, &text));
    json_t *note = cli_note_read(text);
    const int64_t samples = samples_of(note);
    if (samples > 0) done->samples = samples;
    json_decref(note);
    free(text);
    return CGP_OK;
}

/* Check that epochs were counted from this checkpoint. Since the count, another process may have
 * saved a newer checkpoint, because the directory was not locked. */
static cgp_status check_progress(const cli_run *run) {
    const bool same = run->done.steps == run->resumed && run->done.samples == run->session.samples;
    if (run->options.epoch_steps == 0 || same) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: another cgpipe train has changed it meanwhile (start again)",
                    run->directory.path);
}

cgp_status cli_resume_load(cli_run *run) {
    cli_session *session = &run->session;
    const int64_t from = run->options.from_step;
    int64_t newest = CLI_NO_STEP;
    char *note = NULL;
    if (!run->options.resume || !run->before) return CGP_OK;
    if (cli_record_starts(run->before) > 0)
        cli_options_print_changes(run->out, &run->options, json_object_get(run->before, "options"));
    if (cli_rank() == 0) newest = cli_run_directory_newest(&run->directory);
    CGP_TRY(cli_ranks_broadcast(0, &newest, sizeof newest));
    if (from < 0 && newest == CLI_NO_STEP) return CGP_OK;
    CGP_TRY(cli_run_directory_load(&run->directory, from, session->pipeline, &note));
    run->loaded = true;
    session->steps_before = run->resumed = run->saved = cgp_pipeline_updates(session->pipeline);
    fprintf(run->out, "resumed      after step %" PRId64 " of %" PRId64 "\n", run->resumed,
            run->options.steps);
    const cgp_status status = take_note(run, note);
    free(note);
    return status == CGP_OK ? check_progress(run) : status;
}
