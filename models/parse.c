/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c -- parses and writes model specs, see zoo.h. */
#include "base/json.h"
#include "zoo.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

/* --- fields --- */

/* Value of a key: `real` for a REAL, `whole` for every other kind. */
typedef union number {
    int64_t whole;
    double real;
} number;

static number value_of(const cgp__key *key, const void *options) {
    const void *field = (const char *)options + key->offset;
    switch (key->kind) {
    case CGP__KEY_BOOL:
        return (number){*(const bool *)field};
    case CGP__KEY_INT:
    case CGP__KEY_WORD:
        return (number){*(const int *)field};
    default:
        return *(const number *)field;
    }
}

static void set_value(const cgp__key *key, void *options, number v) {
    void *field = (char *)options + key->offset;
    switch (key->kind) {
    case CGP__KEY_BOOL:
        *(bool *)field = v.whole != 0;
        break;
    case CGP__KEY_INT:
    case CGP__KEY_WORD:
        *(int *)field = (int)v.whole;
        break;
    default:
        *(number *)field = v;
    }
}

/* Read a number. Return true if it is the whole text. */
static bool read_real(const char *text, double *value) {
    char *end = NULL;
    *value = cgp__read_real(text, &end);
    return end > text && *end == '\0';
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

cgp_status cgp__keys_resolve(const cgp__keys *keys, void *options) {
    CGP_TRY(cgp__keys_check_size(keys, options));
    return keys->resolve(options);
}

static double largest_real(const cgp__key *key) {
    return key->max > 0 ? (double)key->max : 1;
}

/* Write the words of a key, such as "erf or tanh". */
static const char *list_words(const cgp__key *key, char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; key->words[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 i == 0              ? ""
                                 : key->words[i + 1] ? ", "
                                                     : " or ",
                                 key->words[i]);
    return text;
}

static cgp_status bad_value(const cgp__keys *keys, const cgp__key *key, const char *got) {
    char words[64];
    if (key->kind == CGP__KEY_WORD)
        return cgp_fail(CGP_EINVAL, "%s: %s: expected %s, got %s", keys->model, key->name,
                        list_words(key, words, sizeof words), got);
    if (key->kind == CGP__KEY_REAL)
        return cgp_fail(CGP_EINVAL, "%s: %s: expected a number above 0 and at most %g, got %s",
                        keys->model, key->name, largest_real(key), got);
    return cgp_fail(CGP_EINVAL,
                    "%s: %s: expected a whole number from %" PRId64 " to %" PRId64 ", got %s",
                    keys->model, key->name, key->min, key->max, got);
}

cgp_status cgp__keys_check(const cgp__keys *keys, const void *options) {
    for (const cgp__key *key = keys->keys; key->name; key++) {
        const number v = value_of(key, options);
        const bool real = key->kind == CGP__KEY_REAL;
        const int64_t min = key->kind == CGP__KEY_COUNT ? 0 : key->min;
        char got[32];
        if (real ? v.real >= 0 && v.real <= largest_real(key)
                 : v.whole >= min && v.whole <= key->max)
            continue;
        if (real) /* the key is a REAL, and its value may be NaN */
            cgp__print(got, sizeof got, "%g", v.real);
        else
            snprintf(got, sizeof got, "%" PRId64, v.whole);
        return bad_value(keys, key, got);
    }
    return CGP_OK;
}

/* --- spec to options --- */

/* Parse the value of a key. A REAL has no leading sign, no space, no hexadecimal, and no "inf"; a
 * whole number has only digits. */
static bool parse_value(const cgp__key *key, const char *text, number *v) {
    if (key->kind == CGP__KEY_WORD) {
        for (v->whole = 0; key->words[v->whole]; v->whole++)
            if (strcmp(text, key->words[v->whole]) == 0) return true;
        return false;
    }
    if (key->kind == CGP__KEY_REAL)
        return strchr(DIGITS ".", *text) && !text[strspn(text, DIGITS ".eE+-")] &&
               read_real(text, &v->real) && v->real > 0 && v->real <= largest_real(key);
    if (!*text || text[strspn(text, DIGITS)]) return false;
    errno = 0;
    v->whole = strtoll(text, NULL, 10);
    return errno == 0 && v->whole >= key->min && v->whole <= key->max;
}

/* The values of a spec that were parsed so far. */
typedef struct found {
    number values[CGP__MAX_KEYS];
    bool seen[CGP__MAX_KEYS];
} found;

static cgp_status take_value(const cgp__keys *keys, int k, const char *text, found *f) {
    const cgp__key *key = &keys->keys[k];
    char got[600];
    snprintf(got, sizeof got, "\"%s\"", text);
    if (f->seen[k]) return cgp_fail(CGP_EINVAL, "%s: %s: is given twice", keys->model, key->name);
    f->seen[k] = true;
    return parse_value(key, text, &f->values[k]) ? CGP_OK : bad_value(keys, key, got);
}

/* Write the names of the keys, such as "keys: layers width heads". */
static const char *list_keys(const cgp__keys *keys, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "keys:");
    for (const cgp__key *key = keys->keys; key->name && used < size; key++)
        used += (size_t)snprintf(text + used, size - used, " %s", key->name);
    return text;
}

