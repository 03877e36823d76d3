/* SPDX-License-Identifier: Apache-2.0 */
/* files.h -- reads regular files at offsets, and lists directories. */
#ifndef CGP_SRC_DATA_FILES_H
#define CGP_SRC_DATA_FILES_H

#include <cgpipe/base.h>

/* Open a regular file; *fd and *bytes (its size) are written on success. `expected`, such as "a
 * text file", is for the message if the path is a directory. */
cgp_status cgp__data_file_open(const char *path, const char *expected, int *fd, int64_t *bytes);

/* Read exactly `count` bytes at `offset`. Return CGP_EIO if the file is too short. */
cgp_status cgp__data_file_read(const char *path, int fd, int64_t offset, void *bytes,
                               int64_t count);

/* Read a whole file, and append a zero byte. Return CGP_EFORMAT if the file has more than `max`
 * bytes. On success, the caller owns *bytes. */
cgp_status cgp__data_file_load(const char *path, const char *expected, int64_t max, uint8_t **bytes,
                               int64_t *size);

/* Return the big-endian number in bytes[0 .. 3]. */
static inline int64_t cgp__big_endian(const uint8_t *bytes) {
    return (int64_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

/* Get the size of a file without opening it. */
cgp_status cgp__data_file_size(const char *path, int64_t *bytes);

/* A growing list of file names, all owned. */
typedef struct cgp__data_files {
    char **items;
    int n, capacity;
    /* Return whether a file of a directory is selected, given the file's path. NULL: all files that
     * are not empty are selected. */
    bool (*filter)(const char *path);
    int seen; /* number of files found in directories, before the filter is applied */
} cgp__data_files;

/* Append the files of `paths`. A directory adds its files (data.h has the rules and the order); any
 * other path is added unchecked. */
cgp_status cgp__data_files_find(cgp__data_files *files, const char *const *paths, int n_paths);

/* Append the subdirectories of a directory, and its links to directories, in byte order. Skip
 * hidden names. */
cgp_status cgp__data_directories_find(cgp__data_files *directories, const char *path);

void cgp__data_files_release(cgp__data_files *names);

#endif
