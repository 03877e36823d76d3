/* SPDX-License-Identifier: Apache-2.0 */
/* layer_table.c -- see layer_table.h. */
#include "session/layer_table.h"

#include "files.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ROWS = 4096,
    MAX_COLUMNS = 32,
    LARGEST_FILE = 1 << 20,
};
#define MODEL_INPUT "-"
#define MAX_SECONDS 1e6
#define MAX_BYTES 1e15

/* The columns of the file. */
typedef enum column {
    NAME,
    INPUTS,
    FORWARD,
    BACKWARD,
    INPUT,
    WEIGHT,
    RECOMPUTE,
    UPDATE,
    PARAMETERS,
    SAVED,
    OUTPUT,
    COLUMNS,
} column;

static const char *const columns[COLUMNS] = {
    [NAME] = "name",
    [INPUTS] = "inputs",
    [FORWARD] = "forward_seconds",
    [BACKWARD] = "backward_seconds",
    [INPUT] = "input_seconds",
    [WEIGHT] = "weight_seconds",
    [RECOMPUTE] = "recompute_seconds",
    [UPDATE] = "update_seconds",
    [PARAMETERS] = "parameter_bytes",
    [SAVED] = "saved_bytes",
    [OUTPUT] = "output_bytes",
};

bool cli_layer_table_is(const char *text) {
    return cli_ends_with(text, ".csv");
}

/* --- rows --- */

cli_layer_row *cli_layer_table_add(cli_layer_table *t, const char *name) {
    if (t->n == t->capacity) {
        const int capacity = t->capacity > 0 ? 2 * t->capacity : 64;
        cli_layer_row *rows = cli_calloc((size_t)capacity, sizeof *rows);
        if (t->n > 0) memcpy(rows, t->rows, (size_t)t->n * sizeof *rows);
        free(t->rows);
        t->rows = rows;
        t->capacity = capacity;
    }
    cli_layer_row *row = &t->rows[t->n++];
    row->name = cli_text("%s", name);
    return row;
}

int cli_layer_table_find(const cli_layer_table *t, const char *name) {
    for (int i = t->n - 1; i >= 0; i--) {
        if (strcmp(t->rows[i].name, name) == 0) return i;
    }
    return -1;
}

void cli_layer_row_read(cli_layer_row *row, int input) {
    int *inputs = cli_calloc((size_t)row->n_inputs + 1, sizeof *inputs);
    if (row->n_inputs > 0) memcpy(inputs, row->inputs, (size_t)row->n_inputs * sizeof *inputs);
    free(row->inputs);
    row->inputs = inputs;
    row->inputs[row->n_inputs++] = input;
}

void cli_layer_row_backward(cli_layer_row *row, double seconds) {
    cgp_layer_cost *c = &row->cost;
    c->weight_seconds = c->parameter_bytes > 0 ? seconds / 2 : 0;
    c->input_seconds = seconds - c->weight_seconds;
}

void cli_layer_table_release(cli_layer_table *t) {
    for (int i = 0; i < t->n; i++) {
        free(t->rows[i].name);
        free(t->rows[i].inputs);
    }
    free(t->rows);
    *t = (cli_layer_table){0};
}

/* --- reading --- */

typedef struct reader {
    const char *path;
    int line;
    cli_layer_table *table;
    int place[COLUMNS]; /* the position of each column; -1: the file does not have it */
    int n;              /* number of columns in the file */
} reader;

static cgp_status wrong(const reader *r, const char *where, const char *expected, const char *got) {
    return cgp_fail(CGP_EFORMAT, "%s: line %d: %s: expected %s, got \"%.40s\"", r->path, r->line,
                    where, expected, got);
}

/* Split a line at its commas, and strip the blanks around the fields. Return the number of
 * fields. */
static int split(char *line, char **fields) {
    int n = 0;
    for (char *at = line; at && n < MAX_COLUMNS; n++) {
        char *comma = strchr(at, ',');
        if (comma) *comma = '\0';
        at += strspn(at, " \t");
        char *end = at + strlen(at);
        while (end > at && strchr(" \t\r", end[-1]))
            *--end = '\0';
        fields[n] = at;
        at = comma ? comma + 1 : NULL;
    }
    return n;
}

