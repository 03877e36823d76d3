/* SPDX-License-Identifier: Apache-2.0 */
/* stop.c -- cgpipe stop: ask the training that writes a run, on any host, to save and end. The
 * request is a file in the run's directory (session/run_directory.h). The training checks for it
 * after each step and deletes it; a later start deletes it too.
 *
 * A training holds a lock on the directory, but a network file system may hide the lock from other
 * hosts. If the lock is free, the request is refused only if the run was last started on this host,
 * or was never started. Otherwise the request is made, and the output says why the training may not
 * exist. */
#include "commands/commands.h"

#include "errors.h"
#include "machine.h"
#include "report/output.h"
#include "session/entries.h"
#include "session/lock.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Return the reason why a training may be running although this process sees no lock; the caller
 * frees the reason. NULL: no training is running. */
static char *reason_to_doubt(const json_t *record, cli_lock lock) {
    char here[CLI_HOST];
    const char *host = cli_record_host(record);
    if (lock == CLI_LOCK_UNKNOWN)
        return cli_text("its file system has no locks, or another host has the lock");
    if (cli_record_starts(record) == 0 || (host && strcmp(host, cli_host(here)) == 0)) return NULL;
    return host ? cli_text("it was last started on %s, whose lock may not be visible here",
                           cli_shown(host))
                : cli_text("an older cgpipe started it, perhaps on another host");
}

/* Fail if the directory is not a run, or if no process trains in it. If it is unknown whether a
 * process trains in it, succeed and set *doubt to the reason, which the caller frees. A training
 * that has just started holds the lock before it writes run.json. */
static cgp_status check(const cli_run_directory *directory, char **doubt) {
    json_t *record = NULL;
    const cli_lock lock = directory->fd >= 0 ? cli_lock_look(directory->fd) : CLI_LOCK_FREE;
    if (lock == CLI_LOCK_HELD) return CGP_OK;
    CGP_TRY(cli_record_read(directory, &record));
    *doubt = reason_to_doubt(record, lock);
    json_decref(record);
    if (*doubt) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "run directory %s: no training runs in it", directory->path);
}

static void print_request(const cli_run_directory *directory, const char *doubt) {
    const char *path = cli_shown(directory->path);
    if (doubt)
        printf("stop         requested; whether a training runs in %s is unknown: %s\n", path,
               doubt);
    else
        printf("stop         requested: the training in %s will save and end after its next step\n",
               path);
    cli_output_flush(stdout);
}

/* Wait until the lock is free. If there is a `doubt`, this process cannot see the lock, so wait
 * until a training has deleted the stop request. */
static void wait_for_end(const cli_run_directory *directory, const char *doubt) {
    const struct timespec pause = {.tv_nsec = 100000000};
    while (doubt ? cli_run_directory_has(directory, CLI_REQUEST)
                 : cli_lock_look(directory->fd) == CLI_LOCK_HELD)
        nanosleep(&pause, NULL);
    const int64_t step = cli_run_directory_newest_listed(directory);
    if (doubt)
        printf("received     the training will save and end\n");
    else if (step < 0)
        printf("ended        without a checkpoint\n");
    else
        printf("ended        the last checkpoint is of step %" PRId64
               " (cgpipe train --resume --run %s continues)\n",
               step, cli_shown(directory->path));
}

int cli_stop(const cli_run_options *options) {
    cli_run_directory directory;
    char *doubt = NULL;
    cli_run_directory_name(&directory, options->operand);
    cgp_status status = check(&directory, &doubt);
    if (status == CGP_OK) status = cli_run_directory_request_stop(&directory);
    if (status == CGP_OK) print_request(&directory, doubt);
    if (status == CGP_OK && options->wait) wait_for_end(&directory, doubt);
    free(doubt);
    cli_run_directory_close(&directory);
    return cli_report(status, false);
}
