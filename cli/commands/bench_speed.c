/* SPDX-License-Identifier: Apache-2.0 */
/* bench_speed.c -- cgpipe bench resnet101-speed, amoebanetd-speed and unet-speed: a published table of speed-ups, simulated on a
 * core for each device from layer costs measured on one; and measured at a small batch where this machine has the cores. */
#include "commands/bench.h"

#include "common.h"
#include "files.h"
#include "report/output.h"
#include "session/simulate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_BATCH 8
#define RUN_STEPS 5
#define LIMIT_GIB 22 /* of a device, for the best schedule */
#define COST_SAMPLES 8
#define MAX_VIRTUAL 2 /* stages on a device, in the schedules by name */

typedef struct result {
    double seconds; /* of a step; NaN: not simulated */
    int64_t largest_bytes;
    const char *schedule, *recompute;
    int balance[BENCH_STAGES * MAX_VIRTUAL];
} result;

typedef struct speed {
    const cli_run_options *options;
    const bench_table *table;
    FILE *out;
    cli_costs costs;
    double baseline; /* seconds a sample, simulated */
    double measured; /* likewise, measured; NaN: not yet */
} speed;

/* --- simulated --- */

static int64_t largest(const cgp_plan *plan) {
    int64_t max = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const int64_t bytes = cgp_plan_device_at(plan, d)->planned_bytes;
        max = bytes > max ? bytes : max;
    }
    return max;
}

/* Plan and simulate a cell. */
static cgp_status simulate(const speed *t, const bench_cell *cell,
                           cli_run_options *cell_options, result *out) {
    cli_session session;
    cgp_recompute mode = CGP_RECOMPUTE_NEVER;
    *out = (result){.seconds = NAN,
                    .schedule = cell_options->schedule,
                    .recompute = cell_options->recompute};
    CGP_TRY(cgp_recompute_parse(&mode, cell_options->recompute));
    cgp_status status = bench_cell_plan(&session, cell_options, cell);
    if (status == CGP_OK) {
        status = cli_simulate(session.plan, mode, &t->costs, &out->seconds, NULL);
        out->largest_bytes = largest(session.plan);
        memcpy(out->balance, cgp_plan_balance(session.plan),
               (size_t)cgp_plan_stages(session.plan) * sizeof *out->balance);
    }
    cli_session_release(&session);
    return status;
}

/* Find the best balance for the measured layer costs. */
static cgp_status balance_by_time(const speed *t, const bench_cell *cell, const char *recompute,
                                  int *balance) {
    cgp_model_spec spec;
    cgp_model *model = NULL;
    CGP_TRY(cli_model_parse(&spec, cell->model, 0));
    CGP_TRY(cgp_model_spec_create(&model, &spec));
    const bool recomputed = strncmp(recompute, "never", 5) != 0;
    const cgp_status status =
        cgp_balance_by_time(model, t->costs.layer, recomputed, cell->stages, balance);
    cgp_model_destroy(model);
    return status;
}

/* Simulate a cell as published, but with our balance if `time_balance`. */
static cgp_status simulate_published(const speed *t, const bench_cell *cell, bool time_balance,
                                     result *out) {
    cli_run_options cell_options;
    int balance[BENCH_STAGES] = {0};
    bench_cell_options(&cell_options, t->options, t->table, cell);
    if (time_balance) CGP_TRY(balance_by_time(t, cell, cell->recompute, balance));
    if (time_balance || cell->balance[0] > 0)
        bench_cell_balance(&cell_options, time_balance ? balance : cell->balance, cell->stages);
    return simulate(t, cell, &cell_options, out);
}

/* Simulate one of our schedules with one recomputation and our balance; seconds stay NaN if it does not exist for this few
 * micro-batches or layers. */
static cgp_status simulate_ours(const speed *t, const bench_cell *cell,
                                const cgp_schedule_info *info, const char *mode, result *out) {
    cli_run_options cell_options;
    int balance[BENCH_STAGES * MAX_VIRTUAL] = {0};
    bench_cell all = *cell;
    all.stages = cell->stages * info->virtual_stages;
    bench_cell_options(&cell_options, t->options, t->table, cell);
    cell_options.schedule = info->name;
    cell_options.virtual_stages = info->virtual_stages;
    cell_options.recompute = mode;
    cell_options.memory_limit = 0;
    cgp_status status = balance_by_time(t, &all, mode, balance);
    bench_cell_balance(&cell_options, balance, all.stages);
    if (status == CGP_OK) status = simulate(t, cell, &cell_options, out);
    return status == CGP_EINVAL ? CGP_OK : status;
}

