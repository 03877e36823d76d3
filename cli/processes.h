/* SPDX-License-Identifier: Apache-2.0 */
/* processes.h -- find and signal all descendants of this process on its host, in any process group
 * or session. A process that loses its parent stays a descendant if this process adopts orphans
 * (PR_SET_CHILD_SUBREAPER). */
#ifndef CGPIPE_CLI_PROCESSES_H
#define CGPIPE_CLI_PROCESSES_H

#include <stdbool.h>

/* Send a signal to every descendant; may miss a process that starts meanwhile. Return false, and
 * send nothing, if /proc cannot be read: only /proc has the parents of all processes. */
bool cli_processes_signal(int number);

/* Tell whether /proc exists and shows this process's pid namespace. */
bool cli_processes_seen(void);

/* Tell whether a descendant has failed, by its exit code or a signal, and its parent, which is not
 * this process, has not reaped it. The parent may be about to reap it. */
bool cli_processes_failed(void);

#endif
