/* SPDX-License-Identifier: Apache-2.0 */
/* values.h -- set an option from text. The command line, run files and run.json share these checks
 * of values. All functions fail with CGP_EINVAL. */
#ifndef CGPIPE_CLI_VALUES_H
#define CGPIPE_CLI_VALUES_H

#include "options/options.h"

/* Parse the argument of an option (NULL for a FLAG). Texts and paths stay borrowed; a list is
 * copied. */
CGP_MUST_CHECK cgp_status cli_option_set(cli_run_options *options, int id, const char *text);

/* Set an option from the items of a list. Paths stay borrowed. */
CGP_MUST_CHECK cgp_status cli_option_set_list(cli_run_options *options, int id,
                                              const char *const *items, int count);

/* Fail because the option does not accept the value in a file. The value is a list if `list` is
 * true, else a value of another kind. */
CGP_MUST_CHECK cgp_status cli_option_misshapen(int id, bool list);

/* Parse "12" or "4ep". */
bool cli_steps_parse(const char *text, cli_steps *steps);

#endif
