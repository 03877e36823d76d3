/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h -- the published tables of torchgpipe's benchmarks: what was run, and what came out. */
#ifndef CGPIPE_CLI_TABLES_H
#define CGPIPE_CLI_TABLES_H

#include "session/session.h"

enum { BENCH_CELLS = 9, BENCH_STAGES = 8, BENCH_COLUMNS = 5 };

typedef struct bench_cell {
    const char *name, *model;
    int64_t batch;
    int chunks, stages;
    int balance[BENCH_STAGES]; /* published; [0] = 0: none is */
    const char *recompute;
    double published[BENCH_COLUMNS]; /* NaN: no figure */
} bench_cell;

typedef struct bench_table {
    const char *name, *title;
    bool old;   /* the model of torchgpipe before v0.0.5 */
    bool speed; /* or memory */
    const char *optimizer;
    double limit_gib[BENCH_CELLS]; /* memory: of what each cell is judged by; 0: by nothing */
    int columns;
    const char *headings[BENCH_COLUMNS]; /* of published figures */
    int ratio; /* speed: the column that has the published speed-up over the first cell */
    int n;
    bench_cell cells[BENCH_CELLS];
} bench_table;

/* NULL: there is none of this name. */
const bench_table *bench_table_find(const char *name, bool old);

/* --- a cell as an experiment --- */

/* Options that a table sets may not be given; the JSON file can be written. */
CGP_MUST_CHECK cgp_status bench_table_check(const cli_run_options *options);

/* The settings of a cell; the balance is by FLOPs until one is set. */
void bench_cell_options(cli_run_options *cell_options, const cli_run_options *options,
                        const bench_table *table, const bench_cell *cell);
void bench_cell_balance(cli_run_options *cell_options, const int *balance, int stages);

/* Plan a cell with these settings. Release `e` in any case. */
CGP_MUST_CHECK cgp_status bench_cell_plan(cli_session *session, cli_run_options *cell_options,
                                          const bench_cell *cell);

/* --- what the tables print and write --- */

json_t *bench_table_json(const bench_table *table, json_t *cells);
json_t *bench_cell_json(const bench_table *table, const bench_cell *cell);
json_t *bench_balance_json(const cgp_plan *plan);
void bench_print_balance(FILE *out, const cgp_plan *plan);
void bench_print_number(FILE *out, int width, int digits, double value); /* NaN: - */

#endif
