/* SPDX-License-Identifier: Apache-2.0 */
/* json.c -- reads and writes JSON with jansson.
 *
 * Jansson ignores some failed allocations, and then drops data (the end of a string, or a key). So
 * each text is read twice: if the results differ, memory was short. When a text is written, its
 * length is computed first, so a missing part is detected.
 *
 * Under a memory limit, both readings could drop the same bytes. Also, jansson 2.14 reads past its
 * buffer after a string that has lost its closing quote. So before reading, the library tries to
 * allocate as much memory as the longest string could need. */
#include "base/json.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_reason(const json_error_t *error) {
    return error->text[0] && json_error_code(error) != json_error_out_of_memory;
}

/* Return true if two attempts to read a text found the same error in the text. */
static bool are_equal(const json_error_t *a, const json_error_t *b) {
    return has_reason(a) && has_reason(b) && a->position == b->position &&
           strcmp(a->text, b->text) == 0;
}

/* Return true if there is memory for one string of `length` bytes: the string's buffer, the larger
 * buffer of twice the size that replaces it, and the string's value. */
static bool can_allocate(size_t length) {
    void *memory = cgp__calloc(length, 4);
    const bool enough = memory != NULL;
    free(memory);
    return enough;
}

/* --- the memory of a text: values are much larger than their text: [] takes 45 times its size, {}
 * 77 times (jansson 2.14, glibc) --- */

enum { OBJECT_BYTES = 240, ARRAY_BYTES = 144, STRING_BYTES = 72, ITEM_BYTES = 40, MAX_DEPTH = 64 };

/* Return the number of bytes from the string's opening quote, at `at`, to its closing quote. */
static size_t string_length(const char *text, size_t length, size_t at) {
    size_t end = at + 1;
    while (end < length && text[end] != '"')
        end += text[end] == '\\' ? 2 : 1;
    return (end < length ? end : length - 1) - at;
}

/* Return an upper bound for the bytes of memory that both readings take. Set *depth to the largest
 * number of brackets open at one time. */
static int64_t memory_of(const char *text, size_t length, int64_t *depth) {
    int64_t bytes = 0, open = 0;
    *depth = 0;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if (c == '"') {
            const size_t string = string_length(text, length, i);
            bytes += STRING_BYTES + (int64_t)string;
            i += string;
        } else if (c == '{' || c == '[') {
            bytes += c == '{' ? OBJECT_BYTES : ARRAY_BYTES;
            *depth = cgp__max(*depth, ++open);
        } else if (c == '}' || c == ']') {
            open--;
        } else if (c == ',') {
            bytes += ITEM_BYTES;
        }
    }
    return 2 * bytes;
}

static bool is_within_limits(const char *text, size_t length, cgp__json_error *error) {
    int64_t max = 0, depth = 0;
    error->refused = cgp__limit_get(CGP__LIMIT_JSON, &max);
    if (error->refused != CGP_OK) {
        snprintf(error->reason, sizeof error->reason, "%s", cgp_message());
        return false;
    }
    const int64_t bytes = memory_of(text, length, &depth);
    if (bytes <= max && depth <= MAX_DEPTH) return true;
    error->refused = CGP_EFORMAT;
    if (bytes > max)
        snprintf(error->reason, sizeof error->reason,
                 "expected JSON that takes at most %" PRId64 " MiB of memory, got one of %" PRId64
                 "%s",
                 max >> 20, bytes >> 20, cgp__limit_hint(CGP__LIMIT_JSON));
    else
        snprintf(error->reason, sizeof error->reason,
                 "expected JSON nested at most %d deep, got %" PRId64, MAX_DEPTH, depth);
    return false;
}

json_t *cgp__json_read(const char *text, size_t length, cgp__json_error *error) {
    json_error_t errors[2];
    *error = (cgp__json_error){.byte = 0};
    if (!is_within_limits(text, length, error) || !can_allocate(length)) return NULL;
    cgp__c_locale_begin();
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &errors[0]);
    json_t *again = json_loadb(text, length, JSON_REJECT_DUPLICATES, &errors[1]);
    cgp__c_locale_end();
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
    cgp__c_locale_begin();
    const size_t length = json_dumpb(json, NULL, 0, flags); /* if memory is short, the length is
                                                             * 0 */
    char *text = length > 0 ? cgp__calloc(length + 1, 1) : NULL;
    const bool written = text && json_dumpb(json, text, length, flags) == length;
    cgp__c_locale_end();
    if (written) return text;
    free(text);
    return NULL;
}
