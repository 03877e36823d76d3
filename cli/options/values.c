/* SPDX-License-Identifier: Apache-2.0 */
/* values.c -- see values.h. */
#include "options/values.h"

#include "options/table.h"
#include "text.h"

#include <cgpipe/devices.h>

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest number up to which doubles, and so JSON readers, are exact. */
#define MAX_WHOLE ((int64_t)1 << 53)

static const char *const expected[] = {
    [CLI_FLAG] = "true or false",
    [CLI_TEXT] = "at least one character",
    [CLI_COUNT] = "a whole number >= 1",
    [CLI_COUNT_OR_AUTO] = "a whole number >= 1, or auto",
    [CLI_WHOLE] = "a whole number >= 0",
    [CLI_STEPS] = "a whole number >= 0 of steps, or of epochs (4ep)",
    [CLI_BYTES] = "a whole number >= 1, with or without K, M, G or T (or KiB ..)",
    [CLI_REAL] = "a number >= 0",
    [CLI_FRACTION] = "a number >= 0 and < 1",
    [CLI_COUNTS] = "whole numbers >= 1 with commas between",
    [CLI_BALANCE] = "whole numbers >= 1 with commas between, or flops, time or size",
    [CLI_NAMES] = "names with commas between",
    [CLI_DEVICE_NAMES] =
        "a number of cpu devices, or names with commas between (cpu*3,cuda:0@22GiB)",
    [CLI_PATHS] = "at least one character",
};

static cgp_status unexpected(int id, const char *text) {
    const cli_option *option = &cli_options[id];
    const cli_kind k = option->kind;
    if ((k == CLI_COUNT || k == CLI_WHOLE || k == CLI_STEPS) && strlen(text) > 9 &&
        !text[strspn(text, "0123456789")])
        return cgp_fail(CGP_EINVAL, "--%s %s: expected at most %lld", option->name, text,
                        k == CLI_COUNT ? (long long)INT_MAX : (long long)MAX_WHOLE);
    return cgp_fail(CGP_EINVAL, "--%s %s: expected %s, got \"%s\"", option->name, text, expected[k],
                    text);
}

/* --- lists --- */

static int count_items(const char *text) {
    int count = 1;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    return count;
}

/* Split a copy of `text` at its commas. */
static char **split(cli_run_options *options, const char *text, int count) {
    char *copy = cli_run_options_keep(options, cli_calloc(strlen(text) + 1, 1));
    char **items = cli_run_options_keep(options, cli_calloc((size_t)count, sizeof *items));
    strcpy(copy, text);
    for (int i = 0; i < count; i++) {
        items[i] = copy;
        copy += strcspn(copy, ",");
        *copy++ = '\0';
    }
    return items;
}

/* Parse a list to the cli_counts or cli_names at `value`. */
static cgp_status parse_list(cli_run_options *options, int id, const char *text, void *value) {
    const int count = count_items(text);
    char **items = split(options, text, count);
    for (int i = 0; i < count; i++) {
        if (!*items[i]) return unexpected(id, text);
    }
    if (cli_options[id].kind != CLI_BALANCE && cli_options[id].kind != CLI_COUNTS) {
        *(cli_names *)value = (cli_names){(const char *const *)items, count};
        return CGP_OK;
    }
    int *values = cli_run_options_keep(options, cli_calloc((size_t)count, sizeof *values));
    for (int i = 0; i < count; i++) {
        int64_t whole = 0;
        if (!cli_parse_whole(items[i], 1, INT_MAX, &whole)) return unexpected(id, text);
        values[i] = (int)whole;
    }
    *(cli_counts *)value = (cli_counts){values, count};
    return CGP_OK;
}

/* Parse device names. A number stays a text until cli_take_devices() is called. */
static cgp_status parse_devices(cli_run_options *options, int id, const char *text) {
    cgp_device_list list;
    cli_names *names = cli_option_field(options, id);
    if (!text[strspn(text, "0123456789")]) return parse_list(options, id, text, names);
    const cgp_status status = cgp_device_list_parse(&list, text);
    if (status != CGP_OK) /* the message begins with "devices: " */
        return cgp_fail(CGP_EINVAL, "--%s", cgp_message());
    *names = (cli_names){cli_run_options_keep(options, list.names), list.count};
    return CGP_OK;
}

