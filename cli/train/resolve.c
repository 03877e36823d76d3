/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.c -- the first phase of cgpipe train: options, model and plan. */
#include "train/train.h"

#include "options/epochs.h"
#include "ranks.h"
#include "session/sampler.h"

#include <inttypes.h>

static cgp_status check_arguments(const cli_run_options *options) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL,
                        "train: MODEL is missing "
                        "(cgpipe train gpt2:layers=4,width=128,heads=4,seq=128 --data FILE)");
    if (options->data.count == 0)
        return cgp_fail(CGP_EINVAL,
                        "train: --data is missing (--data FILE, or --data random or shapes)");
    return CGP_OK;
}

/* Count epochs on rank 0. Making the plan needs the number of samples and how many of them the run
 * has seen. Other ranks cannot count, because only the plan determines which ranks read data. */
static cgp_status count_epochs(training *t) {
    int64_t samples = 0;
    cgp_status status = CGP_OK;
    CGP_TRY(cli_train_tokenize(t));
    if (cli_rank() == 0) status = cli_train_open_data(t);
    if (cli_rank() == 0 && status == CGP_OK) status = cli_resume_progress(&t->run);
    CGP_TRY(cli_ranks_agree(status));
    if (t->data.source) samples = cgp_data_samples(t->data.source, CGP_SPLIT_TRAIN);
    CGP_TRY(cli_ranks_broadcast(0, &samples, sizeof samples));
    CGP_TRY(cli_ranks_broadcast(0, &t->run.done, sizeof t->run.done));
    return cli_epochs_count(&t->run.options, samples, t->run.done);
}

/* Refuse text if the model's tokens are not bytes. Otherwise the model would train on bytes without
 * a warning. A resumed run may keep its data. `directory` is that of MODEL, or "". */
static cgp_status expect_bytes(const cli_run_options *options, const cgp_model *model,
                               int64_t vocab, const char *directory) {
    const char *path = options->data.values[0];
    if (vocab < 256)
        return cgp_fail(CGP_EINVAL, "%s: vocab: expected at least 256 for bytes, got %" PRId64,
                        cgp_model_name(model), vocab);
    if (vocab == 256 || (options->resume && !options->given[CLI_OPTION_DATA])) return CGP_OK;
    if (*directory)
        return cgp_fail(CGP_EINVAL,
                        "--data %s: is text, and %s has no tokenizer (tokenizer.json, or "
                        "vocab.json and merges.txt) to make tokens of it (--tokenizer PATH)",
                        path, directory);
    return cgp_fail(CGP_EINVAL,
                    "--data %s: is text, whose vocabulary is 256 bytes, expected tokens for %s, "
                    "vocab=%" PRId64 " (--tokenizer PATH makes them; or vocab=256 in MODEL)",
                    path, cgp_model_name(model), vocab);
}

/* Check that the model suits data that are text, and that --sample suits the model and the data. */
static cgp_status check_text(const training *t) {
    const cli_run_options *options = &t->run.options;
    const cgp_model *model = t->run.session.model;
    const bool text = t->data.kind == CLI_DATA_TEXT;
    cli_text_sizes sizes;
    const cgp_status status = cli_model_expect_text(&sizes, model, "--sample");
    if (options->sample > 0) CGP_TRY(status);
    if (status != CGP_OK) return CGP_OK;
    if (text && !t->data.tokenized)
        CGP_TRY(expect_bytes(options, model, sizes.vocab, t->run.session.of.directory));
    CGP_TRY(cli_train_check_tokenizer(t, sizes.vocab));
    if (options->sample > 0 && t->data.kind == CLI_DATA_TOKENS && t->data.vocab == 0)
        return cgp_fail(CGP_EINVAL,
                        "--sample: prints bytes, and --data %s are tokens (--tokenizer PATH, or "
                        "leave it out)",
                        options->data.values[0]);
    return options->sample > 0 && t->data.vocab == 0
               ? cli_prompt_check(options->prompt, sizes, NULL)
               : CGP_OK;
}

/* Parse MODEL, and find the tokenizer of the data. A model of the zoo without the key `vocab` gets
 * the size of the tokenizer or, for bytes, 256. */
static cgp_status find_model(training *t, cli_model *model) {
    const cli_run_options *options = &t->run.options;
    const int64_t bytes = t->data.kind == CLI_DATA_TEXT ? 256 : 0;
    CGP_TRY(cli_train_find_tokenizer(t, ""));
    CGP_TRY(cli_model_parse(model, options->operand, t->data.vocab > 0 ? t->data.vocab : bytes,
                            options->operand_source, options->plugin));
    CGP_TRY(cli_model_expect_kernels(model));
    CGP_TRY(cli_model_agree(model));
    return *model->directory ? cli_train_find_tokenizer(t, model->directory) : CGP_OK;
}

cgp_status cli_train_resolve(training *t) {
    const cli_run_options *options = &t->run.options;
    cli_model model;
    CGP_TRY(cli_ranks_open(options->transport, options->timeout, options->verify_messages));
    CGP_TRY(cli_resume_options(&t->run));
    CGP_TRY(cli_ranks_watch(options->timeout, options->verify_messages));
    CGP_TRY(check_arguments(options));
    CGP_TRY(cli_data_kind_of(options, &t->data.kind));
    CGP_TRY(find_model(t, &model));
    CGP_TRY(cli_model_resolve(&model, &t->run.options));
    CGP_TRY(cli_session_model(&t->run.session, options, &model));
    CGP_TRY(check_text(t));
    if (*model.directory && !t->run.before)
        CGP_TRY(cli_ranks_agree(cli_model_check_weights(&model, t->run.session.model)));
    if (cli_epochs_option(options)) CGP_TRY(count_epochs(t));
    CGP_TRY(cli_train_plan(t));
    CGP_TRY(cgp_pipeline_check_memory(t->run.session.plan, NULL));
    t->data.units = cli_data_units_of(t->run.session.model);
    return cli_resume_check_model(&t->run);
}
