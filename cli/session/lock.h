/* SPDX-License-Identifier: Apache-2.0 */
/* lock.h -- the lock of a run's directory, which keeps a second process out. It is flock() on the
 * directory. If the file system has no locks, it is the file RUN/lock with the holder's host, pid
 * and name and the date. A holder of the lock also checks the file, because the file system may
 * have locks on one host but not on another. */
#ifndef CGPIPE_CLI_LOCK_H
#define CGPIPE_CLI_LOCK_H

#include <cgpipe/base.h>

#define CLI_LOCK "lock"

/* Take the lock of an open directory; `path` is for messages. Sets *by_file if the lock is a file,
 * which must be deleted later. Replaces the lock file of a dead process of this host. Fails with
 * CGP_EIO if another process has the lock, or may have it on another host. The message names that
 * process, and explains how to delete its file. If the file system has neither locks nor links,
 * warns and returns CGP_OK. */
CGP_MUST_CHECK cgp_status cli_lock_take(int directory, const char *path, bool *by_file);

/* Tell whether the lock file still belongs to this process. A user may have deleted the file
 * because it looked like the file of a dead process. Also true if the file cannot be read. */
bool cli_lock_is_kept(int directory);

/* Delete the lock file, if it belongs to this process. */
void cli_lock_release(int directory);

/* Tell whether a process has the lock. UNKNOWN: the file system has no locks, and either there is
 * no lock file, or the lock file names a process that cannot be seen from this host. */
typedef enum cli_lock { CLI_LOCK_FREE, CLI_LOCK_HELD, CLI_LOCK_UNKNOWN } cli_lock;
cli_lock cli_lock_look(int directory);

#endif
