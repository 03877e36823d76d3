/* SPDX-License-Identifier: Apache-2.0 */
/* config.c -- cgpipe config: print the settings of a run as a run file. These are the options that
 * --resume takes from run.json. */
#include "commands/commands.h"

#include "errors.h"
#include "options/inherit.h"
#include "options/json.h"
#include "options/parse.h"
#include "options/run_file.h"
#include "session/model.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "text.h"

/* Tell whether a later start of the run changed an option. If so, no single start can repeat the
 * run. */
static bool has_changes(const json_t *record) {
    const json_t *starts = json_object_get(record, "starts");
    for (size_t i = 0; i < json_array_size(starts); i++) {
        if (json_object_size(json_object_get(json_array_get(starts, i), "changed")) > 0)
            return true;
    }
    return false;
}

/* Delete options whose values are the defaults, because some options may only be given together
 * with other options. Delete --steps if --epochs determines it. */
static void keep_changed(json_t *options, const json_t *defaults) {
    const char *key;
    json_t *value;
    void *after;
    if (json_is_integer(json_object_get(options, "epochs"))) json_object_del(options, "steps");
    json_object_foreach_safe(options, after, key, value) {
        if (json_is_null(value) || json_equal(value, json_object_get(defaults, key)))
            json_object_del(options, key);
    }
}

/* Read the options of a record. The option table checks their values. */
static cgp_status options_of(const char *path, const json_t *record, json_t *options) {
    char *arguments[] = {"train", "--resume", NULL};
    cli_run_options run;
    json_t *defaults = json_object();
    cgp_status status = cli_run_options_parse(&run, CLI_TRAIN, 2, arguments);
    cli_options_json(defaults, &run, CLI_LIST_RUN);
    if (status == CGP_OK)
        status = cli_run_options_inherit(&run, json_object_get(record, "options"));
    if (status == CGP_OK)
        cli_options_json(options, &run, CLI_LIST_RUN);
    else
        status = cgp_fail(status, "%s: %s", path, cgp_message());
    keep_changed(options, defaults);
    json_decref(defaults);
    cli_run_options_release(&run);
    return status;
}

static cgp_status print(const char *path, const json_t *record, json_t *options) {
    printf("# a run file, made by cgpipe config %s; other options have their defaults\n",
           cli_shown(path));
    if (has_changes(record))
        puts("# A later start changed options (run.json lists them); these are the current ones.");
    const char *model = cli_record_model(record), *weights = cli_record_weights(record);
    if (cli_model_is_plugin(model))
        printf("# The model is %s, whose path is given on the command line.\n", cli_shown(model));
    else
        json_object_set_new(options, "model",
                            json_string(weights ? weights : cli_record_path(record)));
    return cli_run_file_write(stdout, options);
}

int cli_config(const cli_run_options *run_options) {
    cli_run_directory directory;
    json_t *record = NULL, *options = json_object();
    cli_run_directory_name(&directory, run_options->operand);
    cgp_status status = cli_record_read(&directory, &record);
    if (status == CGP_OK) status = options_of(directory.record, record, options);
    if (status == CGP_OK) status = print(run_options->operand, record, options);
    json_decref(options);
    json_decref(record);
    cli_run_directory_close(&directory);
    return cli_report(status, false);
}
