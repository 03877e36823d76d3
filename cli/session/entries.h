/* SPDX-License-Identifier: Apache-2.0 */
/* entries.h -- the entries of a run's directory, and the steps of its checkpoints. */
#ifndef CGPIPE_CLI_ENTRIES_H
#define CGPIPE_CLI_ENTRIES_H

#include <cgpipe/base.h>

#include <dirent.h>

typedef struct cli_run_directory cli_run_directory;

/* Open a new listing of the entries. NULL: the directory cannot be read, see errno. */
DIR *cli_run_directory_list(const cli_run_directory *directory);

/* Return the next entry. NULL: the end, with *reason 0, or an error, with *reason errno. */
struct dirent *cli_entry_next(DIR *entries, int *reason);

/* Return the step in a checkpoint's name: 42 for "step-00000042", as the library writes it. -1: the
 * name has another form. */
int64_t cli_entry_step(const char *name);

/* Return the largest step in a checkpoint's name, even if that checkpoint is incomplete. The step
 * is 0 after cgpipe convert. CLI_STEP_UNKNOWN: the directory cannot be read, see errno. */
enum { CLI_NO_STEP = -1, CLI_STEP_UNKNOWN = -2 };
int64_t cli_run_directory_newest(const cli_run_directory *directory);

/* Return the step as cli_run_directory_newest() does, but count only checkpoints that have
 * checkpoint.json, the list of files. */
int64_t cli_run_directory_newest_listed(const cli_run_directory *directory);

#endif
