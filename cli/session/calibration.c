/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.c -- see calibration.h.
 *
 *     metrics.jsonl of RUN   seconds of each step ──► median ─────────────┐
 *     run.json of RUN        options ──► plan ──► simulate ──► seconds ───┴─► factor
 *
 * The factor scales the layer times but not the times of messages, so no formula gives the factor.
 * Instead the step is simulated with different factors, until it takes as long as the measured
 * step. */
#include "session/calibration.h"

#include "json_file.h"
#include "json_value.h"
#include "options/inherit.h"
#include "options/options.h"
#include "options/parse.h"
#include "options/resolve.h"
#include "session/prediction.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "session/session.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_UP = 2, LONGEST_LINE = 1 << 16, ROUNDS = 20 };

/* --- the measured step --- */

/* The times of the steps since the run was last started or resumed. */
typedef struct measured {
    int64_t start; /* step after which the last start began */
    double *seconds;
    int n, capacity;
} measured;

static int64_t last_start(const json_t *record) {
    const json_t *starts = json_object_get(record, "starts");
    const json_t *start = json_array_get(starts, json_array_size(starts) - 1);
    return json_integer_value(json_object_get(start, "step"));
}

/* Add the seconds in a line of metrics.jsonl. Skip the lines of earlier starts, because these may
 * have had other options. */
static cgp_status take_line(measured *m, const char *path, const char *line, size_t length) {
    json_t *o = NULL;
    CGP_TRY(cli_json_parse(path, line, length, &o));
    const int64_t step = json_integer_value(json_object_get(o, "step"));
    const double seconds = json_number_value(json_object_get(o, "seconds"));
    json_decref(o);
    if (step <= m->start || !(seconds > 0)) return CGP_OK;
    if (m->n == m->capacity) {
        const int capacity = 2 * m->capacity + 64;
        double *larger = realloc(m->seconds, (size_t)capacity * sizeof *larger);
        if (!larger) return cgp_fail(CGP_ENOMEM, "%s: out of memory", path);
        m->seconds = larger;
        m->capacity = capacity;
    }
    m->seconds[m->n++] = seconds;
    return CGP_OK;
}

/* Read whole lines. Skip a last line without a line end: it is still being written. */
static cgp_status read_lines(measured *m, const char *path, FILE *file) {
    char *line = cli_calloc(LONGEST_LINE, 1);
    cgp_status status = CGP_OK;
    while (status == CGP_OK && fgets(line, LONGEST_LINE, file)) {
        const size_t length = strlen(line);
        if (line[length - 1] == '\n')
            status = take_line(m, path, line, length);
        else if (length == LONGEST_LINE - 1)
            status = cgp_fail(CGP_EFORMAT, "%s: expected lines of at most %d bytes", path,
                              LONGEST_LINE - 2);
    }
    if (status == CGP_OK && ferror(file))
        status = cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
    free(line);
    return status;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static cgp_status find_median(cli_calibration *c, measured *m, const char *path) {
    const int skipped = m->n > WARM_UP ? WARM_UP : 0;
    c->steps = m->n - skipped;
    if (m->n == 0)
        return cgp_fail(CGP_EFORMAT, "%s: expected the seconds of steps after step %" PRId64, path,
                        m->start);
    qsort(m->seconds + skipped, (size_t)c->steps, sizeof *m->seconds, ascending);
    c->measured_seconds = m->seconds[skipped + c->steps / 2];
    return CGP_OK;
}

static cgp_status measure(cli_calibration *c, const cli_run_directory *directory,
                          const json_t *record) {
    measured m = {.start = last_start(record)};
    int fd = -1;
    CGP_TRY(cli_run_directory_open(directory, CLI_METRICS, O_RDONLY, &fd));
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file) {
        if (fd >= 0) close(fd);
        return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", directory->metrics,
                        fd < 0 ? "no such file" : strerror(errno));
    }
    cgp_status status = read_lines(&m, directory->metrics, file);
    fclose(file);
    if (status == CGP_OK) status = find_median(c, &m, directory->metrics);
    free(m.seconds);
    return status;
}

/* --- the simulated step --- */

static cgp_status simulate(const cli_prediction *prediction, const cli_session *session,
                           double *seconds) {
    cgp_schedule_timeline timeline = {0};
    double update = 0;
    CGP_TRY(cli_prediction_simulate(prediction, session->plan, &timeline, &update));
    *seconds = timeline.makespan + update;
    cgp_schedule_timeline_release(&timeline);
    return CGP_OK;
}

