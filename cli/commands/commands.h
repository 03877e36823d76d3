/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h -- the commands, as a table for main.c and for the manual pages. Each returns the exit
 * code and has reported its failure. */
#ifndef CGPIPE_CLI_COMMANDS_H
#define CGPIPE_CLI_COMMANDS_H

#include "options/options.h"

typedef struct cli_command {
    /* Commands of a group are neighbours. An operand that begins with "--" comes behind the
     * options. */
    const char *group, *name, *operand, *summary, *example;
    unsigned bit;
    int (*run)(const cli_run_options *options);
} cli_command;

enum { CLI_COMMANDS = 16 };
extern const cli_command cli_commands[CLI_COMMANDS];

/* The program in a few words; the values of MODEL, in lines. */
extern const char cli_summary[], cli_models[];

int cli_train(const cli_run_options *options);
int cli_new(const cli_run_options *options);
int cli_export(const cli_run_options *options);
int cli_stop(const cli_run_options *options);
int cli_supervise(const cli_run_options *options);
int cli_sample(const cli_run_options *options);
int cli_config(const cli_run_options *options);
int cli_diagnose(const cli_run_options *options);
int cli_tokenize(const cli_run_options *options);
int cli_convert(const cli_run_options *options);
int cli_devices(const cli_run_options *options);
int cli_plan(const cli_run_options *options);
int cli_profile(const cli_run_options *options);
int cli_bench(const cli_run_options *options);
int cli_bench_transport(const cli_run_options *options); /* bench transport */
int cli_check(const cli_run_options *options);
int cli_schedule(const cli_run_options *options);
int cli_schedule_compare(const cli_run_options *options); /* schedule --compare */

#endif
