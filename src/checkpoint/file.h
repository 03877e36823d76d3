/* file.h -- a file that appears at its path whole and synced, or not at all. */
#ifndef CGP_SRC_CHECKPOINT_FILE_H
#define CGP_SRC_CHECKPOINT_FILE_H

#include <cgpipe/base.h>

typedef struct cgp__file cgp__file;

/* Open a temporary file beside `path`. Links are followed: it is the file they lead to that is
 * replaced. CGP_EIO: the folder is missing or not writable, or `path` is something else than a
 * regular file. */
cgp_status cgp__file_create(cgp__file **out, const char *path);

/* Append. After CGP_EIO the file can only be abandoned (or committed, which then fails). */
cgp_status cgp__file_write(cgp__file *file, const void *data, size_t bytes);

/* Sync, rename, sync the folder. Frees the file, whatever the outcome. */
cgp_status cgp__file_commit(cgp__file *file);

/* Delete the temporary file and free. Accepts NULL. */
void cgp__file_abandon(cgp__file *file);

/* Make what was renamed in a folder last. Returns 0, or errno; a file system that cannot sync a
 * folder has not failed. */
int cgp__sync_folder(const char *folder);

#endif