/* Find the fastest of our schedules and recomputations whose devices stay under the limit. */
static cgp_status simulate_best(const speed *t, const bench_cell *cell, result *best) {
    static const char *const modes[] = {"never", "never+selective", "except_last",
                                        "except_last+selective"};
    const int64_t limit =
        t->options->memory_limit ? t->options->memory_limit : (int64_t)LIMIT_GIB << 30;
    const cgp_schedule_info *info;
    *best = (result){.seconds = NAN};
    for (int i = 0; (info = cgp_schedule_info_at(i)); i++) {
        for (int k = 0; k < 4 && info->has_backward; k++) {
            result r = {.seconds = NAN};
            CGP_TRY(simulate_ours(t, cell, info, modes[k], &r));
            if (isnan(r.seconds) || r.largest_bytes > limit || r.seconds >= best->seconds)
                continue;
            *best = r;
        }
    }
    return CGP_OK;
}

/* --- measured --- */

/* Measure seconds of a step, the median without the first. */
static cgp_status run(const bench_cell *cell, cli_run_options *cell_options, double *seconds) {
    cli_session session;
    cgp_status status = bench_cell_plan(&session, cell_options, cell);
    if (status == CGP_OK) status = bench_run(&session);
    if (status == CGP_OK)
        *seconds = cli_median(session.measures.step, session.measures.steps, 1);
    cli_session_release(&session);
    return status;
}

/* Measure a cell at a small batch with our balance; without recomputation the fastest of 1, 2, 4 and 8 micro-batches. */
static cgp_status measure(const speed *t, const bench_cell *cell, int64_t batch,
                          int64_t *chunks, double *seconds) {
    cli_run_options cell_options;
    int balance[BENCH_STAGES] = {0};
    const bool never = strcmp(cell->recompute, "never") == 0;
    const int64_t limited = cell->chunks < batch ? cell->chunks : batch;
    bench_cell_options(&cell_options, t->options, t->table, cell);
    CGP_TRY(balance_by_time(t, cell, cell->recompute, balance));
    bench_cell_balance(&cell_options, balance, cell->stages);
    cell_options.batch = batch;
    cell_options.steps =
        cli_option_given(t->options, CLI_OPTION_STEPS) ? t->options->steps : RUN_STEPS;
    *seconds = NAN;
    for (int64_t m = never ? 1 : limited; m <= (never ? 8 : limited) && m <= batch; m *= 2) {
        double median = NAN;
        cell_options.chunks = m;
        CGP_TRY(run(cell, &cell_options, &median));
        if (median >= *seconds) continue;
        *seconds = median;
        *chunks = m;
    }
    return CGP_OK;
}

/* Simulate that cell. */
static cgp_status simulate_measured(const speed *t, const bench_cell *cell, int64_t batch,
                                    int64_t chunks, double *seconds) {
    cli_run_options cell_options;
    int balance[BENCH_STAGES] = {0};
    result r;
    bench_cell_options(&cell_options, t->options, t->table, cell);
    CGP_TRY(balance_by_time(t, cell, cell->recompute, balance));
    bench_cell_balance(&cell_options, balance, cell->stages);
    cell_options.batch = batch;
    cell_options.chunks = chunks;
    CGP_TRY(simulate(t, cell, &cell_options, &r));
    *seconds = r.seconds;
    return CGP_OK;
}

/* --- table --- */

static json_t *result_json(const speed *t, const bench_cell *cell, const result *r) {
    json_t *o = json_object(), *balance = json_array();
    const double per_sample = r->seconds / (double)cell->batch;
    json_object_set_new(o, "step_seconds", cli_real_json(r->seconds));
    json_object_set_new(o, "samples_per_second", cli_real_json(1 / per_sample));
    json_object_set_new(o, "speedup", cli_real_json(t->baseline / per_sample));
    json_object_set_new(o, "largest_device_bytes", json_integer(r->largest_bytes));
    json_object_set_new(o, "schedule", r->schedule ? json_string(r->schedule) : json_null());
    json_object_set_new(o, "recompute", r->recompute ? json_string(r->recompute) : json_null());
    for (int j = 0; j < cell->stages; j++)
        json_array_append_new(balance, json_integer(r->balance[j]));
    json_object_set_new(o, "balance", balance);
    return o;
}

