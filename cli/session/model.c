/* SPDX-License-Identifier: Apache-2.0 */
/* model.c -- see model.h. */
#include "session/model.h"

#include "files.h"
#include "options/options.h"
#include "ranks.h"
#include "session/layer_table.h"
#include "text.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/graph.h>
#include <cgpipe/models/weights.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LONGEST_SAMPLE 1024
#define BENCH_DROPOUT 0.1 /* dropout of the GPT-2 benchmark */

/* --- a plug-in --- */

bool cli_model_is_plugin(const char *text) {
    const size_t length = strcspn(text, ":");
    return cli_plugin_path(text) > 0 || (length > 3 && strncmp(text + length - 3, ".so", 3) == 0);
}

static cgp_status refuse_source(const char *text, const char *source) {
    const int length = (int)strcspn(text, ":");
    return cgp_fail(CGP_EINVAL,
                    "%s: names the plug-in %.*s, and code is loaded only from a path on the "
                    "command line (give it there: --model %s%.*s)",
                    source, length, text, memchr(text, '/', (size_t)length) ? "" : "./", length,
                    text);
}

static cgp_status parse_plugin(cli_model *model, const char *text, const char *source) {
    const size_t length = cli_plugin_path(text);
    if (source) return refuse_source(text, source);
    if (length == 0)
        return cgp_fail(CGP_EINVAL, "%.*s: expected a path with a '/' to a model plug-in (./%s)",
                        (int)strcspn(text, ":"), text, text);
    CGP_TRY(cli_plugin_open(&model->plugin, text, length));
    strcpy(model->sha256, model->plugin->sha256);
    return cli_plugin_values(model->values, model->plugin, text + length + (text[length] == ':'));
}

/* --- a graph file --- */

bool cli_model_is_graph(const char *text) {
    return cli_ends_with(text, ".json");
}

static cgp_status parse_graph(cli_model *model, const char *text, const char *plugin) {
    model->graph = text;
    CGP_TRY(cgp_file_sha256(text, model->sha256));
    if (!plugin) return CGP_OK;
    const size_t length = cli_plugin_path(plugin);
    if (length == 0 || plugin[length])
        return cgp_fail(CGP_EINVAL, "--plugin: expected a path with a '/' that ends in .so, got %s",
                        plugin);
    CGP_TRY(cli_plugin_open(&model->plugin, plugin, length));
    strcat(strcat(model->sha256, "+"), model->plugin->sha256);
    return CGP_OK;
}

/* --- a table of layers --- */

static cgp_status create_from_table(cgp_model **out, const char *path) {
    cli_layer_table table;
    cgp_status status = cli_layer_table_read(&table, path);
    if (status == CGP_OK) status = cli_layer_table_model(out, &table);
    cli_layer_table_release(&table);
    return status;
}

/* Set the options for planning a table of layers: use the times in the table and, by default, one
 * sample per micro-batch. */
static cgp_status resolve_table(const cli_model *model, cli_run_options *options) {
    if (options->costs)
        return cgp_fail(CGP_EINVAL, "--costs: %s has the costs (leave it out)", model->layers);
    options->costs = model->layers;
    if (!options->given[CLI_OPTION_BATCH]) options->batch = options->chunks;
    return CGP_OK;
}

/* Return the name of a file, without its directory. */
static const char *end_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* --- a directory of published weights --- */

/* Return the length of the directory in MODEL; 0 if MODEL is no directory with config.json. Its
 * keys follow the last ':'. */
static size_t directory_length(const char *text) {
    const char *colon = strrchr(text, ':');
    const size_t lengths[2] = {strlen(text), colon ? (size_t)(colon - text) : 0};
    for (int i = 0; i < 2; i++) {
        struct stat info;
        if (lengths[i] == 0) continue;
        char *path = cli_text("%.*s/config.json", (int)lengths[i], text);
        /* If the file cannot be read, reading it later reports the reason. */
        const bool found = stat(path, &info) == 0 || errno == EIO || errno == EACCES;
        free(path);
        if (found) return lengths[i];
    }
    return 0;
}

