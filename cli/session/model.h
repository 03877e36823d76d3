/* SPDX-License-Identifier: Apache-2.0 */
/* model.h -- MODEL of the command line: a model of the zoo, or a file:
 *
 *     gpt2:layers=4              a model of the zoo, by its spec
 *     ./mine.so:width=64         a model plug-in; its path has a '/'
 *     ./mine.json                a graph file; --plugin provides custom ops
 *     ./llama:seq=512            a directory of published weights, by its config.json
 *     layers.csv                 a table of layers (layer_table.h), for plan alone
 *
 * Code is only loaded from a path on this command line: a run or a run file that names a plug-in is
 * refused. */
#ifndef CGPIPE_CLI_MODEL_H
#define CGPIPE_CLI_MODEL_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include <limits.h>

#include "session/plugin.h"

typedef struct cli_run_options cli_run_options;

/* Size in bytes of a buffer for a model's text with all sizes written out. */
#define CLI_MODEL_SPEC 2048

/* A parsed MODEL. The struct may be copied: its pointers are valid until the process ends or the
 * options are freed. */
typedef struct cli_model {
    cgp_model_spec spec; /* spec of a zoo model; if MODEL is a file, spec.kind is CGP_MODEL_KINDS */
    const cli_plugin *plugin; /* the model plug-in; NULL: none */
    cgp_model_value values[CLI_PLUGIN_KEYS];
    const char *graph;  /* path of a graph file, whose custom ops are in `plugin`; NULL: none */
    const char *layers; /* path of a table of layers; NULL: none */
    /* Directory of published weights, without a final '/'; "": none. The spec is that of its
     * config.json. */
    char directory[PATH_MAX];
    int64_t longest; /* max_position_embeddings of config.json if a sample is shorter; else 0 */
    bool shortened;  /* a sample is shorter because MODEL does not give its length */
    /* Digest of the file; "" for a model of the zoo. For a graph file with a plug-in, the digests
     * of both files, joined by '+'. */
    char sha256[132];
} cli_model;

/* Tell whether a text names a model plug-in. On the command line it has a directory; in the record
 * of a run it has none. */
bool cli_model_is_plugin(const char *text);

/* Tell whether a text names a graph file. */
bool cli_model_is_graph(const char *text);

/* Tell whether a text names a directory of published weights: a directory with config.json, maybe
 * with keys after it. A name of the zoo without '/' is a model of the zoo. */
bool cli_model_is_directory(const char *text);

/* Parse MODEL. A GPT-2 or Llama without the key `vocab` gets the vocabulary size `vocab`; 0: the
 * default of the zoo. `source` is the run or run file that contains the text, or NULL if the text
 * is from the command line. A text from a run or run file must not name a plug-in. `plugin`:
 * --plugin, NULL if it is not given. */
CGP_MUST_CHECK cgp_status cli_model_parse(cli_model *model, const char *text, int64_t vocab,
                                          const char *source, const char *plugin);

/* Write the model's text, with all sizes but without the directory of a file, to `text`, which has
 * CLI_MODEL_SPEC bytes. */
CGP_MUST_CHECK cgp_status cli_model_text(const cli_model *model, char *text);

/* Make the model. */
CGP_MUST_CHECK cgp_status cli_model_create(cgp_model **out, const cli_model *model);

/* Fail if the model's file is not the same on all ranks. Collective. */
CGP_MUST_CHECK cgp_status cli_model_agree(const cli_model *model);

/* Return the model's name for messages, "gpt2" or "mine.so". */
const char *cli_model_name(const cli_model *model);

/* Return the dropout option of the spec; NULL if its kind has none. */
double *cli_model_dropout(cgp_model_spec *spec);

/* Fail with CGP_EINVAL because the model's file on `whose` side ("rank 0") differs and has the
 * digest `sha256`. The message contains the file's name, the first digits of both digests, and the
 * suggestion. */
CGP_MUST_CHECK cgp_status cli_model_differs(const cli_model *model, const char *sha256,
                                            const char *whose, const char *suggestion);

/* Resolve --dropout: if the option is given, set the model's dropout from it; otherwise set the
 * option from the model. Fails with CGP_EINVAL if the option is given and the model has no
 * dropout. */
CGP_MUST_CHECK cgp_status cli_model_resolve(cli_model *model, cli_run_options *options);

/* Parse the operand of a command on all ranks and resolve --dropout. If the operand is missing, the
 * message shows the command line `example`. Collective. */
CGP_MUST_CHECK cgp_status cli_model_find(cli_model *model, cli_run_options *options,
                                         const char *example);

/* Fail if the directory of MODEL does not have the weights of `made`, the model. Reads no data. */
CGP_MUST_CHECK cgp_status cli_model_check_weights(const cli_model *model, const cgp_model *made);

/* Load the weights in the directory of MODEL into a pipeline of `made`, the model. Collective. */
CGP_MUST_CHECK cgp_status cli_model_load(const cli_model *model, const cgp_model *made,
                                         cgp_pipeline *pipeline);

/* Return the output that has the logits. This is the output that the loss with the largest weight
 * reads (the first such loss if weights are equal). Losses whose targets are an input other than
 * the first are preferred. Without a loss, returns the first output; -1: there is no output. */
int cli_model_logits(const cgp_model *model);

/* Sizes of a model that reads and predicts tokens. */
typedef struct cli_text_sizes {
    int64_t sequence, vocab;
} cli_text_sizes;

/* Find the sizes T and V. Fails with CGP_EINVAL if the model does not map tokens [T] i32 to logits
 * [T, V]. `what` is the command or option that requires this, for the message. */
CGP_MUST_CHECK cgp_status cli_model_expect_text(cli_text_sizes *out, const cgp_model *model,
                                                const char *what);

/* Change the model into its form for generation, which has a KV cache, and set *sizes. Return false
 * if this model has no such form. */
bool cli_model_for_generation(cli_model *model, cli_text_sizes *sizes);

/* Fail with CGP_EINVAL if the model is a table of layers. */
CGP_MUST_CHECK cgp_status cli_model_expect_kernels(const cli_model *model);

/* Tell whether the model can be written as a Hugging Face directory. */
bool cli_model_is_published(const cli_model *model);

#endif
