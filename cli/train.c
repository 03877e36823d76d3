/* train.c -- cgpipe train: plan, run, tell how it goes, leave weights behind. */
#include "commands.h"

#include "common.h"
#include "experiment.h"
#include "folder.h"
#include "report.h"
#include "sampler.h"
#include "weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALIDATION_WINDOWS 200
#define DEFAULT_LINES 20

typedef struct training {
    const cli_settings *settings;
    FILE *out;
    cli_folder folder;
    cli_experiment experiment;
    cgp_data *data;
    bool random;

    int64_t steps_shown; /* of the progress: where its last line stood */
    double seconds_since;
    double validation_loss; /* NaN: none */
    int64_t validation_windows;
    json_t *report;
} training;

/* --- before it starts --- */

/* What can be said of the command line alone. */
static cgp_status prepare(training *t) {
    const cli_settings *s = t->settings;
    cgp_gpt2_options gpt2;
    if (!s->operand)
        return cgp_fail(CGP_EINVAL,
                        "train: MODEL is missing "
                        "(cgpipe train gpt2:layers=4,width=128,heads=4,seq=128 --data FILE)");
    if (s->data.count == 0)
        return cgp_fail(CGP_EINVAL, "train: --data is missing (--data FILE, or --data random)");
    t->random = s->data.count == 1 && strcmp(s->data.values[0], "random") == 0;
    const int64_t vocabulary = t->random ? cgp_gpt2_options_default().vocabulary : 256;
    CGP_TRY(cli_model_parse(&gpt2, s->operand, vocabulary));
    if (!t->random && gpt2.vocabulary < 256)
        return cgp_fail(CGP_EINVAL,
                        "gpt2: vocab: expected at least 256 for bytes, got %" PRId64,
                        gpt2.vocabulary);
    if (s->sample > 0) CGP_TRY(cli_sampling_check(&(cli_sampling){.prompt = s->prompt}, &gpt2));
    return cli_experiment_plan(&t->experiment, s, &gpt2);
}

static cgp_status open_data(training *t) {
    const cli_settings *s = t->settings;
    const cgp_gpt2_options *gpt2 = &t->experiment.gpt2;
    if (t->random)
        return cgp_data_random(&t->data, gpt2->vocabulary, gpt2->sequence, (uint64_t)s->seed);
    cgp_text_options options = cgp_text_options_default();
    options.sequence = gpt2->sequence;
    options.validation_share = s->validation;
    options.seed = (uint64_t)s->seed;
    return cgp_data_text(&t->data, s->data.values, s->data.count, &options);
}

/* What depends on files. The folder is made last, when nothing else is in the way. */
static cgp_status open_files(training *t) {
    CGP_TRY(cli_folder_check(&t->folder, t->settings->overwrite));
    CGP_TRY(cli_json_check(t->settings));
    CGP_TRY(open_data(t));
    return cli_folder_open(&t->folder);
}

static void print_data(const training *t) {
    char train[CLI_NUMBER], validation[CLI_NUMBER];
    if (t->random)
        fprintf(t->out, "data         random tokens, without end\n");
    else
        fprintf(t->out, "data         %s windows of %" PRId64 " bytes, %s for validation\n",
                cli_grouped(cgp_data_samples(t->data, CGP_SPLIT_TRAIN), train),
                t->experiment.gpt2.sequence,
                cli_grouped(cgp_data_samples(t->data, CGP_SPLIT_VALIDATION), validation));
    fprintf(t->out, "run          %s\n", t->folder.path);
}

/* --- steps --- */

/* The line of step `i`, counted from 1. On a terminal it is written over the one before. */
static void print_progress(training *t, int64_t i, double loss) {
    const cli_measures *m = &t->experiment.measures;
    const bool terminal = isatty(fileno(t->out)) == 1;
    const int64_t steps = t->settings->steps;
    const int64_t interval = t->settings->interval   ? t->settings->interval
                             : steps > DEFAULT_LINES ? steps / DEFAULT_LINES
                                                     : 1;
    const int64_t tokens = t->settings->batch * t->experiment.gpt2.sequence;
    char rate[CLI_NUMBER], peak[CLI_NUMBER];
    t->seconds_since += m->step[i - 1];
    const bool due = i % interval == 0 || i == steps || i == 1;
    if (!terminal && !due) return;
    const double per_second = (double)((i - t->steps_shown) * tokens) / t->seconds_since;
    fprintf(t->out,
            "%sstep %5" PRId64 "/%" PRId64 "  loss %.4f  %9s tokens/s  bubble %4.1f %%  "
            "peak memory %s%s",
            terminal ? "\r" : "", i, steps, loss, cli_grouped((int64_t)per_second, rate),
            100 * m->bubble[i - 1], cli_bytes(cli_peak_resident_bytes(), peak),
            terminal ? "\033[K" : "\n");
    if (terminal && i == steps) fputc('\n', t->out);
    fflush(t->out);
    if (!due) return;
    t->steps_shown = i;
    t->seconds_since = 0;
}

static cgp_status log_step(training *t, int64_t i, double loss) {
    const cli_measures *m = &t->experiment.measures;
    const double seconds = m->step[i - 1];
    const int64_t tokens = t->settings->batch * t->experiment.gpt2.sequence;
    json_t *line = json_object();
    json_object_set_new(line, "step", json_integer(i));
    json_object_set_new(line, "loss", cli_real_json(loss));
    json_object_set_new(line, "seconds", cli_real_json(seconds));
    json_object_set_new(line, "tokens_per_second", cli_real_json((double)tokens / seconds));
    json_object_set_new(line, "bubble", cli_real_json(m->bubble[i - 1]));
    return cli_folder_log(&t->folder, line);
}