/* Tell whether a text without '/' is the name of a model of the zoo, maybe with keys. */
static bool is_zoo_name(const char *text) {
    cgp_model_spec spec = cgp_model_spec_default();
    const size_t length = strcspn(text, ":");
    if (memchr(text, '/', length)) return false;
    char *name = cli_text("%.*s", (int)length, text);
    const bool known = cgp_model_spec_parse(&spec, name) == CGP_OK;
    free(name);
    return known;
}

bool cli_model_is_directory(const char *text) {
    return directory_length(text) > 0 && !is_zoo_name(text);
}

static cgp_status unknown_key(const cli_model *model, const char *keys) {
    return cgp_fail(CGP_EINVAL,
                    "%s: expected the key seq=N with a directory of weights (config.json has all "
                    "others), got \"%s\"",
                    model->directory, keys);
}

/* Set the length of a sample. A Llama takes any length up to that of config.json; the position
 * embedding of a GPT-2 has its length. By default, a sample has at most LONGEST_SAMPLE tokens,
 * because published lengths are those of inference. */
static cgp_status set_length(cli_model *model, const char *keys) {
    int64_t *sequence = &model->spec.llama.sequence, given = 0;
    const int64_t most = *sequence;
    if (*keys && (strncmp(keys, "seq=", 4) != 0 || model->spec.kind != CGP_MODEL_LLAMA))
        return unknown_key(model, keys);
    if (model->spec.kind != CGP_MODEL_LLAMA) return CGP_OK;
    if (*keys && !cli_parse_whole(keys + 4, 1, most, &given))
        return cgp_fail(CGP_EINVAL,
                        "%s: seq: expected a whole number from 1 to %lld, the "
                        "max_position_embeddings of config.json, got \"%s\"",
                        model->directory, (long long)most, keys + 4);
    if (!*keys) given = most < LONGEST_SAMPLE ? most : LONGEST_SAMPLE;
    *sequence = given;
    model->longest = given < most ? most : 0;
    model->shortened = !*keys && given < most;
    return CGP_OK;
}

static cgp_status parse_directory(cli_model *model, const char *text) {
    size_t length = directory_length(text);
    const char *keys = text[length] ? text + length + 1 : "";
    while (length > 1 && text[length - 1] == '/')
        length--;
    if (length >= sizeof model->directory)
        return cgp_fail(CGP_EINVAL, "%s: expected a shorter path", text);
    snprintf(model->directory, sizeof model->directory, "%.*s", (int)length, text);
    CGP_TRY(cgp_huggingface_read(&model->spec, model->directory));
    return set_length(model, keys);
}

/* A name of the zoo must not hide a directory of that name here, whose weights are wanted. */
static cgp_status parse_name(cli_model *model, const char *text) {
    if (strchr(text, '/') && cli_is_directory(text))
        return cgp_fail(CGP_EINVAL,
                        "%s: expected a directory of published weights, which has config.json, got "
                        "a directory without",
                        text);
    if (strchr(text, ':') || directory_length(text) == 0)
        return cgp_model_spec_parse(&model->spec, text);
    return cgp_fail(CGP_EINVAL,
                    "%s: is a model of the zoo, and a directory with config.json here (./%s for "
                    "the directory, %s:KEY=VALUE,.. for a model of the zoo)",
                    text, text, text);
}

cgp_status cli_model_check_weights(const cli_model *model, const cgp_model *made) {
    cgp_weights *weights = NULL;
    CGP_TRY(cgp_weights_open(&weights, made, model->directory));
    cgp_weights_close(weights);
    return CGP_OK;
}

cgp_status cli_model_load(const cli_model *model, const cgp_model *made, cgp_pipeline *pipeline) {
    cgp_weights *weights = NULL;
    cgp_status status = cgp_weights_open(&weights, made, model->directory);
    if (status == CGP_OK) status = cgp_weights_load(weights, pipeline);
    cgp_weights_close(weights);
    return cli_ranks_agree(status);
}

/* --- any model --- */

