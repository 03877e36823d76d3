/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_compare.c -- cgpipe schedule --compare FILE: print the timeline of a measured step below
 * the planned timeline, and print how the time of the step was spent. FILE was written by
 * --trace. */
#include "commands/commands.h"

#include <cgpipe/compare.h>

#include "errors.h"
#include "files.h"
#include "json_value.h"
#include "report/output.h"
#include "report/report.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1000 }; /* rows of a drawing */

typedef struct compared {
    const cli_run_options *options;
    cgp_schedule *schedule;
    cgp_schedule_timeline measured;
    cgp_schedule_comparison comparison;
} compared;

static cgp_status read_step(compared *c) {
    const char *path = c->options->compare;
    char *bytes = NULL;
    size_t size = 0;
    CGP_TRY(cli_file_read(path, CLI_LARGEST_FILE, &bytes, &size));
    const cgp_status status =
        cgp_schedule_from_trace(&c->schedule, &c->measured, path, bytes, size);
    free(bytes);
    return status;
}

/* Return the fraction of the makespan that `part` takes on device `d`, or on average over all
 * devices if `d` is -1. */
static double fraction(const compared *c, int d, int part) {
    const cgp_schedule_comparison *x = &c->comparison;
    double sum = 0, total = 0;
    for (int i = d < 0 ? 0 : d; i < (d < 0 ? x->devices : d + 1); i++) {
        sum += x->parts[i][part];
        total += c->measured.makespan;
    }
    return total > 0 ? sum / total : 0;
}

/* --- text --- */

static void print_fractions(FILE *out, const compared *c, const char *name, int d) {
    fprintf(out, "%-10s", name);
    for (int part = 0; part < CGP_PARTS; part++)
        fprintf(out, " %10.2f", 100 * fraction(c, d, part));
    fputc('\n', out);
}

static void print_table(FILE *out, const compared *c) {
    fprintf(out, "\nwhere the time went: %% of the makespan, each row 100 in all\n%-10s", "");
    for (int part = 0; part < CGP_PARTS; part++)
        fprintf(out, " %10s", cgp_schedule_part_name((cgp_schedule_part)part));
    fputc('\n', out);
    for (int d = 0; d < c->comparison.devices; d++) {
        char name[32];
        snprintf(name, sizeof name, "device:%d", d);
        print_fractions(out, c, name, d);
    }
    print_fractions(out, c, "all", -1);
    fprintf(out,
            "\ncompute      actions run\n"
            "bubble       idle in a simulation where all stages cost the same\n"
            "imbalance    idle beyond that, as stages cost what they do (medians): --balance\n"
            "variation    idle beyond that, as single actions were slower than their median\n"
            "copy         messages are copied\n"
            "wake-up      a message is there, its receiver not awake yet\n"
            "other        waiting for copies and wake-ups elsewhere; between actions; start\n");
}

static cgp_status print_pictures(FILE *out, const compared *c) {
    const cgp_schedule_timeline *planned = &c->comparison.planned, *measured = &c->measured;
    const double until = fmax(planned->makespan, measured->makespan);
    if (measured->devices > MAX_ROWS) {
        fprintf(out, "%d devices are too many to draw\n", measured->devices);
        return CGP_OK;
    }
    fprintf(out, "planned: %.6g s, simulated with the median time of each stage\n",
            planned->makespan);
    CGP_TRY(cli_print_timeline(out, c->schedule, planned, until));
    fprintf(out, "measured: %.6g s\n", measured->makespan);
    CGP_TRY(cli_print_timeline(out, c->schedule, measured, until));
    fprintf(out, "a column is %.3g ms\n", 1e3 * cli_timeline_column(until));
    return CGP_OK;
}

static cgp_status print(const compared *c) {
    const cli_run_options *options = c->options;
    if (options->svg && strcmp(options->svg, "-") == 0)
        return CGP_OK; /* print no text, because standard output has the SVG */
    FILE *out = cli_info_stream(options);
    fprintf(out, "schedule     %s, %d devices, %d stages, %d micro-batches\n\n",
            cli_shown(cgp_schedule_name(c->schedule)), cgp_schedule_devices(c->schedule),
            cgp_schedule_stages(c->schedule), cgp_schedule_chunks(c->schedule));
    CGP_TRY(print_pictures(out, c));
    print_table(out, c);
    return CGP_OK;
}

/* --- files --- */

static json_t *fractions_json(const compared *c, int d) {
    json_t *o = json_object();
    for (int part = 0; part < CGP_PARTS; part++) {
        char key[32];
        snprintf(key, sizeof key, "%s", cgp_schedule_part_name((cgp_schedule_part)part));
        for (char *letter = key; *letter; letter++)
            *letter = *letter == '-' ? '_' : *letter;
        json_object_set_new(o, key, cli_real_json(fraction(c, d, part)));
    }
    return o;
}

static json_t *to_json(const compared *c) {
    const cgp_schedule_comparison *x = &c->comparison;
    json_t *devices = json_array();
    for (int d = 0; d < x->devices; d++)
        json_array_append_new(devices, fractions_json(c, d));
    return json_pack("{s:o*, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schedule",
                     json_string(cgp_schedule_name(c->schedule)), "devices", x->devices, "stages",
                     cgp_schedule_stages(c->schedule), "chunks", cgp_schedule_chunks(c->schedule),
                     "measured_seconds", cli_real_json(c->measured.makespan), "planned_seconds",
                     cli_real_json(x->planned.makespan), "equal_stages_seconds",
                     cli_real_json(x->equal_makespan), "varied_seconds",
                     cli_real_json(x->varied_makespan), "bubble_measured",
                     cli_real_json(c->measured.bubble_makespan), "bubble_planned",
                     cli_real_json(x->planned.bubble_makespan), "shares", fractions_json(c, -1),
                     "shares_per_device", devices);
}

static cgp_status write_svg(const compared *c) {
    char *text = NULL;
    if (!c->options->svg) return CGP_OK;
    CGP_TRY(cgp_schedule_compare_svg(c->schedule, &c->comparison.planned, &c->measured, &text));
    return cli_text_write(c->options->svg, text);
}

static cgp_status compare(compared *c) {
    CGP_TRY(cli_json_check(c->options));
    CGP_TRY(read_step(c));
    CGP_TRY(cgp_schedule_compare(c->schedule, &c->measured, &c->comparison));
    CGP_TRY(print(c));
    CGP_TRY(write_svg(c));
    return cli_json_write(c->options, to_json(c));
}

int cli_schedule_compare(const cli_run_options *options) {
    compared c = {.options = options};
    const int code = cli_report(compare(&c), false);
    cgp_schedule_comparison_release(&c.comparison);
    cgp_schedule_timeline_release(&c.measured);
    cgp_schedule_destroy(c.schedule);
    return code;
}
