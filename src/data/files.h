/* SPDX-License-Identifier: Apache-2.0 */
/* files.h -- regular files that are read at offsets, and directories of them. */
#ifndef CGP_SRC_DATA_FILES_H
#define CGP_SRC_DATA_FILES_H

#include <cgpipe/base.h>

/* Open a regular file; *fd and *bytes (its size) are written on success. `expected` is what a
 * directory is not: "a text file". */
cgp_status cgp__data_file_open(const char *path, const char *expected, int *fd, int64_t *bytes);

/* Read exactly `count` bytes at `offset`; a file that ends before is CGP_EIO. */
cgp_status cgp__data_file_read(const char *path, int fd, int64_t offset, void *bytes,
                               int64_t count);

/* Read a whole file of at most `most` bytes (more is CGP_EFORMAT); *bytes is owned by the caller,
 * written on success like *size. */
cgp_status cgp__data_file_load(const char *path, const char *expected, int64_t max,
                               uint8_t **bytes, int64_t *size);

/* The size of a file that need not be open. */
cgp_status cgp__data_file_size(const char *path, int64_t *bytes);

/* A growing list of names of files, all owned. */
typedef struct cgp__data_files {
    char **items;
    int n, capacity;
    bool empty_too; /* find empty files as well */
} cgp__data_files;

/* Append the files that `paths` stand for: a directory for all its files (data.h says which, and in
 * which order), everything else for itself, unseen. */
cgp_status cgp__data_files_find(cgp__data_files *files, const char *const *paths, int n_paths);

/* Append the directories in a directory, or that links in it lead to, in byte order; hidden ones are left
 * out. */
cgp_status cgp__data_directories_find(cgp__data_files *directories, const char *path);

/* Append a name of another list, which is NULL there then. */
cgp_status cgp__data_files_take(cgp__data_files *files, char **name);

void cgp__data_files_release(cgp__data_files *names);

#endif
