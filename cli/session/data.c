/* SPDX-License-Identifier: Apache-2.0 */
/* data.c -- see data.h. */
#include "session/data.h"

#include "common.h"
#include "session/images.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return the path that --validation names; NULL if it is a fraction. */
static const char *validation_path(const cli_run_options *options) {
    return isnan(options->validation_fraction) ? options->validation : NULL;
}

cgp_status cli_data_kind_of(const cli_run_options *options, cli_data_kind *kind) {
    const char *first = options->data.values[0], *validation = validation_path(options);
    *kind = cli_images_kind_of(first);
    CGP_TRY(cli_images_check(options, *kind));
    if (*kind >= CLI_DATA_SHAPES) return CGP_OK;
    const bool tokens = cli_ends_with(first, ".bin");
    if (tokens) *kind = CLI_DATA_TOKENS;
    if (options->data.count == 1 && strcmp(first, "random") == 0) *kind = CLI_DATA_RANDOM;
    if (*kind == CLI_DATA_RANDOM) return CGP_OK;
    for (int i = 0; i <= options->data.count; i++) {
        static const char *const kinds[] = {"text", "a token file (.bin)"};
        const char *path = i < options->data.count ? options->data.values[i] : validation;
        if (path && cli_ends_with(path, ".bin") != tokens)
            return cgp_fail(CGP_EINVAL, "%s: is %s, expected %s, as %s is", path,
                            kinds[!tokens], kinds[tokens], first);
    }
    return CGP_OK;
}

static cgp_status open_text(cgp_data **out, const cli_run_options *run_options,
                            int64_t sequence) {
    const char *validation = validation_path(run_options);
    cgp_text_options options = cgp_text_options_default();
    options.sequence = sequence;
    options.validation_fraction = validation ? 0 : run_options->validation_fraction;
    options.validation_paths = validation ? &validation : NULL;
    options.n_validation_paths = validation ? 1 : 0;
    options.seed = (uint64_t)run_options->seed;
    return cgp_data_text(out, run_options->data.values, run_options->data.count, &options);
}

static cgp_status open_tokens(cgp_data **out, const cli_run_options *run_options, int64_t vocab,
                              int64_t sequence) {
    const char *validation = validation_path(run_options);
    cgp_token_options options = cgp_token_options_default();
    options.sequence = sequence;
    options.vocab = vocab < options.vocab ? vocab : options.vocab; /* of 16 bits */
    options.validation_fraction = validation ? 0 : run_options->validation_fraction;
    options.validation_paths = validation ? &validation : NULL;
    options.n_validation_paths = validation ? 1 : 0;
    options.seed = (uint64_t)run_options->seed;
    return cgp_data_tokens(out, run_options->data.values, run_options->data.count, &options);
}

/* --- the model's inputs --- */

/* Return the last dimension of the output: vocab, or classes. */
static int64_t logits_of(const cgp_model *model) {
    const cgp_shape shape = cgp_model_output_shape(model);
    return shape.rank > 0 ? shape.dims[shape.rank - 1] : 0;
}

static cgp_status refuse(const cli_run_options *options, const cgp_model *model, int field,
                         const char *gives, const char *way_out) {
    const cgp_shape taken = cgp_model_input_shape(model, field);
    char shape[96];
    return cgp_fail(
        CGP_EINVAL, "--data %s: gives %s, expected %s %s, the input \"%s\" of %s (%s)",
        options->data.values[0], gives, cgp_dtype_name(cgp_model_input_dtype(model, field)),
        cgp_shape_text(&taken, shape, sizeof shape), cgp_model_input_name(model, field),
        cgp_model_name(model), way_out);
}

/* Refuse a model whose input is no sequence of tokens. */
static cgp_status expect_tokens(const cli_run_options *options, const cgp_model *model) {
    const cgp_shape shape = cgp_model_input_shape(model, 0);
    if (cgp_model_input_dtype(model, 0) == CGP_I32 && shape.rank == 1) return CGP_OK;
    return refuse(options, model, 0, "tokens", "--data shapes, or another set of images");
}

