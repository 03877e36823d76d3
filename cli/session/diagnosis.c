/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.c -- see diagnosis.h. */
#include "session/diagnosis.h"

#include <cgpipe/checkpoint.h>

#include "common.h"
#include "ranks.h"
#include "stop.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* After a signal the thread looks so often, and leaves a rank that failed so long to end by itself. */
#define LOOK_SECONDS 0.1
#define GRACE_SECONDS 0.5

static struct {
    cgp_pipeline *pipeline; /* NULL: nothing is written */
    char *run, *shown;      /* as it is, as a terminal may show it */
    double timeout;
    pthread_t thread;
    sem_t wake;
    pthread_mutex_t lock; /* of writing */
    atomic_bool quits;
    bool late;   /* in this wait, and has been said */
    bool failed; /* the last file is of a failure */
} d = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- files --- */

static char *path_of(int rank) {
    return cli_text("%s/" CLI_DIAGNOSIS "/rank-%d.json", d.run, rank);
}

/* Not for a link, which leads elsewhere. */
static bool is_directory(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Make RUN/diagnosis. A run that has no directory yet has no place for it: *made is false. */
static cgp_status make_directory(bool *made) {
    char *directory = cli_text("%s/" CLI_DIAGNOSIS, d.run);
    const int error = mkdir(directory, 0777) == 0 ? 0 : errno;
    cgp_status status = CGP_OK;
    *made = error == 0 || is_directory(directory);
    if (!*made && error != ENOENT)
        status = cgp_fail(CGP_EIO, "%s: cannot be made (%s)", directory, strerror(error));
    free(directory);
    return status;
}

static cgp_status write_text(const char *text) {
    bool made = false;
    CGP_TRY(make_directory(&made));
    if (!made) return CGP_OK;
    char *path = path_of(cli_rank());
    const cgp_status status = cgp_file_replace(path, text, strlen(text));
    free(path);
    return status;
}

/* Write the file if a wait has lasted `idle` seconds; tell whether it has. */
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
    char *message = cli_text("%s", cgp_message()); /* also `reason`, perhaps */
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

void cli_diagnosis_clear(const char *run) {
    char *directory = cli_text("%s/" CLI_DIAGNOSIS, run);
    DIR *entries = is_directory(directory) ? opendir(directory) : NULL;
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        char *path = cli_text("%s/%s", directory, entry->d_name);
        if (strncmp(entry->d_name, "rank-", 5) == 0) (void)unlink(path);
        free(path);
    }
    if (entries) closedir(entries);
    (void)rmdir(directory);
    free(directory);
}

/* --- the thread --- */

/* Sleep until a post, for `seconds` at most; 0: without limit. */
static void sleep_for(double seconds) {
    struct timespec until;
    if (seconds <= 0) {
        while (sem_wait(&d.wake) != 0 && errno == EINTR) {
        }
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until); /* sem_timedwait's */
    const double nanoseconds = (double)until.tv_nsec + 1e9 * seconds;
    until.tv_sec += (time_t)(nanoseconds / 1e9);
    until.tv_nsec = (long)(nanoseconds - 1e9 * (double)(time_t)(nanoseconds / 1e9));
    while (sem_timedwait(&d.wake, &until) != 0 && errno == EINTR) {
    }
}

/* Say once in a wait that it takes long, and leave the file. */
static void look_for_late(void) {
    const double limit = d.timeout / 2;
    pthread_mutex_lock(&d.lock);
    const bool late = !d.failed && write_file("late", limit);
    if (late && !d.late && cli_rank() == 0)
        fprintf(stderr,
                "cgpipe: warning: nothing has ended on any rank for %.3g s; the run goes on "
                "(cgpipe diagnose %s)\n",
                limit, d.shown);
    d.late = late;
    pthread_mutex_unlock(&d.lock);
}

/* Write the file of a signal before anything else. */
static void note_signal(void) {
    pthread_mutex_lock(&d.lock);
    if (!d.failed) (void)write_file(cli_stop_signal(), 0);
    pthread_mutex_unlock(&d.lock);
}

static void *thread_main(void *unused) {
    (void)unused;
    double lost = 0; /* since when a rank is known to be */
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
        if (cli_seconds() - lost > GRACE_SECONDS) _exit(CLI_PEER);
    }
}

static void wake(void) {
    (void)sem_post(&d.wake);
}

static void free_names(void) {
    free(d.shown);
    free(d.run);
    d.run = d.shown = NULL;
}

cgp_status cli_diagnosis_begin(cgp_pipeline *pipeline, const char *run, double timeout) {
    if (cli_ranks() == 1) return CGP_OK;
    d.run = cli_text("%s", run);
    d.shown = cli_text("%s", cli_shown(run));
    d.timeout = timeout < 1e9 ? timeout : 0; /* a limit of 30 years is none */
    d.pipeline = pipeline;
    d.quits = d.late = d.failed = false;
    sem_init(&d.wake, 0, 0);
    if (pthread_create(&d.thread, NULL, thread_main, NULL) != 0) {
        d.pipeline = NULL;
        free_names();
        return cgp_fail(CGP_ENOMEM, "diagnosis: its thread could not be started");
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
    char *path = path_of(cli_rank()), *directory = cli_text("%s/" CLI_DIAGNOSIS, d.run);
    if (!d.failed && cli_stop_signal() && unlink(path) == 0) (void)rmdir(directory);
    free(directory);
    free(path);
    free_names();
}
