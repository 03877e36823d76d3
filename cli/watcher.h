/* SPDX-License-Identifier: Apache-2.0 */
/* watcher.h -- run a command so that none of its processes outlives the command or this process:
 *
 *     cgpipe supervise ──── watcher ──── command ──── its processes, in any group or session
 *            ▲   signal, end   │
 *            └─────────────────┘ how it ended
 *
 * The watcher is a process that adopts the command's orphans. It ends all processes of the command
 * when the command has ended, or when it is asked to end the command. It does the same when this
 * process is gone, and when a terminating signal arrives. It sends SIGTERM and, `grace` seconds
 * later, SIGKILL to the processes that are left. If the watcher is killed, the kernel kills the
 * command. This process then ends the other processes in the same way.
 *
 * Processes are found in /proc. Without it, only the command's process group gets signals.
 *
 * The command has its own process group, and /dev/null as standard input. */
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
    CLI_END_ASKED, /* cli_watcher_end() asked to end the command */
    CLI_END_LOST   /* a signal ended the watcher, and with it the command */
} cli_end_reason;

typedef struct cli_ending {
    cli_end_reason reason;
    int status; /* exit status of the command, as from waitpid() */
} cli_ending;

/* Start the command `words`, a list that ends with NULL. PATH is searched for it. If it cannot be
 * started, prints why and reports exit code 127. Fails with CGP_EIO. Call before any thread is
 * created. */
CGP_MUST_CHECK cgp_status cli_watcher_start(cli_watcher *watcher, char *const *words, double grace);

/* Send a signal to the command's process group. */
void cli_watcher_signal(const cli_watcher *watcher, int number);

/* Ask the watcher to end the command. May be called more than once. */
void cli_watcher_end(const cli_watcher *watcher);

/* Wait until all processes of the command have ended, at most `seconds` or until a signal comes.
 * Return whether they have ended; the watcher has exited then. */
bool cli_watcher_wait(cli_watcher *watcher, double seconds, cli_ending *ending);

#endif
