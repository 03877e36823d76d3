/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c -- cgpipe schedule: check, simulate and draw a schedule without a model.
 *
 * The stages form a chain: each sends activations to the next stage and gradients to the previous
 * one. Messages between stages of one device take no time. */
#include "commands/commands.h"

#include "errors.h"
#include "files.h"
#include "json_value.h"
#include "options/schedule_file.h"
#include "report/output.h"
#include "report/report.h"
#include "session/cluster.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of rows in a drawing; number of kinds of cost that have an option. */
enum { MAX_ROWS = 1000, COSTS = 3 };
static const char kinds[] = "FBIWR", costs[] = "FIW";

typedef struct drawing {
    const cli_run_options *options;
    cgp_schedule *schedule;
    const cgp_edge *edges; /* the edges between stages of the schedule */
    int n_edges;
    double *costs[COSTS], *latency, *transfer;
    cli_cluster cluster; /* the file of --cluster */
    cgp_schedule_report report;
    cgp_schedule_timeline timeline;
} drawing;

static double *repeat(double value, int count) {
    double *values = cli_calloc((size_t)count, sizeof *values);
    for (int i = 0; i < count; i++)
        values[i] = value;
    return values;
}

/* --- schedule --- */

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

/* Refuse options that would write more than one output (CSV, SVG, JSON) to standard output. */
static cgp_status check_outputs(const cli_run_options *options) {
    if (options->csv + options->csv_transfers + is_stdout(options->svg) +
            is_stdout(options->trace_json) + is_stdout(options->json) >
        1)
        return cgp_fail(CGP_EINVAL,
                        "--csv, --csv-transfers, --svg, --trace-json, --json: expected one of "
                        "them on standard output, got more (give a FILE)");
    return CGP_OK;
}

static cgp_status check_options(const cli_run_options *options) {
    if (!options->operand && !options->check)
        return cgp_fail(CGP_EINVAL, "schedule: NAME is missing (cgpipe schedule --list)");
    if (!options->check) return CGP_OK;
    if (options->operand)
        return cgp_fail(CGP_EINVAL, "--check: expected no NAME beside the file, got %s",
                        options->operand);
    if (options->given[CLI_OPTION_STAGES] || options->given[CLI_OPTION_CHUNKS] ||
        options->given[CLI_OPTION_VIRTUAL] || options->given[CLI_OPTION_GROUP] ||
        options->given[CLI_OPTION_IN_FLIGHT])
        return cgp_fail(CGP_EINVAL, "--check: the file determines --stages, --chunks, --virtual, "
                                    "--group and --in-flight (leave them out)");
    return CGP_OK;
}

/* Set the costs of F, I and W for a number of stages. A cost is NULL if its option is not given:
 * the library then assumes a cost of 1 per device, and divides it among the device's stages. */
static void take_costs(drawing *d, int stages) {
    static const cli_option_id ids[COSTS] = {CLI_OPTION_COST_F, CLI_OPTION_COST_I,
                                             CLI_OPTION_COST_W};
    const double values[COSTS] = {d->options->cost_f, d->options->cost_i, d->options->cost_w};
    for (int k = 0; k < COSTS; k++) {
        free(d->costs[k]);
        d->costs[k] = d->options->given[ids[k]] ? repeat(values[k], stages) : NULL;
    }
}

/* Set the latency and the transfer time of a message from one device to another. */
static cgp_status message_times(const drawing *d, int from, int to, double *latency,
                                double *transfer) {
    const cli_run_options *options = d->options;
    cli_message_cost cost = {0};
    *latency = from == to ? 0.0 : options->latency;
    *transfer = from == to ? 0.0 : options->transfer;
    if (!options->cluster || from == to) return CGP_OK;
    CGP_TRY(cli_cluster_message(&d->cluster, from, to, &cost));
    *latency = cost.latency_seconds;
    *transfer = (double)options->message_bytes / cost.bytes_per_second;
    return CGP_OK;
}

/* Return the longest time that a message takes from one device to the next. */
static cgp_status longest_message(const drawing *d, int devices, double *seconds) {
    if (d->options->cluster) CGP_TRY(cli_cluster_expect(&d->cluster, devices));
    for (int i = 0; i + 1 < devices; i++) {
        double latency = 0, transfer = 0;
        CGP_TRY(message_times(d, i, i + 1, &latency, &transfer));
        if (latency + transfer > *seconds) *seconds = latency + transfer;
    }
    return CGP_OK;
}

