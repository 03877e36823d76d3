/* SPDX-License-Identifier: Apache-2.0 */
/* bench_memory.c -- cgpipe bench amoebanetd-memory and unet-memory: the memory of each cell of a published table, planned; and,
 * at a smaller batch, run and compared with its plan. */
#include "commands/bench.h"

#include "common.h"
#include "report/output.h"
#include "report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUN_BATCH 4
#define RUN_STEPS 2

typedef struct memory {
    int64_t model, activation, state, total, largest;
} memory;

static memory memory_of(const cgp_plan *plan) {
    memory m = {.activation = cli_activation_bytes(plan), .total = cli_planned_bytes(plan)};
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        m.model += device->parameter_bytes + device->gradient_bytes + device->optimizer_bytes;
        m.state += device->state_bytes;
        if (device->planned_bytes > m.largest) m.largest = device->planned_bytes;
    }
    return m;
}

static json_t *memory_json(const cgp_plan *plan, const memory *m) {
    json_t *o = json_object();
    json_object_set_new(o, "balance", bench_balance_json(plan));
    json_object_set_new(o, "model_bytes", json_integer(m->model));
    json_object_set_new(o, "activation_bytes", json_integer(m->activation));
    json_object_set_new(o, "state_bytes", json_integer(m->state));
    json_object_set_new(o, "planned_bytes", json_integer(m->total));
    json_object_set_new(o, "largest_device_bytes", json_integer(m->largest));
    return o;
}

static void print_heading(FILE *out, const cli_run_options *options, const bench_table *table) {
    fprintf(out, "%s\n", table->title);
    fprintf(
        out,
        "planned, schedule %s, %s; GiB of all devices: model (weights, gradients, optimizer), "
        "activations, all; of the largest device\n",
        cli_shown(options->schedule), options->precision);
    fprintf(out,
            "published: torchgpipe on Tesla P40, Huang et al. as torchgpipe quotes them\n\n");
    fprintf(out, "%-11s %15s %9s %9s %10s %9s %9s", "", "parameters", "balance", "model",
            "activation", "all", "largest");
    for (int k = 0; k < table->columns; k++)
        fprintf(out, " | %s", table->headings[k]);
    fputc('\n', out);
}

static void print_row(FILE *out, const bench_table *table, const bench_cell *cell,
                      const cli_session *session, const char *rule, const memory *m) {
    char parameters[CLI_NUMBER];
    fprintf(out, "%-11s %15s %9s", cell->name,
            cli_grouped(cgp_model_parameter_count(session->model), parameters), rule);
    bench_print_number(out, 9, 3, cli_gib(m->model));
    bench_print_number(out, 10, 3, cli_gib(m->activation));
    bench_print_number(out, 9, 3, cli_gib(m->total));
    bench_print_number(out, 9, 3, cli_gib(m->largest));
    for (int k = 0; k < table->columns; k++) {
        fprintf(out, " |");
        bench_print_number(out, (int)strlen(table->headings[k]), 2, cell->published[k]);
    }
    fprintf(out, "  ");
    bench_print_balance(out, session->plan);
    fputc('\n', out);
    fflush(out);
}

/* Plan a cell with the published balance, or with the best by size. */
static cgp_status plan_cell(FILE *out, const cli_run_options *options, const bench_table *table,
                            const bench_cell *cell, bool published, json_t *plans) {
    cli_run_options cell_options;
    cli_session session;
    bench_cell_options(&cell_options, options, table, cell);
    cell_options.balance.by = "size";
    cell_options.memory_limit = 0; /* it limits the runs */
    if (published) bench_cell_balance(&cell_options, cell->balance, cell->stages);
    const cgp_status status = bench_cell_plan(&session, &cell_options, cell);
    if (status == CGP_OK) {
        const memory m = memory_of(session.plan);
        const char *rule = cell->stages == 1 ? "-" : published ? "published" : "size";
        print_row(out, table, cell, &session, rule, &m);
        json_t *o = memory_json(session.plan, &m);
        json_object_set_new(o, "rule", json_string(published ? "published" : "size"));
        json_object_set_new(o, "model", json_string(session.model_spec));
        json_object_set_new(o, "parameters",
                            json_integer(cgp_model_parameter_count(session.model)));
        json_array_append_new(plans, o);
    }
    cli_session_release(&session);
    return status;
}

