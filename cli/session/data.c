/* SPDX-License-Identifier: Apache-2.0 */
/* data.c -- see data.h. Image data sets:
 *
 *     shapes    shapes:size=64,masks=1,validation=500
 *     cifar10:DIR   cifar100:DIR   mnist:DIR   images:DIR
 *
 * and the data set of a model plug-in, plugin[:ARGUMENT]. */
#include "session/data.h"

#include <cgpipe/images.h>

#include "files.h"
#include "json_value.h"
#include "options/options.h"
#include "session/inputs.h"
#include "session/model.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Find the kind by the name before a colon; "plugin" and "shapes" need no colon. CLI_DATA_TEXT: no
 * such name. */
static cli_data_kind named_kind(const char *text) {
    static const char *const sets[] = {
        [CLI_DATA_PLUGIN] = "plugin",   [CLI_DATA_SHAPES] = "shapes",
        [CLI_DATA_CIFAR10] = "cifar10", [CLI_DATA_CIFAR100] = "cifar100",
        [CLI_DATA_MNIST] = "mnist",     [CLI_DATA_IMAGES] = "images"};
    const size_t length = strcspn(text, ":");
    for (cli_data_kind kind = CLI_DATA_PLUGIN; kind <= CLI_DATA_IMAGES; kind++) {
        if (sets[kind] && strlen(sets[kind]) == length && strncmp(text, sets[kind], length) == 0 &&
            (text[length] == ':' || kind <= CLI_DATA_SHAPES))
            return kind;
    }
    return CLI_DATA_TEXT;
}

/* Return the text after the colon; "" if there is none. */
static const char *rest_of(const char *text) {
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : "";
}

/* --- images --- */

static cgp_status set_key(cgp_shapes_options *options, const char *key, const char *value) {
    static const char *const keys[] = {"size", "masks", "validation"};
    int64_t number = 0;
    int k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0)
        k++;
    if (k == 3) {
        const char *near = cgp_nearest(key, keys, 3);
        return cgp_fail(CGP_EINVAL, "--data shapes: %s: unknown key (%s%s%s)", key,
                        near ? "did you mean " : "keys: ", near ? near : "size masks validation",
                        near ? "?" : "");
    }
    if (!cli_parse_whole(value, 0, k == 1 ? 1 : INT32_MAX, &number))
        return cgp_fail(CGP_EINVAL, "--data shapes: %s: expected %s, got \"%s\"", key,
                        k == 1 ? "0 or 1" : "a whole number >= 0", value);
    if (k == 0) options->size = number;
    if (k == 1) options->masks = number == 1;
    if (k == 2) options->validation = number;
    return CGP_OK;
}

static cgp_status parse_shapes(cgp_shapes_options *options, const char *text) {
    while (*text) {
        char item[64], *equals = NULL;
        const size_t length = strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        equals = strchr(item, '=');
        if (!equals)
            return cgp_fail(CGP_EINVAL, "--data shapes: expected key=value, got \"%s\"", item);
        *equals = '\0';
        CGP_TRY(set_key(options, item, equals + 1));
        text += length + (text[length] == ',');
    }
    return CGP_OK;
}

static cgp_status only_for_images(const char *option, const char *expected, const char *got) {
    return cgp_fail(CGP_EINVAL, "--%s: expected --data %s, got %s", option, expected, got);
}

static cgp_status expect_alone(const cli_run_options *options) {
    const char *const *data = options->data.values;
    if (options->data.count == 1) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "--data %s: stands alone, got %s too", data[0], data[1]);
}

/* Check that --strict, --plain, --workers and --validation fit the kind of data. */
static cgp_status check_images(const cli_run_options *options, cli_data_kind kind) {
    const char *data = options->data.values[0];
    const bool cifar = kind == CLI_DATA_CIFAR10 || kind == CLI_DATA_CIFAR100;
    if (options->strict && kind != CLI_DATA_IMAGES)
        return only_for_images("strict", "images:DIR", data);
    if (options->plain && kind != CLI_DATA_IMAGES && !cifar)
        return only_for_images("plain", "images:DIR or cifar10:DIR", data);
    if (options->given[CLI_OPTION_WORKERS] && kind != CLI_DATA_IMAGES)
        return only_for_images("workers", "images:DIR", data);
    if (kind < CLI_DATA_SHAPES) return CGP_OK;
    CGP_TRY(expect_alone(options));
    if (kind != CLI_DATA_SHAPES && !*rest_of(data))
        return cgp_fail(CGP_EINVAL, "--data %s: expected a directory after the colon", data);
    if (options->given[CLI_OPTION_VALIDATION] && kind != CLI_DATA_IMAGES)
        return cgp_fail(CGP_EINVAL, "--validation: cannot be with %s, which has its own (%s)", data,
                        kind == CLI_DATA_SHAPES ? "shapes:validation=N sets their number"
                                                : "the files of its test set");
    cgp_shapes_options unused = cgp_shapes_options_default();
    return kind == CLI_DATA_SHAPES ? parse_shapes(&unused, rest_of(data)) : CGP_OK;
}

