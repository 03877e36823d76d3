/* SPDX-License-Identifier: Apache-2.0 */
/* stop.c -- cgpipe stop: ask the training that writes a run, on whatever host, to save and end. The request is a file in the run's
 * directory (session/run_directory.h), which the training looks for behind each step and deletes; so does a later start. */
#include "commands/commands.h"

#include "common.h"
#include "session/record.h"

#include <inttypes.h>
#include <time.h>

/* Fail if this is no run, or no process trains in it; a training that has just begun has the lock and no run.json yet. */
static cgp_status check(const cli_run_directory *directory, cli_run_lock *lock) {
    json_t *record = NULL;
    *lock = directory->fd >= 0 ? cli_run_directory_lock(directory) : CLI_LOCK_FREE;
    if (*lock == CLI_LOCK_HELD) return CGP_OK;
    CGP_TRY(cli_record_read(directory, &record));
    json_decref(record);
    if (*lock == CLI_LOCK_UNKNOWN) return CGP_OK;
    return cgp_fail(
        CGP_ESTATE,
        "run directory %s: nothing trains in it: no process has its lock (where the "
        "file system keeps locks to each host, ask on the host of rank 0)",
        directory->path);
}

static void print_request(const cli_run_directory *directory, cli_run_lock lock) {
    const char *path = cli_shown(directory->path);
    if (lock == CLI_LOCK_HELD)
        printf(
            "stop         requested: the training in %s saves and ends behind its next step\n",
            path);
    else
        printf(
            "stop         requested; the file system of %s has no locks, so it is not known if "
            "a training will see it\n",
            path);
    fflush(stdout);
}

/* Without locks the request alone shows that a training goes on. */
static bool goes_on(const cli_run_directory *directory, cli_run_lock lock) {
    return lock == CLI_LOCK_HELD ? cli_run_directory_lock(directory) == CLI_LOCK_HELD
                                 : cli_run_directory_has(directory, CLI_REQUEST);
}

static void wait_for_end(const cli_run_directory *directory, cli_run_lock lock) {
    const struct timespec pause = {.tv_nsec = 100000000};
    while (goes_on(directory, lock))
        nanosleep(&pause, NULL);
    const int64_t step = cli_run_directory_newest(directory);
    if (lock == CLI_LOCK_UNKNOWN)
        printf("seen         the training saves and ends\n");
    else if (step < 0)
        printf("ended        without a checkpoint\n");
    else
        printf("ended        the last checkpoint is of step %" PRId64
               " (cgpipe train --resume --run %s goes on)\n",
               step, cli_shown(directory->path));
}

int cli_stop(const cli_run_options *options) {
    cli_run_directory directory;
    cli_run_lock lock = CLI_LOCK_UNKNOWN;
    if (!options->operand)
        return cli_report(
            cgp_fail(CGP_EINVAL, "stop: RUN is missing (the directory of cgpipe train)"), true);
    cli_run_directory_name(&directory, options->operand);
    cgp_status status = check(&directory, &lock);
    if (status == CGP_OK) status = cli_run_directory_request_stop(&directory);
    if (status == CGP_OK) print_request(&directory, lock);
    if (status == CGP_OK && options->wait) wait_for_end(&directory, lock);
    cli_run_directory_close(&directory);
    return cli_report(status, false);
}
