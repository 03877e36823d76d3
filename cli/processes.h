/* SPDX-License-Identifier: Apache-2.0 */
/* processes.h -- the descendants of this process on its host: its children, their children and so
 * on, in whatever process groups and sessions. One that loses its parent stays a descendant where
 * this process adopts it (PR_SET_CHILD_SUBREAPER). */
#ifndef CGPIPE_CLI_PROCESSES_H
#define CGPIPE_CLI_PROCESSES_H

#include <stdbool.h>

/* Send a signal to every descendant; one that begins meanwhile may be left out. Return false where
 * /proc, which has the parents of all processes, cannot be read: then none gets it. */
bool cli_processes_signal(int number);

/* Tell whether /proc is there, and of this process's pid namespace. */
bool cli_processes_seen(void);

/* Tell whether a descendant has failed, by its exit code or a signal, and its parent, not this
 * process, has not waited for it; a parent that is about to do so has not either. */
bool cli_processes_failed(void);

#endif
