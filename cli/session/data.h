/* SPDX-License-Identifier: Apache-2.0 */
/* data.h -- the data that --data and --validation name. */
#ifndef CGPIPE_CLI_DATA_H
#define CGPIPE_CLI_DATA_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <jansson.h>

typedef struct cli_model cli_model;
typedef struct cli_run_options cli_run_options;

/* Kinds of data. The kinds of image data come last. */
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

/* Find the kind of --data by its names: token files end in ".bin". Fails with CGP_EINVAL if kinds
 * are mixed or options do not fit the kind. */
CGP_MUST_CHECK cgp_status cli_data_kind_of(const cli_run_options *run_options, cli_data_kind *kind);

/* Open the data for the inputs of `model`, which was made from MODEL `of`. Refuses data that does
 * not fit these inputs. */
CGP_MUST_CHECK cgp_status cli_data_open(cgp_data **out, const cli_run_options *run_options,
                                        const cgp_model *model, const cli_model *of);

/* Size and identity of the data. All ranks need them, though only some ranks open the data. */
typedef struct cli_data_facts {
    int64_t samples[2]; /* number of samples in each cgp_split */
    int64_t sequence;   /* number of tokens in a sample; 0: samples are not tokens */
    char identity[65];
} cli_data_facts;

CGP_MUST_CHECK cgp_status cli_data_facts_of(const cgp_data *data, cli_data_facts *facts);

/* Tell whether the targets are only known after the inputs have been read. This is true for images
 * without --strict: a broken image and its label are replaced by another image and label. */
bool cli_data_targets_follow(const cli_run_options *run_options);

/* The words for data in messages, in the plural. */
typedef struct cli_data_units {
    /* Unit: "tokens", "images" or "samples"; its abbreviation: "tok", "img" or "smp". */
    const char *name, *short_name;
    const char *sample; /* "sequences", "images" or "samples" */
    const char *key;    /* JSON key for a sample */
    int64_t per_sample; /* number of units in a sample */
} cli_data_units;

cli_data_units cli_data_units_of(const cgp_model *model);

/* Set the absolute paths of --data, --validation and --tokenizer in `options`. */
void cli_data_json(json_t *options, const cli_run_options *run_options);

#endif
