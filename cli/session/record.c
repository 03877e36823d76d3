/* SPDX-License-Identifier: Apache-2.0 */
/* record.c -- see record.h. */
#include "session/record.h"

#include "files.h"
#include "json_file.h"
#include "json_value.h"
#include "machine.h"
#include "options/changes.h"
#include "options/json.h"
#include "options/options.h"
#include "ranks.h"
#include "session/data.h"
#include "session/not_a_run.h"
#include "session/plugin.h"
#include "session/run_directory.h"
#include "session/session.h"
#include "text.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/devices.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Limits in bytes. In run.json, a start takes about 1000 bytes plus the names of its data. A note
 * takes some hundred bytes plus these names. */
#define LARGEST_RECORD (16 << 20)
#define LARGEST_NOTE 8000000

/* --- reading --- */

const char *cli_record_model(const json_t *record) {
    return json_string_value(json_object_get(record, "model"));
}

static const char *file_of(const json_t *record) {
    const char *sha256 = json_string_value(json_object_get(record, "model_sha256"));
    return sha256 ? sha256 : "";
}

void cli_record_file(json_t *object, const cli_model *model) {
    if (*model->sha256) json_object_set_new(object, "model_sha256", json_string(model->sha256));
}

char *cli_record_keys(const json_t *record, const char *given) {
    const size_t length = cli_plugin_path(given);
    const char *model = cli_record_model(record), *keys = model ? strchr(model, ':') : NULL;
    const bool take = length > 0 && given[length] == '\0' && keys && cli_model_is_plugin(model);
    return cli_text("%s%s", given, take ? keys : "");
}

cgp_status cli_record_check_model(const json_t *record, const cli_model *model,
                                  const char *model_spec, const char *given, bool new_model) {
    const char *before = cli_record_model(record), *file = file_of(record);
    if (new_model && !*model->sha256)
        return cgp_fail(CGP_EINVAL,
                        "--new-model: expected a model of a file, got %s (leave it out)",
                        model_spec);
    if (new_model && *file) return CGP_OK;
    if (strcmp(before, model_spec) != 0)
        return cgp_fail(CGP_EINVAL, "%s: the run has the model %s (leave it out, or another --run)",
                        given, before);
    if (strcmp(file, model->sha256) == 0) return CGP_OK;
    return cli_model_differs(model, file, "the run",
                             "that file, --new-model to continue with this one, or another --run");
}

cgp_status cli_record_find_model(cli_model *model, const cli_run_directory *directory,
                                 const json_t *record, const char *given, const char *plugin) {
    const char *text = given ? given : cli_record_path(record);
    const bool file = cli_model_is_plugin(text) || cli_model_is_graph(text);
    char *whole = given ? cli_record_keys(record, given) : NULL, spec[CLI_MODEL_SPEC];
    /* If there are no keys, parse `text` itself, because the model may keep a pointer to it. */
    const bool keys = whole && cli_plugin_path(given) > 0;
    cgp_status status =
        cli_model_parse(model, keys ? whole : text, 256, given ? NULL : directory->record, plugin);
    free(whole);
    if (status != CGP_OK && !given && !file)
        return cgp_fail(CGP_EFORMAT, "%s: %s", directory->record, cgp_message());
    if (status == CGP_OK) status = cli_model_agree(model);
    if (status != CGP_OK || (!given && !file)) return status;
    CGP_TRY(cli_model_text(model, spec));
    return cli_record_check_model(record, model, spec, text, false);
}

/* Return model_path only if it is the path of a graph file: a user may have edited the record. */
const char *cli_record_path(const json_t *record) {
    const char *path = json_string_value(json_object_get(record, "model_path"));
    return path && cli_model_is_graph(path) ? path : cli_record_model(record);
}

