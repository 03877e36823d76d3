/* SPDX-License-Identifier: Apache-2.0 */
/* json_file.c -- see json_file.h. */
#include "json_file.h"

#include "files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

cgp_status cli_json_read(const char *path, size_t max, json_t **out) {
    char *bytes = NULL;
    size_t size = 0;
    json_error_t error;
    json_t *root = NULL;
    CGP_TRY(cli_file_read(path, &bytes, &size));
    if (size <= max) root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (size > max)
        return cgp_fail(CGP_EFORMAT, "%s: expected at most %zu bytes, got %zu", path, max,
                        size);
    if (!root) return cgp_fail(CGP_EFORMAT, "%s: line %d: %s", path, error.line, error.text);
    *out = root;
    return CGP_OK;
}

cgp_status cli_json_wrong(const cli_json_place *at, const char *key, const char *expected) {
    if (!at->list) return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s", at->path, key, expected);
    return cgp_fail(CGP_EFORMAT, "%s: %s[%zu].%s: expected %s", at->path, at->list, at->index,
                    key, expected);
}

bool cli_json_has(const cli_json_place *at, const char *key) {
    return json_object_get(at->object, key) != NULL;
}

cgp_status cli_json_text_of(const cli_json_place *at, const char *key, const char **out) {
    *out = json_string_value(json_object_get(at->object, key));
    return *out ? CGP_OK : cli_json_wrong(at, key, "a text");
}

cgp_status cli_json_whole(const cli_json_place *at, const char *key, int64_t min, int64_t max,
                          int64_t *out) {
    const json_t *number = json_object_get(at->object, key);
    char expected[80];
    *out = json_integer_value(number);
    if (json_is_integer(number) && *out >= min && *out <= max) return CGP_OK;
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, min,
             max);
    return cli_json_wrong(at, key, expected);
}
