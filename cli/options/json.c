/* SPDX-License-Identifier: Apache-2.0 */
/* json.c -- convert option values to JSON, and a run's JSON back to options. */
#include "options/table.h"

#include "common.h"

#include <limits.h>
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

/* Return null if a name is not UTF-8, which JSON requires: a list without it would be a different
 * list. */
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

static json_t *value_json(const cli_run_options *run_options, int id) {
    const void *value = cli_option_value(run_options, id);
    switch (cli_options[id].kind) {
    case CLI_FLAG:
        return json_boolean(*(const bool *)value);
    case CLI_TEXT:
        return text_json(*(const char *const *)value);
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
        return isnan(*(const double *)value) ? json_null() : json_real(*(const double *)value);
    case CLI_COUNTS:
        return ((const cli_counts *)value)->count ? counts_json(value) : json_null();
    case CLI_BALANCE:
        if (((const cli_balance *)value)->by) return text_json(((const cli_balance *)value)->by);
        return ((const cli_balance *)value)->layers.count
                   ? counts_json(&((const cli_balance *)value)->layers)
                   : json_null();
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
        if (listing == CLI_LIST_GIVEN && !cli_option_given(run_options, (cli_option_id)id))
            continue;
        char key[32];
        json_object_set_new(object, cli_option_key((cli_option_id)id, key),
                            value_json(run_options, id));
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
        if (!kept || !cli_option_given(run_options, (cli_option_id)id)) continue;
        if (kind == CLI_TEXT) CGP_TRY(expect_utf8(id, *(const char *const *)value));
        for (int i = 0; i < names->count; i++)
            CGP_TRY(expect_utf8(id, names->values[i]));
    }
    return CGP_OK;
}

/* --- from JSON --- */

/* Translate --recipe imagenet-90 of cgpipe 0.1.0 to options. It cuts the rate after 30, 60 and 80
 * of 90 epochs, scaled and rounded for other numbers of epochs. The warm-up takes 4 of 90 epochs,
 * from 0.1, once an epoch. The record has the recipe's other options. */
static void translate_recipe(json_t *options) {
    static const int cuts[] = {30, 60, 80};
    const json_int_t epochs = json_integer_value(json_object_get(options, "epochs"));
    const bool old = json_is_string(json_object_get(options, "recipe"));
    json_object_del(options, "recipe");
    if (!old || epochs < 1 || epochs > INT_MAX) return;
    json_t *milestones = json_array();
    const json_int_t rise = (4 * epochs + 45) / 90;
    for (json_int_t i = 0, last = 0; i < 3; i++) {
        const json_int_t at = (cuts[i] * epochs + 45) / 90;
        if (at > last)
            json_array_append_new(milestones, json_sprintf("%" JSON_INTEGER_FORMAT "ep", at));
        last = at;
    }
    json_object_update_new(
        options, json_pack("{s:s, s:o, s:f, s:o, s:f, s:s}", "lr_schedule", "milestones",
                           "lr_milestones", milestones, "lr_gamma", 0.1, "warmup",
                           json_sprintf("%" JSON_INTEGER_FORMAT "ep", rise > 0 ? rise : 1),
                           "warmup_start", 0.1, "warmup_interval", "1ep"));
}

