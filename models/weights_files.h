/* SPDX-License-Identifier: Apache-2.0 */
/* weights_files.h -- finds the tensors of published weights, in one file or in several files with
 * an index. */
#ifndef CGPIPE_MODELS_WEIGHTS_FILES_H
#define CGPIPE_MODELS_WEIGHTS_FILES_H

#include <cgpipe/checkpoint.h>

#include <jansson.h>

typedef struct cgp__weights_file {
    char *path;
    cgp_safetensors *tensors;
} cgp__weights_file;

typedef struct cgp__weights_files {
    cgp__weights_file *files;
    int count;
} cgp__weights_files;

/* Open a file, or the weights in a directory. Every tensor occurs once, in the file that the index
 * names. Close `files` also after a failure. */
CGP_MUST_CHECK cgp_status cgp__weights_files_open(cgp__weights_files *files, const char *path);
void cgp__weights_files_close(cgp__weights_files *files);

/* Return "directory/name", owned by the caller; NULL if memory is short. */
char *cgp__path_in(const char *directory, const char *name);

/* Record "out of memory" for `what`, and return CGP_ENOMEM. */
cgp_status cgp__short_of_memory(const char *what);

/* Read a JSON object from a regular file of at most `max` bytes. No key may occur twice. *out is
 * owned by the caller, also after a failure. */
CGP_MUST_CHECK cgp_status cgp__json_open(json_t **out, const char *path, size_t max);

/* Write a value as JSON, cut to `size`. Returns `text`. */
const char *cgp__json_show(const json_t *value, char *text, size_t size);

#endif
