/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h -- signals that stop a training after a checkpoint. A second SIGINT or SIGTERM ends the
 * process at once. SIGUSR1 comes from a batch system before its time limit, SIGXCPU from a CPU time
 * limit, and SIGHUP from a closed terminal. SIGPIPE means that the reader of standard output is
 * gone (`| head`). A request of cgpipe stop is recorded like a signal.
 *
 * Signals that were ignored when the program started (nohup, a shell's background jobs) stay
 * ignored, except SIGPIPE. */
#ifndef CGPIPE_CLI_STOP_H
#define CGPIPE_CLI_STOP_H

#include <stdbool.h>

/* Install the handlers, which only record these signals. A second SIGINT or SIGTERM ends the
 * process with CLI_STOPPED at once. */
void cli_stop_install(void);

/* Call `function`, which is async-signal-safe, at every signal that comes after this call; NULL:
 * call nothing. */
void cli_stop_call(void (*function)(void));

/* The number that stands for a request of cgpipe stop, in place of a signal's number. */
enum { CLI_STOP_REQUEST = -1 };

/* Return the name of the first signal that came, "SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE",
 * "SIGUSR1", "SIGXCPU" or "stop request"; NULL: none. */
const char *cli_stop_signal(void);

/* Return the name of signal `number`, or of CLI_STOP_REQUEST; NULL for any other number. */
const char *cli_stop_name(int number);

/* cli_stop_number() returns the first signal's number; 0: none. cli_stop_note() records a signal
 * that another rank got, or a request. */
int cli_stop_number(void);
void cli_stop_note(int number);

/* Tell whether the first signal was SIGPIPE: the reader of standard output is gone. */
bool cli_stop_closed(void);

#endif
