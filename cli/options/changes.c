/* SPDX-License-Identifier: Apache-2.0 */
/* changes.c -- see changes.h. */
#include "options/changes.h"

#include "options/inherit.h"
#include "options/json.h"
#include "options/table.h"
#include "text.h"

#include <limits.h>
#include <stdlib.h>

/* --- changes --- */

/* Tell whether --resume takes the option from the run. False for paths of data, because data sets
 * are compared by their identity instead. */
static bool inherited(const cli_run_options *run_options, int id) {
    return id != CLI_OPTION_DATA && id != CLI_OPTION_VALIDATION &&
           cli_option_taken(id, run_options->command) && !(cli_options[id].flags & CLI_ONCE);
}

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
        if (!run_options->given[id] || !inherited(run_options, id)) continue;
        const json_t *old = cli_option_in(before, id);
        json_t *now = cli_option_json(run_options, id);
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

json_t *cli_options_changes(const cli_run_options *run_options, const json_t *before,
                            const json_t *now) {
    json_t *changes = json_object();
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        char key[32];
        if (!inherited(run_options, id)) continue;
        const json_t *value = cli_option_in(now, id);
        if (run_options->given[id] || !same(cli_option_in(before, id), value))
            json_object_set_new(changes, cli_option_key(id, key),
                                value ? json_deep_copy(value) : json_null());
    }
    return changes;
}

/* Print a value, quoted for a shell. */
static void print_value(FILE *out, const json_t *value) {
    const bool string = json_is_string(value);
    char *text = string ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    char *word = cli_shell_word(text ? text : string ? json_string_value(value) : "null");
    fputs(word, out);
    free(word);
    free(text);
}

/* Tell whether the command line can set the value. False for null, because the command line has no
 * syntax to unset an option. */
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

/* Return the suggestion for an option that was edited in run.json; `now` is the edited value. NULL:
 * out of memory. Owned by the caller. */
static char *suggestion(int id, const json_t *now) {
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
    char *fix = suggestion(id, now);
    if (others > 0)
        snprintf(more, sizeof more, "; so %s %d more", others == 1 ? "is" : "are", others);
    const cgp_status status =
        cgp_fail(CGP_EINVAL, "%s is %.200s, the checkpoint was written with %.200s (%.400s%s)",
                 cli_option_key(id, key), is ? is : "null", was ? was : "null",
                 fix ? fix : "put it back", more);
    free(fix);
    free(was);
    free(is);
    return status;
}

cgp_status cli_options_check(const cli_run_options *run_options, const json_t *options,
                             const json_t *expected) {
    int first = -1, count = 0;
    cli_run_options run;
    cli_options_read(&run, run_options->command, options);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!inherited(run_options, id) || run_options->given[id]) continue;
        if (same(cli_option_in(options, id), cli_option_in(expected, id))) continue;
        if (cli_option_dropped(run_options, &run, id)) continue;
        if (count++ == 0) first = id;
    }
    cli_run_options_release(&run);
    if (count == 0) return CGP_OK;
    return edited(first, cli_option_in(options, first), cli_option_in(expected, first), count - 1);
}

/* --- options of cgpipe 0.1.0 --- */

/* Translate --recipe imagenet-90 of cgpipe 0.1.0 to options. The recipe cuts the learning rate
 * after 30, 60 and 80 of 90 epochs, scaled and rounded for other numbers of epochs. Its warm-up
 * takes 4 of 90 epochs: the rate begins at 0.1 of the full rate and rises once per epoch. The
 * record already has the other options of the recipe. */
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
