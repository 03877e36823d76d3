/* SPDX-License-Identifier: Apache-2.0 */
/* watcher.h -- run a command so that none of its processes outlives it, or this process:
 *
 *     cgpipe supervise ──── watcher ──── command ──── its processes, in whatever groups and sessions
 *            ▲   signal, end   │
 *            └─────────────────┘ how it ended
 *
 * The watcher is a process that adopts the command's orphans. When the command has ended, when it
 * is to end, and when this process is gone, however that came about, it sends SIGTERM to all of
 * them, and SIGKILL to those that live `grace` seconds later. So it does when it gets a signal that
 * ends programs. If it is killed, the system kills the command, and this process ends the others
 * likewise.
 *
 * Processes are found in /proc. Without it only those of the command's process group get signals.
 *
 * The command has a process group of its own, and nothing on its standard input. */
#ifndef CGPIPE_CLI_WATCHER_H
#define CGPIPE_CLI_WATCHER_H

#include <cgpipe/base.h>

#include <sys/types.h>

typedef struct cli_watcher {
    pid_t pid;
    int socket;
    double grace;
} cli_watcher;

typedef enum cli_end_reason {
    CLI_END_OWN,   /* the command ended by itself */
    CLI_END_ASKED, /* by cli_watcher_end() */
    CLI_END_LOST   /* a signal ended the watcher, and with it the command */
} cli_end_reason;

typedef struct cli_ending {
    cli_end_reason reason;
    int status; /* the command's, as of waitpid() */
} cli_ending;

/* Start a command, `words` with NULL at the end, found as a shell finds it. One that cannot be
 * started prints why and ends with exit code 127. Fails with CGP_EIO. Not with several threads. */
CGP_MUST_CHECK cgp_status cli_watcher_start(cli_watcher *watcher, char *const *words, double grace);

/* Send a signal to the command's process group. */
void cli_watcher_signal(const cli_watcher *watcher, int number);

/* Let the watcher end the command. May be called again. */
void cli_watcher_end(const cli_watcher *watcher);

/* Wait so many seconds, or until a signal comes, for the end of all processes of the command.
 * Return whether they have ended; the watcher is gone then. */
bool cli_watcher_wait(cli_watcher *watcher, double seconds, cli_ending *ending);

#endif