static void print_heading(const speed *t) {
    const cli_costs *c = &t->costs;
    FILE *out = t->out;
    fprintf(out, "%s\n", t->table->title);
    fprintf(out, "costs        %" PRId64 " samples of %s on %d %s%s%s%s%s\n", c->samples,
            c->model, c->threads, c->threads == 1 ? "core" : "cores", *c->command ? ": " : "",
            c->command, *c->date ? ", " : "", c->date);
    fprintf(out,
            "simulated    a core of this machine for each stage; costs in proportion to the "
            "micro-batch; messages at %.2f GB/s; no update\n",
            1e-9 * c->bandwidth);
    fprintf(
        out,
        "x            samples/s over those of %s with the published balance; best: with our "
        "balance and devices of at most %.0f GiB\n\n",
        t->table->cells[0].name,
        cli_gib(t->options->memory_limit ? t->options->memory_limit
                                         : (int64_t)LIMIT_GIB << 30));
    fprintf(out, "%-11s %6s %6s | %-17s | %-17s | %-42s |", "", "", "", "published balance",
            "our balance", "best of our schedules");
    fprintf(out, " published\n%-11s %6s %6s | %9s %7s | %9s %7s | %8s %6s  %-26s |", "",
            "batch", "chunks", "samples/s", "x", "samples/s", "x", "x", "GiB",
            "schedule, recompute");
    for (int k = 0; k < t->table->columns; k++)
        fprintf(out, "%s %s", k ? " |" : "", t->table->headings[k]);
    fputc('\n', out);
}

static void print_pair(const speed *t, const bench_cell *cell, const result *r) {
    const double per_sample = r->seconds / (double)cell->batch;
    bench_print_number(t->out, 9, 3, 1 / per_sample);
    bench_print_number(t->out, 7, 3, t->baseline / per_sample);
    fprintf(t->out, " |");
}

static void print_row(const speed *t, const bench_cell *cell, const result *published,
                      const result *ours, const result *best) {
    fprintf(t->out, "%-11s %6" PRId64 " %6d |", cell->name, cell->batch, cell->chunks);
    print_pair(t, cell, published);
    print_pair(t, cell, ours);
    bench_print_number(t->out, 8, 3, t->baseline * (double)cell->batch / best->seconds);
    bench_print_number(t->out, 6, 2, isnan(best->seconds) ? NAN : cli_gib(best->largest_bytes));
    char how[48] = "-";
    if (!isnan(best->seconds))
        snprintf(how, sizeof how, "%s, %s", best->schedule, best->recompute);
    fprintf(t->out, "  %-26s |", how);
    for (int k = 0; k < t->table->columns; k++) {
        bench_print_number(t->out, (int)strlen(t->table->headings[k]), 3, cell->published[k]);
        fprintf(t->out, "%s", k + 1 < t->table->columns ? " |" : "\n");
    }
    fflush(t->out);
}

static cgp_status simulated_row(speed *t, int i, json_t *o) {
    const bench_cell *cell = &t->table->cells[i];
    result published, ours, best;
    CGP_TRY(simulate_published(t, cell, false, &published));
    if (i == 0) t->baseline = published.seconds / (double)cell->batch;
    CGP_TRY(simulate_published(t, cell, true, &ours));
    CGP_TRY(simulate_best(t, cell, &best));
    print_row(t, cell, &published, &ours, &best);
    json_object_set_new(o, "published_balance_simulated", result_json(t, cell, &published));
    json_object_set_new(o, "own_balance_simulated", result_json(t, cell, &ours));
    json_object_set_new(o, "best_simulated", result_json(t, cell, &best));
    return CGP_OK;
}