/* Add the path of the graph file. */
static void add_path(json_t *record, const cli_model *model) {
    char *real = model->graph ? realpath(model->graph, NULL) : NULL;
    json_t *path = real ? json_string(real) : NULL; /* NULL: not UTF-8 */
    if (path) json_object_set_new(record, "model_path", path);
    free(real);
}

const char *cli_record_weights(const json_t *record) {
    return json_string_value(json_object_get(record, "weights_from"));
}

/* Add the MODEL of published weights, with an absolute path. */
static void add_weights(json_t *record, const json_t *before, const cli_model *model) {
    const char *kept = cli_record_weights(before);
    char *real = !kept && *model->directory ? realpath(model->directory, NULL) : NULL;
    char *text = NULL;
    if (real && model->longest > 0)
        text = cli_text("%s:seq=%lld", real, (long long)model->spec.llama.sequence);
    json_t *value = json_string(kept ? kept : text ? text : real ? real : "");
    if (kept || real) json_object_set(record, "weights_from", value); /* NULL: not UTF-8 */
    json_decref(value);
    free(text);
    free(real);
}

int cli_record_starts(const json_t *record) {
    return (int)json_array_size(json_object_get(record, "starts"));
}

const char *cli_record_host(const json_t *record) {
    const json_t *starts = json_object_get(record, "starts");
    const size_t n = json_array_size(starts);
    return n > 0 ? json_string_value(json_object_get(json_array_get(starts, n - 1), "host")) : NULL;
}

/* Translate the option keys of a record or note of cgpipe 0.1.0. */
static void translate(json_t *record) {
    const json_t *starts = json_object_get(record, "starts");
    cli_options_translate(json_object_get(record, "options"));
    for (size_t i = 0; i < json_array_size(starts); i++) {
        const json_t *start = json_array_get(starts, i);
        cli_options_translate(json_object_get(start, "given"));
        cli_options_translate(json_object_get(start, "changed"));
    }
}

cgp_status cli_record_read(const cli_run_directory *directory, json_t **record) {
    int fd = -1;
    if (directory->fd >= 0)
        CGP_TRY(cli_run_directory_open(directory, CLI_RECORD, O_RDONLY, &fd));
    else if (directory->reason == ENOENT)
        return cgp_fail(CGP_EIO, "run directory %s: no such directory", directory->path);
    if (fd < 0) return cli_not_a_run(directory, directory->fd < 0 ? directory->reason : ENOENT);
    CGP_TRY(cli_json_read_open(fd, directory->record, LARGEST_RECORD, record));
    translate(*record);
    if (cli_record_model(*record)) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: expected a text \"model\", got none", directory->record);
}

json_t *cli_note_read(const char *text) {
    const size_t length = strlen(text);
    json_t *note = NULL;
    if (length > LARGEST_NOTE || cli_json_parse("note", text, length, &note) != CGP_OK) return NULL;
    translate(note);
    return note;
}

/* --- writing --- */

/* Return the versions of the program and its libraries. `pipeline`: NULL if none has run. */
static json_t *versions_json(const cgp_pipeline *pipeline) {
    struct utsname u;
    const char *isa = pipeline ? cgp_pipeline_isa(pipeline) : NULL;
    const char *libm = pipeline ? cgp_pipeline_libm(pipeline) : NULL;
    json_t *system =
        uname(&u) == 0 ? json_sprintf("%s %s %s", u.sysname, u.release, u.machine) : NULL;
    return json_pack("{s:s, s:s, s:s, s:o*, s:o*, s:o*}", "cgpipe", CGP_VERSION, "compiler",
                     __VERSION__, "jansson", JANSSON_VERSION, "system", system, "isa",
                     isa ? json_string(isa) : NULL, "libm", libm ? json_string(libm) : NULL);
}

static json_t *devices_json(const cgp_plan *plan) {
    json_t *devices = json_array();
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        json_array_append_new(devices, json_string(cgp_plan_device_at(plan, d)->name));
    return devices;
}