/* Return the side of the images that the model takes; `otherwise` if it takes no images. */
static int64_t side_of(const cgp_model *model, int64_t otherwise) {
    const cgp_shape shape = cgp_model_input_shape(model, 0);
    return shape.rank == 3 ? shape.dims[0] : otherwise;
}

static cgp_status open_shapes(cgp_data **out, const cli_run_options *run_options,
                              const cgp_model *model) {
    cgp_shapes_options options = cgp_shapes_options_default();
    options.size = side_of(model, options.size);
    options.masks = cgp_model_input_dtype(model, 1) == CGP_F32;
    options.seed = (uint64_t)run_options->seed;
    CGP_TRY(parse_shapes(&options, rest_of(run_options->data.values[0])));
    return cgp_data_shapes(out, &options);
}

static cgp_status open_mnist(cgp_data **out, const cli_run_options *run_options,
                             const cgp_model *model) {
    const cgp_shape shape = cgp_model_input_shape(model, 0);
    cgp_mnist_options options = cgp_mnist_options_default();
    if (shape.rank == 3 && shape.dims[0] >= options.size) options.size = shape.dims[0];
    if (shape.rank == 3 && shape.dims[2] == 3) options.channels = 3;
    options.seed = (uint64_t)run_options->seed;
    return cgp_data_mnist(out, rest_of(run_options->data.values[0]), &options);
}

/* Open a directory that has one directory per class. If the directory has subdirectories train and
 * val, as in ImageNet, each of these two has one directory per class. */
static cgp_status open_directory(cgp_data **out, const cli_run_options *run_options,
                                 const cgp_model *model) {
    const char *root = rest_of(run_options->data.values[0]);
    char *train = cli_text("%s/train", root), *val = cli_text("%s/val", root);
    const bool both = cli_is_directory(train) && cli_is_directory(val);
    cgp_image_folder_options options = cgp_image_folder_options_default();
    options.size = side_of(model, options.size);
    options.seed = (uint64_t)run_options->seed;
    options.workers = run_options->workers < INT32_MAX ? (int)run_options->workers : INT32_MAX;
    options.strict = run_options->strict;
    options.plain = run_options->plain;
    options.validation_fraction = run_options->validation_fraction;
    if (isnan(run_options->validation_fraction))
        options.validation_directory = run_options->validation;
    else if (both)
        options.validation_directory = val;
    cgp_status status = CGP_OK;
    if (both && !isnan(run_options->validation_fraction) &&
        run_options->given[CLI_OPTION_VALIDATION])
        status =
            cgp_fail(CGP_EINVAL, "--validation %s: %s has a directory val for that (leave it out)",
                     run_options->validation, root);
    if (status == CGP_OK) status = cgp_data_image_folder(out, both ? train : root, &options);
    free(val);
    free(train);
    return status;
}

/* Open a data set of images. Sizes that --data leaves out are taken from the model's inputs. */
static cgp_status open_images(cgp_data **out, const cli_run_options *options, cli_data_kind kind,
                              const cgp_model *model) {
    cgp_cifar_options cifar = cgp_cifar_options_default();
    if (kind == CLI_DATA_SHAPES) return open_shapes(out, options, model);
    if (kind == CLI_DATA_MNIST) return open_mnist(out, options, model);
    if (kind == CLI_DATA_IMAGES) return open_directory(out, options, model);
    cifar.classes = kind == CLI_DATA_CIFAR10 ? 10 : 100;
    cifar.augment = !options->plain;
    cifar.seed = (uint64_t)options->seed;
    return cgp_data_cifar(out, rest_of(options->data.values[0]), &cifar);
}

/* --- a plug-in's --- */

static cgp_status check_plugins(const cli_run_options *options) {
    CGP_TRY(expect_alone(options));
    if (isnan(options->validation_fraction))
        return cgp_fail(CGP_EINVAL, "--validation: expected a fraction with --data plugin, got %s",
                        options->validation);
    return CGP_OK;
}

