/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h -- signals that stop a training after a checkpoint: SIGINT and SIGTERM, of which a second
 *one ends the process; SIGUSR1,
 * of a batch system before its time is up; SIGXCPU, of a limit on the time of processors; SIGHUP,
 * of a closed terminal; SIGPIPE, of a reader of
 * standard output that has gone (`| head`). A request of cgpipe stop is noted like a signal.
 *
 * Signals but SIGPIPE that were ignored when the program started (nohup, a shell's background jobs)
 * stay ignored. */
#ifndef CGPIPE_CLI_STOP_H
#define CGPIPE_CLI_STOP_H

#include <stdbool.h>

/* From here on only note these signals. A second SIGINT or SIGTERM ends the process with
 * CLI_STOPPED at once. */
void cli_stop_install(void);

/* Call a function, which is safe in handlers of signals, at every such signal from here on; NULL:
 * none. */
void cli_stop_call(void (*function)(void));

/* In place of a signal's number: the request of cgpipe stop. */
enum { CLI_STOP_REQUEST = -1 };

/* Return the name of the first signal that came, "SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE",
 * "SIGUSR1", "SIGXCPU" or "stop request"; NULL: none. */
const char *cli_stop_signal(void);

/* Return the name of such a number. */
const char *cli_stop_name(int number);

/* Return that signal's number; 0: none. Note one that another rank got, or a request. */
int cli_stop_number(void);
void cli_stop_note(int number);

/* Tell whether that was SIGPIPE: the reader of the output has gone. */
bool cli_stop_closed(void);

#endif