/* Add the plug-in of the file `path` to the list, unless the list contains it already. If `path` is
 * NULL, add nothing, because the device or transport is part of the library. */
static void add_plugin(json_t *plugins, const char *path) {
    cgp_plugin_info info;
    for (int i = 0; path && (info = cgp_plugin_info_at(i)).path; i++) {
        if (strcmp(info.path, path) != 0) continue;
        json_t *plugin =
            json_pack("{s:o, s:o, s:o}", "name", cli_text_json(info.name), "version",
                      cli_text_json(info.version), "sha256", cli_text_json(info.sha256));
        bool there = false;
        for (size_t k = 0; k < json_array_size(plugins); k++)
            there |= json_equal(json_array_get(plugins, k), plugin);
        if (!there) json_array_append(plugins, plugin);
        json_decref(plugin);
    }
}

json_t *cli_record_plugins(const cli_session *session) {
    json_t *plugins = json_array();
    cgp_backend_info backend;
    cgp_transport_info transport;
    for (int d = 0; d < cgp_plan_devices(session->plan); d++) {
        const char *name = cgp_plan_device_at(session->plan, d)->name;
        const size_t kind = strcspn(name, ":");
        for (int i = 0; (backend = cgp_backend_info_at(i)).name; i++) {
            if (strlen(backend.name) != kind || strncmp(backend.name, name, kind) != 0) continue;
            add_plugin(plugins, backend.plugin);
            break; /* stop here, because a call with the next index may open all plug-ins */
        }
    }
    for (int i = 0; cli_ranks_transport() && (transport = cgp_transport_info_at(i)).name; i++) {
        if (strcmp(transport.name, cli_ranks_transport()->name) == 0)
            add_plugin(plugins, transport.plugin);
    }
    if (json_array_size(plugins) > 0) return plugins;
    json_decref(plugins);
    return NULL;
}

/* Make the record's entry for a start of the run. Takes ownership of `changed`, which is NULL at
 * the first start. */
static json_t *start_json(const cli_session *session, int64_t step, json_t *changed) {
    json_t *given = json_object();
    char date[CLI_DATE], host[CLI_HOST];
    cli_options_json(given, session->options, CLI_LIST_GIVEN);
    return json_pack("{s:I, s:s, s:o*, s:s, s:o, s:o*, s:s*, s:o, s:o*}", "step", (json_int_t)step,
                     "date", cli_date(date), "host", json_string(cli_host(host)), "version",
                     CGP_VERSION, "devices", devices_json(session->plan), "plugins",
                     cli_record_plugins(session), "fault", *session->fault ? session->fault : NULL,
                     "given", given, "changed", changed);
}

/* Replace run.json. Takes ownership of `record`. */
static cgp_status replace(const cli_run_directory *directory, json_t *record) {
    char *text = cli_json_text(record);
    const cgp_status status =
        text ? cgp_file_replace_at(directory->fd, CLI_RECORD, directory->record, text, strlen(text))
             : CGP_ENOMEM;
    free(text);
    return status;
}

cgp_status cli_record_write(const cli_run_directory *directory, const json_t *before,
                            const cli_session *session, int64_t step, json_t **written) {
    json_t *options = json_object(), *changed = NULL;
    json_t *starts = json_object_get(before, "starts");
    starts = json_is_array(starts) ? json_copy(starts) : json_array();
    cli_options_json(options, session->options, CLI_LIST_RUN);
    cli_data_json(options, session->options);
    if (session->options->tensorboard) {
        char *path = cli_absolute_path(session->options->tensorboard);
        cli_json_add(options, "{s:s?}", "tensorboard", path);
        free(path);
    }
    if (before)
        changed =
            cli_options_changes(session->options, json_object_get(before, "options"), options);
    json_array_append_new(starts, start_json(session, step, changed));
    json_t *record = json_pack("{s:s, s:o, s:o, s:o, s:o*, s:o}", "model", session->model_spec,
                               "options", options, "versions", versions_json(session->pipeline),
                               "devices", devices_json(session->plan), "plugins",
                               cli_record_plugins(session), "starts", starts);
    cli_record_file(record, &session->of);
    add_path(record, &session->of);
    add_weights(record, before, &session->of);
    const size_t bytes = json_dumpb(record, NULL, 0, JSON_INDENT(2));
    if (bytes > LARGEST_RECORD) {
        json_decref(record);
        return cgp_fail(CGP_EINVAL,
                        "%s: would have %zu bytes, at most %d can be read back (--data: name a "
                        "directory instead of its files)",
                        directory->record, bytes, LARGEST_RECORD);
    }
    *written = json_incref(record);
    return replace(directory, record);
}

