/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c -- cgpipe bench NAME: the benchmarks by name. */
#include "commands/bench.h"

#include "commands/commands.h"
#include "common.h"

#include <string.h>

#define BENCHMARKS                                                                             \
    "gpt2 memory amoebanetd-memory unet-memory resnet101-speed amoebanetd-speed unet-speed"

static const char *const names[] = {"gpt2",        "memory",          "amoebanetd-memory",
                                    "unet-memory", "resnet101-speed", "amoebanetd-speed",
                                    "unet-speed"};
enum { NAMES = sizeof names / sizeof names[0] };

static cgp_status check_name(const cli_run_options *options) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL, "bench: NAME is missing (benchmarks: %s)", BENCHMARKS);
    bool known = false;
    for (int i = 0; i < NAMES; i++)
        known = known || strcmp(options->operand, names[i]) == 0;
    const char *near = cgp_nearest(options->operand, names, NAMES);
    if (!known)
        return cgp_fail(CGP_EINVAL, "%s: unknown benchmark (%s%s%s)", options->operand,
                        near ? "did you mean " : "benchmarks: ", near ? near : BENCHMARKS,
                        near ? "?" : "");
    if (strcmp(options->operand, "memory") == 0 && !options->model)
        return cgp_fail(CGP_EINVAL, "bench memory: MODEL is missing "
                                    "(cgpipe bench memory resnet101)");
    if (options->old && strcmp(options->operand, "amoebanetd-memory") != 0)
        return cgp_fail(CGP_EINVAL, "--old: expected bench amoebanetd-memory, got %s",
                        options->operand);
    if ((options->trace.count > 0 || options->costs_out) &&
        bench_table_find(options->operand, options->old))
        return cgp_fail(CGP_EINVAL, "--%s: expected bench gpt2 or memory, got %s",
                        options->trace.count > 0 ? "trace" : "costs-out", options->operand);
    return CGP_OK;
}

int cli_bench(const cli_run_options *options) {
    const int code = cli_report(check_name(options), true);
    if (code != CLI_OK) return code;
    const bench_table *table = bench_table_find(options->operand, options->old);
    if (!table) return options->grid ? cli_bench_grid(options) : cli_bench_gpt2(options);
    return table->speed ? cli_bench_speed(options, table) : cli_bench_memory(options, table);
}
