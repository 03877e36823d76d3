/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c -- the facts of a report: command, model, versions, starts, digests, and the state of the
 * run. */
#include "report_page/run.h"

#include "json_value.h"
#include "session/lock.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- the command --- */

/* Return a value of run.json as the words of an option. Freed by the caller; NULL: a flag. */
static char *value_text(const json_t *value, const char *between) {
    char *text = NULL;
    if (json_is_boolean(value)) return NULL;
    if (json_is_string(value)) return cli_shell_word(json_string_value(value));
    if (!json_is_array(value)) return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    for (size_t i = 0; i < json_array_size(value); i++) {
        char *one = value_text(json_array_get(value, i), between);
        char *longer = cli_text("%s%s%s", text ? text : "", text ? between : "", one ? one : "");
        free(one);
        free(text);
        text = longer;
    }
    return text ? text : cli_text("%s", "");
}

/* Append " --KEY VALUE" to a text, which is freed. */
static char *append(char *text, const char *key, const json_t *value) {
    char *name = cli_replaced(key, "_", "-");
    char *words = value_text(value, strcmp(key, "data") == 0 ? " " : ",");
    char *longer = cli_text("%s --%s%s%s", text, name, words ? " " : "", words ? words : "");
    free(words);
    free(name);
    free(text);
    return longer;
}

/* Return the command of a start, with the options that were given. Freed by the caller. */
static char *command_of(const json_t *record, const json_t *start) {
    json_t *given = json_object_get(start, "given"), *value;
    const char *key;
    char *model = cli_shell_word(cli_record_model(record));
    char *text = cli_text("cgpipe train %s", model);
    json_object_foreach(given, key, value) {
        if (!json_is_false(value) && !json_is_null(value)) text = append(text, key, value);
    }
    free(model);
    return text;
}

/* --- the state --- */

typedef struct state {
    const char *name, *text;
} state;

static int64_t planned_steps(const cli_page_run *run) {
    const json_t *options = json_object_get(run->record, "options");
    return json_integer_value(json_object_get(options, "steps"));
}

/* Find how the last start ended. An older cgpipe, or a killed training, has left no end. */
static state find_state(const cli_page_run *run, int64_t last) {
    const json_t *end = json_object_get(run->measured, "end");
    const char *name = json_string_value(json_object_get(end, "state"));
    const bool current = json_integer_value(json_object_get(run->measured, "start")) ==
                         cli_record_starts(run->record);
    if (run->state) return (state){run->state, run->state_text};
    if (cli_record_starts(run->record) == 0) return (state){"converted", NULL};
    if (name && current) return (state){name, json_string_value(json_object_get(end, "text"))};
    const cli_lock lock = cli_lock_look(run->directory->fd);
    if (lock == CLI_LOCK_HELD) return (state){"running", NULL};
    if (last > 0 && last == planned_steps(run)) return (state){"complete", NULL};
    return (state){"ended",
                   "it was killed, or stopped or failed before a measured step, or an older "
                   "cgpipe ran it"};
}

static void put_state(cli_page_run *run) {
    const json_t *steps = json_object_get(run->data, "steps");
    const int64_t last = json_integer_value(json_object_get(steps, "last"));
    const state found = find_state(run, last);
    cli_json_add(run->data, "{s:{s:s, s:o, s:I, s:o}}", "state", "name", found.name, "text",
                 cli_text_json(found.text), "step", (json_int_t)last, "steps",
                 planned_steps(run) > 0 ? json_integer(planned_steps(run)) : json_null());
}

/* --- facts --- */

static json_t *starts_json(const json_t *record) {
    static const char *const keys[] = {"step", "date", "host", "version", "fault", "changed"};
    const json_t *starts = json_object_get(record, "starts");
    json_t *list = json_array();
    const size_t n = json_array_size(starts), from = n > 20 ? n - 20 : 0;
    for (size_t i = from; i < n; i++) {
        json_t *one = json_object();
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            json_t *value = json_object_get(json_array_get(starts, i), keys[k]);
            if (value) json_object_set(one, keys[k], value);
        }
        json_array_append_new(list, one);
    }
    return list;
}

/* Copy members that exist. */
static void copy(json_t *to, const json_t *from, const char *const *keys) {
    for (; *keys; keys++) {
        json_t *value = json_object_get(from, *keys);
        if (value && !json_is_null(value)) json_object_set(to, *keys, value);
    }
}

void cli_page_facts(cli_page_run *run) {
    static const char *const of_record[] = {"model",   "model_sha256", "versions",
                                            "devices", "plugins",      NULL};
    static const char *const of_measured[] = {"ranks", "places", "plan_sha256", NULL};
    static const char *const of_end[] = {
        "weights_sha256",        "state_sha256",          "isa", "libm", "transport",
        "allocated_bytes_total", "resident_growth_bytes", NULL};
    const json_t *starts = json_object_get(run->record, "starts");
    const json_t *start = json_array_get(starts, json_array_size(starts) - 1);
    json_t *facts = json_object(), *options = json_copy(json_object_get(run->record, "options"));
    char *command = command_of(run->record, start);
    cli_json_add(facts, "{s:o, s:s, s:o}", "run", cli_text_json(cli_shown(run->directory->path)),
                 "report_version", CGP_VERSION, "command", cli_text_json(command));
    free(command);
    copy(facts, run->record, of_record);
    copy(facts, run->measured, of_measured);
    copy(facts, json_object_get(run->measured, "end"), of_end);
    json_object_set_new(facts, "starts", starts_json(run->record));
    if (run->session)
        cli_json_add(facts, "{s:I, s:i}", "parameters",
                     (json_int_t)cgp_model_parameter_count(run->session->model), "layers",
                     cgp_model_layers(run->session->model));
    json_object_set_new(run->data, "facts", facts);
    json_object_set_new(run->data, "options", options ? options : json_object());
    put_state(run);
}
