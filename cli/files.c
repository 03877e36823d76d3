/* SPDX-License-Identifier: Apache-2.0 */
/* files.c -- see files.h. */
#include "files.h"

#include <cgpipe/checkpoint.h>

#include "common.h"
#include "stop.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A row of 2^24 actions is a tenth of that: a typing error must not eat all memory. */
enum { MAX_MIB = 256 };

bool cli_is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

cgp_status cli_file_check(const char *path) {
    const char *slash = strrchr(path, '/');
    if (cli_is_directory(path))
        return cgp_fail(CGP_EIO, "%s: is a directory, expected a file name", path);
    char *directory = slash ? cli_text("%.*s", (int)(slash - path) + 1, path) : cli_text(".");
    cgp_status status = CGP_OK;
    if (access(directory, W_OK | X_OK) != 0)
        status = cgp_fail(CGP_EIO, "%s: cannot be written (%s: %s)", path, directory,
                          strerror(errno));
    else
        (void)!cgp_checkpoint_clean(directory); /* its failure is not this file's */
    free(directory);
    return status;
}

/* --- reading --- */

static cgp_status unreadable(const char *path, const char *why) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, why);
}

/* Read all bytes of an open file: a pipe has no size to ask for. */
static cgp_status read_bytes(FILE *file, const char *path, char **out, size_t *size) {
    size_t used = 0, capacity = 0;
    char *bytes = NULL;
    for (;;) {
        if (used == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            char *grown = capacity > (size_t)MAX_MIB << 20 ? NULL : realloc(bytes, capacity);
            if (!grown) {
                free(bytes);
                return unreadable(path, "too large");
            }
            bytes = grown;
        }
        const size_t got = fread(bytes + used, 1, capacity - used, file);
        used += got;
        if (got == 0) break;
    }
    if (ferror(file)) {
        free(bytes);
        return unreadable(path, strerror(errno));
    }
    *out = bytes;
    *size = used;
    return CGP_OK;
}

cgp_status cli_file_read(const char *path, char **bytes, size_t *size) {
    FILE *file = fopen(path, "re");
    if (!file) return unreadable(path, strerror(errno));
    const cgp_status status = read_bytes(file, path, bytes, size);
    fclose(file);
    return status;
}

/* --- writing --- */

/* A reader of standard output that has gone, or ended by the same signal, is no failure. */
static cgp_status print_text(const char *text) {
    if (fputs(text, stdout) != EOF && fflush(stdout) == 0) return CGP_OK;
    if (cli_stop_closed() || (cli_stop_signal() && errno == EPIPE)) return CGP_OK;
    return cgp_fail(CGP_EIO, "standard output: cannot be written (%s)", strerror(errno));
}

cgp_status cli_text_write(const char *path, char *text) {
    const cgp_status status =
        strcmp(path, "-") == 0 ? print_text(text) : cgp_file_replace(path, text, strlen(text));
    free(text);
    return status;
}

json_t *cli_real_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

void cli_json_add(json_t *object, const char *format, ...) {
    va_list values;
    va_start(values, format);
    json_t *more = json_vpack_ex(NULL, 0, format, values);
    va_end(values);
    json_object_update(object, more);
    json_decref(more);
}

char *cli_json_text(json_t *object) {
    char *dump = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (!dump) (void)cgp_fail(CGP_ENOMEM, "json: out of memory");
    char *text = dump ? cli_text("%s\n", dump) : NULL;
    free(dump);
    return text;
}

cgp_status cli_json_replace(const char *path, json_t *object) {
    char *text = cli_json_text(object);
    return text ? cli_text_write(path, text) : CGP_ENOMEM;
}
