/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.c -- see diagnosis.h. */
#include "session/diagnosis.h"

#include <cgpipe/checkpoint.h>

#include "errors.h"
#include "machine.h"
#include "ranks.h"
#include "session/entries.h"
#include "session/run_directory.h"
#include "stop.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* After a signal the thread polls every LOOK_SECONDS. If a rank is lost, this rank has
 * GRACE_SECONDS to end by itself. */
#define LOOK_SECONDS 0.1
#define GRACE_SECONDS 0.5

static struct {
    cgp_pipeline *pipeline; /* the pipeline to report on; NULL: no files are written */
    cli_run_directory *run;
    char *shown; /* the run's path, escaped for a terminal */
    double timeout;
    pthread_t thread;
    sem_t wake;
    pthread_mutex_t lock; /* held while writing the file */
    atomic_bool quits;
    bool late;   /* this wait has been reported as late */
    bool failed; /* the last file reports a failure */
} d = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- files --- */

typedef struct file_name {
    char text[32];
} file_name;

static file_name name_of(int rank) {
    file_name name;
    snprintf(name.text, sizeof name.text, "rank-%d.json", rank);
    return name;
}

/* Make and open RUN/diagnosis. If the run's directory does not exist here (it is on another host's
 * disk), fd is -1. */
static cgp_status open_place(cli_run_directory *place) {
    cli_run_directory_reopen(d.run);
    const int run = d.run->fd;
    const int reason = run >= 0 && mkdirat(run, CLI_DIAGNOSIS, 0777) != 0 ? errno : 0;
    cli_run_directory_enter(place, d.run, CLI_DIAGNOSIS);
    if (place->fd >= 0 || place->reason == ENOENT) return CGP_OK;
    if (reason == EEXIST && place->reason != EACCES)
        return cgp_fail(
            CGP_EIO,
            "%s: expected the directory of the ranks' files, got another file (move it away)",
            place->path);
    return cgp_fail(CGP_EIO, "%s: cannot be made (%s)", place->path,
                    strerror(reason && reason != EEXIST ? reason : place->reason));
}

static cgp_status write_text(const char *text) {
    cli_run_directory place;
    const file_name name = name_of(cli_rank());
    cgp_status status = open_place(&place);
    if (status == CGP_OK && place.fd >= 0) {
        char *path = cli_text("%s/%s", place.path, name.text);
        status = cgp_file_replace_at(place.fd, name.text, path, text, strlen(text));
        free(path);
    }
    cli_run_directory_close(&place);
    return status;
}

/* Write this rank's file if no action has completed for `idle` seconds, and return whether it was
 * written. */
static bool write_file(const char *reason, double idle) {
    char *text = NULL;
    cgp_status status = cgp_pipeline_diagnosis(d.pipeline, reason, idle, &text);
    if (status == CGP_OK && text) status = write_text(text);
    if (status != CGP_OK) cli_warn();
    const bool wrote = text;
    free(text);
    return wrote;
}

void cli_diagnosis_write(const char *reason) {
    char *message = cli_text("%s", cgp_message()); /* copy: `reason` may point into this text */
    char *kept = cli_text("%s", reason);
    if (d.pipeline) {
        pthread_mutex_lock(&d.lock);
        (void)write_file(kept, 0);
        d.failed = true;
        pthread_mutex_unlock(&d.lock);
    }
    (void)cgp_fail(CGP_EINVAL, "%s", message);
    free(message);
    free(kept);
}

void cli_diagnosis_clear(const cli_run_directory *run) {
    cli_run_directory place;
    cli_run_directory_enter(&place, run, CLI_DIAGNOSIS);
    DIR *entries = place.fd >= 0 ? cli_run_directory_list(&place) : NULL;
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (strncmp(entry->d_name, "rank-", 5) == 0 ||
            cli_run_directory_is_temporary(entry->d_name)) /* file of a killed rank */
            (void)unlinkat(place.fd, entry->d_name, 0);
    }
    if (entries) closedir(entries);
    if (place.fd >= 0) (void)unlinkat(run->fd, CLI_DIAGNOSIS, AT_REMOVEDIR);
    cli_run_directory_close(&place);
}

