/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c -- see parse.h. */
#include "parse.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

/* --- fields --- */

static int64_t value_of(const cgp__key *key, const void *options) {
    const char *field = (const char *)options + key->offset;
    int number;
    int64_t wide;
    bool flag;
    switch (key->kind) {
    case CGP__KEY_INT64:
    case CGP__KEY_COUNT:
        memcpy(&wide, field, sizeof wide);
        return wide;
    case CGP__KEY_BOOL:
        memcpy(&flag, field, sizeof flag);
        return flag;
    default:
        memcpy(&number, field, sizeof number);
        return number;
    }
}

static void set_value(const cgp__key *key, void *options, int64_t value) {
    char *field = (char *)options + key->offset;
    const int number = (int)value;
    const bool flag = value != 0;
    switch (key->kind) {
    case CGP__KEY_INT64:
    case CGP__KEY_COUNT:
        memcpy(field, &value, sizeof value);
        break;
    case CGP__KEY_BOOL:
        memcpy(field, &flag, sizeof flag);
        break;
    default:
        memcpy(field, &number, sizeof number);
    }
}

static double real_of(const cgp__key *key, const void *options) {
    double value;
    memcpy(&value, (const char *)options + key->offset, sizeof value);
    return value;
}

static int64_t min_of(const cgp__key *key) {
    return key->kind == CGP__KEY_BOOL || key->kind == CGP__KEY_WORD ? 0 : key->min;
}

static int64_t max_of(const cgp__key *key) {
    if (key->kind == CGP__KEY_BOOL) return 1;
    if (key->kind != CGP__KEY_WORD) return key->max;
    int64_t words = 0;
    while (key->words[words])
        words++;
    return words - 1;
}

/* --- numbers with a point --- */

/* A model spec has a decimal point in every locale; strtod() and printf() use the locale's. */
static double read_real(const char *text, char **end) {
    const char *point = localeconv()->decimal_point;
    const size_t before = strcspn(text, ".");
    char local[600];
    if (!text[before]) return strtod(text, end);
    const int length =
        snprintf(local, sizeof local, "%.*s%s%s", (int)before, text, point, text + before + 1);
    if (length < 0 || (size_t)length >= sizeof local) {
        *end = (char *)text;
        return 0;
    }
    char *stop = NULL;
    const double value = strtod(local, &stop);
    const size_t read = (size_t)(stop - local), more = strlen(point) - 1;
    *end = (char *)text + (read > before ? read - more : read);
    return value;
}

static void write_real(double value, int digits, char *text, size_t size) {
    const char *point = localeconv()->decimal_point;
    snprintf(text, size, "%.*g", digits, value);
    char *at = strstr(text, point);
    if (!at) return;
    *at = '.';
    memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
}

/* --- checks --- */

cgp_status cgp__keys_check_size(const cgp__keys *keys, const void *options) {
    size_t got;
    memcpy(&got, options, sizeof got);
    if (got == keys->struct_size) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: options: expected struct_size %zu, got %zu (start from "
                    "cgp_%s_options_default())",
                    keys->model, keys->struct_size, got, keys->model);
}

static cgp_status bad_value(const cgp__keys *keys, const cgp__key *key, const char *got) {
    if (key->kind == CGP__KEY_WORD)
        return cgp_fail(CGP_EINVAL, "%s: %s: expected %s or %s, got %s", keys->model, key->name,
                        key->words[0], key->words[1], got);
    if (key->kind == CGP__KEY_REAL)
        return cgp_fail(CGP_EINVAL, "%s: %s: expected a number above 0 and at most 1, got %s",
                        keys->model, key->name, got);
    return cgp_fail(CGP_EINVAL,
                    "%s: %s: expected a whole number from %" PRId64 " to %" PRId64 ", got %s",
                    keys->model, key->name, min_of(key), max_of(key), got);
}

static cgp_status check_real(const cgp__keys *keys, const cgp__key *key, const void *options) {
    const double value = real_of(key, options);
    char got[32];
    write_real(value, 6, got, sizeof got);
    return value >= 0 && value <= 1 ? CGP_OK : bad_value(keys, key, got); /* no NaN either */
}

cgp_status cgp__keys_check(const cgp__keys *keys, const void *options) {
    for (int k = 0; k < keys->count; k++) {
        const cgp__key *key = &keys->keys[k];
        if (key->kind == CGP__KEY_REAL) {
            CGP_TRY(check_real(keys, key, options));
            continue;
        }
        const int64_t value = value_of(key, options);
        const int64_t min = key->kind == CGP__KEY_COUNT ? 0 : min_of(key);
        char got[32];
        snprintf(got, sizeof got, "%" PRId64, value);
        if (value < min || value > max_of(key)) return bad_value(keys, key, got);
    }
    return CGP_OK;
}

/* --- spec to options --- */

/* Only digits, in range: no sign, no space, no overflow. */
static bool parse_whole(const char *text, const cgp__key *key, int64_t *value) {
    if (!*text || text[strspn(text, DIGITS)]) return false;
    errno = 0;
    const long long parsed = strtoll(text, NULL, 10);
    *value = parsed;
    return errno == 0 && parsed >= min_of(key) && parsed <= max_of(key);
}

/* No sign in front, no space, no hexadecimal, no "inf". */
static bool parse_real(const char *text, double *value) {
    char *end = NULL;
    if (!strchr(DIGITS ".", *text) || text[strspn(text, DIGITS ".eE+-")]) return false;
    *value = read_real(text, &end);
    return end > text && *end == '\0' && *value > 0 && *value <= 1;
}