static cgp_status read_header(reader *r, char *line) {
    char *fields[MAX_COLUMNS];
    r->n = split(line, fields);
    for (int k = 0; k < COLUMNS; k++)
        r->place[k] = -1;
    for (int i = 0; i < r->n; i++) {
        int k = 0;
        while (k < COLUMNS && strcmp(fields[i], columns[k]) != 0)
            k++;
        if (k == COLUMNS || r->place[k] >= 0)
            return wrong(r, "header", "the name of a column, once", fields[i]);
        r->place[k] = i;
    }
    const bool halves = r->place[INPUT] >= 0 && r->place[WEIGHT] >= 0;
    const bool any = r->place[INPUT] >= 0 || r->place[WEIGHT] >= 0;
    if (r->place[NAME] >= 0 && r->place[FORWARD] >= 0 && r->place[OUTPUT] >= 0 &&
        (r->place[BACKWARD] >= 0 ? !any : halves))
        return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: line %d: expected the columns name, forward_seconds, output_bytes, and "
                    "either backward_seconds or input_seconds and weight_seconds",
                    r->path, r->line);
}

/* Read a number of a row. If the file does not have the column, `value` stays unchanged. */
static cgp_status read_real(const reader *r, char **fields, column k, double max, double *value) {
    char expected[64], *end = NULL;
    if (r->place[k] < 0) return CGP_OK;
    const char *text = fields[r->place[k]];
    const double number = strtod(text, &end);
    if (end != text && !*end && number >= 0 && number <= max) {
        *value = number;
        return CGP_OK;
    }
    snprintf(expected, sizeof expected, "a number from 0 to %g", max);
    return wrong(r, columns[k], expected, text);
}

static cgp_status read_bytes(const reader *r, char **fields, column k, int64_t *value) {
    double number = 0;
    CGP_TRY(read_real(r, fields, k, MAX_BYTES, &number));
    *value = (int64_t)ceil(number);
    return CGP_OK;
}

/* Read the names, separated by blanks, of the rows whose outputs a row reads. If there is no name,
 * the row reads the output of the previous row. */
static cgp_status read_inputs(const reader *r, char **fields, cli_layer_row *row, int self) {
    char *names = r->place[INPUTS] >= 0 ? fields[r->place[INPUTS]] : NULL, *rest = NULL;
    if ((!names || !*names) && self > 0) cli_layer_row_read(row, self - 1);
    if (!names || strcmp(names, MODEL_INPUT) == 0) return CGP_OK;
    for (char *name = strtok_r(names, " \t", &rest); name; name = strtok_r(NULL, " \t", &rest)) {
        const int input = cli_layer_table_find(r->table, name);
        bool again = false;
        for (int k = 0; k < row->n_inputs; k++)
            again = again || row->inputs[k] == input;
        if (input < 0 || input == self || again)
            return wrong(r, columns[INPUTS], "names of earlier rows, each once", name);
        cli_layer_row_read(row, input);
    }
    return CGP_OK;
}

static cgp_status read_times(const reader *r, char **fields, cli_layer_row *row) {
    cgp_layer_cost *c = &row->cost;
    double backward = 0;
    CGP_TRY(read_real(r, fields, FORWARD, MAX_SECONDS, &c->forward_seconds));
    CGP_TRY(read_real(r, fields, INPUT, MAX_SECONDS, &c->input_seconds));
    CGP_TRY(read_real(r, fields, WEIGHT, MAX_SECONDS, &c->weight_seconds));
    CGP_TRY(read_real(r, fields, BACKWARD, MAX_SECONDS, &backward));
    if (r->place[BACKWARD] >= 0) cli_layer_row_backward(row, backward);
    c->recompute_seconds = c->forward_seconds;
    CGP_TRY(read_real(r, fields, RECOMPUTE, MAX_SECONDS, &c->recompute_seconds));
    CGP_TRY(read_real(r, fields, UPDATE, MAX_SECONDS, &c->update_seconds));
    if (c->parameter_bytes > 0 || c->weight_seconds == 0) return CGP_OK;
    return wrong(r, columns[WEIGHT], "0, as the layer has no parameter_bytes",
                 fields[r->place[WEIGHT]]);
}

