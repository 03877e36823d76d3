/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c -- cgpipe convert FROM TO: convert published weights to a run that train and sample can
 * read, or convert a run to published weights.
 *
 *     FROM                                      TO
 *     a directory with config.json              a run, of GPT-2, Llama or ViT
 *     a safetensors file, and --model MODEL     a run
 *     a run of GPT-2, Llama or ViT              a directory with config.json, model.safetensors
 *     a run of any model                        a file, NAME.safetensors
 *     a profile of PipeDream or Piper           a table of layers, NAME.csv
 *
 * A conversion leaves no half-written result. A directory counts as a run only if it contains
 * run.json, and as published weights only if it contains config.json. The old run.json or
 * config.json is moved away first, and the new one is moved in last. After a failure, the old
 * contents are moved back. After a kill, the next start moves an old run back. */
#include "commands/commands.h"

#include "errors.h"
#include "files.h"
#include "session/layer_import.h"
#include "session/not_a_run.h"
#include "session/published.h"
#include "session/published_files.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "session/staging.h"
#include "text.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/models/weights.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDING ".safetensors"
#define WEIGHTS "model" ENDING
#define CONFIG "config.json"

typedef enum source { SOURCE_RUN, SOURCE_DIRECTORY, SOURCE_FILE } source;

typedef struct conversion {
    const cli_run_options *options;
    source source;
    bool to_file;
    cli_run_directory from, to; /* `from` or `to` is a run */
    json_t *record;             /* contents of run.json if FROM is a run */
    cli_model of;
    char model_spec[CLI_MODEL_SPEC];
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
} conversion;

/* --- source --- */

/* Tell whether a path exists. On EIO, assume that the path exists: opening it later reports the
 * reason. */
static bool is_there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 || errno == EIO;
}

static bool has(const char *directory, const char *name) {
    char *path = cli_text("%s/%s", directory, name);
    const bool found = is_there(path);
    free(path);
    return found;
}

/* Fail for a directory that is neither a run nor published weights. */
static cgp_status unknown_source(const char *from) {
    cli_run_directory directory;
    cli_run_directory_name(&directory, from);
    const cgp_status status = cli_suggest_run(&directory);
    cli_run_directory_close(&directory);
    CGP_TRY(status);
    return cgp_fail(CGP_EIO,
                    "%s: expected a run (run.json), a Hugging Face directory (config.json) or a "
                    "safetensors file, got a directory without",
                    from);
}

static cgp_status find_source(conversion *c) {
    const char *from = c->options->operand;
    struct stat info;
    if (stat(from, &info) != 0)
        return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", from, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        c->source = SOURCE_FILE;
    else if (has(from, "run.json"))
        c->source = SOURCE_RUN;
    else if (has(from, CONFIG))
        c->source = SOURCE_DIRECTORY;
    else
        return unknown_source(from);
    return CGP_OK;
}

/* --- checks before anything is read --- */

static cgp_status check_options(const conversion *c) {
    const cli_run_options *options = c->options;
    if (c->source == SOURCE_FILE && !options->model)
        return cgp_fail(
            CGP_EINVAL,
            "convert: --model is missing (the model whose weights %s has, such as resnet50)",
            options->operand);
    const bool of_file = options->model && (cli_model_is_plugin(options->model) ||
                                            cli_model_is_graph(options->model));
    if (c->source != SOURCE_FILE && options->model && !(c->source == SOURCE_RUN && of_file))
        return cgp_fail(CGP_EINVAL,
                        "--model: expected a file of weights with it, got %s, which names its "
                        "model (leave it out)",
                        options->operand);
    if (c->source != SOURCE_RUN && options->from_step >= 0)
        return cgp_fail(CGP_EINVAL, "--from-step: expected a run, got %s", options->operand);
    if (c->source != SOURCE_RUN && c->to_file)
        return cgp_fail(CGP_EINVAL, "%s: expected a directory for the run, got the name of a file",
                        options->target);
    return CGP_OK;
}

/* Find the model of a single file of weights. --model names the model, and must agree with
 * config.json beside the file, if there is one. */
