/* SPDX-License-Identifier: Apache-2.0 */
/* processes.h -- find and signal all descendants of this process on its host, in any process group
 * or session. A process that loses its parent stays a descendant if this process adopts orphans
 * (PR_SET_CHILD_SUBREAPER). */
#ifndef CGPIPE_CLI_PROCESSES_H
#define CGPIPE_CLI_PROCESSES_H

#include <stdbool.h>

/* Send a signal to every descendant. May miss a process that starts meanwhile. If /proc cannot be
 * read, send nothing and return false, because only /proc lists the parents of all processes. */
bool cli_processes_signal(int number);

/* Tell whether /proc exists and shows this process's pid namespace. */
bool cli_processes_seen(void);

/* Tell whether a descendant has failed (exit code other than 0, or a signal) and was not reaped.
 * Children of this process do not count. The parent may be about to reap the descendant. */
bool cli_processes_failed(void);

#endif