static cgp_status unknown_key(const cgp__keys *keys, const char *name) {
    const char *names[CGP__MAX_KEYS];
    char list[256];
    int count = 0;
    for (; keys->keys[count].name; count++)
        names[count] = keys->keys[count].name;
    const char *near = cgp_nearest(name, names, count);
    return cgp_fail(CGP_EINVAL, "%s: %s: unknown key (%s%s%s)", keys->model, name,
                    near ? "did you mean " : "", near ? near : list_keys(keys, list, sizeof list),
                    near ? "?" : "");
}

/* Parse one "key=value"; `item` is split in place. */
static cgp_status take_item(const cgp__keys *keys, char *item, found *f) {
    char list[256];
    char *value = strchr(item, '=');
    if (!value)
        return cgp_fail(CGP_EINVAL, "%s: expected key=value, got \"%s\" (%s)", keys->model, item,
                        list_keys(keys, list, sizeof list));
    *value++ = '\0';
    for (int k = 0; keys->keys[k].name; k++) {
        if (strcmp(keys->keys[k].name, item) == 0) return take_value(keys, k, value, f);
    }
    return unknown_key(keys, item);
}

bool cgp__keys_match(const cgp__keys *keys, const char *spec) {
    const size_t length = strlen(keys->model);
    if (strncmp(spec, keys->model, length) != 0) return false;
    const char *rest = spec + length;
    if (keys->numbered) rest += strspn(rest, DIGITS);
    return *rest == '\0' || *rest == ':';
}

cgp_status cgp__keys_parse(const char *function, const cgp__keys *keys, void *options,
                           const char *spec) {
    char copy[512];
    found f = {.seen = {false}};
    if (!options || !spec) return cgp__refuse_null(function, options ? "text" : "options");
    CGP_TRY(cgp__keys_check_size(keys, options));
    if (!cgp__keys_match(keys, spec))
        return cgp_fail(CGP_EINVAL, "model: expected %s or %s:key=value,..., got \"%s\"",
                        keys->model, keys->model, spec);
    if (strlen(spec) >= sizeof copy)
        return cgp_fail(CGP_EINVAL, "%s: expected less than %zu characters, got %zu", keys->model,
                        sizeof copy, strlen(spec));
    strcpy(copy, spec + strlen(keys->model));
    char *items = strchr(copy, ':');
    if (items) *items++ = '\0';
    if (*copy) CGP_TRY(take_value(keys, 0, copy, &f));
    for (char *item = items, *next = NULL; item; item = next) {
        next = strchr(item, ',');
        if (next) *next++ = '\0';
        CGP_TRY(take_item(keys, item, &f));
    }
    for (int k = 0; k < CGP__MAX_KEYS; k++) {
        if (f.seen[k]) set_value(&keys->keys[k], options, f.values[k]);
    }
    return CGP_OK;
}

/* --- options to spec --- */

/* Write the value of a key, "" if it is omitted. A REAL gets the fewest digits that parse to the
 * same value. */
static void value_text(const cgp__key *key, const void *options, char *text, size_t size) {
    const bool always = key->kind == CGP__KEY_INT || key->kind == CGP__KEY_INT64;
    const number v = value_of(key, options);
    double read = 0;
    *text = '\0';
    if (key->kind == CGP__KEY_REAL) {
        for (int digits = 1; read != v.real && digits <= 17; digits++) {
            cgp__print(text, size, "%.*g", digits, v.real);
            (void)read_real(text, &read);
        }
    } else if (key->kind == CGP__KEY_WORD && v.whole != 0) {
        snprintf(text, size, "%s", key->words[v.whole]);
    } else if (always || v.whole != 0) {
        snprintf(text, size, "%" PRId64, v.whole);
    }
}

void cgp__keys_spec(const cgp__keys *keys, const void *options, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", keys->model);
    char separator = ':';
    for (const cgp__key *key = keys->keys; key->name && used < size; key++) {
        char written[32];
        value_text(key, options, written, sizeof written);
        if (!*written) continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%c%s=%s", separator, key->name, written);
        separator = ',';
    }
}
