/* SPDX-License-Identifier: Apache-2.0 */
/* run_directory.h -- the directory of a run:
 *
 *     run.json         model, options, versions, devices, starts; written at each start (record.h)
 *     metrics.jsonl    one object per step (metrics.h)
 *     digests.bin      digests of steps, with --digest-every (digest_file.h)
 *     measured.json    a measured step, times of layers, the end of the training (measured.h)
 *     report.html      the report of cgpipe report, written at the end of the training
 *     step-00000042/   a checkpoint: weights, optimizer state, position in the data
 *     latest           a link to the newest checkpoint
 *     diagnosis/       files of ranks after a rank was lost or waits were long (diagnosis.h)
 *     stop             a request of cgpipe stop, until the training reads it
 *     lock             host and process of the training, if the file system has no locks (lock.h)
 *     restarts.jsonl   one object per restart by cgpipe supervise
 *     published/       config.json, tokenizer and other small files (published_files.h)
 *     tokens/          tokens of the data, if they are text for a tokenizer (tokens.h)
 *     .new/            a complete run that is about to replace this one
 *     .replaced/       the run that is being replaced, until the new one is in place
 *
 * Only the training that holds the lock of the directory (lock.h) writes to the directory.
 *
 * The directory is opened once; its path may be a link. Its entries are read, written and deleted
 * relative to the descriptor without following links, so nothing outside of it changes. Only
 * entries with cgpipe's names are deleted. */
#ifndef CGPIPE_CLI_DIRECTORY_H
#define CGPIPE_CLI_DIRECTORY_H

#include <cgpipe/save.h>

#include <jansson.h>

typedef struct cli_run_directory {
    char *path;
    /* The target of `path` if the path is a link, so that changing the link does not change the
     * run; else NULL. */
    char *target;
    char *record, *metrics; /* paths of run.json and metrics.jsonl, for messages */
    int fd;                 /* descriptor; -1: the directory is missing or cannot be read */
    int reason;             /* errno if fd is -1 */
    bool locked, made;      /* this process has locked, or made, the directory */
    bool lock_file;         /* the lock is a file */
} cli_run_directory;

#define CLI_RECORD "run.json"
#define CLI_METRICS "metrics.jsonl"
#define CLI_DIGESTS "digests.bin"
#define CLI_MEASURED "measured.json"
#define CLI_REPORT "report.html"
#define CLI_LATEST "latest"
#define CLI_RESTARTS "restarts.jsonl"
#define CLI_REQUEST "stop"
#define CLI_REPLACED ".replaced"
#define CLI_PUBLISHED "published"

/* Set the names of the files, and open the directory if it exists. Changes nothing on disk. Close
 * the directory in any case. */
void cli_run_directory_name(cli_run_directory *directory, const char *path);

/* Try again to open a directory that did not exist, because another rank may have made it. */
void cli_run_directory_reopen(cli_run_directory *directory);

/* Open a subdirectory, relative to this directory's descriptor and without following a link.
 * below->fd is -1 if there is no such directory. Close `below` in any case. */
void cli_run_directory_enter(cli_run_directory *below, const cli_run_directory *directory,
                             const char *name);

/* Tell whether a name is ".cgpipe-*.tmp", ".cgpipe-*.old" or ".cgpipe-*.gone": an entry that is
 * being written or deleted. */
bool cli_run_directory_is_temporary(const char *name);

/* Check that a run can be written here, and lock the directory if it exists. Refuses a run.json,
 * metrics.jsonl or digests.bin that is not a regular file. Changes only what earlier processes
 * left: deletes an old stop request, and brings back a run whose replacement was killed. */
CGP_MUST_CHECK cgp_status cli_run_directory_check(cli_run_directory *directory);

/* Open a regular file of the directory. `flags` are the flags of open(). Refuses a link; does not
 * block on a pipe. Without O_CREAT, *fd is -1 if the file does not exist. */
CGP_MUST_CHECK cgp_status cli_run_directory_open(const cli_run_directory *directory,
                                                 const char *name, int flags, int *fd);

/* If a file has other hard links, replace it by a copy, so that appending to the file does not
 * change the other links. cp -al makes such links for a whole run. */
CGP_MUST_CHECK cgp_status cli_run_directory_unshare(const cli_run_directory *directory,
                                                    const char *name);