static cgp_status find_model_of_file(conversion *c) {
    const cli_run_options *options = c->options;
    char given[CLI_MODEL_SPEC], published[CLI_MODEL_SPEC];
    CGP_TRY(cli_model_parse(&c->of, options->model, 0, NULL, options->plugin));
    CGP_TRY(cli_model_expect_kernels(&c->of));
    if (!cli_model_is_published(&c->of)) return CGP_OK;
    CGP_TRY(cli_model_text(&c->of, given));
    CGP_TRY(cli_published_model(options->operand, published));
    if (!*published || strcmp(given, published) == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "--model: expected %s, as config.json beside %s says, got %s",
                    published, options->operand, given);
}

static cgp_status find_model(conversion *c) {
    const cli_run_options *options = c->options;
    c->of.spec = cgp_model_spec_default();
    if (c->source == SOURCE_FILE) return find_model_of_file(c);
    if (c->source == SOURCE_DIRECTORY) return cgp_huggingface_read(&c->of.spec, options->operand);
    cli_run_directory_name(&c->from, options->operand);
    CGP_TRY(cli_record_read(&c->from, &c->record));
    CGP_TRY(cli_record_find_model(&c->of, &c->from, c->record, options->model, options->plugin));
    if (cli_model_is_published(&c->of) || c->to_file) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected a name that ends in " ENDING " for the weights of %s",
                    options->target, cli_model_name(&c->of));
}

/* Refuse a target directory that contains `file`, because that file makes the directory a run or a
 * checkpoint. If published weights were added, the directory could be mistaken for either kind. */
static cgp_status check_not(const char *directory, const char *file, const char *what) {
    if (!has(directory, file)) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: %s, it has %s (take another name)", directory, what, file);
}

/* Refuse a target inside a checkpoint, because a checkpoint has checksums of its files. */
static cgp_status check_not_in_checkpoint(const char *path) {
    char *directory = cli_published_directory(path);
    const bool inside = has(directory, "checkpoint.json");
    if (inside)
        (void)cgp_fail(CGP_EIO,
                       "%s: is in a checkpoint, %s has checkpoint.json (take another name)", path,
                       directory);
    free(directory);
    return inside ? CGP_EIO : CGP_OK;
}

/* Check the target, a directory or file of published weights, before it is made. */
static cgp_status check_published(conversion *c) {
    const char *to = c->options->target;
    struct stat info;
    if (c->to_file) {
        CGP_TRY(cli_file_check(to));
        CGP_TRY(check_not_in_checkpoint(to));
        if (!is_there(to) || c->options->overwrite) return CGP_OK;
        return cgp_fail(CGP_EIO, "%s: is there already (--overwrite replaces it)", to);
    }
    CGP_TRY(check_not(to, "run.json", "is a run"));
    CGP_TRY(check_not(to, "checkpoint.json", "is a checkpoint"));
    if (stat(to, &info) != 0) return CGP_OK;
    if (!S_ISDIR(info.st_mode))
        return cgp_fail(CGP_EIO,
                        "%s: is a file, expected a directory or a name that ends in " ENDING, to);
    if (c->options->overwrite || (!has(to, CONFIG) && !has(to, WEIGHTS))) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: has weights already (--overwrite replaces them)", to);
}

static cgp_status check_target(conversion *c) {
    if (c->source == SOURCE_RUN) return check_published(c);
    const char *to = c->options->target;
    if (has(to, CONFIG))
        return cgp_fail(CGP_EIO,
                        "run directory %s: is a Hugging Face directory, it has config.json (take "
                        "another name)",
                        to);
    cli_run_directory_name(&c->to, to);
    CGP_TRY(cli_run_directory_check(&c->to));
    if (c->options->overwrite || !cli_run_directory_has_run(&c->to)) return CGP_OK;
    return cgp_fail(CGP_EIO, "run directory %s: has a run already (--overwrite deletes it)", to);
}

