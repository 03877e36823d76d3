/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h -- signals that stop a training after a checkpoint: SIGINT and SIGTERM, of which a second one ends the process; SIGHUP,
 * of a closed terminal; SIGPIPE, of a reader of standard output that has gone (`| head`).
 *
 * SIGINT, SIGTERM and SIGHUP that were ignored when the program started (nohup, a shell's background jobs) stay ignored. */
#ifndef CGPIPE_CLI_STOP_H
#define CGPIPE_CLI_STOP_H

#include <stdbool.h>

/* From here on only note these signals. A second SIGINT or SIGTERM ends the process with CLI_STOPPED at once. */
void cli_stop_install(void);

/* Call a function, which is safe in handlers of signals, at every such signal from here on; NULL: none. */
void cli_stop_call(void (*function)(void));

/* Return the name of the first signal that came, "SIGINT", "SIGTERM", "SIGHUP" or "SIGPIPE"; NULL: none. */
const char *cli_stop_signal(void);

/* Return that signal's number; 0: none. Note one that another rank got. */
int cli_stop_number(void);
void cli_stop_note(int number);

/* Tell whether that was SIGPIPE: the reader of the output has gone. */
bool cli_stop_closed(void);

#endif