/* Fail with CGP_EIO if the lock file was deleted or replaced. Another process may then write to the
 * run, and the directory counts as unlocked by this process. */
CGP_MUST_CHECK cgp_status cli_run_directory_keep_lock(cli_run_directory *directory);

/* Ask the process that holds the lock, on any host, to stop. */
CGP_MUST_CHECK cgp_status cli_run_directory_request_stop(const cli_run_directory *directory);

/* Delete a stop request, and return whether there was one. */
bool cli_run_directory_take_stop(const cli_run_directory *directory);

/* The first function tells whether the directory has an entry of this name. The second function
 * tells whether the directory contains any part of a run. */
bool cli_run_directory_has(const cli_run_directory *directory, const char *name);
bool cli_run_directory_has_run(const cli_run_directory *directory);

/* Call cgp_checkpoint_find() to find the step and the note of a checkpoint. `from` is the step of
 * the checkpoint; -1: the latest checkpoint. */
CGP_MUST_CHECK cgp_status cli_run_directory_find(const cli_run_directory *directory, int64_t from,
                                                 int64_t *step, char **note);

/* Call cgp_pipeline_load() to load a checkpoint. `step` is the step of the checkpoint; -1: the
 * latest checkpoint. */
CGP_MUST_CHECK cgp_status cli_run_directory_load(const cli_run_directory *directory, int64_t step,
                                                 cgp_pipeline *pipeline, char **note);

/* Call cgp_pipeline_check_directory() to check that all ranks see this directory. */
CGP_MUST_CHECK cgp_status cli_run_directory_check_ranks(const cli_run_directory *directory,
                                                        cgp_pipeline *pipeline);

/* Call cgp_pipeline_save_with() to save a checkpoint. Takes ownership of `note`. */
CGP_MUST_CHECK cgp_status cli_run_directory_save(const cli_run_directory *directory,
                                                 cgp_pipeline *pipeline, cgp_save_options options,
                                                 json_t *note);

/* Make the directory if it is missing, and lock it. */
CGP_MUST_CHECK cgp_status cli_run_directory_make(cli_run_directory *directory);

/* Delete the checkpoints of later steps. Each is renamed first, so that a killed process leaves
 * only complete checkpoints. Failing to delete a renamed checkpoint is only a warning. */
CGP_MUST_CHECK cgp_status cli_run_directory_drop_after(const cli_run_directory *directory,
                                                       int64_t step);

/* Delete half-written entries of killed processes; a failure is a warning. The directory must be
 * locked. */
void cli_run_directory_clean(const cli_run_directory *directory);

/* Delete the run. run.json is deleted first: without it, the other files do not count as a run. */
CGP_MUST_CHECK cgp_status cli_run_directory_clear(const cli_run_directory *directory);

/* Try to delete a directory of the run and the files in it, "published" for example. A failure is
 * ignored. Keeps the message of an earlier failure. */
void cli_run_directory_drop(const cli_run_directory *directory, const char *name);

/* Delete the report, which describes an earlier start. A failure is a warning. */
void cli_run_directory_drop_report(const cli_run_directory *directory);

/* Try to delete run.json, metrics.jsonl, digests.bin and the directory "published" of a run without
 * a checkpoint. Keeps the message of an earlier failure. */
void cli_run_directory_undo(const cli_run_directory *directory);

/* Write a complete new run before it replaces an existing run. new_begin() makes an empty, locked
 * directory `fresh` inside this one. If `status` is CGP_OK, new_end() moves the old run away and
 * the new run into its place, run.json last. It then deletes the old run or, if a move failed,
 * moves it back. In any case, it closes `fresh` and deletes what is left in it. Returns `status` if
 * that is a failure. */
CGP_MUST_CHECK cgp_status cli_run_directory_new_begin(const cli_run_directory *directory,
                                                      cli_run_directory *fresh);
CGP_MUST_CHECK cgp_status cli_run_directory_new_end(const cli_run_directory *directory,
                                                    cli_run_directory *fresh, cgp_status status);

/* Close the directory. If this process has the lock, deletes a late stop request. If this process
 * made the directory and it is still empty, removes it. */
void cli_run_directory_close(cli_run_directory *directory);

#endif