/* Plan a pipeline of one stage and one sample to hold the weights. */
static cgp_status make_plan(conversion *c) {
    cli_model bare = c->of;
    cgp_model_spec *spec = &bare.spec;
    spec->gpt2.loss = spec->llama.loss = spec->resnet.loss = false;
    spec->amoebanetd.loss = spec->unet.loss = spec->vit.loss = false;
    CGP_TRY(cli_model_text(&c->of, c->model_spec));
    CGP_TRY(cli_model_create(&c->model, &bare));
    cgp_plan_options options = cgp_plan_options_default();
    options.inference = true;
    return cgp_plan_create(&c->plan, c->model, &options);
}

static cgp_status prepare(conversion *c) {
    if (!c->options->operand || !c->options->target)
        return cgp_fail(CGP_EINVAL, "convert: %s is missing (cgpipe convert FROM TO)",
                        c->options->operand ? "TO" : "FROM");
    c->to_file = cli_ends_with(c->options->target, ENDING);
    CGP_TRY(find_source(c));
    CGP_TRY(check_options(c));
    CGP_TRY(find_model(c));
    CGP_TRY(check_target(c));
    return make_plan(c);
}

/* --- reading --- */

static cgp_status load(conversion *c) {
    cgp_weights *weights = NULL;
    CGP_TRY(cgp_pipeline_create(&c->pipeline, c->plan, 0));
    if (c->source == SOURCE_RUN)
        return cli_run_directory_load(&c->from, c->options->from_step, c->pipeline, NULL);
    CGP_TRY(cgp_weights_open(&weights, c->model, c->options->operand));
    const cgp_status status = cgp_weights_load(weights, c->pipeline);
    cgp_weights_close(weights);
    return status;
}

/* --- writing --- */

/* Return the dropout option of a model that can have a config.json; NULL if there is none. */
static double *published_dropout(const conversion *c, cgp_model_spec *spec) {
    return cli_model_is_published(&c->of) ? cli_model_dropout(spec) : NULL;
}

/* Keep the small files beside the weights in the run. */
static cgp_status keep_published(const conversion *c, const cli_run_directory *run) {
    const char *from = c->options->operand;
    char *directory =
        c->source == SOURCE_DIRECTORY ? cli_text("%s", from) : cli_published_directory(from);
    const bool published = cli_model_is_published(&c->of) && has(directory, CONFIG);
    const cgp_status status = published ? cli_published_keep(run, directory, NULL) : CGP_OK;
    free(directory);
    return status;
}

static cgp_status write_checkpoint(const conversion *c, const cli_run_directory *run) {
    cgp_model_spec spec = c->of.spec;
    const double *dropout = published_dropout(c, &spec);
    cgp_save_options options = cgp_save_options_default();
    options.keep = 1;
    json_t *note = json_pack("{s:s, s:s, s:i}", "program", "cgpipe " CGP_VERSION, "model",
                             c->model_spec, "position", 0); /* a conversion has read no data */
    cli_record_file(note, &c->of);
    CGP_TRY(keep_published(c, run));
    CGP_TRY(cli_run_directory_save(run, c->pipeline, options, note));
    return cli_record_write_converted(run, &c->of, c->model_spec, dropout ? *dropout : 0);
}

/* Write the whole run before it replaces another run, so that the other run survives a full
 * disk. */
static cgp_status write_run(conversion *c) {
    cli_run_directory fresh;
    CGP_TRY(cli_run_directory_make(&c->to));
    cli_run_directory_clean(&c->to);
    CGP_TRY(cli_run_directory_new_begin(&c->to, &fresh));
    return cli_run_directory_new_end(&c->to, &fresh, write_checkpoint(c, &fresh));
}

/* Return the model spec with the run's dropout, if run.json has it. */
static cgp_model_spec with_dropout(const conversion *c) {
    cgp_model_spec spec = c->of.spec;
    const json_t *given = json_object_get(json_object_get(c->record, "options"), "dropout");
    double *dropout = published_dropout(c, &spec);
    if (dropout && json_is_number(given)) *dropout = json_number_value(given);
    return spec;
}

/* Add the small files that the run keeps, such as those of the tokenizer, and the keys of their
 * config.json. */
