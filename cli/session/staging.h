/* SPDX-License-Identifier: Apache-2.0 */
/* staging.h -- replace several files of a directory together: write them into a directory inside
 * the target, and then move them into the target. */
#ifndef CGPIPE_CLI_STAGING_H
#define CGPIPE_CLI_STAGING_H

#include <cgpipe/base.h>

/* A locked directory inside the target. After a kill, the next conversion deletes this directory
 * with cgp_checkpoint_clean(), which recognizes it by its name and its free lock. */
typedef struct cli_staging {
    char *path;          /* path of this directory */
    const char *to;      /* path of the target, borrowed */
    int fd, target;      /* descriptors of this directory and of the target; -1: not open */
    const char *essence; /* name of the file without which the others are of no use, borrowed */
} cli_staging;

/* Make the directory. The file `essence` of the target is moved away first, and the new one is
 * moved in last. Remove the staging in any case. */
CGP_MUST_CHECK cgp_status cli_staging_make(cli_staging *staging, const char *to,
                                           const char *essence);

/* Move all files into the target, in place of files with their names. If a move fails, the old
 * files are moved back. */
CGP_MUST_CHECK cgp_status cli_staging_commit(const cli_staging *staging);

void cli_staging_remove(cli_staging *staging);

#endif