static cgp_status open_plugins(cgp_data **out, const cli_run_options *options,
                               const cgp_model *model, const cli_model *of) {
    const char *data = options->data.values[0];
    const cgp_data_request request = {.struct_size = sizeof request,
                                      .model = model,
                                      .values = of->values,
                                      .argument = rest_of(data),
                                      .seed = (uint64_t)options->seed,
                                      .validation_fraction = options->validation_fraction};
    if (!of->plugin || !of->plugin->open_data)
        return cgp_fail(CGP_EINVAL,
                        "--data %s: expected a model plug-in with cgpipe_data_open, got "
                        "%s%s",
                        data, cli_model_name(of), of->plugin ? ", which has none" : "");
    *out = NULL;
    (void)cgp_fail(CGP_OK, "%s", "");
    const cgp_status status = of->plugin->open_data(out, &request);
    if (status == CGP_OK && *out) return CGP_OK;
    if (status == CGP_OK)
        return cgp_fail(CGP_EINVAL, "--data %s: cgpipe_data_open of %s returned no data set", data,
                        cli_model_name(of));
    return cgp_fail((int)status < 0 || status > CGP_EDIFFERS ? CGP_EINVAL : status, "--data %s: %s",
                    data, *cgp_message() ? cgp_message() : "cgpipe_data_open gave no reason");
}

/* --- paths --- */

/* Make the path absolute, after a prefix like "images:". Return NULL if the path is not UTF-8,
 * because JSON requires UTF-8. */
static json_t *absolute(const char *text) {
    const char *path = named_kind(text) >= CLI_DATA_SHAPES ? rest_of(text) : text;
    char *real = realpath(path, NULL);
    json_t *whole = json_sprintf("%.*s%s", (int)(path - text), text, real ? real : path);
    free(real);
    return whole;
}

/* Refuse a path that run.json cannot keep. */
static cgp_status expect_utf8(const char *text) {
    json_t *whole = absolute(text);
    json_decref(whole);
    if (whole) return CGP_OK;
    char *real = realpath(named_kind(text) >= CLI_DATA_SHAPES ? rest_of(text) : text, NULL);
    const cgp_status status =
        cgp_fail(CGP_EINVAL, "%s: expected a path in UTF-8, which run.json keeps, got \"%s\"", text,
                 real ? real : text);
    free(real);
    return status;
}

/* --- kinds --- */

/* Return the path that --validation names; NULL if --validation is a fraction. */
static const char *validation_path(const cli_run_options *options) {
    return isnan(options->validation_fraction) ? options->validation : NULL;
}

cgp_status cli_data_kind_of(const cli_run_options *options, cli_data_kind *kind) {
    const char *first = options->data.values[0], *validation = validation_path(options);
    *kind = named_kind(first);
    CGP_TRY(check_images(options, *kind));
    if (*kind == CLI_DATA_PLUGIN) return check_plugins(options);
    for (int i = 0; i < options->data.count; i++)
        CGP_TRY(expect_utf8(options->data.values[i]));
    if (*kind >= CLI_DATA_SHAPES) return CGP_OK;
    if (validation) CGP_TRY(expect_utf8(validation));
    const bool tokens = cli_ends_with(first, ".bin");
    if (tokens) *kind = CLI_DATA_TOKENS;
    if (options->data.count == 1 && strcmp(first, "random") == 0) *kind = CLI_DATA_RANDOM;
    if (*kind == CLI_DATA_RANDOM) return CGP_OK;
    for (int i = 0; i <= options->data.count; i++) {
        static const char *const kinds[] = {"text", "a token file (.bin)"};
        const char *path = i < options->data.count ? options->data.values[i] : validation;
        if (path && cli_ends_with(path, ".bin") != tokens)
            return cgp_fail(CGP_EINVAL, "%s: is %s, expected %s, as %s is", path, kinds[!tokens],
                            kinds[tokens], first);
    }
    return CGP_OK;
}

/* --- texts and tokens --- */

static cgp_status open_text(cgp_data **out, const cli_run_options *run_options, int64_t sequence) {
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
    options.vocab = vocab < INT32_MAX ? vocab : INT32_MAX;
    options.validation_fraction = validation ? 0 : run_options->validation_fraction;
    options.validation_paths = validation ? &validation : NULL;
    options.n_validation_paths = validation ? 1 : 0;
    options.seed = (uint64_t)run_options->seed;
    return cgp_data_tokens(out, run_options->data.values, run_options->data.count, &options);
}

/* --- the model's inputs --- */

static cgp_status refuse(const cli_run_options *options, const cgp_model *model, int field,
                         const char *gives, const char *suggestion) {
    const cgp_shape taken = cgp_model_input_shape(model, field);
    char shape[96];
    return cgp_fail(CGP_EINVAL, "--data %s: gives %s, expected %s %s, the input \"%s\" of %s (%s)",
                    options->data.values[0], gives,
                    cgp_dtype_name(cgp_model_input_dtype(model, field)),
                    cgp_shape_text(&taken, shape, sizeof shape), cgp_model_input_name(model, field),
                    cgp_model_name(model), suggestion);
}

