/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.h -- options that depend on each other: set defaults and refuse combinations. */
#ifndef CGPIPE_CLI_RESOLVE_H
#define CGPIPE_CLI_RESOLVE_H

#include <cgpipe/base.h>

typedef struct cli_run_options cli_run_options;

/* Fill in the defaults that depend on other options. Fails with CGP_EINVAL. If the file of
 * --schedule cannot be read, fails with the status of that failure. */
CGP_MUST_CHECK cgp_status cli_run_options_resolve(cli_run_options *options);

/* Replace --devices auto by this machine's GPUs, or by cpu if there is none. If --stages is given,
 * take that many devices. Fails with CGP_EINVAL or CGP_ENOMEM. */
CGP_MUST_CHECK cgp_status cli_find_devices(cli_run_options *options);

/* Tell whether this machine has a GPU that stays unused because --devices is not given. Tests set
 * CGP_GPU_FILE to simulate a GPU. */
bool cli_leaves_gpu(const cli_run_options *options);

/* Replace --devices K by K cpu devices, and --devices auto by GPUs. Set --stages from the number of
 * devices unless it is given. Fails with CGP_EINVAL or CGP_ENOMEM. */
CGP_MUST_CHECK cgp_status cli_take_devices(cli_run_options *options);

/* If the command runs in all processes of a launcher, set --stages to their number. Do nothing if
 * --stages, numbers of --balance or a schedule file determine the stages. */
void cli_stages_by_ranks(cli_run_options *options);

/* Return the largest number of replicas with equal shares of `stages` devices. It is a power of
 * two, at most the gradient groups, if their number is known. */
int64_t cli_most_replicas(const cli_run_options *options);

/* The formats of --trace, by a file's suffix: .json, .svg, .txt; NONE: another suffix. */
typedef enum cli_trace_format {
    CLI_TRACE_NONE = -1,
    CLI_TRACE_JSON,
    CLI_TRACE_SVG,
    CLI_TRACE_TXT
} cli_trace_format;

cli_trace_format cli_trace_format_of(const char *path);

#endif