/* Scale the layer times until the simulated step takes as long as the measured one. */
static cgp_status find_factor(cli_calibration *c, cli_prediction *prediction,
                              const cli_session *session, const char *run) {
    double seconds = 0;
    CGP_TRY(simulate(prediction, session, &seconds));
    c->simulated_seconds = seconds;
    c->factor = 1;
    for (int k = 0; k < ROUNDS && fabs(seconds / c->measured_seconds - 1) > 1e-6; k++) {
        const double factor = c->measured_seconds / seconds;
        cli_costs_scale(&prediction->costs, factor);
        c->factor *= factor;
        CGP_TRY(simulate(prediction, session, &seconds));
    }
    if (fabs(seconds / c->measured_seconds - 1) <= 1e-2) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--calibrate %s: its step took %.4g s, less than the messages of --cluster "
                    "alone, so no layer times give it",
                    run, c->measured_seconds);
}

static cgp_status compare(cli_calibration *c, cli_run_options *options) {
    cli_session session = {0};
    cli_model model;
    cli_prediction prediction = {0};
    cgp_status status = cli_model_find(&model, options, "plan gpt2");
    if (status == CGP_OK) status = cli_session_plan(&session, options, &model);
    if (status == CGP_OK) status = cli_prediction_read(&prediction, &session);
    if (status == CGP_OK) status = find_factor(c, &prediction, &session, options->run);
    cli_prediction_release(&prediction);
    cli_session_release(&session);
    return status;
}

/* Set *own to the options of the calibrated run, except the options that describe costs. Those are
 * taken from this command. */
static cgp_status take_options(cli_run_options *own, const cli_run_options *options,
                               const cli_run_directory *directory, const json_t *record) {
    *own = (cli_run_options){.command = options->command};
    CGP_TRY(cli_run_options_preset(own));
    if (cli_run_options_inherit(own, json_object_get(record, "options")) != CGP_OK)
        return cgp_fail(CGP_EFORMAT, "%s: %s", directory->record, cgp_message());
    own->operand = cli_record_path(record);
    own->operand_source = directory->record;
    own->plugin = options->plugin;
    own->run = options->calibrate;
    own->costs = options->costs;
    own->cluster = options->cluster;
    own->tflops = options->tflops;
    own->efficiency = options->efficiency;
    own->memory_bandwidth = options->memory_bandwidth;
    own->given[CLI_OPTION_TFLOPS] = options->given[CLI_OPTION_TFLOPS];
    if (own->replicas > 1)
        return cgp_fail(CGP_EINVAL, "%s: replicas: expected a run with 1, got %lld",
                        directory->record, (long long)own->replicas);
    return cli_run_options_resolve(own);
}

cgp_status cli_calibration_find(cli_calibration *c, cli_run_options *options) {
    cli_run_directory directory;
    cli_run_options own = {0};
    json_t *record = NULL;
    *c = (cli_calibration){0};
    if (!options->calibrate) return CGP_OK;
    cli_run_directory_name(&directory, options->calibrate);
    cgp_status status = cli_record_read(&directory, &record);
    if (status == CGP_OK) status = measure(c, &directory, record);
    if (status == CGP_OK) status = take_options(&own, options, &directory, record);
    if (status == CGP_OK) status = compare(c, &own);
    if (status == CGP_OK) options->time_factor = c->factor;
    cli_run_options_release(&own);
    json_decref(record);
    cli_run_directory_close(&directory);
    return status;
}

void cli_calibration_report(FILE *out, json_t *o, const cli_calibration *c,
                            const cli_run_options *options) {
    if (c->steps == 0) return;
    fprintf(out,
            "calibrated by %s: a step took %.4f s (median of %" PRId64 "), %.4f s simulated; layer "
            "times are multiplied by %.3f\n",
            cli_shown(options->calibrate), c->measured_seconds, c->steps, c->simulated_seconds,
            c->factor);
    json_object_set_new(o, "calibration",
                        json_pack("{s:s, s:I, s:o, s:o, s:o}", "run", options->calibrate, "steps",
                                  (json_int_t)c->steps, "measured_seconds",
                                  cli_real_json(c->measured_seconds), "simulated_seconds",
                                  cli_real_json(c->simulated_seconds), "factor",
                                  cli_real_json(c->factor)));
}
