/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c -- cgpipe sample: sample text from a checkpoint of a run (by default the latest
 * checkpoint) or from a file of weights. The run may be in progress, killed or complete. */
#include "commands/commands.h"

#include "errors.h"
#include "machine.h"
#include "ranks.h"
#include "session/plan_options.h"
#include "session/published.h"
#include "session/published_files.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "session/sampler.h"
#include "session/session.h"
#include "text.h"

#include <cgpipe/models/weights.h>

#include <stdlib.h>
#include <string.h>

typedef struct sample {
    const cli_run_options *options;
    cli_run_directory directory;
    json_t *record;
    cli_model model;
    cli_text_sizes sizes;
    bool cached;   /* the model generates with a KV cache */
    int64_t batch; /* tokens of a mini-batch, if the model has a KV cache */
    cli_session session;
    cgp_tokenizer *tokenizer; /* NULL: tokens are bytes */
    cli_sampler sampler;
    cgp_weights *weights;
    char *published; /* directory of the run's tokenizer; NULL: none */
    int32_t *ends;   /* tokens at which the text ends */
    cli_sampling sampling;
} sample;

/* Number of prompt tokens in a micro-batch. */
#define PREFILL 64

/* Plan one stage per rank, unless --stages is given. With a cache, each stage works on a
 * micro-batch of the prompt. */
static cgp_status make_plan(sample *s) {
    cli_run_options options = *s->options;
    cgp_plan_options plan = cgp_plan_options_default();
    const char **devices = NULL;
    if (options.stages == 0) options.stages = cli_ranks();
    CGP_TRY(cli_devices_expand(&devices, &options));
    plan.inference = true;
    plan.stages = (int)options.stages;
    plan.devices = devices;
    plan.threads_per_device = (int)options.threads_per_device;
    plan.ranks = cli_ranks();
    if (s->cached) {
        const int64_t batch = PREFILL * (int64_t)plan.stages;
        s->batch = batch < s->sizes.sequence ? batch : s->sizes.sequence;
        plan.batch = s->batch;
        plan.chunks = (int)((s->batch + PREFILL - 1) / PREFILL);
    }
    const cgp_status status = cgp_plan_create(&s->session.plan, s->session.model, &plan);
    free(devices);
    return status;
}

/* Open the tokenizer of --tokenizer or of the run, and find the tokens that end a text. */
static cgp_status find_tokenizer(sample *s) {
    const cli_run_options *options = s->options;
    CGP_TRY(cli_run_published(&s->published, &s->directory));
    const char *path = options->tokenizer;
    if (!path && s->published && cli_has_tokenizer(s->published)) path = s->published;
    if (path) CGP_TRY(cli_tokenizer_open(&s->tokenizer, path));
    if (!s->published) return CGP_OK;
    CGP_TRY(cli_published_ends(s->published, &s->ends, &s->sampling.n_ends));
    s->sampling.ends = s->ends;
    return CGP_OK;
}

/* Without a tokenizer, token ids are printed as bytes. Fail if there is no tokenizer, and the run's
 * data is a file of tokens or the vocabulary is larger than 256. */
static cgp_status expect_tokenizer(const sample *s) {
    const json_t *data = json_object_get(json_object_get(s->record, "options"), "data");
    const char *first = json_string_value(json_array_get(data, 0));
    if (s->tokenizer) return CGP_OK;
    if (first && cli_ends_with(first, ".bin"))
        return cgp_fail(CGP_EINVAL,
                        "sample: --tokenizer PATH is missing (the tokenizer of the run's data, %s)",
                        first);
    if (s->sizes.vocab <= 256) return CGP_OK;
    return cgp_fail(
        CGP_EINVAL,
        "sample: --tokenizer PATH is missing (vocab=%lld of %s is not a vocabulary of bytes)",
        (long long)s->sizes.vocab, cli_model_name(&s->model));
}

