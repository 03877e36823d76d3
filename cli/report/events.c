/* SPDX-License-Identifier: Apache-2.0 */
/* events.c -- see events.h. */
#include "report/events.h"

#include "files.h"
#include "machine.h"
#include "options/options.h"
#include "report/tfrecord.h"
#include "text.h"

#include <cgpipe/checkpoint.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."
#define SUFFIX ".cgpipe"

static cgp_status unwritable(const char *path) {
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", path, strerror(errno));
}

/* --- files of earlier starts --- */

/* Return the time in the name of an event file of cgpipe; -1: the name has another form. */
static int64_t time_of(const char *name) {
    int64_t seconds = -1;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || !cli_ends_with(name, SUFFIX)) return -1;
    return sscanf(name + strlen(PREFIX), "%" SCNd64 ".", &seconds) == 1 ? seconds : -1;
}

/* Call a function for each event file of cgpipe in the directory. *latest: the largest time. */
static cgp_status for_each(const char *directory, int64_t *latest, int64_t step,
                           cgp_status (*call)(int fd, const char *name, const char *path,
                                              int64_t step)) {
    DIR *entries = opendir(directory);
    cgp_status status = CGP_OK;
    *latest = -1;
    if (!entries) return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", directory, strerror(errno));
    for (const struct dirent *e; status == CGP_OK && (e = readdir(entries));) {
        const int64_t seconds = time_of(e->d_name);
        if (seconds < 0) continue;
        if (seconds > *latest) *latest = seconds;
        char *path = cli_text("%s/%s", directory, e->d_name);
        if (call) status = call(dirfd(entries), e->d_name, path, step);
        free(path);
    }
    closedir(entries);
    return status;
}

