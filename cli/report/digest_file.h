/* SPDX-License-Identifier: Apache-2.0 */
/* digest_file.h -- reads digests.bin, which has the digests of a run's steps
 * (docs/reference/digests.md):
 *
 *     {"cgpipe_digests":1,"losses":1,"tensors":[["wte.weight","gradient"], ..]}\n
 *     record, record, ..      of cgp_pipeline_digest(), with ascending steps */
#ifndef CGPIPE_CLI_DIGEST_FILE_H
#define CGPIPE_CLI_DIGEST_FILE_H

#include <cgpipe/plan.h>

#include <jansson.h>

typedef struct cli_digest_file {
    char *path;
    int fd; /* -1: not open */
    json_t *header;
    int losses, tensors;
    size_t begin, record_bytes; /* offset of the first record, and size of a record */
    int64_t records;            /* number of whole records */
    size_t torn;                /* number of bytes after the last whole record */
    int64_t step;               /* step of the record that was read last; 0: none */
    unsigned char *record;
} cli_digest_file;

/* Return the header for the digests of a plan's tensors, owned by the caller. NULL: a name is not
 * UTF-8. */
json_t *cli_digest_header(const cgp_plan *plan);

/* Read the header of an open file. Takes ownership of `fd`. Release the file in any case. */
CGP_MUST_CHECK cgp_status cli_digest_file_open(cli_digest_file *file, const char *path, int fd);

/* Read record i, 0 .. records - 1. Fails with CGP_EFORMAT if the record's root is wrong. Also fails
 * if the record's step does not exceed the step of the record that was read last. */
CGP_MUST_CHECK cgp_status cli_digest_file_read(cli_digest_file *file, int64_t i);

/* Fail with CGP_EFORMAT if the file ends within a record. */
CGP_MUST_CHECK cgp_status cli_digest_file_check_end(const cli_digest_file *file);

/* Return the sum of a loss in the current record. */
double cli_digest_loss(const cli_digest_file *file, int loss);

/* Return the hash of a tensor in the current record; return the tensor's name and part. All are
 * borrowed. */
const unsigned char *cli_digest_hash(const cli_digest_file *file, int tensor);
const char *cli_digest_name(const cli_digest_file *file, int tensor);
const char *cli_digest_part(const cli_digest_file *file, int tensor);

void cli_digest_file_release(cli_digest_file *file);

#endif