static cgp_status open_any(cgp_data **out, const cli_run_options *options, cli_data_kind kind,
                           const cgp_model *model) {
    const int64_t sequence = cgp_model_input_shape(model, 0).dims[0];
    const int64_t vocab = logits_of(model) > 0 ? logits_of(model) : 1;
    if (kind >= CLI_DATA_SHAPES) return cli_images_open(out, options, kind, model);
    CGP_TRY(expect_tokens(options, model));
    if (kind == CLI_DATA_RANDOM)
        return cgp_data_random(out, vocab, sequence, (uint64_t)options->seed);
    if (kind == CLI_DATA_TOKENS) return open_tokens(out, options, vocab, sequence);
    return open_text(out, options, sequence);
}

static cgp_status check_field(const cli_run_options *options, const cgp_data *data,
                              const cgp_model *model, int field) {
    const cgp_data_field *given = cgp_data_field_at(data, field);
    const cgp_shape taken = cgp_model_input_shape(model, field);
    const cgp_dtype dtype = cgp_model_input_dtype(model, field);
    char shape[96], gives[128];
    if (given->dtype == dtype && cgp_shape_equal(&given->shape, &taken)) return CGP_OK;
    snprintf(gives, sizeof gives, "%s %s", cgp_dtype_name(given->dtype),
             cgp_shape_text(&given->shape, shape, sizeof shape));
    return refuse(options, model, field, gives, "other data, or another size in MODEL");
}

static cgp_status check_data(const cli_run_options *options, const cgp_data *data,
                             const cgp_model *model) {
    const int64_t classes = cgp_data_classes(data), logits = logits_of(model);
    if (cgp_model_inputs(model) != 2)
        return cgp_fail(CGP_EINVAL,
                        "train: expected a model of two inputs, got %s, which has %d",
                        cgp_model_name(model), cgp_model_inputs(model));
    for (int i = 0; i < 2; i++)
        CGP_TRY(check_field(options, data, model, i));
    if (classes == 0 || classes == logits) return CGP_OK;
    return cgp_fail(
        CGP_EINVAL,
        "--data %s: has %lld classes, expected the %lld of %s (classes=%lld in MODEL)",
        options->data.values[0], (long long)classes, (long long)logits, cgp_model_name(model),
        (long long)classes);
}

cgp_status cli_data_open(cgp_data **out, const cli_run_options *options,
                         const cgp_model *model) {
    cli_data_kind kind = CLI_DATA_TEXT;
    cgp_data *data = NULL;
    CGP_TRY(cli_data_kind_of(options, &kind));
    CGP_TRY(open_any(&data, options, kind, model));
    const cgp_status status = check_data(options, data, model);
    if (status == CGP_OK)
        *out = data;
    else
        cgp_data_destroy(data);
    return status;
}

cli_data_units cli_data_units_of(const cgp_model *model) {
    const cgp_shape shape = cgp_model_input_shape(model, 0);
    if (cgp_model_input_dtype(model, 0) == CGP_I32)
        return (cli_data_units){"tokens", "tok", "sequences", "windows",
                                cgp_shape_count(&shape)};
    return (cli_data_units){"images", "img", "images", "images", 1};
}

/* --- paths --- */

/* Make the path absolute, behind "images:" or the like. NULL if it is no UTF-8, which JSON cannot hold. */
static json_t *absolute(const char *text) {
    const char *path =
        cli_images_kind_of(text) >= CLI_DATA_SHAPES ? cli_images_rest(text) : text;
    char *real = realpath(path, NULL);
    json_t *whole = json_sprintf("%.*s%s", (int)(path - text), text, real ? real : path);
    free(real);
    return whole;
}

void cli_data_json(json_t *options, const cli_run_options *run_options) {
    cli_data_kind kind = CLI_DATA_TEXT;
    if (cli_data_kind_of(run_options, &kind) != CGP_OK) return;
    if (kind == CLI_DATA_RANDOM || kind == CLI_DATA_SHAPES) return;
    json_t *paths = json_array();
    bool good = true;
    for (int i = 0; i < run_options->data.count; i++)
        good = json_array_append_new(paths, absolute(run_options->data.values[i])) == 0 && good;
    json_object_set_new(options, "data", good ? json_incref(paths) : json_null());
    json_decref(paths);
    if (!validation_path(run_options)) return;
    json_t *validation = absolute(validation_path(run_options));
    json_object_set_new(options, "validation", validation ? validation : json_null());
}
