/* SPDX-License-Identifier: Apache-2.0 */
/* lock.h -- the lock of a run's directory, which keeps a second process out of a run: flock() on
 * the directory, and, where its file system has none, the file RUN/lock with the host, pid and name
 * of its process and the date. Whoever has the lock looks for the file too, because the file system
 * may have locks on one host and none on another. */
#ifndef CGPIPE_CLI_LOCK_H
#define CGPIPE_CLI_LOCK_H

#include <cgpipe/base.h>

#define CLI_LOCK "lock"

/* Take the lock of an open directory; `path` is for messages. *by_file: there is a file to delete.
 * The file of a process of this host that is gone is replaced. Fails with CGP_EIO where another
 * process has the lock, or may have it on another host: the message says which, and how to delete
 * its file. Where the file system has neither locks nor links, warns and returns CGP_OK. */
CGP_MUST_CHECK cgp_status cli_lock_take(int directory, const char *path, bool *by_file);

/* Tell whether the file is this process's, or cannot be read at the moment: somebody may have
 * deleted it for that of a dead process. */
bool cli_lock_is_kept(int directory);

/* Delete the file, if it is this process's. */
void cli_lock_release(int directory);

/* Tell whether a process has the lock. UNKNOWN: the file system has no locks and there is no file,
 * or it is of a process that cannot be looked at from this host. */
typedef enum cli_lock { CLI_LOCK_FREE, CLI_LOCK_HELD, CLI_LOCK_UNKNOWN } cli_lock;
cli_lock cli_lock_look(int directory);

#endif