/* Delete this rank's file, and the directory if it is then empty. */
static void delete_own(void) {
    cli_run_directory place;
    cli_run_directory_enter(&place, d.run, CLI_DIAGNOSIS);
    if (place.fd >= 0 && unlinkat(place.fd, name_of(cli_rank()).text, 0) == 0)
        (void)unlinkat(d.run->fd, CLI_DIAGNOSIS, AT_REMOVEDIR);
    cli_run_directory_close(&place);
}

/* --- the thread --- */

/* Sleep until wake(), at most `seconds`; 0: no limit. */
static void sleep_for(double seconds) {
    struct timespec until;
    if (seconds <= 0) {
        while (sem_wait(&d.wake) != 0 && errno == EINTR) {
        }
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until); /* sem_timedwait() uses this clock */
    const double nanoseconds = (double)until.tv_nsec + 1e9 * seconds;
    until.tv_sec += (time_t)(nanoseconds / 1e9);
    until.tv_nsec = (long)(nanoseconds - 1e9 * (double)(time_t)(nanoseconds / 1e9));
    while (sem_timedwait(&d.wake, &until) != 0 && errno == EINTR) {
    }
}

/* Write this rank's file if no action has completed for half of --timeout, and print one warning
 * per wait. */
static void look_for_late(void) {
    const double limit = d.timeout / 2;
    pthread_mutex_lock(&d.lock);
    const bool late = !d.failed && write_file("late", limit);
    if (late && !d.late && cli_rank() == 0)
        fprintf(stderr,
                "cgpipe: warning: no action has completed on any rank for %.3g s; the run "
                "continues (cgpipe diagnose %s)\n",
                limit, d.shown);
    d.late = late;
    pthread_mutex_unlock(&d.lock);
}

/* After a signal, write this rank's file, unless it was already written after a failure. */
static void note_signal(void) {
    pthread_mutex_lock(&d.lock);
    if (!d.failed) (void)write_file(cli_stop_signal(), 0);
    pthread_mutex_unlock(&d.lock);
}

static void *thread_main(void *unused) {
    (void)unused;
    double lost = 0; /* time at which a rank was found lost; 0: no rank is lost */
    bool noted = false;
    for (;;) {
        sleep_for(cli_stop_signal() ? LOOK_SECONDS : d.timeout / 8);
        if (d.quits) return NULL;
        if (cli_stop_signal() && !noted)
            note_signal();
        else if (d.timeout > 0 && !cli_stop_signal())
            look_for_late();
        noted = cli_stop_signal();
        if (!noted || !cli_ranks_lost()) continue;
        if (lost == 0) lost = cli_seconds();
        if (cli_seconds() - lost > GRACE_SECONDS) cli_ranks_leave();
    }
}

static void wake(void) {
    (void)sem_post(&d.wake);
}

cgp_status cli_diagnosis_begin(cgp_pipeline *pipeline, cli_run_directory *run, double timeout) {
    if (cli_ranks() == 1) return CGP_OK;
    if (cli_rank() == 0) cli_diagnosis_clear(run);
    CGP_TRY(cli_ranks_agree(CGP_OK)); /* no rank writes before rank 0 has deleted the old files */
    d.run = run;
    d.shown = cli_text("%s", cli_shown(run->path));
    d.timeout = timeout < 1e9 ? timeout : 0; /* a timeout of 30 years or more means no limit */
    d.pipeline = pipeline;
    d.quits = d.late = d.failed = false;
    sem_init(&d.wake, 0, 0);
    if (pthread_create(&d.thread, NULL, thread_main, NULL) != 0) {
        d.pipeline = NULL;
        free(d.shown);
        return cgp_fail(CGP_ENOMEM, "diagnosis: the thread could not be started");
    }
    cli_stop_call(wake);
    return CGP_OK;
}

void cli_diagnosis_end(void) {
    if (!d.pipeline) return;
    cli_stop_call(NULL);
    d.quits = true;
    wake();
    pthread_join(d.thread, NULL);
    d.pipeline = NULL;
    if (!d.failed && cli_stop_signal()) delete_own();
    free(d.shown);
}
