/* SPDX-License-Identifier: Apache-2.0 */
/* json.c -- see json.h. */
#include "options/json.h"

#include "json_value.h"
#include "options/table.h"
#include "options/values.h"
#include "text.h"

#include <stdlib.h>

const char *cli_option_key(int id, char key[32]) {
    snprintf(key, 32, "%s", cli_options[id].name);
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
    return key;
}

json_t *cli_option_in(const json_t *object, int id) {
    char key[32];
    return json_object_get(object, cli_option_key(id, key));
}

/* --- to JSON --- */

/* Return the names as a list, or null if a name is not UTF-8. JSON requires UTF-8, and a list
 * without that name would be a different list. */
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
    return counts->count ? cli_integers_json(counts->values, counts->count) : json_null();
}

json_t *cli_option_json(const cli_run_options *run_options, int id) {
    const void *value = cli_option_value(run_options, id);
    switch (cli_options[id].kind) {
    case CLI_FLAG:
        return json_boolean(*(const bool *)value);
    case CLI_TEXT:
        return cli_text_json(*(const char *const *)value);
    case CLI_COUNT_OR_AUTO:
        if (*(const int64_t *)value == CLI_AUTO) return json_string("auto");
        return json_integer(*(const int64_t *)value);
    case CLI_COUNT:
    case CLI_BYTES:
        return *(const int64_t *)value ? json_integer(*(const int64_t *)value) : json_null();
    case CLI_WHOLE:
        return *(const int64_t *)value >= 0 ? json_integer(*(const int64_t *)value) : json_null();
    case CLI_STEPS: {
        const cli_steps *steps = value;
        if (steps->count < 0) return json_null();
        return steps->epochs ? json_sprintf("%lldep", (long long)steps->count)
                             : json_integer(steps->count);
    }
    case CLI_FRACTION:
    case CLI_REAL:
        return cli_real_json(*(const double *)value);
    case CLI_COUNTS:
        return counts_json(value);
    case CLI_BALANCE: {
        const cli_balance *balance = value;
        if (balance->by) return cli_text_json(balance->by);
        return counts_json(&balance->layers);
    }
    case CLI_NAMES:
    case CLI_DEVICE_NAMES:
    case CLI_PATHS:
        return ((const cli_names *)value)->count ? names_json(value) : json_null();
    }
    return json_null();
}

void cli_options_json(json_t *object, const cli_run_options *run_options, cli_listing listing) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const unsigned flags = cli_options[id].flags;
        if (!cli_option_taken(id, run_options->command)) continue;
        if (listing == CLI_LIST_REPORTED && !(flags & CLI_REPORTED)) continue;
        if (listing == CLI_LIST_RUN && flags & CLI_ONCE) continue;
        if (listing == CLI_LIST_GIVEN && !run_options->given[id]) continue;
        char key[32];
        json_object_set_new(object, cli_option_key(id, key), cli_option_json(run_options, id));
    }
}

static cgp_status expect_utf8(int id, const char *text) {
    json_t *string = json_string(text);
    json_decref(string);
    if (string) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "--%s: expected UTF-8, which run.json keeps, got \"%s\"",
                    cli_options[id].name, text);
}

cgp_status cli_options_expect_utf8(const cli_run_options *run_options) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const cli_kind kind = cli_options[id].kind;
        const void *value = cli_option_value(run_options, id);
        const bool kept = !(cli_options[id].flags & CLI_ONCE);
        const cli_names none = {0}, *names = kind == CLI_PATHS || kind == CLI_NAMES ? value : &none;
        if (!kept || !run_options->given[id]) continue;
        if (kind == CLI_TEXT) CGP_TRY(expect_utf8(id, *(const char *const *)value));
        for (int i = 0; i < names->count; i++)
            CGP_TRY(expect_utf8(id, names->values[i]));
    }
    return CGP_OK;
}

/* --- from JSON --- */

static cgp_status set_list(cli_run_options *options, int id, const json_t *list) {
    const size_t count = json_array_size(list);
    const char **items = cli_calloc(count, sizeof *items);
    char(*numbers)[32] = cli_calloc(count, sizeof *numbers);
    cgp_status status = CGP_OK;
    for (size_t i = 0; i < count && status == CGP_OK; i++) {
        const json_t *item = json_array_get(list, i);
        snprintf(numbers[i], sizeof *numbers, "%lld", (long long)json_integer_value(item));
        items[i] = json_is_integer(item) ? numbers[i] : json_string_value(item);
        if (!items[i] || (json_is_integer(item) && cli_options[id].kind == CLI_PATHS))
            status = cli_option_misshapen(id, true);
    }
    if (status == CGP_OK) status = cli_option_set_list(options, id, items, (int)count);
    free(numbers);
    free(items);
    return status;
}

cgp_status cli_option_set_json(cli_run_options *options, int id, const json_t *value) {
    const cli_kind kind = cli_options[id].kind;
    char number[64] = "";
    if (json_is_array(value)) return set_list(options, id, value);
    if (kind == CLI_FLAG && json_is_boolean(value)) {
        *(bool *)cli_option_field(options, id) = json_is_true(value);
        return CGP_OK;
    }
    if (kind == CLI_FLAG || kind == CLI_PATHS || (kind == CLI_TEXT && !json_is_string(value)))
        return cli_option_misshapen(id, false);
    if (json_is_string(value)) return cli_option_set(options, id, json_string_value(value));
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    return cli_option_set(options, id, number);
}
