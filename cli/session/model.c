/* SPDX-License-Identifier: Apache-2.0 */
/* model.c -- see model.h. */
#include "session/model.h"

#include <math.h>
#include <string.h>

#define BENCH_DROPOUT 0.1 /* of the GPT-2 benchmark */

cgp_status cli_model_parse(cgp_model_spec *spec, const char *text, int64_t vocab) {
    *spec = cgp_model_spec_default();
    if (vocab > 0) spec->gpt2.vocab = vocab;
    return cgp_model_spec_parse(spec, text);
}

/* Return the dropout in the model's options, NULL if it has none. */
static double *dropout_of(cgp_model_spec *spec) {
    if (spec->kind == CGP_MODEL_GPT2) return &spec->gpt2.dropout;
    return spec->kind == CGP_MODEL_UNET ? &spec->unet.dropout : NULL;
}

cgp_status cli_model_resolve(cgp_model_spec *spec, cli_run_options *options) {
    double *dropout = dropout_of(spec);
    if (!dropout && options->dropout > 0)
        return cgp_fail(CGP_EINVAL, "--dropout %g: %s has none (leave it out)",
                        options->dropout, cgp_model_kind_name(spec->kind));
    if (isnan(options->dropout) && dropout)
        options->dropout = options->command == CLI_BENCH && spec->kind == CGP_MODEL_GPT2
                               ? BENCH_DROPOUT
                               : *dropout;
    if (isnan(options->dropout)) options->dropout = 0;
    if (dropout) *dropout = options->dropout;
    return CGP_OK;
}

cgp_status cli_model_find(cgp_model_spec *spec, cli_run_options *options, const char *example) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL, "%.*s: MODEL is missing (cgpipe %s)",
                        (int)strcspn(example, " "), example, example);
    CGP_TRY(cli_model_parse(spec, options->operand, 0));
    return cli_model_resolve(spec, options);
}

cgp_status cli_model_expect_gpt2(const cgp_model_spec *spec, const char *what) {
    if (spec->kind == CGP_MODEL_GPT2) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected a gpt2, got %s", what,
                    cgp_model_kind_name(spec->kind));
}
