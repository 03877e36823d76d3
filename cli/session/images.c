/* SPDX-License-Identifier: Apache-2.0 */
/* images.c -- see images.h.
 *
 *     shapes    shapes:size=64,masks=1,validation=500
 *     cifar10:DIR   cifar100:DIR   mnist:DIR   images:DIR */
#include "session/images.h"

#include <cgpipe/images.h>

#include "common.h"
#include "files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    cli_data_kind kind;
} sets[] = {{"shapes", CLI_DATA_SHAPES},
            {"cifar10", CLI_DATA_CIFAR10},
            {"cifar100", CLI_DATA_CIFAR100},
            {"mnist", CLI_DATA_MNIST},
            {"images", CLI_DATA_IMAGES}};
enum { SETS = sizeof sets / sizeof sets[0] };

cli_data_kind cli_images_kind_of(const char *text) {
    const size_t length = strcspn(text, ":");
    for (int i = 0; i < SETS; i++) {
        if (strlen(sets[i].name) != length || strncmp(text, sets[i].name, length) != 0)
            continue;
        if (text[length] == ':' || sets[i].kind == CLI_DATA_SHAPES) return sets[i].kind;
    }
    return CLI_DATA_TEXT;
}

const char *cli_images_rest(const char *text) {
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : "";
}

/* --- shapes --- */

static cgp_status set_key(cgp_shapes_options *options, const char *key, const char *value) {
    static const char *const keys[] = {"size", "masks", "validation"};
    int64_t number = 0;
    int k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0)
        k++;
    if (k == 3) {
        const char *near = cgp_nearest(key, keys, 3);
        return cgp_fail(CGP_EINVAL, "--data shapes: %s: unknown key (%s%s%s)", key,
                        near ? "did you mean " : "keys: ",
                        near ? near : "size masks validation", near ? "?" : "");
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

/* --- combinations --- */

static cgp_status only_for_images(const char *option, const char *expected, const char *got) {
    return cgp_fail(CGP_EINVAL, "--%s: expected --data %s, got %s", option, expected, got);
}

cgp_status cli_images_check(const cli_run_options *options, cli_data_kind kind) {
    const char *data = options->data.values[0];
    const bool cifar = kind == CLI_DATA_CIFAR10 || kind == CLI_DATA_CIFAR100;
    if (options->strict && kind != CLI_DATA_IMAGES)
        return only_for_images("strict", "images:DIR", data);
    if (options->plain && kind != CLI_DATA_IMAGES && !cifar)
        return only_for_images("plain", "images:DIR or cifar10:DIR", data);
    if (cli_option_given(options, CLI_OPTION_WORKERS) && kind != CLI_DATA_IMAGES)
        return only_for_images("workers", "images:DIR", data);
    if (kind < CLI_DATA_SHAPES) return CGP_OK;
    if (options->data.count > 1)
        return cgp_fail(CGP_EINVAL, "--data %s: stands alone, got %s too", data,
                        options->data.values[1]);
    if (kind != CLI_DATA_SHAPES && !*cli_images_rest(data))
        return cgp_fail(CGP_EINVAL, "--data %s: expected a directory after the colon", data);
    if (cli_option_given(options, CLI_OPTION_VALIDATION) && kind != CLI_DATA_IMAGES)
        return cgp_fail(CGP_EINVAL, "--validation: cannot be with %s, which has its own (%s)",
                        data,
                        kind == CLI_DATA_SHAPES ? "shapes:validation=N says how many"
                                                : "the files of its test set");
    cgp_shapes_options unused = cgp_shapes_options_default();
    return kind == CLI_DATA_SHAPES ? parse_shapes(&unused, cli_images_rest(data)) : CGP_OK;
}

/* --- opening --- */

/* Return the side of the model's images; `otherwise` if it takes none. */
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
    CGP_TRY(parse_shapes(&options, cli_images_rest(run_options->data.values[0])));
    return cgp_data_shapes(out, &options);
}

static cgp_status open_mnist(cgp_data **out, const cli_run_options *run_options,
                             const cgp_model *model) {
    const cgp_shape shape = cgp_model_input_shape(model, 0);
    cgp_mnist_options options = cgp_mnist_options_default();
    if (shape.rank == 3 && shape.dims[0] >= options.size) options.size = shape.dims[0];
    if (shape.rank == 3 && shape.dims[2] == 3) options.channels = 3;
    options.seed = (uint64_t)run_options->seed;
    return cgp_data_mnist(out, cli_images_rest(run_options->data.values[0]), &options);
}

/* A directory with the directories train and val has ImageNet's layout: each is a directory of classes. */
static cgp_status open_directory(cgp_data **out, const cli_run_options *run_options,
                                 const cgp_model *model) {
    const char *root = cli_images_rest(run_options->data.values[0]);
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
        cli_option_given(run_options, CLI_OPTION_VALIDATION))
        status = cgp_fail(CGP_EINVAL,
                          "--validation %s: %s has a directory val for that (leave it out)",
                          run_options->validation, root);
    if (status == CGP_OK) status = cgp_data_image_folder(out, both ? train : root, &options);
    free(val);
    free(train);
    return status;
}

cgp_status cli_images_open(cgp_data **out, const cli_run_options *options, cli_data_kind kind,
                           const cgp_model *model) {
    cgp_cifar_options cifar = cgp_cifar_options_default();
    if (kind == CLI_DATA_SHAPES) return open_shapes(out, options, model);
    if (kind == CLI_DATA_MNIST) return open_mnist(out, options, model);
    if (kind == CLI_DATA_IMAGES) return open_directory(out, options, model);
    cifar.classes = kind == CLI_DATA_CIFAR10 ? 10 : 100;
    cifar.augment = !options->plain;
    cifar.seed = (uint64_t)options->seed;
    return cgp_data_cifar(out, cli_images_rest(options->data.values[0]), &cifar);
}