cgp_status cli_model_parse(cli_model *model, const char *text, int64_t vocab, const char *source,
                           const char *plugin) {
    *model = (cli_model){.spec = cgp_model_spec_default()};
    if (vocab > 0) model->spec.gpt2.vocab = model->spec.llama.vocab = vocab;
    const bool graph = cli_model_is_graph(text);
    if (plugin && !graph)
        return cgp_fail(CGP_EINVAL,
                        "--plugin %s: expected a graph file as MODEL, got %s (leave it "
                        "out)",
                        plugin, text);
    if (cli_layer_table_is(text)) {
        model->spec.kind = CGP_MODEL_KINDS;
        model->layers = text;
        return cgp_file_sha256(text, model->sha256);
    }
    if (cli_model_is_directory(text)) return parse_directory(model, text);
    if (!graph && !cli_model_is_plugin(text)) return parse_name(model, text);
    model->spec.kind = CGP_MODEL_KINDS;
    return graph ? parse_graph(model, text, plugin) : parse_plugin(model, text, source);
}

cgp_status cli_model_text(const cli_model *model, char *text) {
    const char *file = model->graph ? model->graph : model->layers;
    if (file) {
        if (snprintf(text, CLI_MODEL_SPEC, "%s", end_of(file)) < CLI_MODEL_SPEC) return CGP_OK;
        return cgp_fail(CGP_EINVAL, "%s: expected a shorter name", file);
    }
    if (model->plugin) return cli_plugin_text(model->plugin, model->values, text, CLI_MODEL_SPEC);
    return cgp_model_spec_text(&model->spec, text, CLI_MODEL_SPEC);
}

cgp_status cli_model_create(cgp_model **out, const cli_model *model) {
    const cli_plugin *plugin = model->plugin;
    if (model->graph)
        return cgp_model_read(out, model->graph, plugin ? plugin->ops : NULL,
                              plugin ? plugin->n_ops : 0);
    if (model->layers) return create_from_table(out, model->layers);
    if (plugin) return cli_plugin_create(out, plugin, model->values);
    return cgp_model_spec_create(out, &model->spec);
}

cgp_status cli_model_differs(const cli_model *model, const char *sha256, const char *whose,
                             const char *suggestion) {
    const char *ours = model->sha256, *theirs = *sha256 ? sha256 : "none";
    const char *name = cli_model_name(model), *plus = strchr(ours, '+');
    const size_t first = plus ? (size_t)(plus - ours) + 1 : 0;
    if (first > 0 && strncmp(ours, theirs, first) == 0) { /* the graph files are equal */
        name = model->plugin->name;
        ours += first;
        theirs += first;
    }
    return cgp_fail(CGP_EINVAL, "%s: differs from the file of %s (SHA-256 %.8s, not %.8s; %s)",
                    name, whose, ours, theirs, suggestion);
}

cgp_status cli_model_agree(const cli_model *model) {
    char first[sizeof model->sha256];
    memcpy(first, model->sha256, sizeof first);
    CGP_TRY(cli_ranks_broadcast(0, first, sizeof first));
    const bool same = strcmp(first, model->sha256) == 0;
    return cli_ranks_agree(
        same ? CGP_OK : cli_model_differs(model, first, "rank 0", "the same file on all ranks"));
}

cgp_status cli_model_expect_kernels(const cli_model *model) {
    if (!model->layers) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: a table of layers has no kernels, and can only be planned (cgpipe plan "
                    "%s)",
                    model->layers, model->layers);
}

const char *cli_model_name(const cli_model *model) {
    if (model->graph || model->layers) return end_of(model->graph ? model->graph : model->layers);
    return model->plugin ? model->plugin->name : cgp_model_kind_name(model->spec.kind);
}

double *cli_model_dropout(cgp_model_spec *spec) {
    if (spec->kind == CGP_MODEL_GPT2) return &spec->gpt2.dropout;
    if (spec->kind == CGP_MODEL_VIT) return &spec->vit.dropout;
    return spec->kind == CGP_MODEL_UNET ? &spec->unet.dropout : NULL;
}

