/* parse.c -- see parse.h. */
#include "parse.h"

#include <errno.h>
#include <inttypes.h>
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
        memcpy(field, &value, sizeof value);
        break;
    case CGP__KEY_BOOL:
        memcpy(field, &flag, sizeof flag);
        break;
    default:
        memcpy(field, &number, sizeof number);
    }
}

static int64_t least_of(const cgp__key *key) {
    return key->kind == CGP__KEY_BOOL || key->kind == CGP__KEY_WORD ? 0 : key->least;
}

static int64_t most_of(const cgp__key *key) {
    if (key->kind == CGP__KEY_BOOL) return 1;
    if (key->kind != CGP__KEY_WORD) return key->most;
    int64_t words = 0;
    while (key->words[words])
        words++;
    return words - 1;
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
    return cgp_fail(CGP_EINVAL,
                    "%s: %s: expected a whole number from %" PRId64 " to %" PRId64 ", got %s",
                    keys->model, key->name, least_of(key), most_of(key), got);
}

cgp_status cgp__keys_check(const cgp__keys *keys, const void *options) {
    for (int k = 0; k < keys->count; k++) {
        const cgp__key *key = &keys->keys[k];
        const int64_t value = value_of(key, options);
        char got[32];
        snprintf(got, sizeof got, "%" PRId64, value);
        if (value < least_of(key) || value > most_of(key)) return bad_value(keys, key, got);
    }
    return CGP_OK;
}

/* --- text to options --- */

/* Nothing but digits, in range: no sign, no space, no overflow. */
static bool parse_whole(const char *text, const cgp__key *key, int64_t *value) {
    if (!*text || text[strspn(text, DIGITS)]) return false;
    errno = 0;
    const long long parsed = strtoll(text, NULL, 10);
    *value = parsed;
    return errno == 0 && parsed >= least_of(key) && parsed <= most_of(key);
}

static bool parse_word(const char *text, const cgp__key *key, int64_t *value) {
    for (int w = 0; key->words[w]; w++) {
        *value = w;
        if (strcmp(text, key->words[w]) == 0) return true;
    }
    return false;
}

/* What the text says so far. */
typedef struct found {
    int64_t values[CGP__MOST_KEYS];
    bool seen[CGP__MOST_KEYS];
} found;

static cgp_status take_value(const cgp__keys *keys, int k, const char *text, found *f) {
    const cgp__key *key = &keys->keys[k];
    char got[600];
    snprintf(got, sizeof got, "\"%s\"", text);
    if (f->seen[k])
        return cgp_fail(CGP_EINVAL, "%s: %s: is given twice", keys->model, key->name);
    f->seen[k] = true;
    const bool good = key->kind == CGP__KEY_WORD ? parse_word(text, key, &f->values[k])
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
    const char *names[CGP__MOST_KEYS];
    char list[256];
    for (int k = 0; k < keys->count; k++)
        names[k] = keys->keys[k].name;
    const char *near = cgp_nearest(name, names, keys->count);
    return cgp_fail(CGP_EINVAL, "%s: %s: unknown key (%s%s%s)", keys->model, name,
                    near ? "did you mean " : "",
                    near ? near : list_keys(keys, list, sizeof list), near ? "?" : "");
}

/* One "key=value"; `item` is cut in two. */
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

bool cgp__keys_match(const cgp__keys *keys, const char *text) {
    const size_t length = strlen(keys->model);
    if (strncmp(text, keys->model, length) != 0) return false;
    const char *rest = text + length;
    if (keys->behind_name >= 0) rest += strspn(rest, DIGITS);
    return *rest == '\0' || *rest == ':';
}

cgp_status cgp__keys_parse(const cgp__keys *keys, void *options, const char *text) {
    char copy[512];
    found f = {{0}, {false}};
    CGP_TRY(cgp__keys_check_size(keys, options));
    if (!cgp__keys_match(keys, text))
        return cgp_fail(CGP_EINVAL, "model: expected %s or %s:key=value,..., got \"%s\"",
                        keys->model, keys->model, text);
    if (strlen(text) >= sizeof copy)
        return cgp_fail(CGP_EINVAL, "%s: expected less than %zu characters, got %zu",
                        keys->model, sizeof copy, strlen(text));
    strcpy(copy, text + strlen(keys->model));
    char *items = strchr(copy, ':');
    if (items) *items++ = '\0';
    if (*copy) CGP_TRY(take_value(keys, keys->behind_name, copy, &f));
    for (char *item = items, *next = NULL; item; item = next) {
        next = strchr(item, ',');
        if (next) *next++ = '\0';
        CGP_TRY(take_item(keys, item, &f));
    }
    for (int k = 0; k < keys->count; k++) {
        if (f.seen[k]) set_value(&keys->keys[k], options, f.values[k]);
    }
    return CGP_OK;
}

/* --- options to text --- */

void cgp__keys_text(const cgp__keys *keys, const void *options, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", keys->model);
    char separator = ':';
    for (int k = 0; k < keys->count && used < size; k++) {
        const cgp__key *key = &keys->keys[k];
        const int64_t value = value_of(key, options);
        const bool number = key->kind == CGP__KEY_INT || key->kind == CGP__KEY_INT64;
        if (!number && value == 0) continue;
        used += (size_t)snprintf(text + used, size - used, "%c%s=", separator, key->name);
        separator = ',';
        if (used >= size) return;
        if (key->kind == CGP__KEY_WORD)
            used += (size_t)snprintf(text + used, size - used, "%s", key->words[value]);
        else
            used += (size_t)snprintf(text + used, size - used, "%" PRId64, value);
    }
}