static cgp_status delete_file(int fd, const char *name, const char *path, int64_t step) {
    (void)step;
    if (unlinkat(fd, name, 0) == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be deleted (%s)", path, strerror(errno));
}

/* Shorten an open file to `size` bytes. If the file has other hard links, replace it by a shorter
 * copy, so that the other links do not change. */
static cgp_status shorten(FILE *file, int fd, const char *name, const char *path, int64_t size,
                          bool shared) {
    if (!shared) return ftruncate(fileno(file), size) == 0 ? CGP_OK : unwritable(path);
    char *bytes = malloc((size_t)size + 1);
    if (!bytes) return cgp_fail(CGP_ENOMEM, "%s: out of memory", path);
    rewind(file);
    cgp_status status = CGP_OK;
    if (fread(bytes, 1, (size_t)size, file) != (size_t)size)
        status = cgp_fail(CGP_EIO, "%s: cannot be read (it became shorter)", path);
    if (status == CGP_OK) status = cgp_file_replace_at(fd, name, path, bytes, (size_t)size);
    free(bytes);
    return status;
}

/* Cut off damaged records, and the events of steps after `step`. Follows no link. */
static cgp_status cut(int fd, const char *name, const char *path, int64_t step) {
    struct stat info;
    const int own = openat(fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (own < 0) return unwritable(path);
    if (fstat(own, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(own);
        return cgp_fail(CGP_EIO, "%s: is not a regular file, expected an event file", path);
    }
    FILE *file = fdopen(own, "r+");
    if (!file) {
        close(own);
        return unwritable(path);
    }
    const int64_t kept = cli_events_kept(file, step);
    cgp_status status = CGP_OK;
    if (ferror(file))
        status = cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
    else if (kept < info.st_size)
        status = shorten(file, fd, name, path, kept, info.st_nlink > 1);
    fclose(file);
    return status;
}

/* --- checks --- */

/* Tell whether two paths are the same text but for slashes at the end. */
static bool same_path(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    while (n > 1 && a[n - 1] == '/')
        n--;
    while (m > 1 && b[m - 1] == '/')
        m--;
    return n == m && strncmp(a, b, n) == 0;
}

/* Check the directory above, in which the directory will be made. It may be the run's directory,
 * which is made first. */
static cgp_status check_parent(const cli_run_options *options) {
    char *copy = cli_text("%s", options->tensorboard);
    const char *parent = dirname(copy);
    cgp_status status = CGP_OK;
    if (access(parent, W_OK | X_OK) != 0 && !(errno == ENOENT && same_path(parent, options->run)))
        status = cgp_fail(CGP_EIO, "--tensorboard %s: cannot be made (%s: %s)",
                          options->tensorboard, parent, strerror(errno));
    free(copy);
    return status;
}

cgp_status cli_events_check(const cli_run_options *options, bool begins) {
    const char *directory = options->tensorboard;
    struct stat info;
    int64_t latest = -1;
    if (!directory) return CGP_OK;
    if (stat(directory, &info) != 0 && errno == ENOENT) return check_parent(options);
    if (!cli_is_directory(directory))
        return cgp_fail(CGP_EIO, "--tensorboard %s: is not a directory, expected one, or none yet",
                        directory);
    if (access(directory, R_OK | W_OK | X_OK) != 0) return unwritable(directory);
    CGP_TRY(for_each(directory, &latest, 0, NULL));
    if (!begins || options->overwrite || latest < 0) return CGP_OK;
    return cgp_fail(CGP_EIO,
                    "--tensorboard %s: has event files of a run already (another directory, or "
                    "--overwrite deletes them)",
                    directory);
}

/* --- this start's file --- */

/* Write all bytes, or none: a record that is cut off would hide later records from readers. */
static cgp_status write_record(const cli_events *events, cli_event *event) {
    const off_t end = lseek(events->fd, 0, SEEK_END);
    cgp_status status = CGP_OK;
    cli_event_end(event);
    for (size_t done = 0; done < event->size && status == CGP_OK;) {
        const ssize_t n = write(events->fd, event->bytes + done, event->size - done);
        if (n > 0) done += (size_t)n;
        if (n < 0 && errno != EINTR) status = unwritable(events->path);
    }
    if (status != CGP_OK && end >= 0) (void)!ftruncate(events->fd, end);
    cli_event_release(event);
    return status;
}

static cgp_status write_head(const cli_events *events, int64_t step) {
    cli_event event;
    cli_event_begin(&event, 0);
    cli_event_version(&event);
    CGP_TRY(write_record(events, &event));
    if (step == 0) return CGP_OK;
    cli_event_begin(&event, step + 1);
    cli_event_start(&event);
    return write_record(events, &event);
}

cgp_status cli_events_open(cli_events *events, const cli_run_options *options, int64_t step) {
    char host[CLI_HOST];
    int64_t latest = -1, now = (int64_t)time(NULL);
    if (!options->tensorboard) return CGP_OK;
    if (mkdir(options->tensorboard, 0777) == 0)
        events->made = true;
    else if (errno != EEXIST)
        return unwritable(options->tensorboard);
    CGP_TRY(for_each(options->tensorboard, &latest, step, step > 0 ? cut : delete_file));
    if (now <= latest) now = latest + 1;
    (void)cli_host(host);
    for (char *c = host; *c; c++)
        *c = *c == '/' ? '-' : *c;
    events->path = cli_text("%s/" PREFIX "%010" PRId64 ".%s.%d" SUFFIX, options->tensorboard, now,
                            *host ? host : "host", (int)getpid());
    events->fd = open(events->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (events->fd < 0) {
        const cgp_status status = unwritable(events->path);
        free(events->path);
        events->path = NULL;
        return status;
    }
    events->directory = options->tensorboard;
    return write_head(events, step);
}

cgp_status cli_events_write(const cli_events *events, int64_t step, const json_t *numbers) {
    const char *key;
    json_t *value;
    cli_event event;
    int scalars = 0;
    if (!events->directory) return CGP_OK;
    cli_event_begin(&event, step);
    json_object_foreach((json_t *)numbers, key, value) {
        const bool number = json_is_number(value);
        if ((!number && !json_is_null(value)) || strcmp(key, "step") == 0) continue;
        cli_event_scalar(&event, key, number ? json_number_value(value) : NAN);
        scalars++;
    }
    if (scalars > 0) return write_record(events, &event);
    cli_event_release(&event);
    return CGP_OK;
}

cgp_status cli_events_sync(const cli_events *events) {
    if (!events->directory || fsync(events->fd) == 0) return CGP_OK;
    return unwritable(events->path);
}

void cli_events_undo(cli_events *events) {
    if (events->path) (void)unlink(events->path);
    if (events->path && events->made && events->directory) (void)rmdir(events->directory);
}

void cli_events_close(cli_events *events) {
    if (events->path) close(events->fd);
    free(events->path);
    *events = (cli_events){.fd = -1};
}
