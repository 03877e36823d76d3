/* SPDX-License-Identifier: Apache-2.0 */
/* json_file.c -- see json_file.h. */
#include "json_file.h"

#include "base/json.h"
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

cgp_status cli_json_parse(const char *path, const char *text, size_t length, json_t **out) {
    cgp__json_error error;
    int line = 1;
    *out = cgp__json_read(text, length, &error);
    if (*out) return CGP_OK;
    if (error.refused != CGP_OK) return cgp_fail(error.refused, "%s: %s", path, error.reason);
    if (!*error.reason) return cgp_fail(CGP_ENOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < length && i < error.byte; i++)
        line += text[i] == '\n';
    return cgp_fail(CGP_EFORMAT, "%s: line %d: %s", path, line, error.reason);
}

cgp_status cli_json_read_open(int fd, const char *path, size_t max, json_t **out) {
    char *bytes = NULL;
    size_t size = 0;
    cgp_status status = cli_file_read_open(fd, path, max, &bytes, &size);
    if (status == CGP_OK) status = cli_json_parse(path, bytes, size, out);
    free(bytes);
    return status;
}

cgp_status cli_json_read(const char *path, size_t max, json_t **out) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
    if (fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) /* reading reports fstat errors */
        return cli_json_read_open(fd, path, max, out);
    close(fd);
    return cgp_fail(CGP_EIO, "%s: is not a regular file", path);
}

cgp_status cli_json_wrong(const cli_json_place *at, const char *key, const char *expected) {
    if (!at->list) return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s", at->path, key, expected);
    return cgp_fail(CGP_EFORMAT, "%s: %s[%zu].%s: expected %s", at->path, at->list, at->index, key,
                    expected);
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
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, min, max);
    return cli_json_wrong(at, key, expected);
}
