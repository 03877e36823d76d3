/* SPDX-License-Identifier: Apache-2.0 */
/* files.h -- read and atomically replace whole files; check paths before the work starts. */
#ifndef CGPIPE_CLI_FILES_H
#define CGPIPE_CLI_FILES_H

#include <cgpipe/base.h>

#include <stdio.h>

bool cli_is_directory(const char *path);

/* Fail early, with CGP_EIO, if no file can be written at `path`. */
CGP_MUST_CHECK cgp_status cli_file_check(const char *path);

/* Default limit of a file's size in bytes. It prevents a mistyped path from using up all memory. A
 * CSV row of 2^24 actions takes about half of this size. */
#define CLI_LARGEST_FILE ((size_t)256 << 20)

/* Read all bytes of a file, at most `max` bytes; the caller frees them. CGP_EIO: the file cannot be
 * read. CGP_EFORMAT: the file is larger. */
CGP_MUST_CHECK cgp_status cli_file_read(const char *path, size_t max, char **bytes, size_t *size);

/* Like cli_file_read(), for an open file. Closes the file; `path` is for messages. */
CGP_MUST_CHECK cgp_status cli_file_read_open(int fd, const char *path, size_t max, char **bytes,
                                             size_t *size);

/* Write a text to a file, or to standard output if the path is "-". It is not a failure if the
 * reader of standard output has closed the pipe. Takes ownership of `text`. */
CGP_MUST_CHECK cgp_status cli_text_write(const char *path, char *text);

/* Open a file for reading, and refuse a directory. On success, the caller closes *out. */
CGP_MUST_CHECK cgp_status cli_file_open(const char *path, FILE **out);

/* Return a path with the current directory before it, unless it begins with '/'. Freed by the
 * caller. */
char *cli_absolute_path(const char *path);

#endif
