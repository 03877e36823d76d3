/* commands.h -- the commands. Each returns the exit code and has told of its failure. */
#ifndef CGPIPE_CLI_COMMANDS_H
#define CGPIPE_CLI_COMMANDS_H

#include "options.h"

int cli_train(const cli_settings *settings);
int cli_sample(const cli_settings *settings);
int cli_plan(const cli_settings *settings);
int cli_profile(const cli_settings *settings);
int cli_bench(const cli_settings *settings);
int cli_bench_grid(const cli_settings *settings); /* bench --grid */
int cli_schedule(const cli_settings *settings);
int cli_compare(const cli_settings *settings); /* schedule --compare */

#endif
