/* SPDX-License-Identifier: Apache-2.0 */
/* model.h -- MODEL of the command line: one of the model zoo, or of a file:
 *
 *     gpt2:layers=4              of the zoo, by its spec
 *     ./mine.so:width=64         a model plug-in; its path has a '/'
 *     ./mine.json                a graph file; --plugin has its custom ops
 *
 * Code is loaded from a path of this command line alone: a run or a run file that names a plug-in
 * is refused. */
#ifndef CGPIPE_CLI_MODEL_H
#define CGPIPE_CLI_MODEL_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include "options/options.h"
#include "session/plugin.h"

/* Bytes of a model's text with all sizes written out. */
#define CLI_MODEL_SPEC 2048

/* A plain value: what it points to lives as long as the process or the options. */
typedef struct cli_model {
    cgp_model_spec spec;      /* of the zoo; of a file: its kind is none, CGP_MODEL_KINDS */
    const cli_plugin *plugin; /* NULL: no plug-in */
    cgp_model_value values[CLI_PLUGIN_KEYS];
    const char *graph; /* the path of a graph file, whose custom ops `plugin` has; NULL: none */
    /* Of the file, "" for a model of the zoo; of a graph file with a plug-in of both, a '+'
     * between. */
    char sha256[132];
} cli_model;

/* Tell whether a text is the MODEL of a plug-in, on the command line or, without the directory, in
 * a run. */
bool cli_model_is_plugin(const char *text);

/* Tell whether a text is the MODEL of a graph file. */
bool cli_model_is_graph(const char *text);

/* Parse MODEL; a GPT-2 or Llama that names no vocab takes `vocab`, 0: the zoo's. `source`: the run,
 * or the run file, that the text is from, which may name no plug-in; NULL: the command line.
 * `plugin`: --plugin, NULL if it is not given. */
CGP_MUST_CHECK cgp_status cli_model_parse(cli_model *model, const char *text, int64_t vocab,
                                          const char *source, const char *plugin);

/* Write the model with all sizes written out, without the directory of a file, to `text`, of
 * CLI_MODEL_SPEC bytes. */
CGP_MUST_CHECK cgp_status cli_model_text(const cli_model *model, char *text);

/* Make the model. */
CGP_MUST_CHECK cgp_status cli_model_create(cgp_model **out, const cli_model *model);

/* Refuse a file that is not the same on all ranks. Collective. */
CGP_MUST_CHECK cgp_status cli_model_agree(const cli_model *model);

/* Return the model's name for messages, "gpt2" or "mine.so". */
const char *cli_model_name(const cli_model *model);

/* Return the dropout in the options of the spec's kind, NULL if it has none. */
double *cli_model_dropout(cgp_model_spec *spec);

/* Fail with CGP_EINVAL because of another SHA-256, of what `whose` ("rank 0") has: the message
 * names the file, and the first digits of both, then `way_out`. */
CGP_MUST_CHECK cgp_status cli_model_differs(const cli_model *model, const char *sha256,
                                            const char *whose, const char *way_out);

/* Resolve --dropout: the model's if none is given, the given one if the model has dropout. Fails
 * with CGP_EINVAL where it has none. */
CGP_MUST_CHECK cgp_status cli_model_resolve(cli_model *model, cli_run_options *options);

/* Parse the operand of a command, on all ranks alike, and resolve --dropout. `example`: the command
 * line for the message that there is none. Collective. */
CGP_MUST_CHECK cgp_status cli_model_find(cli_model *model, cli_run_options *options,
                                         const char *example);

/* Return the output that has the logits: those of the loss with the largest weight, the first of
 * equals, among losses whose targets are an input other than the first, else among all; of a model
 * without a loss the first output; -1: there is none. */
int cli_model_logits(const cgp_model *model);

/* Sizes of a model that reads and predicts tokens. */
typedef struct cli_text_sizes {
    int64_t sequence, vocab;
} cli_text_sizes;

/* Find them. Fails with CGP_EINVAL if the model does not go from tokens [T] i32 to logits [T, V],
 * which `what` needs. */
CGP_MUST_CHECK cgp_status cli_model_expect_text(cli_text_sizes *out, const cgp_model *model,
                                                const char *what);

/* Make it the model for generation, with a cache, and find its sizes; false: of this model there is
 * none. */
bool cli_model_for_generation(cli_model *model, cli_text_sizes *sizes);

/* Tell whether the model has a form among Hugging Face's directories. */
bool cli_model_is_published(const cli_model *model);

#endif