cgp_status cli_model_resolve(cli_model *model, cli_run_options *options) {
    double *dropout = cli_model_dropout(&model->spec);
    if (!dropout && options->dropout > 0)
        return cgp_fail(CGP_EINVAL, "--dropout %g: %s has none (leave it out)", options->dropout,
                        cli_model_name(model));
    if (isnan(options->dropout) && dropout)
        options->dropout = options->command == CLI_BENCH && model->spec.kind == CGP_MODEL_GPT2
                               ? BENCH_DROPOUT
                               : *dropout;
    if (isnan(options->dropout)) options->dropout = 0;
    if (dropout) *dropout = options->dropout;
    return CGP_OK;
}

cgp_status cli_model_find(cli_model *model, cli_run_options *options, const char *example) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL, "%.*s: MODEL is missing (cgpipe %s)",
                        (int)strcspn(example, " "), example, example);
    CGP_TRY(cli_model_parse(model, options->operand, 0, options->operand_source, options->plugin));
    CGP_TRY(cli_model_agree(model));
    if (options->command != CLI_PLAN) CGP_TRY(cli_model_expect_kernels(model));
    if (model->layers) CGP_TRY(resolve_table(model, options));
    return cli_model_resolve(model, options);
}

/* Among the losses whose targets are input `least` or a later input, find the loss with the largest
 * weight. Return the output that this loss reads; -1: there is no such loss. If `least` is -1,
 * losses whose targets the graph computes count too. */
static int heaviest(const cgp_model *model, int least) {
    cgp_model_loss best = {.output = -1};
    for (int i = 0; i < cgp_model_losses(model); i++) {
        const cgp_model_loss loss = cgp_model_loss_at(model, i);
        if (loss.output >= 0 && loss.target >= least && loss.weight > best.weight) best = loss;
    }
    return best.output;
}

int cli_model_logits(const cgp_model *model) {
    const int of_target = heaviest(model, 1), any = heaviest(model, -1);
    if (cgp_model_losses(model) == 0) return cgp_model_outputs(model) > 0 ? 0 : -1;
    return of_target >= 0 ? of_target : any;
}

cgp_status cli_model_expect_text(cli_text_sizes *out, const cgp_model *model, const char *what) {
    const cgp_shape tokens = cgp_model_input_shape(model, 0);
    const int output = cli_model_logits(model);
    const cgp_shape logits = cgp_model_output_shape(model, output);
    if (tokens.rank != 1 || cgp_model_input_dtype(model, 0) != CGP_I32 || logits.rank != 2 ||
        logits.dims[0] != tokens.dims[0] || cgp_model_output_dtype(model, output) != CGP_F32)
        return cgp_fail(CGP_EINVAL,
                        "%s: expected a model from tokens [T] to logits [T, V], got %s%s", what,
                        cgp_model_name(model),
                        output < 0 ? ", whose loss takes no output (call cgp_model_output() "
                                     "with its logits)"
                                   : "");
    *out = (cli_text_sizes){tokens.dims[0], logits.dims[1]};
    return CGP_OK;
}

bool cli_model_for_generation(cli_model *model, cli_text_sizes *sizes) {
    cgp_gpt2_options *gpt2 = &model->spec.gpt2;
    cgp_llama_options *llama = &model->spec.llama;
    if (model->spec.kind == CGP_MODEL_GPT2) {
        gpt2->generation = true;
        *sizes = (cli_text_sizes){gpt2->sequence, gpt2->vocab};
        return true;
    }
    if (model->spec.kind != CGP_MODEL_LLAMA) return false;
    llama->generation = true;
    *sizes = (cli_text_sizes){llama->sequence, llama->vocab};
    return true;
}

bool cli_model_is_published(const cli_model *model) {
    const cgp_model_spec *spec = &model->spec;
    if (spec->kind == CGP_MODEL_GPT2) return spec->gpt2.residuals == 0;
    return spec->kind == CGP_MODEL_LLAMA || spec->kind == CGP_MODEL_VIT;
}
