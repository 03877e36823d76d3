/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_all.c -- cgpipe schedule --all: simulate every schedule with equal stages, and compare
 * bubbles and memory. For each micro-batch, a device spends time 1 on each of F, I and W. */
#include "commands/commands.h"

#include <cgpipe/schedule.h>

#include "errors.h"
#include "json_value.h"
#include "options/table.h"
#include "report/output.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* For more devices than this, print only the largest peak of all devices. */
enum { MOST_PEAKS = 8 };

/* A schedule with `virtual_stages` stages on each device. */
typedef struct row {
    const cgp_schedule_info *info;
    int virtual_stages;
    cgp_schedule *schedule;
    cgp_schedule_report report;
    cgp_schedule_timeline timeline;
    int peak; /* micro-batches in flight on the device that has the most, summed over its stages */
    double
        memory; /* (peak / virtual_stages) relative to the same ratio of 1f1b; NaN: no backward */
} row;

static void release(row *r) {
    cgp_schedule_timeline_release(&r->timeline);
    cgp_schedule_report_release(&r->report);
    cgp_schedule_destroy(r->schedule);
}

static cgp_status make(row *r, int devices, int chunks) {
    cgp_schedule_options options = cgp_schedule_options_default();
    options.virtual_stages = r->virtual_stages;
    CGP_TRY(cgp_schedule_create(&r->schedule, r->info->name, devices, chunks, &options));
    CGP_TRY(cgp_schedule_lower_chain(r->schedule));
    CGP_TRY(cgp_schedule_check(r->schedule, &r->report));
    CGP_TRY(cgp_schedule_simulate(r->schedule, NULL, &r->timeline));
    for (int d = 0; d < r->report.devices; d++)
        r->peak = r->report.peak_slots[d] > r->peak ? r->report.peak_slots[d] : r->peak;
    const int of_1f1b = chunks < devices ? chunks : devices;
    r->memory = r->info->has_backward ? (double)r->peak / r->virtual_stages / of_1f1b : NAN;
    return CGP_OK;
}

/* Order rows by step time and then by memory, smallest first. Schedules without backward come
 * last. */
static int compare(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (x->info->has_backward != y->info->has_backward) return x->info->has_backward ? -1 : 1;
    if (fabs(x->timeline.makespan - y->timeline.makespan) > 1e-9 * y->timeline.makespan)
        return x->timeline.makespan < y->timeline.makespan ? -1 : 1;
    return (x->memory > y->memory) - (x->memory < y->memory);
}

/* --- output --- */

static void print_peaks(FILE *out, const row *r) {
    if (r->report.devices > MOST_PEAKS) {
        fprintf(out, "at most %d", r->peak);
        return;
    }
    for (int d = 0; d < r->report.devices; d++)
        fprintf(out, "%s%d", d ? " " : "", r->report.peak_slots[d]);
}

static void print_row(FILE *out, const row *r) {
    char memory[CLI_NUMBER] = "-";
    if (!isnan(r->memory)) snprintf(memory, sizeof memory, "%.3g", r->memory);
    fprintf(out, "%-15s  %7d  %9.4g  %6.2f %%  %6s  ", r->info->name, r->virtual_stages,
            r->timeline.makespan, 100 * r->timeline.bubble_makespan, memory);
    print_peaks(out, r);
    fputc('\n', out);
}

static json_t *row_json(const row *r) {
    json_t *o = json_pack("{s:s, s:i, s:o, s:o}", "schedule", r->info->name, "virtual",
                          r->virtual_stages, "makespan", cli_real_json(r->timeline.makespan),
                          "bubble_makespan", cli_real_json(r->timeline.bubble_makespan));
    cli_json_add(o, "{s:o, s:o}", "memory_of_1f1b", cli_real_json(r->memory),
                 "peak_slots_per_device",
                 cli_integers_json(r->report.peak_slots, r->report.devices));
    return o;
}

