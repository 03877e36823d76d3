/* SPDX-License-Identifier: Apache-2.0 */
/* files.h -- whole files: read, checked before work begins, and replaced, whole or not at all. */
#ifndef CGPIPE_CLI_FILES_H
#define CGPIPE_CLI_FILES_H

#include <cgpipe/base.h>

#include <jansson.h>

bool cli_is_directory(const char *path);

/* Fail early, with CGP_EIO, if no file can be written at `path`. */
CGP_MUST_CHECK cgp_status cli_file_check(const char *path);

/* The limit of a file that has no other: a typing error must not eat all memory. A row of 2^24
 * actions is a tenth of it. */
#define CLI_LARGEST_FILE ((size_t)256 << 20)

/* Read all bytes of a file, `max` of them at most; the caller frees them. CGP_EIO: it cannot be
 * read. CGP_EFORMAT: it is larger. */
CGP_MUST_CHECK cgp_status cli_file_read(const char *path, size_t max, char **bytes, size_t *size);

/* Likewise of an open file, which is closed; `path` is for messages. */
CGP_MUST_CHECK cgp_status cli_file_read_open(int fd, const char *path, size_t max, char **bytes,
                                             size_t *size);

/* Write a text to a file; "-" is standard output, where it is no failure that the reader has gone.
 * Takes `text` over. */
CGP_MUST_CHECK cgp_status cli_text_write(const char *path, char *text);

/* A text, or null for NULL and for what is no UTF-8. */
json_t *cli_text_json(const char *text);

/* A number, or null where it is not finite. */
json_t *cli_real_json(double value);

/* Add the members of an object as json_pack() takes it. */
void cli_json_add(json_t *object, const char *format, ...);

/* Return the object as text with a line break at its end; NULL with CGP_ENOMEM's message. Takes
 * `object` over; the caller frees the text. */
char *cli_json_text(json_t *object);

/* Replace a file by `object`; "-" is standard output. Takes `object` over. */
CGP_MUST_CHECK cgp_status cli_json_replace(const char *path, json_t *object);

#endif
