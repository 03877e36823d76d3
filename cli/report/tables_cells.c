/* SPDX-License-Identifier: Apache-2.0 */
/* tables_cells.c -- a cell of a published table as a session. */
#include "report/tables.h"

#include "files.h"
#include "report/output.h"

#include <math.h>

void bench_cell_options(cli_run_options *cell_options, const cli_run_options *options,
                        const bench_table *table, const bench_cell *cell) {
    *cell_options = *options;
    cell_options->batch = cell->batch;
    cell_options->chunks = cell->chunks;
    cell_options->stages = cell->stages;
    cell_options->recompute = cell->recompute;
    cell_options->balance = (cli_balance){0};
    cell_options->optimizer =
        table->optimizer; /* as in torchgpipe's scripts: no momentum, no decay */
    cell_options->momentum = cell_options->weight_decay = 0;
    cell_options->nesterov = false;
    cell_options->alpha = 0.99;
    cell_options->eps = 1e-8;
}

void bench_cell_balance(cli_run_options *cell_options, const int *balance, int stages) {
    cell_options->balance = (cli_balance){.layers = {balance, stages}};
}

cgp_status bench_cell_plan(cli_session *session, cli_run_options *cell_options,
                           const bench_cell *cell) {
    cgp_model_spec spec;
    *session = (cli_session){0};
    CGP_TRY(cli_model_parse(&spec, cell->model, 0));
    if (!cli_option_given(cell_options, CLI_OPTION_DROPOUT)) cell_options->dropout = NAN;
    CGP_TRY(cli_model_resolve(&spec, cell_options));
    return cli_session_plan(session, cell_options, &spec);
}

json_t *bench_cell_json(const bench_table *table, const bench_cell *cell) {
    json_t *o = json_object(), *published = json_object(), *balance = json_array();
    json_object_set_new(o, "name", json_string(cell->name));
    json_object_set_new(o, "batch", json_integer(cell->batch));
    json_object_set_new(o, "chunks", json_integer(cell->chunks));
    json_object_set_new(o, "stages", json_integer(cell->stages));
    json_object_set_new(o, "recompute", json_string(cell->recompute));
    for (int j = 0; j < cell->stages && cell->balance[0] > 0; j++)
        json_array_append_new(balance, json_integer(cell->balance[j]));
    json_object_set_new(o, "published_balance", balance);
    for (int k = 0; k < table->columns; k++)
        json_object_set_new(published, table->headings[k], cli_real_json(cell->published[k]));
    json_object_set_new(o, "published", published);
    return o;
}

json_t *bench_balance_json(const cgp_plan *plan) {
    json_t *list = json_array();
    for (int j = 0; j < cgp_plan_stages(plan); j++)
        json_array_append_new(list, json_integer(cgp_plan_balance(plan)[j]));
    return list;
}

json_t *bench_table_json(const bench_table *table, json_t *cells) {
    json_t *o = json_object();
    json_object_set_new(o, "benchmark", json_string(table->name));
    json_object_set_new(o, "old", json_boolean(table->old));
    json_object_set_new(o, "version", json_string(CGP_VERSION));
    json_object_set_new(o, "title", json_string(table->title));
    json_object_set_new(o, "cells", cells);
    return o;
}

void bench_print_balance(FILE *out, const cgp_plan *plan) {
    for (int j = 0; j < cgp_plan_stages(plan); j++)
        fprintf(out, "%s%d", j ? "," : "", cgp_plan_balance(plan)[j]);
}

void bench_print_number(FILE *out, int width, int digits, double value) {
    if (isnan(value))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.*f", width, digits, value);
}

cgp_status bench_table_check(const cli_run_options *options) {
    static const cli_option_id set[] = {
        CLI_OPTION_STAGES, CLI_OPTION_CHUNKS, CLI_OPTION_BALANCE,  CLI_OPTION_RECOMPUTE,
        CLI_OPTION_MODEL,  CLI_OPTION_GRID,   CLI_OPTION_OPTIMIZER};
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
        const char *given = cli_option_given_as(options, set[i]);
        if (!given) continue;
        return cgp_fail(CGP_EINVAL, "--%s: is as published in each row of %s (leave it out)",
                        given, options->operand);
    }
    return cli_json_check(options);
}