static cgp_status run_steps(training *t) {
    cgp_status status = CGP_OK;
    for (int64_t i = 1; i <= t->settings->steps; i++) {
        double loss = NAN;
        status = cli_experiment_step(&t->experiment, t->data, &loss);
        if (status == CGP_OK) status = log_step(t, i, loss);
        if (status != CGP_OK) break;
        print_progress(t, i, loss);
    }
    /* The message of a failure does not follow the progress on its line. */
    if (status != CGP_OK && t->experiment.measures.steps > 0 && isatty(fileno(t->out)))
        fputc('\n', t->out);
    return status;
}

static cgp_status validate(training *t) {
    const int64_t least = t->random ? t->settings->batch : INT64_MAX;
    int64_t windows = cgp_data_samples(t->data, CGP_SPLIT_VALIDATION);
    windows = windows < least ? windows : least;
    windows = windows < VALIDATION_WINDOWS ? windows : VALIDATION_WINDOWS;
    t->validation_windows = windows;
    t->validation_loss = NAN;
    if (windows == 0) return CGP_OK;
    return cli_experiment_validate(&t->experiment, t->data, windows, &t->validation_loss);
}

/* --- afterwards --- */

static cgp_status write_run(training *t) {
    const cli_experiment *e = &t->experiment;
    char seed[CLI_NUMBER], steps[CLI_NUMBER];
    snprintf(seed, sizeof seed, "%" PRId64, t->settings->seed);
    snprintf(steps, sizeof steps, "%" PRId64, t->settings->steps);
    const char *const metadata[] = {"format", "pt",  "model", e->model_text,
                                    "step",   steps, "seed",  seed};
    json_t *run = json_object(), *options = json_object();
    cli_options_json(options, t->settings, false);
    json_object_set_new(run, "model", json_string(e->model_text));
    json_object_set_new(run, "version", json_string(CGP_VERSION));
    json_object_set_new(run, "options", options);
    const cgp_status status =
        cli_weights_save(e->pipeline, e->model, t->folder.weights, metadata, 4);
    if (status == CGP_OK) return cli_json_replace(t->folder.settings, run);
    json_decref(run);
    return status;
}

static cgp_status make_report(training *t) {
    const cli_measures *m = &t->experiment.measures;
    const int64_t tokens = t->settings->batch * t->experiment.gpt2.sequence;
    CGP_TRY(cli_run_json(&t->experiment, &t->report));
    json_object_set_new(t->report, "tokens_per_second",
                        cli_real_json((double)tokens / cli_measured(&t->experiment, m->step)));
    json_object_set_new(t->report, "validation_loss", cli_real_json(t->validation_loss));
    json_object_set_new(t->report, "validation_windows", json_integer(t->validation_windows));
    json_object_set_new(t->report, "run", json_string(t->folder.path));
    return CGP_OK;
}

static void print_end(const training *t) {
    fputc('\n', t->out);
    if (t->validation_windows > 0)
        fprintf(t->out, "validation   loss %.4f over %" PRId64 " windows (nats a token)\n",
                t->validation_loss, t->validation_windows);
    cli_print_result(t->out, &t->experiment);
    fprintf(t->out, "weights      %s\n", t->folder.weights);
    fprintf(t->out, "weights_sha256 %s\n",
            json_string_value(json_object_get(t->report, "weights_sha256")));
}

static cgp_status print_sample(training *t) {
    const cli_settings *s = t->settings;
    if (s->sample == 0) return CGP_OK;
    const cli_sampling sampling = {.prompt = s->prompt,
                                   .length = s->sample,
                                   .temperature = s->temperature,
                                   .top_k = s->top_k,
                                   .seed = (uint64_t)s->seed,
                                   .out = t->out,
                                   .escape = true};
    cli_sampler sampler;
    cgp_status status =
        cli_sampler_plan(&sampler, &t->experiment.gpt2, (int)s->threads_per_device);
    if (status == CGP_OK) status = cli_sampler_start(&sampler);
    if (status == CGP_OK)
        status = cli_weights_copy(t->experiment.pipeline, sampler.pipeline, sampler.model);
    if (status == CGP_OK) {
        fprintf(t->out, "\nsample of %" PRId64 " characters\n", s->sample);
        status = cli_sampler_run(&sampler, &sampling);
        fputc('\n', t->out);
    }
    cli_sampler_release(&sampler);
    return status;
}

static cgp_status train(training *t) {
    CGP_TRY(open_files(t));
    print_data(t);
    CGP_TRY(cli_print_plan(t->out, &t->experiment));
    fputc('\n', t->out);
    fflush(t->out);
    CGP_TRY(cli_experiment_start(&t->experiment));
    CGP_TRY(run_steps(t));
    CGP_TRY(validate(t));
    CGP_TRY(write_run(t));
    CGP_TRY(make_report(t));
    print_end(t);
    CGP_TRY(print_sample(t));
    return cli_json_write(t->settings, json_incref(t->report));
}

int cli_train(const cli_settings *settings) {
    training t = {.settings = settings, .out = cli_text(settings)};
    cli_folder_name(&t.folder, settings->run);
    int code = cli_report(prepare(&t), true);
    if (code == CLI_OK) code = cli_report(train(&t), false);
    json_decref(t.report);
    cgp_data_destroy(t.data);
    cli_experiment_release(&t.experiment);
    cli_folder_close(&t.folder);
    return code;
}