static cgp_status add_published(const conversion *c, const cgp_model_spec *spec,
                                const cli_staging *s) {
    char *from = NULL;
    CGP_TRY(cli_run_published(&from, &c->from));
    if (!from) return CGP_OK;
    cgp_status status = cli_published_config(from, spec, s->path);
    if (status == CGP_OK) status = cli_published_copy(from, s->fd, s->path);
    free(from);
    return status;
}

static cgp_status write_directory(conversion *c) {
    const char *to = c->options->target;
    const cgp_model_spec spec = with_dropout(c);
    cli_staging s;
    CGP_TRY(cgp_checkpoint_clean(to)); /* delete entries that a killed conversion left */
    const bool made = mkdir(to, 0777) == 0;
    if (!made && errno != EEXIST)
        return cgp_fail(CGP_EIO, "%s: cannot be made (%s)", to, strerror(errno));
    cgp_status status = cli_staging_make(&s, to, CONFIG);
    if (status == CGP_OK) status = cgp_huggingface_write(&spec, c->pipeline, c->model, s.path);
    if (status == CGP_OK) status = add_published(c, &spec, &s);
    if (status == CGP_OK) status = cli_staging_commit(&s);
    cli_staging_remove(&s);
    if (status != CGP_OK && made) (void)rmdir(to); /* deletes only an empty directory */
    return status;
}

static cgp_status convert(conversion *c) {
    CGP_TRY(load(c));
    if (c->source != SOURCE_RUN) return write_run(c);
    if (c->to_file) return cgp_weights_save(c->pipeline, c->model, c->options->target);
    return write_directory(c);
}

/* Print the dropout of a GPT-2 or a ViT. cgpipe has one probability for all dropouts of a model,
 * but config.json has several. */
static void print_dropout(const conversion *c) {
    char dropouts[CLI_DROPOUTS_TEXT];
    cgp_model_spec spec = with_dropout(c);
    const double *dropout = published_dropout(c, &spec);
    if (!dropout) return;
    printf("dropout      %g\n", *dropout);
    if (c->source == SOURCE_DIRECTORY &&
        cli_published_dropouts_differ(c->options->operand, spec.kind, dropouts))
        printf("warning      dropout: config.json has %s, cgpipe has one probability (train "
               "--dropout P)\n",
               dropouts);
}

static void print(const conversion *c) {
    static const char *const sources[] = {"run", "Hugging Face directory", "file"};
    char parameters[CLI_NUMBER];
    printf("from         %s (%s)\n", cli_shown(c->options->operand), sources[c->source]);
    printf("model        %s\n", c->model_spec);
    printf("parameters   %s\n", cli_grouped(cgp_model_parameter_count(c->model), parameters));
    print_dropout(c);
    printf("to           %s (%s)\n", cli_shown(c->options->target),
           sources[c->source != SOURCE_RUN ? SOURCE_RUN
                   : c->to_file            ? SOURCE_FILE
                                           : SOURCE_DIRECTORY]);
}

static void release(conversion *c) {
    cgp_pipeline_destroy(c->pipeline);
    cgp_plan_destroy(c->plan);
    cgp_model_destroy(c->model);
    json_decref(c->record);
    if (c->from.path) cli_run_directory_close(&c->from);
    if (c->to.path) cli_run_directory_close(&c->to);
}

/* Convert a profile of another planner. */
static cgp_status convert_profile(const cli_run_options *options) {
    cli_layer_table table;
    if (is_there(options->target) && !options->overwrite)
        return cgp_fail(CGP_EIO, "%s: is there already (--overwrite replaces it)", options->target);
    cgp_status status = cli_layer_import(&table, options->operand);
    if (status == CGP_OK) {
        status = cli_text_write(options->target, cli_layer_table_text(&table));
        if (status == CGP_OK)
            printf("%s: %d layers in %s\n", options->operand, table.n, options->target);
    }
    cli_layer_table_release(&table);
    return status;
}

int cli_convert(const cli_run_options *run_options) {
    if (run_options->target && cli_layer_table_is(run_options->target))
        return cli_report(convert_profile(run_options), false);
    conversion c = {.options = run_options};
    int code = cli_report(prepare(&c), true);
    if (code == CLI_OK) code = cli_report(convert(&c), false);
    if (code == CLI_OK) print(&c);
    release(&c);
    return code;
}