/* Generate the schedule. Heuristic schedules use the costs of the simulation. */
static cgp_status generate(drawing *d) {
    const cli_run_options *run_options = d->options;
    const cgp_schedule_info *info = cgp_schedule_info_find(run_options->operand);
    cgp_schedule_options options = cgp_schedule_options_default();
    options.virtual_stages = (int)run_options->virtual_stages;
    options.group = (int)run_options->group;
    options.in_flight = (int)run_options->in_flight;
    if (info && !info->any_virtual && info->virtual_stages == 1 && run_options->stages < 1 << 24) {
        take_costs(d, (int)run_options->stages);
        options.forward = d->costs[0];
        options.backward_input = d->costs[1];
        options.backward_weight = d->costs[2];
        CGP_TRY(longest_message(d, (int)run_options->stages, &options.latency));
    }
    return cgp_schedule_create(&d->schedule, run_options->operand, (int)run_options->stages,
                               (int)run_options->chunks, &options);
}

static cgp_status make(drawing *d) {
    const cli_run_options *options = d->options;
    cgp_recompute recompute = CGP_RECOMPUTE_NEVER;
    CGP_TRY(cgp_recompute_parse(&recompute, options->recompute));
    if (options->cluster) CGP_TRY(cli_cluster_read(&d->cluster, options->cluster));
    CGP_TRY(options->check ? cli_schedule_read(&d->schedule, options->check) : generate(d));
    cgp_schedule_edges(d->schedule, &d->n_edges);
    const bool lowered = d->n_edges > 0;
    if (lowered && recompute != CGP_RECOMPUTE_NEVER)
        return cgp_fail(CGP_EINVAL,
                        "--recompute: expected a file without transfers, got one with them");
    if (recompute != CGP_RECOMPUTE_NEVER) CGP_TRY(cgp_schedule_recompute(d->schedule, recompute));
    if (!lowered) CGP_TRY(cgp_schedule_lower_chain(d->schedule));
    d->edges = cgp_schedule_edges(d->schedule, &d->n_edges);
    return CGP_OK;
}

/* --- checking and simulating --- */

/* Check the schedule. If it is wrong, draw the actions around the error, and keep the message of
 * the check. */
static cgp_status check(drawing *d) {
    const cgp_status status = cgp_schedule_check(d->schedule, &d->report);
    char *grid = status == CGP_EINVAL ? cgp_schedule_draw_diagnostic(d->schedule) : NULL;
    if (!grid) return status;
    int device = 0;
    for (char *line = strtok(grid, "\n"); line; line = strtok(NULL, "\n"))
        fprintf(cli_info_stream(d->options), "device:%-3d %s\n", device++, line);
    cli_output_flush(cli_info_stream(d->options));
    free(grid);
    return status;
}

static cgp_status simulate(drawing *d) {
    const cli_run_options *options = d->options;
    take_costs(d, cgp_schedule_stages(d->schedule));
    d->latency = repeat(0, d->n_edges);
    d->transfer = repeat(0, d->n_edges);
    if (options->cluster)
        CGP_TRY(cli_cluster_expect(&d->cluster, cgp_schedule_devices(d->schedule)));
    for (int e = 0; e < d->n_edges; e++)
        CGP_TRY(message_times(d, cgp_schedule_device_of(d->schedule, d->edges[e].from),
                              cgp_schedule_device_of(d->schedule, d->edges[e].to), &d->latency[e],
                              &d->transfer[e]));
    const cgp_schedule_costs all = {.forward = d->costs[0],
                                    .backward_input = d->costs[1],
                                    .backward_weight = d->costs[2],
                                    .latency = d->latency,
                                    .transfer = d->transfer,
                                    .transfers_block = options->blocking};
    CGP_TRY(check(d));
    return cgp_schedule_simulate(d->schedule, &all, &d->timeline);
}

/* --- output --- */

/* Return the largest number of stages on a device. */
static int max_stages(const cgp_schedule *schedule) {
    int max = 0;
    int *counts = cli_calloc((size_t)cgp_schedule_devices(schedule), sizeof *counts);
    for (int j = 0; j < cgp_schedule_stages(schedule); j++) {
        const int count = ++counts[cgp_schedule_device_of(schedule, j)];
        max = count > max ? count : max;
    }
    free(counts);
    return max;
}

/* Return the part of the critical path that is not compute time. */
static double message_time(const cgp_schedule_timeline *t) {
    double rest = t->makespan;
    for (int k = 0; k <= CGP_ACTION_R; k++)
        rest -= t->critical_path[k];
    return rest > 1e-9 * t->makespan ? rest : 0.0;
}

static void print_critical_path(FILE *out, const cgp_schedule_timeline *t) {
    fprintf(out, "critical     ");
    for (int k = 0; k <= CGP_ACTION_R; k++) {
        if (t->critical_path[k] > 0.0) fprintf(out, "%c %g, ", kinds[k], t->critical_path[k]);
    }
    fprintf(out, "messages %g\n", message_time(t));
}

