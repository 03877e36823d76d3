/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h -- the commands, as a table for main.c and for the manual pages. Each returns the exit code and has told of
 * its failure. */
#ifndef CGPIPE_CLI_COMMANDS_H
#define CGPIPE_CLI_COMMANDS_H

#include "options/options.h"

typedef struct cli_command {
    const char *group, *name, *operand, *summary,
        *example; /* those of a group stand together */
    unsigned bit;
    int (*run)(const cli_run_options *options);
} cli_command;

enum { CLI_COMMANDS = 9 };
extern const cli_command cli_commands[CLI_COMMANDS];

/* What the program is, in a few words; and what MODEL may be, in lines. */
extern const char cli_summary[], cli_models[];

int cli_train(const cli_run_options *options);
int cli_sample(const cli_run_options *options);
int cli_tokenize(const cli_run_options *options);
int cli_convert(const cli_run_options *options);
int cli_plan(const cli_run_options *options);
int cli_profile(const cli_run_options *options);
int cli_bench(const cli_run_options *options);
int cli_check(const cli_run_options *options);
int cli_schedule(const cli_run_options *options);
int cli_schedule_compare(const cli_run_options *options); /* schedule --compare */

#endif
