/* SPDX-License-Identifier: Apache-2.0 */
/* run_directory.h -- the directory of a run:
 *
 *     run.json         model, options, versions, devices, starts; at each start (record.h)
 *     metrics.jsonl    one object a step (metrics.h)
 *     step-00000042/   a checkpoint: weights, optimizer state, position in the data
 *     latest           a link to the newest checkpoint
 *     diagnosis/       what ranks leave when one was lost, or they wait for long (diagnosis.h)
 *     stop             a request of cgpipe stop, until the training sees it
 *     lock             host and process of the training, where the file system has no locks (lock.h)
 *     restarts.jsonl   one object a restart of cgpipe supervise
 *     .new/            a whole run that is about to replace this one
 *     .replaced/       the run that is being replaced, until the new one is in place
 *
 * One process at a time writes to it, the one that holds its lock (lock.h).
 *
 * The directory is opened once and may be reached by a link. Its entries are read, written and
 * deleted relative to the descriptor and without following a link, so that nothing outside of it
 * changes; only names that cgpipe gives are deleted. */
#ifndef CGPIPE_CLI_DIRECTORY_H
#define CGPIPE_CLI_DIRECTORY_H

#include <cgpipe/pipeline.h>

#include <dirent.h>
#include <jansson.h>

#include "session/lock.h"

typedef struct cli_run_directory {
    char *path;
    /* The target of `path` if it is a link, so that a change of the link does not change the run;
     * else NULL. */
    char *target;
    char *record, *metrics; /* paths in it, for messages */
    int fd;                 /* of the directory; -1: it does not exist or cannot be read */
    int reason;             /* errno of that */
    bool locked, made;      /* by this process */
    bool lock_file;         /* the lock is a file */
} cli_run_directory;

#define CLI_RECORD "run.json"
#define CLI_METRICS "metrics.jsonl"
#define CLI_LATEST "latest"
#define CLI_RESTARTS "restarts.jsonl"
#define CLI_REQUEST "stop"
#define CLI_REPLACED ".replaced"

/* Name the files, and open the directory if it is there; changes nothing. Close it in any case. */
void cli_run_directory_name(cli_run_directory *directory, const char *path);

/* Open the directory if it was not there before, as another rank may have made it. */
void cli_run_directory_reopen(cli_run_directory *directory);

/* Open a directory that is in this one; it and all below it is reached by this descriptor, and a
 * link is not followed. `fd` is -1 if there is none. Close it in any case. */
void cli_run_directory_enter(cli_run_directory *below, const cli_run_directory *directory,
                             const char *name);

/* Open a new list of the entries. NULL: the directory cannot be read, see errno. */
DIR *cli_run_directory_list(const cli_run_directory *directory);

/* Tell whether the library gives such a name, ".cgpipe-*.tmp" and the like, to entries that it
 * writes or deletes. */
bool cli_run_directory_is_temporary(const char *name);

/* Check that a run can be written here, and lock the directory if it exists. Refuses a run.json and
 * a metrics.jsonl that are no regular files. Changes nothing but what an earlier process left: a
 * stop request is deleted with the lock, and a run whose replacement was killed comes back. */
CGP_MUST_CHECK cgp_status cli_run_directory_check(cli_run_directory *directory);

/* Open a regular file of the directory: `flags` of open(). Refuses a link, and waits for no pipe.
 * Without O_CREAT, *fd is -1 if there is none. */
CGP_MUST_CHECK cgp_status cli_run_directory_open(const cli_run_directory *directory,
                                                 const char *name, int flags, int *fd);

/* Give a file that has other names, too (hard links, as cp -al makes them of a whole run), a copy
 * of its own, before it is appended to. */
CGP_MUST_CHECK cgp_status cli_run_directory_unshare(const cli_run_directory *directory,
                                                    const char *name);

/* Tell whether a process holds the lock, as cli_lock_look(). */
cli_lock cli_run_directory_lock(const cli_run_directory *directory);

