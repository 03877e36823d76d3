/* SPDX-License-Identifier: Apache-2.0 */
/* file.h -- a file that appears at its path whole and synced, or not at all; and reading one. */
#ifndef CGP_SRC_CHECKPOINT_FILE_H
#define CGP_SRC_CHECKPOINT_FILE_H

#include <cgpipe/base.h>

typedef struct cgp__file cgp__file;

/* Open a temporary file beside `path`. Links are followed: it is the file they lead to that is
 * replaced. CGP_EIO: the directory is missing or not writable, or `path` is something else than a
 * regular file. */
cgp_status cgp__file_create(cgp__file **out, const char *path);

/* The same in an open directory, which is the caller's: no link is followed, and one that is there is refused. `path` is for
 * messages. */
cgp_status cgp__file_create_at(cgp__file **out, int directory, const char *name,
                               const char *path);

/* Append. After CGP_EIO the file can only be abandoned (or committed, which then fails). */
cgp_status cgp__file_write(cgp__file *file, const void *data, size_t bytes);

/* Sync, rename, sync the directory. Frees the file, whatever the outcome. */
cgp_status cgp__file_commit(cgp__file *file);

/* Delete the temporary file and free. Accepts NULL. */
void cgp__file_abandon(cgp__file *file);

/* Make what was renamed in an open directory last. Returns 0, or errno; a file system that cannot sync a
 * directory has not failed. */
int cgp__sync_directory(int directory);

/* The directory that a path is in; owned by the caller, NULL when short. */
char *cgp__directory_of(const char *path);

/* --- reading; `path` is for messages --- */

/* Open a regular file in an open directory, where no link is followed, or by its path (AT_FDCWD), where links are. `damage` is
 * the status if there is none: missing, or something else (not `expected`). CGP_EIO: unreadable. Nothing stays open. */
cgp_status cgp__open_regular(int directory, const char *name, const char *path,
                             const char *expected, cgp_status damage, int *fd);

/* Read up to `bytes` bytes; *got is less only at the end of the file. */
cgp_status cgp__read_at(int fd, const char *path, int64_t at, void *data, size_t bytes,
                        size_t *got);

#endif
