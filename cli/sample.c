/* sample.c -- cgpipe sample: text from the weights of a run. */
#include "commands.h"

#include "common.h"
#include "experiment.h"
#include "folder.h"
#include "sampler.h"
#include "weights.h"

#include <string.h>
#include <unistd.h>

static cli_sampling sampling_of(const cli_settings *s) {
    const cli_sampling sampling = {.prompt = s->prompt,
                                   .length = s->length,
                                   .temperature = s->temperature,
                                   .top_k = s->top_k,
                                   .seed = (uint64_t)s->seed,
                                   .out = stdout,
                                   .escape = isatty(STDOUT_FILENO) == 1};
    return sampling;
}

/* The shapes do not tell the number of heads, but our own files tell their model. */
static cgp_status check_model(const cli_weights *weights, const cgp_gpt2_options *gpt2,
                              const char *path) {
    char expected[160];
    const char *got = cgp_safetensors_metadata(weights->file, "model");
    cli_model_text(gpt2, expected, sizeof expected);
    if (!got || strcmp(got, expected) == 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: expected the model %s of the run, got %s", path, expected,
                    got);
}

static cgp_status load_and_run(const cli_settings *s, cli_sampler *sampler,
                               cli_weights *weights, const cgp_gpt2_options *gpt2,
                               const char *path) {
    const cli_sampling sampling = sampling_of(s);
    CGP_TRY(cli_weights_open(weights, sampler->model, path));
    CGP_TRY(check_model(weights, gpt2, path));
    CGP_TRY(cli_sampler_start(sampler));
    CGP_TRY(cli_weights_load(weights, sampler->pipeline));
    CGP_TRY(cli_sampler_run(sampler, &sampling));
    if (sampling.escape) fputc('\n', stdout);
    return CGP_OK;
}

int cli_sample(const cli_settings *settings) {
    cli_folder folder = {0};
    cli_sampler sampler = {0};
    cli_weights weights = {0};
    cgp_gpt2_options gpt2;
    json_t *run = NULL;
    const char *model = NULL;
    if (!settings->operand)
        return cli_report(
            cgp_fail(CGP_EINVAL, "sample: RUN is missing (the folder of cgpipe train)"), true);
    cli_folder_name(&folder, settings->operand);
    int code = cli_report(cli_folder_model(&folder, &run, &model), false);
    if (code != CLI_OK) goto out;
    code = cli_report(cli_model_parse(&gpt2, model, 256), false);
    if (code != CLI_OK) goto out;
    const cli_sampling sampling = sampling_of(settings);
    code = cli_report(cli_sampling_check(&sampling, &gpt2), true);
    if (code != CLI_OK) goto out;
    code =
        cli_report(cli_sampler_plan(&sampler, &gpt2, (int)settings->threads_per_device), false);
    if (code != CLI_OK) goto out;
    const char *path = settings->weights ? settings->weights : folder.weights;
    code = cli_report(load_and_run(settings, &sampler, &weights, &gpt2, path), false);
out:
    cli_weights_close(&weights);
    cli_sampler_release(&sampler);
    json_decref(run);
    cli_folder_close(&folder);
    return code;
}