/* Print the costs of a stage, "F 0.5, I 0.5, W 0.5", or "F 1/v" if devices have different numbers
 * of stages v. */
static void print_costs(const drawing *d, FILE *out) {
    const int devices = cgp_schedule_devices(d->schedule), v = max_stages(d->schedule);
    const bool equal = devices * (int64_t)v == cgp_schedule_stages(d->schedule);
    for (int k = 0; k < COSTS; k++) {
        if (!d->costs[k] && !equal)
            fprintf(out, "%c 1/v, ", costs[k]);
        else
            fprintf(out, "%c %g, ", costs[k], d->costs[k] ? d->costs[k][0] : 1.0 / v);
    }
}

static void print_figures(const drawing *d, FILE *out) {
    const cli_run_options *options = d->options;
    const cgp_schedule_timeline *t = &d->timeline;
    fprintf(out, "\ncosts        ");
    print_costs(d, out);
    if (options->cluster)
        fprintf(out, "messages of %" PRId64 " bytes by %s%s\n", options->message_bytes,
                cli_shown(options->cluster), options->blocking ? " (blocking)" : "");
    else
        fprintf(out, "message %g + %g%s\n", options->latency, options->transfer,
                options->blocking ? " (blocking)" : "");
    fprintf(out, "makespan     %g, bubble %.2f %%\n", t->makespan, 100 * t->bubble_makespan);
    fprintf(out, "span         %g, bubble %.2f %%\n", t->span, 100 * t->bubble_span);
    print_critical_path(out, t);
    fprintf(out, "busy         ");
    for (int i = 0; i < t->devices; i++)
        fprintf(out, "%s%.1f %%", i ? ", " : "", 100 * t->busy[i]);
    fprintf(out, "\npeak slots  ");
    for (int i = 0; i < d->report.devices; i++)
        fprintf(out, " %d", d->report.peak_slots[i]);
    fprintf(out, "\nbuffers      edge: minimum (no deadlock), free (no sender waits)\n");
    for (int i = 0; i < d->n_edges; i++)
        fprintf(out, "             %d->%d: %d, %d\n", d->edges[i].from, d->edges[i].to,
                d->report.min_capacity[i], t->free_capacity[i]);
}

static cgp_status print(const drawing *d) {
    const cli_run_options *options = d->options;
    if (options->csv || options->csv_transfers || is_stdout(options->svg) ||
        is_stdout(options->trace_json))
        return CGP_OK; /* print no text, because standard output has the CSV, SVG or JSON */
    FILE *out = cli_info_stream(options);
    if (cgp_schedule_devices(d->schedule) <= MAX_ROWS)
        CGP_TRY(cli_print_picture(out, d->schedule, "device"));
    else
        fprintf(out, "%d devices are too many to draw\n", cgp_schedule_devices(d->schedule));
    print_figures(d, out);
    return CGP_OK;
}

static json_t *critical_json(const cgp_schedule_timeline *t) {
    json_t *path = json_object();
    for (int k = 0; k <= CGP_ACTION_R; k++)
        json_object_set_new(path, (const char[]){kinds[k], 0}, cli_real_json(t->critical_path[k]));
    json_object_set_new(path, "messages", cli_real_json(message_time(t)));
    return path;
}

static json_t *to_json(const drawing *d) {
    const cgp_schedule_timeline *t = &d->timeline;
    json_t *edges = json_array(), *busy = json_array();
    json_t *o = json_pack(
        "{so* si si si ss}", "schedule", json_string(cgp_schedule_name(d->schedule)), "stages",
        cgp_schedule_devices(d->schedule), "chunks", cgp_schedule_chunks(d->schedule), "virtual",
        max_stages(d->schedule), "recompute", d->options->recompute);
    cli_json_add(o, "{s:o, s:o, s:o, s:o, s:o}", "makespan", cli_real_json(t->makespan), "span",
                 cli_real_json(t->span), "bubble_makespan", cli_real_json(t->bubble_makespan),
                 "bubble_span", cli_real_json(t->bubble_span), "critical_path", critical_json(t));
    for (int i = 0; i < t->devices; i++)
        json_array_append_new(busy, cli_real_json(t->busy[i]));
    for (int i = 0; i < d->n_edges; i++)
        json_array_append_new(edges, json_pack("[i i]", d->edges[i].from, d->edges[i].to));
    cli_json_add(o, "{s:o, s:o, s:o, s:o, s:o}", "busy", busy, "peak_slots_per_device",
                 cli_integers_json(d->report.peak_slots, d->report.devices), "edges", edges,
                 "min_capacity", cli_integers_json(d->report.min_capacity, d->n_edges),
                 "free_capacity", cli_integers_json(t->free_capacity, d->n_edges));
    return o;
}