cgp_status cli_record_write_converted(const cli_run_directory *directory, const cli_model *model,
                                      const char *model_spec, double dropout) {
    json_t *options = json_object();
    if (dropout > 0) json_object_set_new(options, "dropout", json_real(dropout));
    json_t *record = json_pack("{s:s, s:o, s:o, s:[]}", "model", model_spec, "options", options,
                               "versions", versions_json(NULL), "starts");
    cli_record_file(record, model);
    add_path(record, model);
    return replace(directory, record);
}

/* --- edited by hand --- */

void cli_record_note(json_t *note, const json_t *record) {
    json_t *options = json_copy(json_object_get(record, "options"));
    json_object_del(options, "data");
    json_object_del(options, "validation");
    json_object_set_new(note, "options", options);
    json_object_set_new(note, "starts", json_integer(cli_record_starts(record)));
}

/* Return the options in a checkpoint's note, with the changes that later starts of the run made.
 * NULL: one of these starts has no list of changes. Owned by the caller. */
static json_t *expected_options(const json_t *record, const json_t *note) {
    json_t *expected = json_copy(json_object_get(note, "options"));
    const json_t *starts = json_object_get(record, "starts");
    const json_int_t n = json_integer_value(json_object_get(note, "starts"));
    for (size_t i = n > 0 ? (size_t)n : 0; i < json_array_size(starts); i++) {
        json_t *changed = json_object_get(json_array_get(starts, i), "changed");
        if (json_object_update(expected, changed) == 0) continue;
        json_decref(expected);
        return NULL;
    }
    return expected;
}

/* Check the record's model against the checkpoint's note. --new-model permits another model
 * file. */
static cgp_status check_note_model(const cli_run_directory *directory, const json_t *record,
                                   const json_t *note, bool new_model) {
    const char *model = cli_record_model(record), *before = cli_record_model(note);
    const char *now = file_of(record), *then = file_of(note);
    if (!before || (new_model && *now && *then)) return CGP_OK;
    if (strcmp(model, before) != 0)
        return cgp_fail(CGP_EINVAL,
                        "%s: model is %s, the checkpoint was written with %s (put it back, a run "
                        "keeps its model; or another --run)",
                        directory->record, model, before);
    if (strcmp(now, then) == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: model_sha256 is %.8s, the checkpoint was written with %.8s (put it back; "
                    "--new-model to continue with the other file; or another --run)",
                    directory->record, *now ? now : "none", *then ? then : "none");
}

cgp_status cli_record_check(const cli_run_directory *directory, const json_t *record,
                            const json_t *note, const cli_run_options *run_options, bool *checked) {
    *checked = false;
    if (!json_is_object(json_object_get(note, "options"))) return CGP_OK;
    CGP_TRY(check_note_model(directory, record, note, run_options->new_model));
    json_t *expected = expected_options(record, note);
    if (!expected) return CGP_OK;
    *checked = true;
    const cgp_status status =
        cli_options_check(run_options, json_object_get(record, "options"), expected);
    json_decref(expected);
    return status == CGP_OK ? CGP_OK : cgp_fail(status, "%s: %s", directory->record, cgp_message());
}
