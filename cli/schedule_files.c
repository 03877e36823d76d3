/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_files.c -- see schedule_files.h. */
#include "schedule_files.h"

#include <cgpipe/checkpoint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row of 2^24 actions is a tenth of that: a typing error must not eat all memory. */
enum { MAX_MIB = 256 };

/* --- reading --- */

static cgp_status unreadable(const char *path, const char *why) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, why);
}

/* All bytes of an open file, however it tells its size. */
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

bool cli_schedule_is_file(const char *name) {
    const size_t length = strlen(name);
    return strchr(name, '/') || (length > 4 && strcmp(name + length - 4, ".csv") == 0);
}

cgp_status cli_file_read(const char *path, char **bytes, size_t *size) {
    FILE *file = fopen(path, "re");
    if (!file) return unreadable(path, strerror(errno));
    const cgp_status status = read_bytes(file, path, bytes, size);
    fclose(file);
    return status;
}

cgp_status cli_schedule_read(cgp_schedule **out, const char *path) {
    char *bytes = NULL;
    size_t size = 0;
    CGP_TRY(cli_file_read(path, &bytes, &size));
    const cgp_status status = cgp_schedule_from_csv(out, path, bytes, size);
    free(bytes);
    return status;
}

/* --- writing --- */

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

cgp_status cli_schedule_check_outputs(const cli_run_options *s) {
    if (s->csv + s->csv_transfers + is_stdout(s->svg) + is_stdout(s->trace_json) +
            is_stdout(s->json) >
        1)
        return cgp_fail(CGP_EINVAL,
                        "--csv, --csv-transfers, --svg, --trace-json, --json: expected one of "
                        "them on standard output, got more (give a FILE)");
    return CGP_OK;
}

cgp_status cli_text_write(const char *path, char *text) {
    const size_t size = strlen(text);
    cgp_status status = CGP_OK;
    if (!is_stdout(path))
        status = cgp_file_replace(path, text, size);
    else if (fwrite(text, 1, size, stdout) != size)
        status = cgp_fail(CGP_EIO, "standard output: cannot be written (%s)", strerror(errno));
    free(text);
    return status;
}

cgp_status cli_schedule_write(const cli_run_options *s, const cgp_schedule *schedule,
                              const cgp_schedule_timeline *timeline) {
    char *text = NULL;
    if (s->csv || s->csv_transfers) {
        CGP_TRY(
            cgp_schedule_to_csv(schedule, s->csv ? CGP_CSV_COMPUTE : CGP_CSV_TRANSFERS, &text));
        CGP_TRY(cli_text_write("-", text));
    }
    if (s->svg) {
        CGP_TRY(cgp_schedule_svg(schedule, timeline, &text));
        CGP_TRY(cli_text_write(s->svg, text));
    }
    if (s->trace_json) {
        CGP_TRY(cgp_schedule_trace(schedule, timeline, 1000, &text));
        CGP_TRY(cli_text_write(s->trace_json, text));
    }
    return CGP_OK;
}
