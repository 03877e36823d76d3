/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h -- SIGINT and SIGTERM: the first one asks, the second one ends the process.
 *
 * A signal that was ignored when the program started (nohup, a shell's background jobs) stays
 * ignored. */
#ifndef CGPIPE_CLI_STOP_H
#define CGPIPE_CLI_STOP_H

#include <stdbool.h>

/* From here on a first SIGINT or SIGTERM is only noted; a second one ends the process with
 * CLI_STOPPED, at once. */
void cli_stop_install(void);

/* The name of the signal that came, "SIGINT" or "SIGTERM"; NULL: none. */
const char *cli_stop_signal(void);

#endif
