/* SPDX-License-Identifier: Apache-2.0 */
/* digests.h -- writes digests.bin, the digests of a run's steps with --digest-every
 * (digest_file.h). Each record is written by one write, and is on disk before the checkpoint of its
 * step. */
#ifndef CGPIPE_CLI_DIGESTS_H
#define CGPIPE_CLI_DIGESTS_H

#include <cgpipe/pipeline.h>

typedef struct cli_run_directory cli_run_directory;

typedef struct cli_digests {
    char *path;
    int fd;                /* -1: the file is not open on this rank */
    size_t bytes;          /* size of a record in bytes */
    unsigned char *record; /* the last record; NULL: steps are not digested on this rank */
    char root[65];         /* root of the last record; "": none */
} cli_digests;

/* Check that cli_digests_open() can open the file, and that the file contains digests of this
 * plan's tensors. Call this function before any file of the run changes. */
CGP_MUST_CHECK cgp_status cli_digests_check(const cli_run_directory *directory,
                                            const cgp_plan *plan, int64_t step, int64_t every);

/* Open the file of a run that continues after `step` (0: a new run), and cut off the records of
 * later steps. `every` is --digest-every; if it is 0, only cut an existing file. If the header is
 * damaged, warn and, unless `every` is 0, begin the file again. Only rank 0 calls
 * cli_digests_check() and cli_digests_open(). */
CGP_MUST_CHECK cgp_status cli_digests_open(cli_digests *digests, const cli_run_directory *directory,
                                           const cgp_plan *plan, int64_t step, int64_t every);

/* Digest the last step, and write its record on rank 0. Collective. */
CGP_MUST_CHECK cgp_status cli_digests_add(cli_digests *digests, cgp_pipeline *pipeline);

/* Sync all records to disk. Call before saving the checkpoint of the last record. */
CGP_MUST_CHECK cgp_status cli_digests_sync(const cli_digests *digests);

void cli_digests_close(cli_digests *digests);

#endif