/* --- run --- */

static void print_run(FILE *out, const bench_cell *cell, const cli_session *session) {
    const int64_t planned = cli_planned_bytes(session->plan);
    fprintf(out,
            "%-11s batch %2" PRId64 ", %2d micro-batches: planned %7.3f, allocated %7.3f, "
            "resident %7.3f GiB (%+.1f MiB); %.2f s a step\n",
            cell->name, session->options->batch, cgp_plan_chunks(session->plan),
            cli_gib(planned), cli_gib(cli_allocated_bytes(session)),
            cli_gib(session->resident_growth), cli_mib(session->resident_growth - planned),
            cli_median(session->measures.step, session->measures.steps, 1));
    fflush(out);
}

/* Run a cell as published but for a batch of a few samples; it may not fit the machine. */
static cgp_status run_cell(FILE *out, const cli_run_options *options, const bench_table *table,
                           const bench_cell *cell, json_t **report) {
    cli_run_options cell_options;
    cli_session session;
    bench_cell_options(&cell_options, options, table, cell);
    cell_options.batch =
        cli_option_given(options, CLI_OPTION_BATCH) ? options->batch : RUN_BATCH;
    cell_options.chunks = cell->chunks < cell_options.batch ? cell->chunks : cell_options.batch;
    cell_options.steps =
        cli_option_given(options, CLI_OPTION_STEPS) ? options->steps : RUN_STEPS;
    if (cell->balance[0] > 0) bench_cell_balance(&cell_options, cell->balance, cell->stages);
    *report = NULL;
    cgp_status status = bench_cell_plan(&session, &cell_options, cell);
    if (status == CGP_OK) status = bench_run(&session);
    if (status == CGP_OK) {
        print_run(out, cell, &session);
        status = cli_run_json(&session, report);
    } else if (status == CGP_ELIMIT) {
        fprintf(out, "%-11s does not fit: %s\n", cell->name, cgp_message());
        status = CGP_OK;
    }
    cli_session_release(&session);
    return status;
}

static cgp_status all_cells(FILE *out, const cli_run_options *options, const bench_table *table,
                            json_t *cells) {
    print_heading(out, options, table);
    for (int i = 0; i < table->n; i++) {
        const bench_cell *cell = &table->cells[i];
        json_t *o = bench_cell_json(table, cell), *plans = json_array();
        json_array_append_new(cells, o);
        json_object_set_new(o, "plans", plans);
        if (cell->balance[0] > 0) CGP_TRY(plan_cell(out, options, table, cell, true, plans));
        if (cell->stages > 1 || cell->balance[0] == 0)
            CGP_TRY(plan_cell(out, options, table, cell, false, plans));
    }
    if (options->plan_only) return CGP_OK;
    fprintf(out, "\nrun\n");
    for (int i = 0; i < table->n; i++) {
        json_t *run = NULL;
        CGP_TRY(run_cell(out, options, table, &table->cells[i], &run));
        if (run) json_object_set_new(json_array_get(cells, (size_t)i), "run", run);
    }
    return CGP_OK;
}

int cli_bench_memory(const cli_run_options *options, const bench_table *table) {
    const int code = cli_report(bench_table_check(options), true);
    if (code != CLI_OK) return code;
    json_t *cells = json_array(), *report = bench_table_json(table, cells);
    cgp_log_set_level(CGP_LOG_ERROR); /* no warnings of fewer micro-batches */
    const cgp_status status = all_cells(cli_info_stream(options), options, table, cells);
    if (status == CGP_OK) return cli_report(cli_json_write(options, report), false);
    json_decref(report);
    return cli_report(status, true);
}