static cgp_status write_files(const drawing *d) {
    const cli_run_options *options = d->options;
    char *text = NULL;
    if (options->csv || options->csv_transfers) {
        CGP_TRY(cgp_schedule_to_csv(d->schedule, options->csv ? CGP_CSV_COMPUTE : CGP_CSV_TRANSFERS,
                                    &text));
        CGP_TRY(cli_text_write("-", text));
    }
    if (options->svg) {
        CGP_TRY(cgp_schedule_svg(d->schedule, &d->timeline, &text));
        CGP_TRY(cli_text_write(options->svg, text));
    }
    if (options->trace_json) {
        CGP_TRY(cgp_schedule_trace(d->schedule, &d->timeline, 1000, &text));
        CGP_TRY(cli_text_write(options->trace_json, text));
    }
    return CGP_OK;
}

static cgp_status report(drawing *d) {
    CGP_TRY(cli_json_check(d->options));
    CGP_TRY(print(d));
    CGP_TRY(write_files(d));
    return cli_json_write(d->options, to_json(d));
}

/* --- --list --- */

/* Return the number of micro-batches in flight on the device that has the most, divided by the same
 * number for 1f1b. NaN: this schedule has no backward, or does not exist for these numbers of
 * devices and micro-batches. */
static double memory_of(const cgp_schedule_info *info, const cli_run_options *run_options) {
    const int n = (int)run_options->stages, chunks = (int)run_options->chunks;
    cgp_schedule *schedule = NULL;
    cgp_schedule_report report = {0};
    int peak = 0;
    if (!info->has_backward ||
        cgp_schedule_create(&schedule, info->name, n, chunks, NULL) != CGP_OK)
        return NAN;
    cgp_status status = cgp_schedule_lower_chain(schedule);
    if (status == CGP_OK) status = cgp_schedule_check(schedule, &report);
    for (int d = 0; d < report.devices; d++)
        peak = report.peak_slots[d] > peak ? report.peak_slots[d] : peak;
    const double memory = (double)peak / max_stages(schedule) / (chunks < n ? chunks : n);
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(schedule);
    return status == CGP_OK ? memory : NAN;
}

static json_t *info_json(const cgp_schedule_info *info, double memory) {
    json_t *o = json_pack("{ss ss ss si sb sb}", "schedule", info->name, "when", info->when, "rule",
                          info->rule, "virtual", info->virtual_stages, "any_virtual",
                          info->any_virtual, "splits_backward", info->splits_backward);
    cli_json_add(o, "{s:o}", "memory_of_1f1b", cli_real_json(memory));
    return o;
}

/* List the schedules. For each, print its memory on --stages devices, relative to the memory of
 * 1f1b. */
static cgp_status list_schedules(const cli_run_options *run_options) {
    const cgp_schedule_info *info;
    FILE *out = cli_info_stream(run_options);
    CGP_TRY(cli_json_check(run_options));
    json_t *list = json_array();
    fprintf(out,
            "                memory  (1f1b's on %" PRId64 " devices with %" PRId64
            " micro-batches: 1)\n",
            (int64_t)run_options->stages, (int64_t)run_options->chunks);
    for (int i = 0; (info = cgp_schedule_info_at(i)); i++) {
        const double memory = memory_of(info, run_options);
        char text[16] = "-";
        if (!isnan(memory)) snprintf(text, sizeof text, "%.3g", memory);
        fprintf(out, "%-15s %6s  %s\n", info->name, text, info->when);
        json_array_append_new(list, info_json(info, memory));
    }
    return cli_json_write(run_options,
                          json_pack("{si si so}", "stages", (int)run_options->stages, "chunks",
                                    (int)run_options->chunks, "schedules", list));
}

int cli_schedule(const cli_run_options *run_options) {
    drawing d = {.options = run_options};
    if (run_options->list) return cli_report(list_schedules(run_options), false);
    if (run_options->all) return cli_schedule_all(run_options);
    /* Without --check, a wrong schedule is an error of the command line. */
    const bool spec = !run_options->check;
    int code = cli_report(check_outputs(run_options), true);
    if (code == CLI_OK && run_options->compare) return cli_schedule_compare(run_options);
    if (code == CLI_OK) code = cli_report(check_options(run_options), true);
    if (code == CLI_OK) code = cli_report(make(&d), spec);
    if (code == CLI_OK) code = cli_report(simulate(&d), spec);
    if (code == CLI_OK) code = cli_report(report(&d), false);
    cgp_schedule_timeline_release(&d.timeline);
    cgp_schedule_report_release(&d.report);
    cgp_schedule_destroy(d.schedule);
    cli_cluster_release(&d.cluster);
    free(d.transfer);
    free(d.latency);
    for (int k = 0; k < COSTS; k++)
        free(d.costs[k]);
    return code;
}