void cli_options_translate(json_t *options) {
    static const char *const names[][2] = {
        {"rate", "lr"},
        {"rate_schedule", "lr_schedule"},
        {"rate_least", "min_lr_ratio"},
        {"rate_interval", "lr_step_size"},
        {"rate_factor", "lr_gamma"},
        {"device_memory", "memory_limit"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *value = json_object_get(options, names[i][0]);
        if (value && !json_object_get(options, names[i][1]))
            json_object_set(options, names[i][1], value);
        json_object_del(options, names[i][0]);
    }
    translate_recipe(options);
}

static cgp_status not_usable(int id) {
    char key[32];
    return cgp_fail(CGP_EFORMAT, "options: %s: expected a value that --%s takes (give --%s again)",
                    cli_option_key((cli_option_id)id, key), cli_options[id].name,
                    cli_options[id].name);
}

static cgp_status misshapen(int id, const json_t *value) {
    return cgp_fail(CGP_EINVAL, "--%s: expected %s, got %s", cli_options[id].name,
                    cli_option_expected(id),
                    json_is_array(value) ? "a list" : "another kind of value");
}

static cgp_status set_paths(cli_run_options *run_options, int id, const json_t *list) {
    const size_t count = json_array_size(list);
    if (!json_is_array(list)) return misshapen(id, list);
    const char **paths = cli_run_options_keep(run_options, cli_calloc(count, sizeof *paths));
    *(cli_names *)cli_option_field(run_options, id) = (cli_names){paths, 0};
    for (size_t i = 0; i < count; i++) {
        const char *path = json_string_value(json_array_get(list, i));
        if (!path) return misshapen(id, list);
        CGP_TRY(cli_option_set(run_options, id, path));
    }
    return CGP_OK;
}

/* Set an option from a JSON list, as the text "a,b" or "2,3". Freeing the text is safe: list
 * options copy it. */
static cgp_status set_list(cli_run_options *run_options, int id, const json_t *list) {
    const cli_kind kind = cli_options[id].kind;
    char *text = NULL;
    size_t size = 1;
    if (kind != CLI_NAMES && kind != CLI_DEVICE_NAMES && kind != CLI_BALANCE && kind != CLI_COUNTS)
        return misshapen(id, list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item) && !json_is_integer(item)) return misshapen(id, list);
        size += 32 + json_string_length(item);
    }
    char *end = text = cli_calloc(size, 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *comma = i ? "," : "", *name = json_string_value(item);
        end += name ? sprintf(end, "%s%s", comma, name)
                    : sprintf(end, "%s%lld", comma, (long long)json_integer_value(item));
    }
    const cgp_status status = cli_option_set(run_options, id, text);
    free(text);
    return status;
}

/* Pass the value as text, so that it gets the checks of the command line. */
cgp_status cli_option_set_json(cli_run_options *run_options, int id, const json_t *value) {
    char number[64] = "";
    const char *text = number;
    if (cli_options[id].kind == CLI_PATHS) return set_paths(run_options, id, value);
    if (json_is_array(value)) return set_list(run_options, id, value);
    if (cli_options[id].kind == CLI_TEXT && !json_is_string(value)) return misshapen(id, value);
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_string(value))
        text = json_string_value(value);
    if (cli_options[id].kind == CLI_FLAG) {
        *(bool *)cli_option_field(run_options, id) = json_is_true(value);
        return json_is_boolean(value) ? CGP_OK : misshapen(id, value);
    }
    return cli_option_set(run_options, id, text);
}

/* If `given` has a new value, drop the options that only made sense with its old one: `first` ..
 * `last` in the order of cli_option_id. */
static const struct {
    cli_option_id given, first, last;
} together[] = {
    {CLI_OPTION_STAGES, CLI_OPTION_BALANCE, CLI_OPTION_BALANCE},
    {CLI_OPTION_BALANCE, CLI_OPTION_STAGES, CLI_OPTION_STAGES},
    {CLI_OPTION_STAGES, CLI_OPTION_DEVICES, CLI_OPTION_DEVICES},
    {CLI_OPTION_BALANCE, CLI_OPTION_DEVICES, CLI_OPTION_DEVICES},
    {CLI_OPTION_SCHEDULE, CLI_OPTION_VIRTUAL, CLI_OPTION_GROUP},
    {CLI_OPTION_STEPS, CLI_OPTION_EPOCHS, CLI_OPTION_EPOCHS},
    {CLI_OPTION_EPOCHS, CLI_OPTION_STEPS, CLI_OPTION_STEPS},
    {CLI_OPTION_OPTIMIZER, CLI_OPTION_LR, CLI_OPTION_LR_BATCH},
    {CLI_OPTION_OPTIMIZER, CLI_OPTION_MOMENTUM, CLI_OPTION_WEIGHT_DECAY},
    {CLI_OPTION_LR_SCHEDULE, CLI_OPTION_MIN_LR_RATIO, CLI_OPTION_LR_GAMMA},
};

