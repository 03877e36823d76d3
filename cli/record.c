/* SPDX-License-Identifier: Apache-2.0 */
/* record.c -- see record.h. */
#include "record.h"

#include "common.h"
#include "data.h"
#include "report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* --- reading --- */

const char *cli_record_model(const json_t *record) {
    return json_string_value(json_object_get(record, "model"));
}

int cli_record_starts(const json_t *record) {
    return (int)json_array_size(json_object_get(record, "starts"));
}

cgp_status cli_record_read(const cli_folder *folder, json_t **record) {
    struct stat info;
    json_error_t error;
    if (stat(folder->path, &info) != 0 && errno == ENOENT)
        return cgp_fail(CGP_EIO, "run folder %s: no such folder", folder->path);
    if (access(folder->record, R_OK) != 0)
        return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", folder->record, strerror(errno));
    *record = json_load_file(folder->record, 0, &error);
    if (!*record)
        return cgp_fail(CGP_EFORMAT, "%s: line %d: %s", folder->record, error.line, error.text);
    if (cli_record_model(*record)) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: expected a text \"model\", got none", folder->record);
}

/* --- writing --- */

static json_t *versions_json(void) {
    json_t *versions = json_object();
    struct utsname system;
    json_object_set_new(versions, "cgpipe", json_string(CGP_VERSION));
    json_object_set_new(versions, "compiler", json_string(__VERSION__));
    json_object_set_new(versions, "jansson", json_string(JANSSON_VERSION));
    if (uname(&system) == 0)
        json_object_set_new(
            versions, "system",
            json_sprintf("%s %s %s", system.sysname, system.release, system.machine));
    return versions;
}

static json_t *devices_json(const cgp_plan *plan) {
    json_t *devices = json_array();
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        json_array_append_new(devices, json_string(cgp_plan_device_at(plan, d)->name));
    return devices;
}

static json_t *start_json(const cli_experiment *e, int64_t step) {
    json_t *start = json_object(), *given = json_object();
    char date[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cli_options_json(given, e->settings, CLI_LIST_GIVEN);
    json_object_set_new(start, "step", json_integer(step));
    json_object_set_new(start, "date", json_string(date));
    json_object_set_new(start, "version", json_string(CGP_VERSION));
    json_object_set_new(start, "devices", devices_json(e->plan));
    json_object_set_new(start, "given", given);
    return start;
}

cgp_status cli_record_write(const cli_folder *folder, const json_t *before,
                            const cli_experiment *e, int64_t step) {
    json_t *record = json_object(), *options = json_object();
    json_t *starts = json_copy(json_object_get(before, "starts"));
    if (!json_is_array(starts)) {
        json_decref(starts);
        starts = json_array();
    }
    json_array_append_new(starts, start_json(e, step));
    cli_options_json(options, e->settings, CLI_LIST_RUN);
    cli_data_json(options, e->settings);
    json_object_set_new(record, "model", json_string(e->model_text));
    json_object_set_new(record, "options", options);
    json_object_set_new(record, "versions", versions_json());
    json_object_set_new(record, "devices", devices_json(e->plan));
    json_object_set_new(record, "starts", starts);
    return cli_json_replace(folder->record, record);
}

cgp_status cli_record_write_converted(const cli_folder *folder, const char *model_text,
                                      double dropout) {
    json_t *record = json_object(), *options = json_object();
    if (dropout > 0) json_object_set_new(options, "dropout", json_real(dropout));
    json_object_set_new(record, "model", json_string(model_text));
    json_object_set_new(record, "options", options);
    json_object_set_new(record, "versions", versions_json());
    json_object_set_new(record, "starts", json_array());
    return cli_json_replace(folder->record, record);
}