/* Refuse a model whose input is not a sequence of tokens. */
static cgp_status expect_tokens(const cli_run_options *options, const cgp_model *model) {
    const cgp_shape shape = cgp_model_input_shape(model, 0);
    if (cgp_model_input_dtype(model, 0) == CGP_I32 && shape.rank == 1) return CGP_OK;
    return refuse(options, model, 0, "tokens", "--data shapes, or another set of images");
}

static cgp_status open_any(cgp_data **out, const cli_run_options *options, cli_data_kind kind,
                           const cgp_model *model, const cli_model *of) {
    const int64_t sequence = cgp_model_input_shape(model, 0).dims[0];
    const int64_t read = cli_input_bound(model, 0), predicted = cli_input_bound(model, 1);
    const int64_t vocab = read < predicted ? read : predicted;
    if (kind == CLI_DATA_PLUGIN) return open_plugins(out, options, model, of);
    if (kind >= CLI_DATA_SHAPES) return open_images(out, options, kind, model);
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

static cgp_status expect_two_inputs(const cgp_model *model) {
    if (cgp_model_inputs(model) == 2) return CGP_OK;
    return cgp_fail(
        CGP_EINVAL,
        "train: expected a model with two inputs, a sample and its target, got %s, which has %d",
        cgp_model_name(model), cgp_model_inputs(model));
}

static cgp_status check_data(const cli_run_options *options, const cgp_data *data,
                             const cgp_model *model) {
    const int64_t classes = cgp_data_classes(data), labels = cli_input_bound(model, 1);
    const bool known = cgp_model_input_bound(model, 1) > 0 || cli_model_logits(model) >= 0;
    for (int i = 0; i < 2; i++)
        CGP_TRY(check_field(options, data, model, i));
    if (classes == 0 || classes == labels || !known) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--data %s: has %lld classes, expected the %lld of %s (classes=%lld in MODEL)",
                    options->data.values[0], (long long)classes, (long long)labels,
                    cgp_model_name(model), (long long)classes);
}

cgp_status cli_data_open(cgp_data **out, const cli_run_options *options, const cgp_model *model,
                         const cli_model *of) {
    cli_data_kind kind = CLI_DATA_TEXT;
    cgp_data *data = NULL;
    CGP_TRY(expect_two_inputs(model));
    CGP_TRY(cli_data_kind_of(options, &kind));
    CGP_TRY(open_any(&data, options, kind, model, of));
    const cgp_status status = check_data(options, data, model);
    if (status == CGP_OK)
        *out = data;
    else
        cgp_data_destroy(data);
    return status;
}

cgp_status cli_data_facts_of(const cgp_data *data, cli_data_facts *facts) {
    for (int split = 0; split < 2; split++)
        facts->samples[split] = cgp_data_samples(data, (cgp_split)split);
    facts->sequence = cgp_data_sequence(data);
    return cgp_data_identity(data, facts->identity);
}

bool cli_data_targets_follow(const cli_run_options *options) {
    return options->data.count > 0 && !options->strict &&
           named_kind(options->data.values[0]) == CLI_DATA_IMAGES;
}

cli_data_units cli_data_units_of(const cgp_model *model) {
    const cgp_shape shape = cgp_model_input_shape(model, 0);
    if (cgp_model_input_dtype(model, 0) == CGP_I32)
        return (cli_data_units){"tokens", "tok", "sequences", "windows", cgp_shape_count(&shape)};
    if (shape.rank == 3) return (cli_data_units){"images", "img", "images", "images", 1};
    return (cli_data_units){"samples", "smp", "samples", "samples", 1};
}

void cli_data_json(json_t *options, const cli_run_options *run_options) {
    cli_data_kind kind = CLI_DATA_TEXT;
    if (cli_data_kind_of(run_options, &kind) != CGP_OK) return;
    if (kind == CLI_DATA_RANDOM || kind == CLI_DATA_SHAPES || kind == CLI_DATA_PLUGIN) return;
    json_t *paths = json_array();
    bool good = true;
    for (int i = 0; i < run_options->data.count; i++)
        good = json_array_append_new(paths, absolute(run_options->data.values[i])) == 0 && good;
    json_object_set_new(options, "data", good ? json_incref(paths) : json_null());
    json_decref(paths);
    if (validation_path(run_options))
        cli_json_add(options, "{s:o?}", "validation", absolute(validation_path(run_options)));
    if (run_options->tokenizer)
        cli_json_add(options, "{s:o?}", "tokenizer", absolute(run_options->tokenizer));
}