/* A single name for all devices fits any number of stages. */
static bool fits_any(int id, const json_t *value) {
    return id == CLI_OPTION_DEVICES && json_array_size(value) == 1;
}

static bool dropped(const cli_run_options *run_options, const json_t *options, int id) {
    for (size_t i = 0; i < sizeof together / sizeof together[0]; i++) {
        char key[32];
        if (id < (int)together[i].first || id > (int)together[i].last ||
            !cli_option_given(run_options, together[i].given))
            continue;
        json_t *now = value_json(run_options, (int)together[i].given);
        const json_t *before = json_object_get(options, cli_option_key(together[i].given, key));
        const bool same = before && json_equal(now, before);
        json_decref(now);
        if (!same) return true;
    }
    return false;
}

/* Return the value in `options` that the option takes; NULL: it keeps its own. */
static const json_t *taken_over(const cli_run_options *run_options, const json_t *options, int id) {
    char key[32];
    if (!cli_option_taken(id, run_options->command)) return NULL;
    if (cli_option_given(run_options, (cli_option_id)id)) return NULL;
    const json_t *value = json_object_get(options, cli_option_key((cli_option_id)id, key));
    if (!value || json_is_null(value)) return NULL;
    return !fits_any(id, value) && dropped(run_options, options, id) ? NULL : value;
}

cgp_status cli_run_options_inherit(cli_run_options *run_options, const json_t *options) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const json_t *value = taken_over(run_options, options, id);
        if (!value || cli_options[id].flags & CLI_ONCE) continue;
        if (cli_option_set_json(run_options, id, value) != CGP_OK) return not_usable(id);
    }
    return CGP_OK;
}

cgp_status cli_run_options_add(cli_run_options *run_options, const json_t *options) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const json_t *value = taken_over(run_options, options, id);
        if (!value || id == CLI_OPTION_MODEL) continue; /* that is the operand */
        CGP_TRY(cli_option_set_json(run_options, id, value));
        run_options->given[id] = true;
    }
    return CGP_OK;
}

/* --- changes --- */

static void print_change(FILE *out, const char *separator, int id, const json_t *before,
                         const json_t *now) {
    const size_t style = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12);
    char *from = before ? json_dumps(before, style) : NULL;
    char *to = json_dumps(now, style);
    fprintf(out, "%s--%s %s -> %s", separator, cli_options[id].name,
            from ? cli_shown(from) : "null", to ? cli_shown(to) : "null");
    free(to);
    free(from);
}

void cli_options_print_changes(FILE *out, const cli_run_options *run_options,
                               const json_t *before) {
    int changes = 0;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char key[32];
        if (!cli_option_given(run_options, (cli_option_id)id) || cli_options[id].flags & CLI_ONCE)
            continue;
        if (id == CLI_OPTION_DATA || id == CLI_OPTION_VALIDATION)
            continue; /* compared by data identity */
        const json_t *old = json_object_get(before, cli_option_key((cli_option_id)id, key));
        json_t *now = value_json(run_options, id);
        if (!old || !json_equal(old, now))
            print_change(out, changes++ ? ", " : "changed      ", id, old, now);
        json_decref(now);
    }
    if (changes > 0) fputc('\n', out);
}

/* --- edits of the record --- */

/* Compare values: 1 equals 1.0, and null equals a missing value. */
static bool same(const json_t *a, const json_t *b) {
    if (!a || json_is_null(a)) return !b || json_is_null(b);
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return b && json_equal(a, b);
}

/* Tell whether --resume takes the option from the run. Data paths do not count: data has an
 * identity. */
