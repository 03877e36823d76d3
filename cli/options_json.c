/* SPDX-License-Identifier: Apache-2.0 */
/* options_json.c -- the values of options to JSON, and back from a run's. */
#include "options_table.h"

#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cli_option_key(cli_option_id id, char key[32]) {
    snprintf(key, 32, "%s", cli_options[id].name);
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
    return key;
}

/* --- to JSON --- */

/* null if one is no UTF-8, which JSON cannot hold: a part of a list would be another list. */
static json_t *names_json(const cli_names *names) {
    json_t *list = json_array();
    for (int i = 0; i < names->count; i++) {
        if (json_array_append_new(list, json_string(names->values[i])) == 0) continue;
        json_decref(list);
        return json_null();
    }
    return list;
}

static json_t *counts_json(const cli_counts *counts) {
    json_t *list = json_array();
    for (int i = 0; i < counts->count; i++)
        json_array_append_new(list, json_integer(counts->values[i]));
    return list;
}

static json_t *text_json(const char *text) {
    json_t *string = text ? json_string(text) : NULL;
    return string ? string : json_null();
}

static json_t *value_json(const cli_settings *settings, int id) {
    const void *value = cli_option_value(settings, id);
    switch (cli_options[id].kind) {
    case CLI_FLAG:
        return json_boolean(*(const bool *)value);
    case CLI_TEXT:
        return text_json(*(const char *const *)value);
    case CLI_COUNT:
    case CLI_BYTES:
        return *(const int64_t *)value ? json_integer(*(const int64_t *)value) : json_null();
    case CLI_WHOLE:
        return *(const int64_t *)value >= 0 ? json_integer(*(const int64_t *)value)
                                            : json_null();
    case CLI_SHARE:
    case CLI_REAL:
        return isnan(*(const double *)value) ? json_null() : json_real(*(const double *)value);
    case CLI_BALANCE:
        if (((const cli_balance *)value)->by)
            return text_json(((const cli_balance *)value)->by);
        return ((const cli_balance *)value)->layers.count
                   ? counts_json(&((const cli_balance *)value)->layers)
                   : json_null();
    case CLI_NAMES:
    case CLI_PATHS:
        return ((const cli_names *)value)->count ? names_json(value) : json_null();
    }
    return json_null();
}

void cli_options_json(json_t *object, const cli_settings *settings, cli_listing listing) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const unsigned flags = cli_options[id].flags;
        if (!cli_option_taken(id, settings->command)) continue;
        if (listing == CLI_LIST_REPORTED && !(flags & CLI_REPORTED)) continue;
        if (listing == CLI_LIST_RUN && flags & CLI_ONCE) continue;
        if (listing == CLI_LIST_GIVEN && !cli_given(settings, (cli_option_id)id)) continue;
        char key[32];
        json_object_set_new(object, cli_option_key((cli_option_id)id, key),
                            value_json(settings, id));
    }
}

/* --- from JSON --- */

static cgp_status not_usable(int id) {
    char key[32];
    return cgp_fail(CGP_EFORMAT, "options: %s: expected what --%s takes (give --%s anew)",
                    cli_option_key((cli_option_id)id, key), cli_options[id].name,
                    cli_options[id].name);
}

static cgp_status set_paths(cli_settings *settings, int id, const json_t *list) {
    const size_t count = json_array_size(list);
    const char **paths = cli_settings_own(settings, cli_calloc(count, sizeof *paths));
    *(cli_names *)cli_option_field(settings, id) = (cli_names){paths, 0};
    for (size_t i = 0; i < count; i++) {
        const char *path = json_string_value(json_array_get(list, i));
        if (!path || cli_option_set(settings, id, path) != CGP_OK) return not_usable(id);
    }
    return CGP_OK;
}

/* "a,b" or "2,3" */
static cgp_status set_list(cli_settings *settings, int id, const json_t *list) {
    char text[4096] = "";
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(list) && used < sizeof text; i++) {
        const json_t *item = json_array_get(list, i);
        const char *comma = i ? "," : "", *name = json_string_value(item);
        used += (size_t)(name ? snprintf(text + used, sizeof text - used, "%s%s", comma, name)
                              : snprintf(text + used, sizeof text - used, "%s%lld", comma,
                                         (long long)json_integer_value(item)));
    }
    if (used >= sizeof text || cli_option_set(settings, id, text) != CGP_OK)
        return not_usable(id);
    return CGP_OK;
}