static cgp_status parse_balance(cli_run_options *options, int id, const char *text) {
    static const char *const rules[] = {"flops", "time", "size"};
    cli_balance *balance = cli_option_field(options, id);
    *balance = (cli_balance){0};
    if (!isalpha((unsigned char)*text)) return parse_list(options, id, text, &balance->layers);
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, rules[i]) == 0) balance->by = rules[i];
    }
    const char *near = cgp_nearest(text, rules, 3);
    if (!balance->by && near)
        return cgp_fail(CGP_EINVAL, "--balance %s: expected %s, got \"%s\" (did you mean %s?)",
                        text, expected[CLI_BALANCE], text, near);
    return balance->by ? CGP_OK : unexpected(id, text);
}

/* --- one value --- */

bool cli_steps_parse(const char *text, cli_steps *steps) {
    char digits[32];
    const size_t length = strlen(text);
    const bool epochs = length > 2 && strcmp(text + length - 2, "ep") == 0;
    if (length >= sizeof digits) return false;
    snprintf(digits, sizeof digits, "%.*s", (int)(epochs ? length - 2 : length), text);
    steps->epochs = epochs;
    return cli_parse_whole(digits, 0, epochs ? INT_MAX : MAX_WHOLE, &steps->count);
}

cgp_status cli_option_set(cli_run_options *options, int id, const char *text) {
    void *value = cli_option_field(options, id);
    bool good = true;
    switch (cli_options[id].kind) {
    case CLI_FLAG:
        *(bool *)value = true;
        break;
    case CLI_TEXT:
        *(const char **)value = text;
        good = *text != '\0';
        break;
    case CLI_COUNT:
        good = cli_parse_whole(text, 1, INT_MAX, value);
        break;
    case CLI_COUNT_OR_AUTO:
        *(int64_t *)value = CLI_AUTO;
        good = strcmp(text, "auto") == 0 || cli_parse_whole(text, 1, INT_MAX, value);
        break;
    case CLI_WHOLE:
        good = cli_parse_whole(text, 0, MAX_WHOLE, value);
        break;
    case CLI_STEPS:
        good = cli_steps_parse(text, value);
        break;
    case CLI_BYTES:
        good = cli_parse_bytes(text, 1, MAX_WHOLE, value);
        break;
    case CLI_REAL:
        good = cli_parse_real(text, 0, INFINITY, value);
        break;
    case CLI_FRACTION:
        good = cli_parse_real(text, 0, 1, value);
        break;
    case CLI_BALANCE:
        return parse_balance(options, id, text);
    case CLI_COUNTS:
    case CLI_NAMES:
        return parse_list(options, id, text, value);
    case CLI_DEVICE_NAMES:
        return parse_devices(options, id, text);
    case CLI_PATHS:
        good = *text != '\0';
        ((const char **)((cli_names *)value)->values)[((cli_names *)value)->count++] = text;
        break;
    }
    return good ? CGP_OK : unexpected(id, text);
}

/* --- values of files --- */

cgp_status cli_option_misshapen(int id, bool list) {
    return cgp_fail(CGP_EINVAL, "--%s: expected %s, got %s", cli_options[id].name,
                    expected[cli_options[id].kind], list ? "a list" : "another kind of value");
}

cgp_status cli_option_set_list(cli_run_options *options, int id, const char *const *items,
                               int count) {
    const cli_kind kind = cli_options[id].kind;
    if (kind == CLI_PATHS) {
        void *paths = cli_run_options_keep(options, cli_calloc((size_t)count, sizeof *items));
        *(cli_names *)cli_option_field(options, id) = (cli_names){paths, 0};
        for (int i = 0; i < count; i++)
            CGP_TRY(cli_option_set(options, id, items[i]));
        return CGP_OK;
    }
    if (kind != CLI_NAMES && kind != CLI_DEVICE_NAMES && kind != CLI_BALANCE && kind != CLI_COUNTS)
        return cli_option_misshapen(id, true);
    char *text = cli_joined(items, count);
    const cgp_status status = cli_option_set(options, id, text); /* the option keeps a copy */
    free(text);
    return status;
}
