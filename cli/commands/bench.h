/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h -- the seed experiment: GPT-2 of 16 layers, and what its log says. */
#ifndef CGPIPE_CLI_BENCH_H
#define CGPIPE_CLI_BENCH_H

#include "report/tables.h"

#define BENCH_MODEL "gpt2:layers=12,width=768,heads=12,vocab=3000,seq=128"
#define BENCH_BATCH 64

/* The model of the experiment, or --model. */
CGP_MUST_CHECK cgp_status bench_model(const cli_run_options *options, cgp_model_spec *spec);

/* Fill in the experiment's balance for its 16 layers, unless one is given. */
void bench_resolve(cli_run_options *options, const cgp_model_spec *spec);

/* Run all steps on random data. */
CGP_MUST_CHECK cgp_status bench_run(cli_session *session);

/* Peak activation memory of all devices in GiB that the log has for this setting, NaN if none.
 * It has K 1, 2, 4, M 1, 2, 4 .. 64, never and except_last, all at batch 64 and one model. */
double bench_published_gib(const cli_session *session);

/* The kinds of benchmark. Each returns the exit code and has reported its failure. */
int cli_bench_gpt2(const cli_run_options *options);
int cli_bench_grid(const cli_run_options *options);
int cli_bench_memory(const cli_run_options *options, const bench_table *table);
int cli_bench_speed(const cli_run_options *options, const bench_table *table);

#endif
