/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.c -- see plan_file.h. Like a run file, a plan file is read into a separate set of
 * options, which inherit.c then merges. */
#include "options/plan_file.h"

#include "json_file.h"
#include "json_value.h"
#include "options/inherit.h"
#include "options/json.h"
#include "options/resolve.h"
#include "options/table.h"
#include "options/values.h"
#include "text.h"

#include <cgpipe/schedule.h>

#include <stdlib.h>
#include <string.h>

/* A plan of 1,000,000 stages takes 2 MB. */
#define LARGEST_FILE (4 << 20)

enum { VERSION = 1 };

/* --- options --- */

/* Tell whether plan files contain the option. Plan files do not contain --costs, because they
 * contain the balance that was found with these costs. */
static bool has(int id) {
    return cli_option_taken(id, CLI_PLAN) && cli_option_taken(id, CLI_TRAIN) &&
           !(cli_options[id].flags & CLI_ONCE) && id != CLI_OPTION_COSTS;
}

/* Tell whether the plan depends on the option. The option's default may differ between commands. */
static bool decides(const cli_run_options *options, int id) {
    static const cli_option_id ids[] = {
        CLI_OPTION_STAGES,    CLI_OPTION_BALANCE,   CLI_OPTION_CHUNKS,
        CLI_OPTION_SCHEDULE,  CLI_OPTION_RECOMPUTE, CLI_OPTION_PRECISION,
        CLI_OPTION_BATCH,     CLI_OPTION_DROPOUT,   CLI_OPTION_CONVOLUTION,
        CLI_OPTION_OPTIMIZER, CLI_OPTION_MOMENTUM,  CLI_OPTION_THREADS_PER_DEVICE};
    const cgp_schedule_info *info = cgp_schedule_info_find(options->schedule);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if ((int)ids[i] == id) return true;
    }
    if (id == CLI_OPTION_IN_FLIGHT) return options->in_flight > 0;
    if (id == CLI_OPTION_REPLICAS) return options->replicas > 1;
    if (id == CLI_OPTION_GRADIENT_GROUPS) return options->gradient_groups > 1;
    return id == CLI_OPTION_VIRTUAL && info && info->any_virtual;
}

static json_t *options_json(const cli_run_options *options) {
    json_t *object = json_object();
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char key[32];
        if (!has(id) || (!options->given[id] && !decides(options, id))) continue;
        json_t *value = cli_option_json(options, id);
        if (json_is_null(value) || json_is_false(value))
            json_decref(value);
        else
            json_object_set_new(object, cli_option_key(id, key), value);
    }
    return object;
}

json_t *cli_plan_file_json(const cli_run_options *options, const cli_planned *planned) {
    json_t *devices = json_array();
    for (int d = 0; d < planned->devices.count; d++)
        json_array_append_new(devices, json_string(planned->devices.values[d]));
    return json_pack("{s:i, s:s, s:s, s:s*, s:s, s:o, s:o}", "cgpipe_plan", VERSION, "version",
                     CGP_VERSION, "model", planned->model, "model_sha256", planned->model_sha256,
                     "graph_sha256", planned->graph_sha256, "devices", devices, "options",
                     options_json(options));
}

/* --- reading --- */

typedef struct reader {
    cli_json_place at;
    cli_run_options file; /* the options of the file, and the memory of all its texts */
    cli_planned planned;
} reader;

/* Return a copy of a text, valid until the options are freed. */
static const char *keep(reader *r, const char *text) {
    return text ? cli_run_options_keep(&r->file, cli_text("%s", text)) : NULL;
}

/* Copy a list of texts to *out. An empty list is refused, and so is an item that is not a text. */
static cgp_status read_names(reader *r, const char *key, const json_t *list, cli_names *out) {
    const size_t count = json_array_size(list);
    const char **names = cli_run_options_keep(&r->file, cli_calloc(count + 1, sizeof *names));
    for (size_t i = 0; i < count; i++) {
        names[i] = keep(r, json_string_value(json_array_get(list, i)));
        if (!names[i]) return cli_json_wrong(&r->at, key, "a list of texts");
    }
    *out = (cli_names){names, (int)count};
    return count > 0 ? CGP_OK : cli_json_wrong(&r->at, key, "a list of texts");
}

/* Read the model and the devices that the plan is for. */
static cgp_status read_planned(reader *r) {
    const json_t *object = r->at.object;
    const char *model = NULL, *graph = NULL, *file = NULL;
    CGP_TRY(cli_json_text_of(&r->at, "model", &model));
    CGP_TRY(cli_json_text_of(&r->at, "graph_sha256", &graph));
    if (cli_json_has(&r->at, "model_sha256"))
        CGP_TRY(cli_json_text_of(&r->at, "model_sha256", &file));
    r->planned.model = keep(r, model);
    r->planned.model_sha256 = keep(r, file);
    r->planned.graph_sha256 = keep(r, graph);
    return read_names(r, "devices", json_object_get(object, "devices"), &r->planned.devices);
}