/* Check the options, and make the plan. No weights are read yet. */
static cgp_status prepare(sample *s) {
    const cli_run_options *options = s->options;
    CGP_TRY(cli_ranks_open(options->transport, 0, false));
    CGP_TRY(cli_record_read(&s->directory, &s->record));
    CGP_TRY(cli_record_find_model(&s->model, &s->directory, s->record, options->model,
                                  options->plugin));
    s->sampling = (cli_sampling){.options = options,
                                 .length = options->length,
                                 .out = stdout,
                                 .escape = cli_is_terminal(stdout)};
    s->cached = cli_model_for_generation(&s->model, &s->sizes);
    CGP_TRY(cli_session_model(&s->session, options, &s->model));
    if (!s->cached) CGP_TRY(cli_model_expect_text(&s->sizes, s->session.model, "sample"));
    CGP_TRY(find_tokenizer(s));
    CGP_TRY(expect_tokenizer(s));
    CGP_TRY(cli_prompt_check(options->prompt, s->sizes, s->tokenizer));
    return make_plan(s);
}

static cgp_status other_model(const char *path, const char *expected, const char *got) {
    return cgp_fail(CGP_EFORMAT, "%s: expected the model %s of the run, got %s", path, expected,
                    got);
}

/* Refuse a checkpoint in `directory` whose note names another model than `expected`. Return CGP_OK
 * if there is no checkpoint. */
static cgp_status check_note(const char *path, const char *directory, const char *expected) {
    char *note = NULL;
    const cgp_status status = cgp_checkpoint_find(NULL, NULL, &note, directory);
    if (status == CGP_EIO) return CGP_OK; /* no checkpoint */
    CGP_TRY(status);
    json_t *object = cli_note_read(note);
    const char *got = cli_record_model(object);
    /* A note without a model was written by another program. */
    const bool same = !got || strcmp(got, expected) == 0;
    if (!same) (void)other_model(path, expected, got);
    json_decref(object);
    free(note);
    return same ? CGP_OK : CGP_EFORMAT;
}

/* Check the model against the config.json beside the weights. If `path` is a file in a checkpoint,
 * check the model against the checkpoint's note too. The checks are needed because weight shapes
 * determine neither the number of heads nor the form of GELU. */
static cgp_status check_model(const sample *s, const char *path) {
    char expected[CLI_MODEL_SPEC], got[CLI_MODEL_SPEC];
    CGP_TRY(cli_model_text(&s->model, expected));
    CGP_TRY(cli_published_model(path, got));
    if (*got && strcmp(got, expected) != 0) return other_model(path, expected, got);
    char *directory = cli_published_directory(path);
    const bool is_file = strcmp(directory, path) != 0;
    const cgp_status status = is_file ? check_note(path, directory, expected) : CGP_OK;
    free(directory);
    return status;
}

static cgp_status run(sample *s) {
    const char *path = s->options->weights;
    cli_session *session = &s->session;
    if (path) CGP_TRY(cgp_weights_open(&s->weights, session->model, path));
    if (path) CGP_TRY(check_model(s, path));
    CGP_TRY(cli_session_create(session));
    CGP_TRY(path ? cgp_weights_load(s->weights, session->pipeline)
                 : cli_run_directory_load(&s->directory, s->options->from_step, session->pipeline,
                                          NULL));
    cli_sampler_start(&s->sampler, session->pipeline, session->model, session->plan, s->sizes,
                      s->batch, s->tokenizer);
    CGP_TRY(cli_sampler_run(&s->sampler, &s->sampling));
    if (s->sampling.escape) fputc('\n', stdout);
    return CGP_OK;
}

int cli_sample(const cli_run_options *options) {
    sample s = {.options = options};
    cli_run_directory_name(&s.directory, options->operand);
    cgp_status status = prepare(&s);
    const bool prepared = status == CGP_OK;
    if (prepared) status = run(&s);
    cli_ranks_fail(status);
    const int code = cli_report(status, !prepared);
    cgp_weights_close(s.weights);
    cli_sampler_release(&s.sampler);
    cli_session_release(&s.session);
    cgp_tokenizer_destroy(s.tokenizer);
    free(s.published);
    free(s.ends);
    json_decref(s.record);
    cli_run_directory_close(&s.directory);
    return code;
}
