/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h -- the published tables of torchgpipe's benchmarks: options and results. */
#ifndef CGPIPE_CLI_TABLES_H
#define CGPIPE_CLI_TABLES_H

#include "session/session.h"

enum { BENCH_CELLS = 9, BENCH_STAGES = 8, BENCH_COLUMNS = 5 };

typedef struct bench_cell {
    const char *name, *model;
    int64_t batch;
    int chunks, stages;
    int balance[BENCH_STAGES]; /* [0] = 0: none is published */
    const char *recompute;
    double published[BENCH_COLUMNS]; /* NaN: no figure */
} bench_cell;

typedef struct bench_table {
    const char *name, *title;
    bool old;   /* the model of torchgpipe before v0.0.5 */
    bool speed; /* else memory */
    const char *optimizer;
    double limit_gib[BENCH_CELLS]; /* memory: the limit of each cell; 0: none */
    int columns;
    const char *headings[BENCH_COLUMNS]; /* of the published figures */
    int ratio; /* speed: the column of the published speed-up over the first cell */
    int n;
    bench_cell cells[BENCH_CELLS];
} bench_table;

/* Return a table; NULL: there is none of this name. */
const bench_table *bench_table_find(const char *name, bool old);

/* --- a cell as a session --- */

/* Refuse options that a table sets, and a JSON file that cannot be written. */
CGP_MUST_CHECK cgp_status bench_table_check(const cli_run_options *options);

/* Set the options of a cell; the balance is by FLOPs until one is set. */
void bench_cell_options(cli_run_options *cell_options, const cli_run_options *options,
                        const bench_table *table, const bench_cell *cell);
void bench_cell_balance(cli_run_options *cell_options, const int *balance, int stages);

/* Plan a cell with these options. Release *session in any case. */
CGP_MUST_CHECK cgp_status bench_cell_plan(cli_session *session, cli_run_options *cell_options,
                                          const bench_cell *cell);

/* --- output --- */

json_t *bench_table_json(const bench_table *table, json_t *cells);
json_t *bench_cell_json(const bench_table *table, const bench_cell *cell);
json_t *bench_balance_json(const cgp_plan *plan);
void bench_print_balance(FILE *out, const cgp_plan *plan);
void bench_print_number(FILE *out, int width, int digits, double value); /* NaN: - */

#endif
