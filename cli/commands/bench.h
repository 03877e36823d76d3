/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h -- cgpipe bench, one setting or a grid of them; and the GPT-2 benchmark, of 16 layers, with its published figures. */
#ifndef CGPIPE_CLI_BENCH_H
#define CGPIPE_CLI_BENCH_H

#include "session/session.h"

#define BENCH_MODEL "gpt2:layers=12,width=768,heads=12,vocab=3000,seq=128"
#define BENCH_BATCH 64

/* Parse the operand, or for `gpt2` alone the model of the benchmark or --model; and resolve --dropout. */
CGP_MUST_CHECK cgp_status bench_model(cli_run_options *options, cgp_model_spec *spec);

/* Set the published balance of its 16 layers, unless one is given. */
void bench_resolve(cli_run_options *options, const cgp_model_spec *spec);

/* Run all steps on random data. */
CGP_MUST_CHECK cgp_status bench_run(cli_session *session);

/* Return the published peak activation memory of all devices in GiB, NaN if there is none for these options. Published are
 * K 1, 2, 4, M 1, 2, 4 .. 64, never and except_last, all at batch 64 and one model. */
double bench_published_gib(const cli_session *session);

/* Run all settings of --grid. Returns the exit code and has reported its failure. */
int cli_bench_grid(const cli_run_options *options);

#endif
