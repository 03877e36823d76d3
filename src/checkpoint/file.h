/* SPDX-License-Identifier: Apache-2.0 */
/* file.h -- replaces a file atomically (complete and synced, or unchanged), and reads files. */
#ifndef CGP_SRC_CHECKPOINT_FILE_H
#define CGP_SRC_CHECKPOINT_FILE_H

#include <cgpipe/checkpoint.h>

#include <sys/types.h>
#include <time.h>

typedef struct cgp__file cgp__file;

/* Open a temporary file beside `path`. If `path` is a link, its target will be replaced. CGP_EIO:
 * the directory is missing or not writable, or `path` exists and is not a regular file. */
cgp_status cgp__file_create(cgp__file **out, const char *path);

/* Do the same as cgp__file_create(), but for a file in the caller's open directory. A link is
 * refused. `path` is for messages. */
cgp_status cgp__file_create_at(cgp__file **out, int directory, const char *name, const char *path);

/* Append data to the file. After CGP_EIO, a commit would fail, and the caller can only abandon the
 * file. */
cgp_status cgp__file_write(cgp__file *file, const void *data, size_t bytes);

/* Sync the file, rename it, and sync the directory. The call frees `file` in every case. */
cgp_status cgp__file_commit(cgp__file *file);

/* Delete the temporary file, and free `file`. Accepts NULL. */
void cgp__file_abandon(cgp__file *file);

/* Sync an open directory, so that renames in it persist. Return 0 or errno; 0 on file systems that
 * cannot sync a directory. */
int cgp__sync_directory(int directory);

/* Return the part of a path after its last slash. */
const char *cgp__last_part(const char *path);

/* Return the parent directory of a path. The text is owned by the caller; NULL if memory is
 * short. */
char *cgp__directory_of(const char *path);

/* A path for messages, shortened to fit a message. */
typedef struct cgp__path_text {
    char text[1024];
} cgp__path_text;

cgp__path_text cgp__path_text_of(const char *directory, const char *name);

/* --- temporary names (run_directory.c), processes (process.c) --- */

typedef struct cgp__entry_name {
    char text[CGP_TEMPORARY_BYTES];
} cgp__entry_name;

/* Return a unique name: ".cgpipe-<what>-@<process>-<counter><ending>". */
cgp__entry_name cgp__temporary_name(const char *what, const char *ending);
#define CGP__WRITTEN ".tmp" /* the writer of the entry holds a lock */
/* a checkpoint that is being replaced; it is restored if no other checkpoint has its step */
#define CGP__REPLACED ".old"
#define CGP__DELETED ".gone"

/* Return whether a process belongs to this host, boot and pid namespace. `name`: the process's
 * name, or a text that begins with that name. */
bool cgp__process_is_here(const char *name);

/* Do the same as cgp_process_find(), for a text that begins with the name of a process. */
cgp_process_state cgp__process_state_of(const char *name);

/* --- reading; `path` is for messages --- */

/* A regular file that is read in parts. It may be closed between reads; then each read opens it
 * again. */
typedef struct cgp__file_reader {
    int directory;    /* a descriptor, or AT_FDCWD; borrowed */
    const char *name; /* the name in `directory`; borrowed */
    int fd;           /* -1: closed */
    int64_t bytes;
    dev_t device;
    ino_t inode;
    struct timespec modified;
} cgp__file_reader;

/* Open a regular file. In an open directory, follow no link; by path (AT_FDCWD), follow links.
 * Return `damage` if the file is missing or not a regular file; the message then says that
 * `expected` was expected. Return CGP_EIO if the file is unreadable. After a failure nothing stays
 * open. */
cgp_status cgp__file_reader_open(cgp__file_reader *reader, int directory, const char *name,
                                 const char *path, const char *expected, cgp_status damage);

/* Read up to `bytes` bytes; *got is less only at the end of the file. If the reader is closed, the
 * call also returns CGP_EIO when the name refers to another file or the file has changed. */
cgp_status cgp__file_reader_read(const cgp__file_reader *reader, const char *path, int64_t at,
                                 void *data, size_t bytes, size_t *got);

void cgp__file_reader_close(cgp__file_reader *reader);

#endif
