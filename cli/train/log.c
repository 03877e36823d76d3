/* SPDX-License-Identifier: Apache-2.0 */
/* log.c -- the line of metrics.jsonl after a step, and the progress line of cgpipe train:
 *
 *     step  120/1200  loss 2.3456  lr 9.88e-4  norm 1.23  12.3k tok/s  1m12s    eta 10m  ..
 *                                                                      elapsed  until the end
 *     ..  bubble 27.5 %  peak 15.34 MiB */
#include "train/train.h"

#include "json_value.h"
#include "machine.h"
#include "ranks.h"
#include "report/output.h"
#include "session/eval_metrics.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define FIELD 96
#define UNKNOWN_WIDTH 80
#define DEFAULT_LINES 20
#define REDRAW_SECONDS 0.1

/* Fields in the order of the line. */
enum { STEP, LOSS, VALIDATION, LR, NORM, SPEED, ELAPSED, ETA, BUBBLE, PEAK, FIELDS };

/* Fields in the order in which they are dropped if the terminal is too narrow; STEP stays. */
static const int dispensable[] = {PEAK, BUBBLE, ELAPSED, NORM, SPEED, LR, ETA, VALIDATION, LOSS};

/* --- metrics.jsonl --- */

cgp_status cli_train_log(training *t, int64_t i, double loss) {
    if (cli_rank() > 0) return CGP_OK;
    CGP_TRY(cli_run_directory_keep_lock(&t->run.directory));
    const cli_session *session = &t->run.session;
    const double *measured = cli_measured_last(session), seconds = measured[CLI_STEP_SECONDS];
    const double units = (double)(t->run.options.batch * t->data.units.per_sample);
    const bool clips = session->optim.clip_norm > 0;
    char key[CLI_NUMBER];
    snprintf(key, sizeof key, "%s_per_second", t->data.units.name);
    json_t *line = json_pack(
        "{s:I, s:o, s:o, s:o*, s:o, s:o, s:o, s:s*}", "step", (json_int_t)i, "loss",
        cli_real_json(loss), "lr", cli_real_json(cgp_optim_lr_at(&session->optim, i)),
        "gradient_norm",
        clips ? cli_real_json(cgp_pipeline_gradient_norm(session->pipeline)) : NULL, "seconds",
        cli_real_json(seconds), key, cli_real_json(units / seconds), "bubble",
        cli_real_json(measured[CLI_BUBBLE]), "digest", *t->digests.root ? t->digests.root : NULL);
    return cli_metrics_log(&t->metrics, line);
}

cgp_status cli_train_log_validation(training *t) {
    json_t *members = json_object();
    cli_eval_metrics_json(members, &t->validation);
    return cli_metrics_add(&t->metrics, members);
}

/* --- the terminal --- */

/* Tell whether a line of `out` can be rewritten: it is a terminal, and TERM is not "dumb". */
static bool rewrites(FILE *out) {
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0 && cli_is_terminal(out);
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

/* Format three digits in at most 7 characters: 0.0123, 9.88e-4 (for 9.88e-04). */
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

/* Format a speed: 0.34, 5,684, 12.3k, 1.23M. */
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

/* Format a duration: 12s, 1m12s, 10m, 1h05m, 3d04h. */
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
    short_duration(seconds, text);
    snprintf(out, FIELD, "  %s%s", name, text);
}

/* The ETA (time to the end) is computed from the mean time of this process's steps. */
static void make_fields(const training *t, int64_t i, double loss, bool last,
                        field fields[FIELDS]) {
    const cli_session *session = &t->run.session;
    const int64_t steps = t->run.options.steps, peak = cli_peak_resident_bytes();
    const double now = cli_seconds(), bubble = cli_measured_last(session)[CLI_BUBBLE];
    const double units = (double)(t->run.options.batch * t->data.units.per_sample);
    const double speed = (double)(i - t->line.shown) * units / t->line.seconds;
    char text[CLI_NUMBER];
    const int digits = snprintf(text, sizeof text, "%" PRId64, steps);
    snprintf(fields[STEP], FIELD, "step %*" PRId64 "/%" PRId64, digits, i, steps);
    snprintf(fields[LOSS], FIELD, "  loss %.4f", loss);
    cli_eval_metrics_text(&t->validation, fields[VALIDATION], FIELD);
    add_real(fields[LR], "lr", cgp_optim_lr_at(&session->optim, i));
    if (session->optim.clip_norm > 0)
        add_real(fields[NORM], "norm", cgp_pipeline_gradient_norm(session->pipeline));
    if (isfinite(speed)) {
        short_speed(speed, text);
        snprintf(fields[SPEED], FIELD, "  %s %s/s", text, t->data.units.short_name);
    }
    add_duration(fields[ELAPSED], "", now - t->started);
    if (!last)
        add_duration(fields[ETA], "eta ",
                     (now - t->line.started) * (double)(steps - i) / (double)(i - t->run.resumed));
    if (!isnan(bubble)) snprintf(fields[BUBBLE], FIELD, "  bubble %.1f %%", 100 * bubble);
    if (peak > 0)
        snprintf(fields[PEAK], FIELD, "  peak %s", cgp_bytes_text(peak, text, sizeof text));
}

/* Drop fields until the line fits `width`. The last column stays free, because a terminal may wrap
 * after it. */
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

static void print_line(training *t, int64_t i, double loss, bool last) {
    FILE *out = t->run.out;
    field fields[FIELDS] = {""};
    make_fields(t, i, loss, last, fields);
    const bool stays = last || *fields[VALIDATION];
    fit(fields, width_of(out));
    if (rewrites(out)) fputs("\r\033[K", out);
    for (int f = 0; f < FIELDS; f++)
        fputs(fields[f], out);
    if (!rewrites(out) || stays) fputc('\n', out);
    cli_output_flush(out);
    t->line.drawn = cli_seconds();
}

/* --- the progress line --- */

void cli_train_progress_begin(training *t) {
    t->line.shown = t->run.resumed;
    t->line.started = cli_seconds();
}

/* On a terminal, also show steps that are not due, but redraw the line at most every
 * REDRAW_SECONDS. */
void cli_train_progress(training *t, int64_t i, double loss) {
    if (t->run.options.quiet) return;
    const cli_session *session = &t->run.session;
    const cli_run_options *options = &t->run.options;
    const int64_t interval =
        options->interval ? options->interval : cli_train_part(options->steps, DEFAULT_LINES);
    const bool last = i == options->steps || t->stopped;
    const bool shown = cli_train_due(i, interval) || last || session->measures.steps == 1 ||
                       t->validation.samples > 0;
    t->line.seconds += cli_measured_last(session)[CLI_STEP_SECONDS];
    if (!shown && (!rewrites(t->run.out) || cli_seconds() - t->line.drawn < REDRAW_SECONDS)) return;
    print_line(t, i, loss, last);
    if (!shown) return;
    t->line.shown = i;
    t->line.seconds = 0;
}

void cli_train_progress_end(const training *t) {
    if (t->run.session.measures.steps > 0 && rewrites(t->run.out)) fputc('\n', t->run.out);
}
