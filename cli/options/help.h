/* SPDX-License-Identifier: Apache-2.0 */
/* help.h -- the options of a command as help and the manual pages show them. */
#ifndef CGPIPE_CLI_HELP_H
#define CGPIPE_CLI_HELP_H

#include <stdbool.h>
#include <stdio.h>

/* Tell whether the help of a command lists the option. It does if the command takes the option and
 * the option has an effect in this command. */
bool cli_option_listed(int id, unsigned command);

/* Return the heading of the option's group. A group ends at the next group's first option, in the
 * order of cli_option_id. Static. */
const char *cli_option_group(int id);

/* Return the default to show; NULL: none. */
const char *cli_option_shown_preset(unsigned command, int id);

/* Write the help on a command's options to `out`, in groups, with their defaults. `brief`: for
 * train, list only the options of a first run. */
void cli_options_help(FILE *out, unsigned command, bool brief);

#endif