/* Refuse files of other versions. Another version of the program may plan other numbers of
 * bytes. */
static cgp_status check_version(const reader *r) {
    const json_t *format = json_object_get(r->at.object, "cgpipe_plan");
    const char *version = NULL;
    if (!json_is_integer(format))
        return cli_json_wrong(&r->at, "cgpipe_plan",
                              "the version of plan files (cgpipe plan MODEL --search --plan-out "
                              "FILE makes one)");
    if (json_integer_value(format) != VERSION)
        return cgp_fail(CGP_EINVAL,
                        "%s: cgpipe_plan: expected %d, got %" JSON_INTEGER_FORMAT
                        " (make the plan again: cgpipe plan MODEL --search --plan-out FILE)",
                        r->at.path, VERSION, json_integer_value(format));
    CGP_TRY(cli_json_text_of(&r->at, "version", &version));
    if (strcmp(version, CGP_VERSION) == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: version: cgpipe %s made the plan, this is %s (make it again: cgpipe plan "
                    "MODEL --search --plan-out FILE)",
                    r->at.path, cli_shown(version), CGP_VERSION);
}

/* Set an option. The texts of its value are copied, because the JSON is freed. */
static cgp_status set(reader *r, int id, const json_t *value) {
    if (json_is_string(value))
        return cli_option_set(&r->file, id, keep(r, json_string_value(value)));
    return cli_option_set_json(&r->file, id, value); /* the items of a list are copied */
}

static int find(const char *key) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char name[32];
        if (has(id) && strcmp(cli_option_key(id, name), key) == 0) return id;
    }
    return CLI_OPTION_COUNT;
}

static cgp_status read_options(reader *r) {
    json_t *options = json_object_get(r->at.object, "options");
    const char *key;
    json_t *value;
    if (!json_is_object(options)) return cli_json_wrong(&r->at, "options", "an object");
    json_object_foreach(options, key, value) {
        const int id = find(key);
        if (id == CLI_OPTION_COUNT)
            return cgp_fail(CGP_EFORMAT, "%s: options.%s: is no option of a plan (leave it out)",
                            r->at.path, cli_shown(key));
        if (set(r, id, value) != CGP_OK)
            return cgp_fail(CGP_EFORMAT, "%s: options.%s: %s", r->at.path, cli_shown(key),
                            cgp_message());
        r->file.given[id] = true;
    }
    return CGP_OK;
}

/* --- merging --- */

static bool changes(const cli_run_options *options, const cli_run_options *file, int id) {
    json_t *now = cli_option_json(options, id), *planned = cli_option_json(file, id);
    const bool same = json_equal(now, planned);
    json_decref(planned);
    json_decref(now);
    return options->given[id] && !same;
}

/* Take the file's options. The file's balance has a number for each stage of the file's
 * schedule. */
static cgp_status take_over(cli_run_options *options, reader *r) {
    const bool *given = r->file.given;
    CGP_TRY(cli_take_devices(&r->file));
    if (given[CLI_OPTION_REPLICAS] && r->file.replicas == CLI_AUTO)
        return cgp_fail(CGP_EFORMAT, "options.replicas: expected a number, got auto");
    r->planned.replicas = given[CLI_OPTION_REPLICAS] ? r->file.replicas : 1;
    r->planned.gradient_groups = given[CLI_OPTION_GRADIENT_GROUPS] ? r->file.gradient_groups : 0;
    if (changes(options, &r->file, CLI_OPTION_SCHEDULE) ||
        changes(options, &r->file, CLI_OPTION_VIRTUAL))
        r->file.given[CLI_OPTION_BALANCE] = false;
    options->planned = r->planned;
    if (!options->operand && !r->planned.model_sha256) {
        options->operand = r->planned.model;
        options->operand_source = options->plan;
    }
    cli_run_options_add(options, &r->file);
    return CGP_OK;
}

cgp_status cli_plan_file_read(cli_run_options *options) {
    json_t *json = NULL;
    reader r = {.at = {.path = options->plan}, .file.command = CLI_TRAIN};
    if (options->resume)
        return cgp_fail(CGP_EINVAL, "--plan: cannot be with --resume, which takes all options from "
                                    "run.json (leave it out, or another --run)");
    CGP_TRY(cli_json_read(options->plan, LARGEST_FILE, &json));
    r.at.object = json;
    cgp_status status = check_version(&r);
    if (status == CGP_OK) status = read_planned(&r);
    if (status == CGP_OK) status = read_options(&r);
    json_decref(json);
    if (status == CGP_OK && take_over(options, &r) != CGP_OK)
        status = cgp_fail(CGP_EFORMAT, "%s: %s", options->plan, cgp_message());
    cli_run_options_release(&r.file);
    return status;
}