static bool parse_word(const char *text, const cgp__key *key, int64_t *value) {
    for (int w = 0; key->words[w]; w++) {
        *value = w;
        if (strcmp(text, key->words[w]) == 0) return true;
    }
    return false;
}

/* The values of a spec so far. */
typedef struct found {
    int64_t values[CGP__MAX_KEYS];
    double reals[CGP__MAX_KEYS];
    bool seen[CGP__MAX_KEYS];
} found;

static cgp_status take_value(const cgp__keys *keys, int k, const char *text, found *f) {
    const cgp__key *key = &keys->keys[k];
    char got[600];
    snprintf(got, sizeof got, "\"%s\"", text);
    if (f->seen[k])
        return cgp_fail(CGP_EINVAL, "%s: %s: is given twice", keys->model, key->name);
    f->seen[k] = true;
    const bool good = key->kind == CGP__KEY_WORD   ? parse_word(text, key, &f->values[k])
                      : key->kind == CGP__KEY_REAL ? parse_real(text, &f->reals[k])
                                                   : parse_whole(text, key, &f->values[k]);
    return good ? CGP_OK : bad_value(keys, key, got);
}

/* "keys: layers width heads" */
static const char *list_keys(const cgp__keys *keys, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "keys:");
    for (int k = 0; k < keys->count && used < size; k++)
        used += (size_t)snprintf(text + used, size - used, " %s", keys->keys[k].name);
    return text;
}

static cgp_status unknown_key(const cgp__keys *keys, const char *name) {
    const char *names[CGP__MAX_KEYS];
    char list[256];
    for (int k = 0; k < keys->count; k++)
        names[k] = keys->keys[k].name;
    const char *near = cgp_nearest(name, names, keys->count);
    return cgp_fail(CGP_EINVAL, "%s: %s: unknown key (%s%s%s)", keys->model, name,
                    near ? "did you mean " : "",
                    near ? near : list_keys(keys, list, sizeof list), near ? "?" : "");
}

/* Parse one "key=value"; `item` is split in place. */
static cgp_status take_item(const cgp__keys *keys, char *item, found *f) {
    char list[256];
    char *value = strchr(item, '=');
    if (!value)
        return cgp_fail(CGP_EINVAL, "%s: expected key=value, got \"%s\" (%s)", keys->model,
                        item, list_keys(keys, list, sizeof list));
    *value++ = '\0';
    for (int k = 0; k < keys->count; k++) {
        if (strcmp(keys->keys[k].name, item) == 0) return take_value(keys, k, value, f);
    }
    return unknown_key(keys, item);
}

static void set_found(const cgp__key *key, void *options, const found *f, int k) {
    if (key->kind == CGP__KEY_REAL)
        memcpy((char *)options + key->offset, &f->reals[k], sizeof f->reals[k]);
    else
        set_value(key, options, f->values[k]);
}

bool cgp__keys_match(const cgp__keys *keys, const char *spec) {
    const size_t length = strlen(keys->model);
    if (strncmp(spec, keys->model, length) != 0) return false;
    const char *rest = spec + length;
    if (keys->name_key >= 0) rest += strspn(rest, DIGITS);
    return *rest == '\0' || *rest == ':';
}

cgp_status cgp__keys_parse(const cgp__keys *keys, void *options, const char *spec) {
    char copy[512];
    found f = {{0}, {0}, {false}};
    CGP_TRY(cgp__keys_check_size(keys, options));
    if (!cgp__keys_match(keys, spec))
        return cgp_fail(CGP_EINVAL, "model: expected %s or %s:key=value,..., got \"%s\"",
                        keys->model, keys->model, spec);
    if (strlen(spec) >= sizeof copy)
        return cgp_fail(CGP_EINVAL, "%s: expected less than %zu characters, got %zu",
                        keys->model, sizeof copy, strlen(spec));
    strcpy(copy, spec + strlen(keys->model));
    char *items = strchr(copy, ':');
    if (items) *items++ = '\0';
    if (*copy) CGP_TRY(take_value(keys, keys->name_key, copy, &f));
    for (char *item = items, *next = NULL; item; item = next) {
        next = strchr(item, ',');
        if (next) *next++ = '\0';
        CGP_TRY(take_item(keys, item, &f));
    }
    for (int k = 0; k < keys->count; k++) {
        if (f.seen[k]) set_found(&keys->keys[k], options, &f, k);
    }
    return CGP_OK;
}

/* --- options to spec --- */

/* Write the fewest digits that parse to the value. */
static void real_text(double value, char *text, size_t size) {
    for (int digits = 1; digits <= 17; digits++) {
        char *end = NULL;
        write_real(value, digits, text, size);
        if (read_real(text, &end) == value) return;
    }
}

/* "" if the key is omitted. */
static void value_text(const cgp__key *key, const void *options, char *text, size_t size) {
    const bool always = key->kind == CGP__KEY_INT || key->kind == CGP__KEY_INT64;
    const bool real = key->kind == CGP__KEY_REAL;
    const int64_t value = real ? real_of(key, options) != 0 : value_of(key, options);
    *text = '\0';
    if (!always && value == 0) return;
    if (real)
        real_text(real_of(key, options), text, size);
    else if (key->kind == CGP__KEY_WORD)
        snprintf(text, size, "%s", key->words[value]);
    else
        snprintf(text, size, "%" PRId64, value);
}

void cgp__keys_spec(const cgp__keys *keys, const void *options, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", keys->model);
    char separator = ':';
    for (int k = 0; k < keys->count && used < size; k++) {
        const cgp__key *key = &keys->keys[k];
        char value[32];
        value_text(key, options, value, sizeof value);
        if (!*value) continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%c%s=%s", separator, key->name, value);
        separator = ',';
    }
}