static cgp_status measured_row(speed *t, int i, json_t *o) {
    const bench_cell *cell = &t->table->cells[i];
    const int64_t batch =
        cli_option_given(t->options, CLI_OPTION_BATCH) ? t->options->batch : RUN_BATCH;
    int64_t chunks = 1;
    double seconds = NAN, expected = NAN;
    const cgp_status status = measure(t, cell, batch, &chunks, &seconds);
    if (status == CGP_ELIMIT) {
        fprintf(t->out, "%-11s does not fit: %s\n", cell->name, cgp_message());
        return CGP_OK;
    }
    CGP_TRY(status);
    CGP_TRY(simulate_measured(t, cell, batch, chunks, &expected));
    if (i == 0) t->measured = seconds;
    fprintf(t->out, "%-11s %6" PRId64 " %6" PRId64, cell->name, batch, chunks);
    bench_print_number(t->out, 9, 3, (double)batch / seconds);
    bench_print_number(t->out, 7, 3, t->measured / seconds);
    bench_print_number(t->out, 19, 3, (double)batch / expected);
    fputc('\n', t->out);
    fflush(t->out);
    json_t *run = json_object();
    json_object_set_new(run, "batch", json_integer(batch));
    json_object_set_new(run, "chunks", json_integer(chunks));
    json_object_set_new(run, "samples_per_second", cli_real_json((double)batch / seconds));
    json_object_set_new(run, "speedup", cli_real_json(t->measured / seconds));
    json_object_set_new(run, "simulated_samples_per_second",
                        cli_real_json((double)batch / expected));
    json_object_set_new(o, "measured", run);
    return CGP_OK;
}

static cgp_status all_rows(speed *t, json_t *cells) {
    print_heading(t);
    for (int i = 0; i < t->table->n; i++) {
        json_t *o = bench_cell_json(t->table, &t->table->cells[i]);
        json_array_append_new(cells, o);
        CGP_TRY(simulated_row(t, i, o));
    }
    if (t->options->plan_only) return CGP_OK;
    fprintf(
        t->out,
        "\nmeasured here, our balance (the first row: the fastest number of micro-batches)\n");
    fprintf(t->out, "%-11s %6s %6s %9s %7s %19s\n", "", "batch", "chunks", "samples/s", "x",
            "simulated samples/s");
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < t->table->n; i++) {
        if (t->table->cells[i].stages > cores) continue;
        CGP_TRY(measured_row(t, i, json_array_get(cells, (size_t)i)));
    }
    return CGP_OK;
}

/* Read --costs, or measure now. All cells of a table have one model. */
static cgp_status find_costs(speed *t) {
    const cli_run_options *run_options = t->options;
    const bench_cell *cell = &t->table->cells[0];
    cli_run_options cell_options;
    cli_session session = {0};
    cgp_profile_options options = cgp_profile_options_default();
    bench_cell_options(&cell_options, run_options, t->table, cell);
    cgp_status status = bench_cell_plan(&session, &cell_options, cell);
    options.samples = COST_SAMPLES;
    options.threads = (int)run_options->threads_per_device;
    options.device = run_options->devices.count > 0 ? run_options->devices.values[0] : NULL;
    options.type = strcmp(run_options->precision, "bf16") == 0
                       ? CGP_BF16
                       : CGP_F32; /* the plan has checked it */
    if (status == CGP_OK)
        status =
            run_options->costs
                ? cli_costs_read(&t->costs, run_options, session.model, session.model_spec)
                : cli_costs_measure(&t->costs, session.model, session.model_spec, &options);
    if (status == CGP_OK && isnan(t->costs.bandwidth))
        t->costs.bandwidth = cli_copy_bandwidth();
    cli_session_release(&session);
    return status;
}

int cli_bench_speed(const cli_run_options *run_options, const bench_table *table) {
    speed t = {.options = run_options,
               .table = table,
               .out = cli_info_stream(run_options),
               .measured = NAN};
    int code = cli_report(bench_table_check(run_options), true);
    if (code != CLI_OK) return code;
    cgp_log_set_level(CGP_LOG_ERROR); /* no warnings of fewer micro-batches */
    code = cli_report(find_costs(&t), true);
    if (code != CLI_OK) {
        cli_costs_release(&t.costs);
        return code;
    }
    json_t *cells = json_array(), *report = bench_table_json(table, cells);
    json_object_set_new(report, "costs_command", json_string(t.costs.command));
    json_object_set_new(report, "costs_date", json_string(t.costs.date));
    json_object_set_new(report, "costs_samples", json_integer(t.costs.samples));
    json_object_set_new(report, "copy_bytes_per_second", cli_real_json(t.costs.bandwidth));
    const cgp_status status = all_rows(&t, cells);
    cli_costs_release(&t.costs);
    if (status == CGP_OK) return cli_report(cli_json_write(run_options, report), false);
    json_decref(report);
    return cli_report(status, true);
}
