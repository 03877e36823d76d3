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

#include "base/base.h"

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
static bool is_room(size_t length) {
    void *room = cgp__calloc(length, 4);
    const bool is = room != NULL;
    free(room);
    return is;
}

json_t *cgp__json_read(const char *text, size_t length, cgp__json_error *error) {
    json_error_t errors[2];
    *error = (cgp__json_error){.byte = 0};
    if (!is_room(length)) return NULL;
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
