/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h -- parse the arguments of a command. */
#ifndef CGPIPE_CLI_PARSE_H
#define CGPIPE_CLI_PARSE_H

#include <cgpipe/base.h>

typedef struct cli_run_options cli_run_options;

/* Set every option to the default of the command, before anything is resolved. Texts are static. */
CGP_MUST_CHECK cgp_status cli_run_options_preset(cli_run_options *options);

/* Parse argv[0 .. argc-1] (the arguments after the command), read --plan and --config, and resolve
 * the options. With --resume the options stay unresolved: the caller then calls
 * cli_run_options_inherit() and cli_run_options_resolve(). Fails with CGP_EINVAL, or with CGP_EIO
 * or CGP_EFORMAT for a file. */
CGP_MUST_CHECK cgp_status cli_run_options_parse(cli_run_options *options, unsigned command,
                                                int argc, char **argv);

#endif
