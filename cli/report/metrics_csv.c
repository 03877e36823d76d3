/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_csv.c -- see metrics_csv.h. The file is read twice, first for the keys. A run that writes
 * the file meanwhile only adds lines, so the second reading stops where the first ended. */
#include "report/metrics_csv.h"

#include "errors.h"
#include "json_file.h"
#include "session/run_directory.h"
#include "text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 64, LONGEST_LINE = 1 << 16 };

typedef struct table {
    char *keys[KEYS];
    int n;
    bool full;    /* the file has more keys */
    int64_t last; /* step of the last line */
    int64_t lines, unusable;
    FILE *out; /* NULL: collect the keys */
} table;

static const char *name_of(const char *key) {
    return strcmp(key, "rate") == 0 ? "lr" : key; /* cgpipe 0.1.0 */
}

static int index_of(const table *t, const char *name) {
    int i = 0;
    while (i < t->n && strcmp(t->keys[i], name) != 0)
        i++;
    return i;
}

/* Write a cell. A text with a comma, a quote or a line break is quoted. */
static void put_text(FILE *out, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void put_value(FILE *out, const json_t *value) {
    char number[CLI_NUMBER];
    if (json_is_integer(value))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        cli_real_text(json_real_value(value), number), fputs(number, out);
    else if (json_is_string(value))
        put_text(out, json_string_value(value));
    else if (json_is_null(value))
        fputs("nan", out);
}

static void put_head(const table *t) {
    for (int i = 0; i < t->n; i++) {
        if (i > 0) fputc(',', t->out);
        put_text(t->out, t->keys[i]);
    }
    fputc('\n', t->out);
}

static void put_row(const table *t, const json_t *line) {
    const json_t *cells[KEYS] = {NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)line, key, value) {
        const int i = index_of(t, name_of(key));
        if (i < t->n) cells[i] = value;
    }
    for (int i = 0; i < t->n; i++) {
        if (i > 0) fputc(',', t->out);
        if (cells[i]) put_value(t->out, cells[i]);
    }
    fputc('\n', t->out);
}

static void collect(table *t, const json_t *line) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)line, key, value) {
        if (index_of(t, name_of(key)) < t->n) continue;
        if (t->n == KEYS)
            t->full = true;
        else
            t->keys[t->n++] = cli_text("%s", name_of(key));
    }
}

/* Take a whole line. Steps ascend; a line that breaks this rule is not cgpipe's. */
static bool take_line(table *t, const char *text, size_t length) {
    json_t *line = NULL;
    if (cli_json_parse(CLI_METRICS, text, length, &line) != CGP_OK) return false;
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    const bool good = json_is_object(line) && step > t->last;
    if (good && t->out)
        put_row(t, line);
    else if (good)
        collect(t, line);
    if (good) t->last = step;
    json_decref(line);
    return good;
}

/* Read at most `limit` lines; INT64_MAX: all. A last line without a line end is still being
 * written. */
static void read_lines(table *t, FILE *file, int64_t limit) {
    char *text = cli_calloc(LONGEST_LINE, 1);
    bool inside = false; /* inside of a line that is too long */
    t->lines = t->unusable = t->last = 0;
    while (t->lines < limit && fgets(text, LONGEST_LINE, file)) {
        const size_t length = strlen(text);
        const bool ends = length > 0 && text[length - 1] == '\n', whole = ends && !inside;
        inside = !ends;
        if (!ends) continue;
        t->lines++;
        if (!whole || !take_line(t, text, length)) t->unusable++;
    }
    free(text);
}

static cgp_status write_table(table *t, FILE *file, FILE *out, const char *path) {
    read_lines(t, file, INT64_MAX);
    if (ferror(file)) return cgp_fail(CGP_EIO, "%s: cannot be read", path);
    if (t->full) return cgp_fail(CGP_EFORMAT, "%s: expected at most %d keys", path, KEYS);
    if (t->last == 0) return cgp_fail(CGP_EIO, "%s: has no step yet", path);
    t->out = out;
    put_head(t);
    rewind(file);
    read_lines(t, file, t->lines);
    if (t->unusable == 0) return CGP_OK;
    (void)cgp_fail(CGP_EFORMAT, "%s: %" PRId64 " of %" PRId64 " lines cannot be used (left out)",
                   path, t->unusable, t->lines);
    cli_warn();
    return CGP_OK;
}

cgp_status cli_metrics_csv(FILE *out, const cli_run_directory *directory) {
    table t = {.n = 0};
    int fd = -1;
    CGP_TRY(cli_run_directory_open(directory, CLI_METRICS, O_RDONLY, &fd));
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!file) {
        if (fd >= 0) close(fd);
        return cgp_fail(CGP_EIO, "%s: no such file (the run has no step yet)", directory->metrics);
    }
    const cgp_status status = write_table(&t, file, out, directory->metrics);
    fclose(file);
    for (int i = 0; i < t.n; i++)
        free(t.keys[i]);
    return status;
}