/* Fail with CGP_EIO if somebody has deleted or replaced the lock file: another process may be at
 * work then, and this one no longer counts as the one that has the lock. */
CGP_MUST_CHECK cgp_status cli_run_directory_keep_lock(cli_run_directory *directory);

/* Ask the process that holds the lock, on any host, to stop. */
CGP_MUST_CHECK cgp_status cli_run_directory_request_stop(const cli_run_directory *directory);

/* Delete a stop request. Return whether there was one. */
bool cli_run_directory_take_stop(const cli_run_directory *directory);

/* Tell whether an entry is there; whether anything of a run is. */
bool cli_run_directory_has(const cli_run_directory *directory, const char *name);
bool cli_run_directory_has_run(const cli_run_directory *directory);

/* Return the step of the newest checkpoint by name, whole or not; cgpipe convert makes step 0.
 * UNKNOWN: the directory cannot be read, see errno. */
enum { CLI_NO_STEP = -1, CLI_STEP_UNKNOWN = -2 };
int64_t cli_run_directory_newest(const cli_run_directory *directory);

/* Likewise of those that have their list of files, checkpoint.json. */
int64_t cli_run_directory_newest_listed(const cli_run_directory *directory);

/* Find a checkpoint with cgp_checkpoint_find(): its step and note; `from` -1: the latest. */
CGP_MUST_CHECK cgp_status cli_run_directory_find(const cli_run_directory *directory, int64_t from,
                                                 int64_t *step, char **note);

/* Load a checkpoint with cgp_pipeline_load(); `step` -1: the latest. */
CGP_MUST_CHECK cgp_status cli_run_directory_load(const cli_run_directory *directory, int64_t step,
                                                 cgp_pipeline *pipeline, char **note);

/* Check that all ranks see this directory, with cgp_pipeline_check_directory(). */
CGP_MUST_CHECK cgp_status cli_run_directory_check_ranks(const cli_run_directory *directory,
                                                        cgp_pipeline *pipeline);

/* Save a checkpoint with cgp_pipeline_save_with(). Takes `note` over. */
CGP_MUST_CHECK cgp_status cli_run_directory_save(const cli_run_directory *directory,
                                                 cgp_pipeline *pipeline, cgp_save_options options,
                                                 json_t *note);

/* Make the directory if it is missing, and lock it. */
CGP_MUST_CHECK cgp_status cli_run_directory_make(cli_run_directory *directory);

/* Delete the checkpoints of later steps: each is renamed first, so a killed process leaves whole
 * ones only. A renamed one that cannot be deleted is a warning. */
CGP_MUST_CHECK cgp_status cli_run_directory_drop_after(const cli_run_directory *directory,
                                                       int64_t step);

/* Delete half-done entries of killed processes; one that cannot be deleted is a warning. The
 * directory is locked. */
void cli_run_directory_clean(const cli_run_directory *directory);

/* Delete the run: run.json first, without which the rest is no run. */
CGP_MUST_CHECK cgp_status cli_run_directory_clear(const cli_run_directory *directory);

/* Try to delete run.json and metrics.jsonl of a run without a checkpoint; keeps the message of an
 * earlier failure. */
void cli_run_directory_undo(const cli_run_directory *directory);

/* Write a whole run before it replaces the one that is there. Begin: make a directory inside this
 * one, empty and locked. End: with CGP_OK move the run away and the new one here, run.json last,
 * and delete the old one; a failure moves the old one back. Then close the new one and delete what
 * is left of it. Returns `status` if that is a failure. */
CGP_MUST_CHECK cgp_status cli_run_directory_new_begin(const cli_run_directory *directory,
                                                      cli_run_directory *fresh);
CGP_MUST_CHECK cgp_status cli_run_directory_new_end(const cli_run_directory *directory,
                                                    cli_run_directory *fresh, cgp_status status);

/* Close; a stop request that came too late goes with the lock, and an empty directory that this
 * process made is removed. */
void cli_run_directory_close(cli_run_directory *directory);

#endif