static cgp_status report(const cli_run_options *options, row *rows, int n, const char *missing) {
    FILE *out = cli_info_stream(options);
    json_t *list = json_array();
    qsort(rows, (size_t)n, sizeof *rows, compare);
    fprintf(out,
            "%" PRId64 " devices, %" PRId64 " micro-batches; F, I and W of a device take 1 each\n\n"
            "%-15s  %7s  %9s  %8s  %6s  peak of each device\n",
            options->stages, options->chunks, "schedule", "virtual", "makespan", "bubble",
            "memory");
    for (int k = 0; k < n; k++) {
        print_row(out, &rows[k]);
        json_array_append_new(list, row_json(&rows[k]));
    }
    fprintf(out, "\npeak    micro-batches in flight, summed over the stages of a device\n"
                 "memory  the largest peak / virtual, as a part of 1f1b's\n");
    if (*missing) fprintf(out, "not for these numbers:%s\n", missing);
    return cli_json_write(options,
                          json_pack("{s:I, s:I, s:o}", "stages", (json_int_t)options->stages,
                                    "chunks", (json_int_t)options->chunks, "schedules", list));
}

/* --- the command --- */

/* Refuse options that do not apply to every schedule. */
static cgp_status check(const cli_run_options *options) {
    if (options->operand)
        return cgp_fail(CGP_EINVAL, "--all: expected no NAME, got %s (leave out one)",
                        options->operand);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const bool fits = id == CLI_OPTION_ALL || id == CLI_OPTION_STAGES ||
                          id == CLI_OPTION_CHUNKS || id == CLI_OPTION_VIRTUAL ||
                          id == CLI_OPTION_JSON;
        if (options->given[id] && !fits)
            return cgp_fail(CGP_EINVAL, "--%s: cannot be with --all (leave out one)",
                            cli_options[id].name);
    }
    return cli_json_check(options);
}

/* Make the rows of a schedule: one for each number of stages per device. If the schedule takes any
 * number, the number is doubled from row to row, up to 4. */
static cgp_status add(const cli_run_options *options, const cgp_schedule_info *info, row *rows,
                      int *n) {
    const int given = (int)options->virtual_stages;
    const int first = given ? given : info->virtual_stages;
    const int last = given ? given : info->any_virtual ? 4 : info->virtual_stages;
    if (given && !info->any_virtual && given != info->virtual_stages) return CGP_OK;
    for (int v = first; v <= last; v *= 2) {
        row *r = &rows[*n];
        *r = (row){.info = info, .virtual_stages = v};
        const cgp_status status = make(r, (int)options->stages, (int)options->chunks);
        if (status == CGP_OK) ++*n;
        if (status != CGP_OK) release(r);
        if (status != CGP_OK && status != CGP_EINVAL) return status;
    }
    return CGP_OK;
}

/* Return `text` with a name appended. Frees `text`. */
static char *append(char *text, const char *name) {
    char *longer = cli_text("%s %s", text, name);
    free(text);
    return longer;
}

static cgp_status all(const cli_run_options *options) {
    const cgp_schedule_info *info;
    int n = 0, count = 0;
    CGP_TRY(check(options));
    while (cgp_schedule_info_at(count))
        count++;
    row *rows = cli_calloc(3 * (size_t)count, sizeof *rows);
    char *missing = cli_text("%s", "");
    cgp_status status = CGP_OK;
    for (int i = 0; status == CGP_OK && (info = cgp_schedule_info_at(i)); i++) {
        const int before = n;
        status = add(options, info, rows, &n);
        if (n == before) missing = append(missing, info->name);
    }
    if (status == CGP_OK && n == 0)
        status =
            cgp_fail(CGP_EINVAL,
                     "--virtual %" PRId64 ": no schedule has so many stages on each of %" PRId64
                     " devices with %" PRId64 " micro-batches",
                     options->virtual_stages, options->stages, options->chunks);
    if (status == CGP_OK) status = report(options, rows, n, missing);
    for (int k = 0; k < n; k++)
        release(&rows[k]);
    free(missing);
    free(rows);
    return status;
}

int cli_schedule_all(const cli_run_options *options) {
    return cli_report(all(options), true);
}
