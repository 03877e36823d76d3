/* SPDX-License-Identifier: Apache-2.0 */
/* files.h -- whole files: read, checked before work begins, and replaced, whole or not at all. */
#ifndef CGPIPE_CLI_FILES_H
#define CGPIPE_CLI_FILES_H

#include <cgpipe/base.h>

#include <jansson.h>

bool cli_is_directory(const char *path);

/* Fail early, with CGP_EIO, if no file can be written at `path`. */
CGP_MUST_CHECK cgp_status cli_file_check(const char *path);

/* Read all bytes of a file; the caller frees them. CGP_EIO if it cannot be read or is larger than 256 MiB. */
CGP_MUST_CHECK cgp_status cli_file_read(const char *path, char **bytes, size_t *size);

/* Write a text to a file; "-" is standard output, where it is no failure that the reader has gone. Takes `text` over. */
CGP_MUST_CHECK cgp_status cli_text_write(const char *path, char *text);

/* A number, or null where it is not finite. */
json_t *cli_real_json(double value);

/* Add the members of an object as json_pack() takes it. */
void cli_json_add(json_t *object, const char *format, ...);

/* Return the object as text with a line break at its end; NULL with CGP_ENOMEM's message. Takes `object` over; the caller frees
 * the text. */
char *cli_json_text(json_t *object);

/* Replace a file by `object`; "-" is standard output. Takes `object` over. */
CGP_MUST_CHECK cgp_status cli_json_replace(const char *path, json_t *object);

#endif
