/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h -- the table of commands, for main.c and the manual pages. Each command reports its
 * failure and returns the exit code. */
#ifndef CGPIPE_CLI_COMMANDS_H
#define CGPIPE_CLI_COMMANDS_H

#include "options/options.h"

#include <jansson.h>

typedef struct cli_command {
    /* Commands of a group are adjacent. An operand that begins with "--" comes after the
     * options. */
    const char *group, *name, *operand, *summary, *example;
    unsigned bit;
    int (*run)(const cli_run_options *options);
} cli_command;

enum { CLI_COMMANDS = 18 };
extern const cli_command cli_commands[CLI_COMMANDS];

/* A summary of the program; a help text on the values of MODEL. */
extern const char cli_summary[], cli_models[];

/* Run `cgpipe --version [--json [FILE]]`. argv[0] is the option. */
int cli_version(int argc, char **argv);

int cli_train(const cli_run_options *options);
int cli_new(const cli_run_options *options);
int cli_export(const cli_run_options *options);
int cli_stop(const cli_run_options *options);
int cli_supervise(const cli_run_options *options);
int cli_sample(const cli_run_options *options);
int cli_config(const cli_run_options *options);
int cli_compare(const cli_run_options *options);
int cli_report_run(const cli_run_options *options); /* report */
int cli_diagnose(const cli_run_options *options);
int cli_tokenize(const cli_run_options *options);
int cli_convert(const cli_run_options *options);
int cli_devices(const cli_run_options *options);
json_t *cli_devices_json(void); /* backends, transports and plug-ins, for --version --json */
int cli_plan(const cli_run_options *options);
int cli_plan_search(const cli_run_options *options); /* plan --search */
int cli_profile(const cli_run_options *options);
int cli_bench(const cli_run_options *options);
int cli_bench_transport(const cli_run_options *options); /* bench transport */
int cli_check(const cli_run_options *options);
int cli_schedule(const cli_run_options *options);
int cli_schedule_all(const cli_run_options *options);     /* schedule --all */
int cli_schedule_compare(const cli_run_options *options); /* schedule --compare */

#endif
