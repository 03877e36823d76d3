/* SPDX-License-Identifier: Apache-2.0 */
/* data.h -- the data that --data and --validation name. */
#ifndef CGPIPE_CLI_DATA_H
#define CGPIPE_CLI_DATA_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>

#include "options/options.h"
#include "session/model.h"

/* Kinds of images come last. */
typedef enum cli_data_kind {
    CLI_DATA_PLUGIN, /* the data set of the model's plug-in */
    CLI_DATA_TEXT,
    CLI_DATA_TOKENS,
    CLI_DATA_RANDOM,
    CLI_DATA_SHAPES,
    CLI_DATA_CIFAR10,
    CLI_DATA_CIFAR100,
    CLI_DATA_MNIST,
    CLI_DATA_IMAGES
} cli_data_kind;

/* Find the kind by the names: a token file's ends in ".bin". Fails with CGP_EINVAL if kinds mix, or
 * if options do not go with the kind. */
CGP_MUST_CHECK cgp_status cli_data_kind_of(const cli_run_options *run_options, cli_data_kind *kind);

/* Open the data for the inputs of the model, which MODEL `of` made, and refuse data that they do
 * not take. */
CGP_MUST_CHECK cgp_status cli_data_open(cgp_data **out, const cli_run_options *run_options,
                                        const cgp_model *model, const cli_model *of);

/* What all ranks know of the data, though only some of them have the data. */
typedef struct cli_data_facts {
    int64_t samples[2]; /* of each cgp_split */
    int64_t sequence;   /* tokens; 0: they are none */
    char identity[65];
} cli_data_facts;

CGP_MUST_CHECK cgp_status cli_data_facts_of(const cgp_data *data, cli_data_facts *facts);

/* Tell whether targets follow from inputs: another image takes the place of a broken one, with its
 * label (no --strict). */
bool cli_data_targets_follow(const cli_run_options *run_options);

/* The units of messages: those in a sample ("tokens", "images", "samples"; "tok", "img", "smp"),
 * their number, and the sample ("sequences", "images", "samples"). */
typedef struct cli_data_units {
    const char *name, *short_name, *sample;
    const char *key; /* of the sample in JSON */
    int64_t per_sample;
} cli_data_units;

cli_data_units cli_data_units_of(const cgp_model *model);

/* Set the paths of --data and --validation in `options`, absolute. */
void cli_data_json(json_t *options, const cli_run_options *run_options);

#endif
