/* SPDX-License-Identifier: Apache-2.0 */
/* json.c -- see json.h.
 *
 * Jansson reads and writes, but does not notice all its failed allocations: what its buffers have
 * no room for (the end of a string; a key) is dropped. So a text is read twice, and two results
 * that differ are taken for want of memory; and the length of a text is known before it is
 * written. Where there is a limit, the same bytes would be dropped twice, and of a string without
 * its last quote jansson 2.14 reads on past the buffer: so there must be room for the longest
 * string before. */
#include "base/json.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_told(const json_error_t *error) {
    return error->text[0] && json_error_code(error) != json_error_out_of_memory;
}

/* Whether the text is wrong in the same way each time. */
static bool are_equal(const json_error_t *a, const json_error_t *b) {
    return is_told(a) && is_told(b) && a->position == b->position &&
           strcmp(a->text, b->text) == 0;
}

/* For one string: its buffer, one of twice the size that it grows into, and the value. */
static bool has_capacity(size_t length) {
    void *capacity = cgp__calloc(length, 4);
    const bool is = capacity != NULL;
    free(capacity);
    return is;
}

/* --- what a text takes: values are many times larger than what is written of them, [] 45 times and {} 77 times (jansson 2.14,
 * glibc) --- */

enum {
    OBJECT_BYTES = 240,
    ARRAY_BYTES = 144,
    STRING_BYTES = 72,
    ITEM_BYTES = 40,
    DEEPEST = 64
};

/* Bytes from the quote at `at` to the one that ends the string. */
static size_t string_length(const char *text, size_t length, size_t at) {
    size_t end = at + 1;
    while (end < length && text[end] != '"')
        end += text[end] == '\\' ? 2 : 1;
    return (end < length ? end : length - 1) - at;
}

/* An upper bound for both readings; *deep: the most brackets open at one time. */
static int64_t memory_of(const char *text, size_t length, int64_t *deep) {
    int64_t bytes = 0, depth = 0;
    *deep = 0;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if (c == '"') {
            const size_t string = string_length(text, length, i);
            bytes += STRING_BYTES + (int64_t)string;
            i += string;
        } else if (c == '{' || c == '[') {
            bytes += c == '{' ? OBJECT_BYTES : ARRAY_BYTES;
            *deep = cgp__max(*deep, ++depth);
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',') {
            bytes += ITEM_BYTES;
        }
    }
    return 2 * bytes;
}

static bool is_within_limits(const char *text, size_t length, cgp__json_error *error) {
    int64_t max = 0, deep = 0;
    error->refused = cgp__limit_get(CGP__LIMIT_JSON, &max);
    if (error->refused != CGP_OK) {
        snprintf(error->reason, sizeof error->reason, "%s", cgp_message());
        return false;
    }
    const int64_t bytes = memory_of(text, length, &deep);
    if (bytes <= max && deep <= DEEPEST) return true;
    error->refused = CGP_EFORMAT;
    if (bytes > max)
        snprintf(error->reason, sizeof error->reason,
                 "expected JSON that takes at most %" PRId64
                 " MiB of memory, got one of %" PRId64 "%s",
                 max >> 20, bytes >> 20, cgp__limit_hint(CGP__LIMIT_JSON));
    else
        snprintf(error->reason, sizeof error->reason,
                 "expected JSON nested at most %d deep, got %" PRId64, DEEPEST, deep);
    return false;
}

json_t *cgp__json_read(const char *text, size_t length, cgp__json_error *error) {
    json_error_t errors[2];
    *error = (cgp__json_error){.byte = 0};
    if (!is_within_limits(text, length, error) || !has_capacity(length)) return NULL;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &errors[0]);
    json_t *again = json_loadb(text, length, JSON_REJECT_DUPLICATES, &errors[1]);
    const bool same = root && again && json_equal(root, again);
    if (!root && !again && are_equal(&errors[0], &errors[1])) {
        error->byte = (size_t)errors[0].position;
        snprintf(error->reason, sizeof error->reason, "%s", errors[0].text);
    }
    json_decref(again);
    if (same) return root;
    json_decref(root);
    return NULL;
}

char *cgp__json_text(const json_t *json, size_t flags) {
    const size_t length = json_dumpb(json, NULL, 0, flags); /* it may lack memory, too */
    char *text = length > 0 ? cgp__calloc(length + 1, 1) : NULL;
    if (text && json_dumpb(json, text, length, flags) == length) return text;
    free(text);
    return NULL;
}