static bool inherited(const cli_run_options *run_options, int id) {
    return id != CLI_OPTION_DATA && id != CLI_OPTION_VALIDATION &&
           cli_option_taken(id, run_options->command) && !(cli_options[id].flags & CLI_ONCE);
}

json_t *cli_options_changes(const cli_run_options *run_options, const json_t *before,
                            const json_t *now) {
    json_t *changes = json_object();
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char key[32];
        if (!inherited(run_options, id)) continue;
        const json_t *value = json_object_get(now, cli_option_key((cli_option_id)id, key));
        if (cli_option_given(run_options, (cli_option_id)id) ||
            !same(json_object_get(before, key), value))
            json_object_set_new(changes, key, value ? json_deep_copy(value) : json_null());
    }
    return changes;
}

/* Quote an argument for a shell. */
static void print_argument(FILE *out, const char *text) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=,:/@%";
    if (*text && !text[strspn(text, plain)]) {
        fputs(text, out);
        return;
    }
    fputc('\'', out);
    for (; *text; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, out);
    fputc('\'', out);
}

static void print_value(FILE *out, const json_t *value) {
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    print_argument(out, text ? text : json_is_string(value) ? json_string_value(value) : "null");
    free(text);
}

/* Tell whether the command line can set the value: it has no syntax to unset an option. */
static bool has_option(const json_t *value) {
    return value && !json_is_null(value) && !json_is_false(value);
}

/* Print an option with its value, "--lr 0.002". */
static void print_option(FILE *out, int id, const json_t *value) {
    const char *gap = " ", *comma = cli_options[id].kind == CLI_PATHS ? " " : ",";
    fprintf(out, "--%s", cli_options[id].name);
    if (!json_is_array(value) && !json_is_true(value)) {
        fputs(gap, out);
        print_value(out, value);
    }
    for (size_t i = 0; i < json_array_size(value); i++, gap = comma) {
        fputs(gap, out);
        print_value(out, json_array_get(value, i));
    }
}

/* Return the suggestion for an edited option; NULL: out of memory. Owned by the caller. */
static char *way_out(int id, const json_t *now) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    fputs("put it back", out);
    if (id == CLI_OPTION_SEED || id == CLI_OPTION_OPTIMIZER) {
        fprintf(out, ", a run keeps its %s; or another --run", cli_options[id].name);
    } else if (has_option(now)) {
        fputs("; to change it on resume give ", out);
        print_option(out, id, now);
    } else {
        fputs(", no option unsets it; or another --run", out);
    }
    return fclose(out) == 0 ? text : NULL;
}

static cgp_status edited(int id, const json_t *now, const json_t *before, int others) {
    char key[32], more[48] = "";
    char *is = now ? json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *was = before ? json_dumps(before, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *way = way_out(id, now);
    if (others > 0)
        snprintf(more, sizeof more, "; so %s %d more", others == 1 ? "is" : "are", others);
    const cgp_status status =
        cgp_fail(CGP_EINVAL, "%s is %.200s, the checkpoint was written with %.200s (%.400s%s)",
                 cli_option_key((cli_option_id)id, key), is ? is : "null", was ? was : "null",
                 way ? way : "put it back", more);
    free(way);
    free(was);
    free(is);
    return status;
}

cgp_status cli_options_check(const cli_run_options *run_options, const json_t *options,
                             const json_t *expected) {
    int first = -1, count = 0;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char key[32];
        if (!inherited(run_options, id) || cli_option_given(run_options, (cli_option_id)id))
            continue;
        const json_t *now = json_object_get(options, cli_option_key((cli_option_id)id, key));
        if (same(now, json_object_get(expected, key)) || dropped(run_options, options, id))
            continue;
        if (count++ == 0) first = id;
    }
    if (count == 0) return CGP_OK;
    char key[32];
    cli_option_key((cli_option_id)first, key);
    return edited(first, json_object_get(options, key), json_object_get(expected, key), count - 1);
}