/* A value goes through the same checks as on the command line, hence as text. */
static cgp_status set_from_json(cli_settings *settings, int id, const json_t *value) {
    char number[64] = "";
    const char *text = number;
    if (cli_options[id].kind == CLI_PATHS) return set_paths(settings, id, value);
    if (json_is_array(value)) return set_list(settings, id, value);
    if (cli_options[id].kind == CLI_TEXT && !json_is_string(value)) return not_usable(id);
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_string(value))
        text = json_string_value(value);
    if (cli_options[id].kind == CLI_FLAG) {
        *(bool *)cli_option_field(settings, id) = json_is_true(value);
        return json_is_boolean(value) ? CGP_OK : not_usable(id);
    }
    return cli_option_set(settings, id, text) == CGP_OK ? CGP_OK : not_usable(id);
}

/* An option given anew with another value takes those with it that only made sense beside the
 * old one. */
static const struct {
    cli_option_id given, dropped;
} together[] = {
    {CLI_OPTION_STAGES, CLI_OPTION_BALANCE},
    {CLI_OPTION_BALANCE, CLI_OPTION_STAGES},
    {CLI_OPTION_STAGES, CLI_OPTION_DEVICES},
    {CLI_OPTION_BALANCE, CLI_OPTION_DEVICES},
    {CLI_OPTION_RATE_SCHEDULE, CLI_OPTION_RATE_LEAST},
    {CLI_OPTION_RATE_SCHEDULE, CLI_OPTION_RATE_INTERVAL},
    {CLI_OPTION_RATE_SCHEDULE, CLI_OPTION_RATE_FACTOR},
};

/* One name for all devices fits any number of stages. */
static bool fits_any(int id, const json_t *value) {
    return id == CLI_OPTION_DEVICES && json_array_size(value) == 1;
}

static bool dropped(const cli_settings *settings, const json_t *options, int id) {
    for (size_t i = 0; i < sizeof together / sizeof together[0]; i++) {
        char key[32];
        if ((int)together[i].dropped != id || !cli_given(settings, together[i].given)) continue;
        json_t *now = value_json(settings, (int)together[i].given);
        const json_t *before = json_object_get(options, cli_option_key(together[i].given, key));
        const bool same = before && json_equal(now, before);
        json_decref(now);
        if (!same) return true;
    }
    return false;
}

cgp_status cli_settings_inherit(cli_settings *settings, const json_t *options) {
    settings->inherited = true;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char key[32];
        if (!cli_option_taken(id, settings->command) || cli_options[id].flags & CLI_ONCE)
            continue;
        if (cli_given(settings, (cli_option_id)id)) continue;
        const json_t *value = json_object_get(options, cli_option_key((cli_option_id)id, key));
        if (!value || json_is_null(value)) continue;
        if (!fits_any(id, value) && dropped(settings, options, id)) continue;
        CGP_TRY(set_from_json(settings, id, value));
    }
    return CGP_OK;
}

/* --- what changed --- */

static void print_change(FILE *out, int id, const json_t *before, const json_t *now) {
    char *from = before ? json_dumps(before, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *to = json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT);
    fprintf(out, "changed      --%s %s -> %s\n", cli_options[id].name, from ? from : "null",
            to ? to : "null");
    free(to);
    free(from);
}

void cli_options_print_changes(FILE *out, const cli_settings *settings, const json_t *before) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char key[32];
        if (!cli_given(settings, (cli_option_id)id) || cli_options[id].flags & CLI_ONCE)
            continue;
        if (id == CLI_OPTION_DATA || id == CLI_OPTION_VALIDATION)
            continue; /* have an identity */
        const json_t *old = json_object_get(before, cli_option_key((cli_option_id)id, key));
        json_t *now = value_json(settings, id);
        if (!old || !json_equal(old, now)) print_change(out, id, old, now);
        json_decref(now);
    }
}
