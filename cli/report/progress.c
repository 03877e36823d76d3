/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c -- see progress.h.
 *
 *     step  120/1200  loss 2.3456  lr 9.88e-4  norm 1.23  12.3k tok/s  1m12s  eta 10m  bubble 27.5 %  peak 15.34 MiB
 *                                                                      elapsed  until the end */
#include "report/progress.h"

#include "common.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIELD 96
#define UNKNOWN_WIDTH 80

/* Fields in the order of the line. */
enum { STEP, LOSS, VALIDATION, LR, NORM, SPEED, ELAPSED, ETA, BUBBLE, PEAK, FIELDS };

/* The order in which fields are dropped where a line is too short; STEP stays. */
static const int dispensable[] = {PEAK, BUBBLE, ELAPSED,    NORM, SPEED,
                                  LR,   ETA,    VALIDATION, LOSS};

/* --- the terminal --- */

bool cli_progress_rewrites(FILE *out) {
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0 && isatty(fileno(out)) == 1;
}

static int width_of(FILE *out) {
    struct winsize size = {0};
    int64_t columns = 0;
    const char *text = getenv("COLUMNS");
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    if (text && cli_parse_whole(text, 1, 1 << 20, &columns)) return (int)columns;
    return UNKNOWN_WIDTH;
}

/* --- fields --- */

/* Three digits in at most 7 characters: 0.0123, 9.88e-4 (for 9.88e-04). */
static void short_real(double value, char text[CLI_NUMBER]) {
    snprintf(text, CLI_NUMBER, value != 0 && fabs(value) < 1e-3 ? "%.2e" : "%.3g", value);
    char *exponent = strchr(text, 'e');
    if (!exponent) return;
    char *digits = exponent + 2, *end = digits + strspn(digits, "0");
    memmove(digits, end, strlen(end) + 1);
    char *tail = exponent; /* 1.00e-5 is 1e-5 */
    while (tail[-1] == '0' && memchr(text, '.', (size_t)(exponent - text)))
        tail--;
    if (tail[-1] == '.') tail--;
    memmove(tail, exponent, strlen(exponent) + 1);
}

/* 0.34, 5,684, 12.3k, 1.23M */
static void short_speed(double value, char text[CLI_NUMBER]) {
    if (value < 100)
        snprintf(text, CLI_NUMBER, "%.3g", value);
    else if (value < 9999.5)
        cli_grouped((int64_t)round(value), text);
    else if (value < 999950)
        snprintf(text, CLI_NUMBER, "%.*fk", value < 99950 ? 1 : 0, value / 1e3);
    else
        snprintf(text, CLI_NUMBER, "%.3gM", value / 1e6);
}

/* 12s, 1m12s, 10m, 1h05m, 3d04h */
static void short_duration(double seconds, char text[CLI_NUMBER]) {
    const int64_t s = seconds < 1e12 ? (int64_t)round(seconds) : (int64_t)1e12;
    const int64_t minutes = s / 60, hours = minutes / 60;
    if (s < 60)
        snprintf(text, CLI_NUMBER, "%" PRId64 "s", s);
    else if (minutes < 10)
        snprintf(text, CLI_NUMBER, "%" PRId64 "m%02" PRId64 "s", minutes, s % 60);
    else if (hours < 1)
        snprintf(text, CLI_NUMBER, "%" PRId64 "m", minutes);
    else if (hours < 24)
        snprintf(text, CLI_NUMBER, "%" PRId64 "h%02" PRId64 "m", hours, minutes % 60);
    else
        snprintf(text, CLI_NUMBER, "%" PRId64 "d%02" PRId64 "h", hours / 24, hours % 24);
}

typedef char field[FIELD];

static void add_real(field out, const char *name, double value) {
    char number[CLI_NUMBER];
    if (isnan(value)) return;
    short_real(value, number);
    snprintf(out, FIELD, "  %s %s", name, number);
}

static void add_duration(field out, const char *name, double seconds) {
    char text[CLI_NUMBER];
    if (isnan(seconds)) return;
    short_duration(seconds, text);
    snprintf(out, FIELD, "  %s%s", name, text);
}

static void make_fields(const cli_progress *p, field fields[FIELDS]) {
    char text[CLI_NUMBER];
    const int digits = snprintf(text, sizeof text, "%" PRId64, p->steps);
    snprintf(fields[STEP], FIELD, "step %*" PRId64 "/%" PRId64, digits, p->step, p->steps);
    snprintf(fields[LOSS], FIELD, "  loss %.4f", p->loss);
    snprintf(fields[VALIDATION], FIELD, "%s", p->validation);
    add_real(fields[LR], "lr", p->lr);
    add_real(fields[NORM], "norm", p->norm);
    if (isfinite(p->per_second)) {
        short_speed(p->per_second, text);
        snprintf(fields[SPEED], FIELD, "  %s %s/s", text, p->unit);
    }
    add_duration(fields[ELAPSED], "", p->elapsed);
    add_duration(fields[ETA], "eta ", p->eta);
    if (!isnan(p->bubble)) snprintf(fields[BUBBLE], FIELD, "  bubble %.1f %%", 100 * p->bubble);
    if (p->peak_bytes > 0)
        snprintf(fields[PEAK], FIELD, "  peak %s",
                 cgp_bytes_text(p->peak_bytes, text, sizeof text));
}

/* Use one column less than there are: after the last one a terminal may begin a new line. */
static void fit(field fields[FIELDS], int width) {
    size_t length = 0;
    for (int f = 0; f < FIELDS; f++)
        length += strlen(fields[f]);
    for (size_t i = 0; i < sizeof dispensable / sizeof dispensable[0]; i++) {
        char *text = fields[dispensable[i]];
        if (length < (size_t)width) return;
        length -= strlen(text);
        *text = '\0';
    }
}

void cli_progress_print(FILE *out, const cli_progress *progress, bool stays) {
    const bool rewrites = cli_progress_rewrites(out);
    field fields[FIELDS] = {""};
    make_fields(progress, fields);
    fit(fields, width_of(out));
    if (rewrites) fputs("\r\033[K", out);
    for (int f = 0; f < FIELDS; f++)
        fputs(fields[f], out);
    if (!rewrites || stays) fputc('\n', out);
    fflush(out);
}