static cgp_status read_row(reader *r, char *line) {
    char *fields[MAX_COLUMNS];
    if (split(line, fields) != r->n)
        return cgp_fail(CGP_EFORMAT, "%s: line %d: expected %d fields, as in the header", r->path,
                        r->line, r->n);
    const char *name = fields[r->place[NAME]];
    if (!*name || strlen(name) > 80 || strpbrk(name, " \t") ||
        cli_layer_table_find(r->table, name) >= 0)
        return wrong(r, columns[NAME],
                     "1 to 80 bytes without blanks, which are no earlier row's name", name);
    if (r->table->n == MAX_ROWS)
        return cgp_fail(CGP_EFORMAT, "%s: expected at most %d rows", r->path, MAX_ROWS);
    cli_layer_row *row = cli_layer_table_add(r->table, name);
    CGP_TRY(read_bytes(r, fields, PARAMETERS, &row->cost.parameter_bytes));
    CGP_TRY(read_bytes(r, fields, SAVED, &row->cost.saved_bytes));
    CGP_TRY(read_bytes(r, fields, OUTPUT, &row->output_bytes));
    CGP_TRY(read_times(r, fields, row));
    return read_inputs(r, fields, row, r->table->n - 1);
}

static cgp_status read_lines(reader *r, char *text) {
    char *rest = NULL;
    bool header = false;
    for (char *line = text; line; line = rest) {
        rest = strchr(line, '\n');
        if (rest) *rest++ = '\0';
        r->line++;
        if (line[0] == '#' || line[strspn(line, " \t\r")] == '\0') continue;
        CGP_TRY(header ? read_row(r, line) : read_header(r, line));
        header = true;
    }
    if (r->table->n > 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: expected a header and a row for each layer", r->path);
}

cgp_status cli_layer_table_read(cli_layer_table *table, const char *path) {
    char *bytes = NULL;
    size_t size = 0;
    reader r = {.path = path, .table = table};
    *table = (cli_layer_table){0};
    CGP_TRY(cli_file_read(path, LARGEST_FILE, &bytes, &size));
    char *text = cli_calloc(size + 1, 1);
    if (size > 0) memcpy(text, bytes, size);
    free(bytes);
    const cgp_status status =
        memchr(text, '\0', size)
            ? cgp_fail(CGP_EFORMAT, "%s: expected a text, got a zero byte", path)
            : read_lines(&r, text);
    free(text);
    for (int i = 0; i < table->n; i++) {
        cgp_layer_cost *c = &table->rows[i].cost;
        c->flops[0] = 1e12 * c->forward_seconds;
        c->flops[1] = 1e12 * c->input_seconds;
        c->flops[2] = 1e12 * c->weight_seconds;
    }
    return status;
}

/* --- writing --- */

char *cli_layer_table_text(const cli_layer_table *t) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) abort();
    fputs("name,inputs,forward_seconds,input_seconds,weight_seconds,recompute_seconds,"
          "update_seconds,parameter_bytes,saved_bytes,output_bytes\n",
          out);
    for (int i = 0; i < t->n; i++) {
        const cli_layer_row *row = &t->rows[i];
        const cgp_layer_cost *c = &row->cost;
        fprintf(out, "%s,%s", row->name, i > 0 && row->n_inputs == 0 ? MODEL_INPUT : "");
        for (int k = 0; k < row->n_inputs; k++)
            fprintf(out, "%s%s", k > 0 ? " " : "", t->rows[row->inputs[k]].name);
        fprintf(out, ",%.9g,%.9g,%.9g,%.9g,%.9g,%lld,%lld,%lld\n", c->forward_seconds,
                c->input_seconds, c->weight_seconds, c->recompute_seconds, c->update_seconds,
                (long long)c->parameter_bytes, (long long)c->saved_bytes,
                (long long)row->output_bytes);
    }
    fclose(out);
    return text;
}
