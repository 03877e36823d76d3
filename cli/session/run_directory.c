/* SPDX-License-Identifier: Apache-2.0 */
/* run_directory.c -- see run_directory.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "session/run_directory.h"

#include "errors.h"
#include "session/entries.h"
#include "session/lock.h"
#include "text.h"

#include <cgpipe/checkpoint.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRESH ".new"

/* --- names --- */

/* Set the names of the files. `fd` is the directory's descriptor, or -1 if errno says why it could
 * not be opened. Takes ownership of `path`. */
static void name_files(cli_run_directory *directory, char *path, int fd) {
    *directory = (cli_run_directory){.path = path, .fd = fd, .reason = fd < 0 ? errno : 0};
    directory->record = cli_text("%s/" CLI_RECORD, path);
    directory->metrics = cli_text("%s/" CLI_METRICS, path);
}

/* Open a directory, even one that can be searched but not listed. */
static int open_directory(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 && errno == EACCES ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : fd;
}

/* Return the target of a link; NULL if the path is not a link. */
static char *target_of(const char *path) {
    struct stat info;
    char *plain = cli_text("%s", path);
    for (size_t end = strlen(plain); end > 1 && plain[end - 1] == '/'; end--)
        plain[end - 1] = '\0';
    char *target = lstat(plain, &info) == 0 && S_ISLNK(info.st_mode) ? realpath(plain, NULL) : NULL;
    free(plain);
    return target;
}

void cli_run_directory_name(cli_run_directory *directory, const char *path) {
    char *target = target_of(path), *copy = cli_text("%s", path);
    name_files(directory, copy, open_directory(target ? target : path));
    directory->target = target;
}

/* Return the path that the library opens at each call: the link's target or, without a link, the
 * path as given. */
static const char *library_path(const cli_run_directory *directory) {
    return directory->target ? directory->target : directory->path;
}

void cli_run_directory_reopen(cli_run_directory *directory) {
    if (directory->fd >= 0) return;
    directory->fd = open_directory(library_path(directory));
    directory->reason = directory->fd < 0 ? errno : 0;
}

static int open_inside(const cli_run_directory *directory, const char *name) {
    errno = directory->reason;
    return directory->fd < 0
               ? -1
               : openat(directory->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void cli_run_directory_enter(cli_run_directory *below, const cli_run_directory *directory,
                             const char *name) {
    char *path = cli_text("%s/%s", directory->path, name);
    name_files(below, path, open_inside(directory, name));
}

static cgp_status unwritable(const char *path) {
    return cgp_fail(CGP_EIO, "run directory %s: cannot be written (%s)", path, strerror(errno));
}

/* --- state --- */

/* Check the directory in which `path` will be made. */
static cgp_status check_parent(const char *path) {
    char *copy = cli_text("%s", path);
    const char *name = dirname(copy);
    cgp_status status = CGP_OK;
    struct stat info;
    if (stat(name, &info) != 0)
        status = cgp_fail(CGP_EIO, "run directory %s: cannot be made (%s: %s)", path, name,
                          strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        status =
            cgp_fail(CGP_EIO, "run directory %s: cannot be made (%s is no directory)", path, name);
    else if (access(name, W_OK | X_OK) != 0)
        status = unwritable(path);
    free(copy);
    return status;
}

static cgp_status settle(const cli_run_directory *directory);

/* Lock the directory, because two processes in one run would undo each other's steps. */
static cgp_status lock(cli_run_directory *directory) {
    if (directory->locked) return CGP_OK;
    if (directory->fd < 0)
        directory->fd = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0) return unwritable(directory->path);
    CGP_TRY(cli_lock_take(directory->fd, directory->path, &directory->lock_file));
    directory->locked = true;
    /* Delete an old request: later requests are for this process. */
    (void)cli_run_directory_take_stop(directory);
    return settle(directory);
}

cgp_status cli_run_directory_keep_lock(cli_run_directory *directory) {
    if (!directory->lock_file || cli_lock_is_kept(directory->fd)) return CGP_OK;
    directory->locked = directory->lock_file = false;
    return cgp_fail(CGP_EIO,
                    "run directory %s: its lock file was deleted while this process had the lock, "
                    "so another process may use it (start again when none does)",
                    directory->path);
}

/* The file of a stop request is empty, so it is complete as soon as it exists. */
cgp_status cli_run_directory_request_stop(const cli_run_directory *directory) {
    int fd = -1;
    CGP_TRY(cli_run_directory_open(directory, CLI_REQUEST, O_WRONLY | O_CREAT, &fd));
    close(fd);
    return CGP_OK;
}

bool cli_run_directory_take_stop(const cli_run_directory *directory) {
    return unlinkat(directory->fd, CLI_REQUEST, 0) == 0;
}

/* If stat() of an entry fails, return that the entry exists: opening it then reports the reason. */
bool cli_run_directory_has(const cli_run_directory *directory, const char *name) {
    struct stat info;
    if (directory->fd < 0) return directory->reason != ENOENT && directory->reason != ENOTDIR;
    return fstatat(directory->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

/* O_NONBLOCK: do not block on a pipe. */
cgp_status cli_run_directory_open(const cli_run_directory *directory, const char *name, int flags,
                                  int *fd) {
    struct stat info;
    const int always = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    *fd = openat(directory->fd, name, flags | always, 0666);
    const int reason = *fd < 0 || fstat(*fd, &info) ? errno : 0;
    if (reason == 0 && S_ISREG(info.st_mode)) return CGP_OK;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    if (reason == ENOENT && !(flags & O_CREAT)) return CGP_OK;
    const char *is = NULL;
    if (reason == 0 || reason == ENXIO) is = "not a regular file"; /* ENXIO: pipe or socket */
    if (reason == EISDIR || (reason == 0 && S_ISDIR(info.st_mode))) is = "a directory";
    if (reason == ELOOP) is = "a link";
    if (is)
        return cgp_fail(CGP_EIO, "%s/%s: is %s, expected a file of the run%s", directory->path,
                        name, is, reason == ELOOP ? " (put the file itself there)" : "");
    return cgp_fail(CGP_EIO, "%s/%s: cannot be %s (%s)", directory->path, name,
                    flags & O_CREAT ? "written" : "read", strerror(reason));
}

/* Replace a file of `size` bytes by a copy. The file is mapped, because it may be larger than the
 * memory. */
static cgp_status copy_file(const cli_run_directory *directory, const char *name, int fd,
                            size_t size) {
    char *path = cli_text("%s/%s", directory->path, name);
    void *bytes = size > 0 ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    const cgp_status status =
        bytes == MAP_FAILED ? cgp_fail(CGP_EIO, "%s: cannot be mapped (%s)", path, strerror(errno))
                            : cgp_file_replace_at(directory->fd, name, path, bytes, size);
    if (bytes && bytes != MAP_FAILED) munmap(bytes, size);
    free(path);
    return status;
}

cgp_status cli_run_directory_unshare(const cli_run_directory *directory, const char *name) {
    struct stat info;
    int fd = -1;
    CGP_TRY(cli_run_directory_open(directory, name, O_RDONLY, &fd));
    cgp_status status = CGP_OK;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_nlink > 1)
        status = copy_file(directory, name, fd, (size_t)info.st_size);
    if (fd >= 0) close(fd);
    return status;
}

static cgp_status check_file(const cli_run_directory *directory, const char *name) {
    int fd = -1;
    CGP_TRY(cli_run_directory_open(directory, name, O_RDONLY, &fd));
    if (fd >= 0) close(fd);
    return CGP_OK;
}

/* Check that `latest` is not a directory, because a save cannot replace a directory. `latest` is a
 * directory if a run was copied by a program that follows links. */
static cgp_status check_latest(const cli_run_directory *directory) {
    struct stat info;
    if (fstatat(directory->fd, CLI_LATEST, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        S_ISLNK(info.st_mode))
        return CGP_OK;
    return cgp_fail(CGP_EIO,
                    "%s/" CLI_LATEST
                    ": is no link, expected one to a checkpoint (delete it, or: ln -sfn "
                    "step-NNNNNNNN latest)",
                    directory->path);
}

cgp_status cli_run_directory_check(cli_run_directory *directory) {
    struct stat info;
    if (stat(directory->path, &info) != 0)
        return errno == ENOENT ? check_parent(directory->path) : unwritable(directory->path);
    if (!S_ISDIR(info.st_mode))
        return cgp_fail(CGP_EIO, "run directory %s: is a file, expected a directory",
                        directory->path);
    if (access(directory->path, R_OK | W_OK | X_OK) != 0) return unwritable(directory->path);
    CGP_TRY(lock(directory));
    CGP_TRY(check_file(directory, CLI_RECORD));
    CGP_TRY(check_file(directory, CLI_METRICS));
    CGP_TRY(check_file(directory, CLI_DIGESTS));
    return check_latest(directory);
}

bool cli_run_directory_has_run(const cli_run_directory *directory) {
    return cli_run_directory_has(directory, CLI_RECORD) ||
           cli_run_directory_has(directory, CLI_METRICS) ||
           cli_run_directory_has(directory, CLI_LATEST) ||
           cli_run_directory_newest(directory) != CLI_NO_STEP;
}

/* If loading fails, the library's message names the previous whole checkpoint, "; step-00000008 is
 * whole (..)". Replace the text in parentheses by a suggestion of --from-step. */
static cgp_status explain(cgp_status status) {
    const char *message = cgp_message(), *other = strstr(message, "; step-");
    const int64_t step = other ? strtoll(other + strlen("; step-"), NULL, 10) : -1;
    if (step < 0 || (status != CGP_EFORMAT && status != CGP_EIO)) return status;
    return cgp_fail(status, "%.*s; step-%08" PRId64 " is whole (--from-step %" PRId64 ")",
                    (int)(other - message), message, step, step);
}

/* Return the path of a step's checkpoint, or of the run if step < 0. The caller frees it. */
static char *checkpoint_path(const cli_run_directory *directory, int64_t step) {
    return step < 0 ? cli_text("%s", library_path(directory))
                    : cli_text("%s/step-%08" PRId64, library_path(directory), step);
}

cgp_status cli_run_directory_find(const cli_run_directory *directory, int64_t from, int64_t *step,
                                  char **note) {
    char *path = checkpoint_path(directory, from);
    const cgp_status status = cgp_checkpoint_find(NULL, step, note, path);
    free(path);
    return explain(status);
}

cgp_status cli_run_directory_load(const cli_run_directory *directory, int64_t step,
                                  cgp_pipeline *pipeline, char **note) {
    char *path = checkpoint_path(directory, step);
    const cgp_status status = cgp_pipeline_load(pipeline, path, note);
    free(path);
    return explain(status);
}

cgp_status cli_run_directory_check_ranks(const cli_run_directory *directory,
                                         cgp_pipeline *pipeline) {
    return cgp_pipeline_check_directory(pipeline, library_path(directory));
}

cgp_status cli_run_directory_save(const cli_run_directory *directory, cgp_pipeline *pipeline,
                                  cgp_save_options options, json_t *note) {
    char *text = json_dumps(note, JSON_COMPACT);
    json_decref(note);
    if (!text) return cgp_fail(CGP_ENOMEM, "checkpoint: out of memory");
    options.note = text;
    const cgp_status status = cgp_pipeline_save_with(pipeline, library_path(directory), &options);
    free(text);
    return status;
}

/* --- changes --- */

cgp_status cli_run_directory_make(cli_run_directory *directory) {
    if (mkdir(directory->path, 0777) == 0)
        directory->made = true;
    else if (errno != EEXIST)
        return unwritable(directory->path);
    return lock(directory);
}

static cgp_status undeletable(const cli_run_directory *directory, const char *name) {
    return cgp_fail(CGP_EIO, "%s/%s: cannot be deleted (%s)", directory->path, name,
                    strerror(errno));
}

/* Delete a file. If it is a link, delete the link, not its target. */
static cgp_status delete_file(const cli_run_directory *directory, const char *name) {
    if (unlinkat(directory->fd, name, 0) == 0 || errno == ENOENT) return CGP_OK;
    return undeletable(directory, name);
}

/* Rename an entry of `from` to a name in `directory` that cgp_checkpoint_clean() deletes. So no
 * half-deleted checkpoint ever has the name of a checkpoint. */
static cgp_status hide(const cli_run_directory *directory, const cli_run_directory *from,
                       const char *name) {
    static unsigned counter;
    char hidden[64];
    int result = -1;
    for (int attempt = 0; result != 0 && attempt < 100; attempt++) {
        snprintf(hidden, sizeof hidden, ".cgpipe-deleted-%ld-%u.gone", (long)getpid(), counter++);
        result = renameat(from->fd, name, directory->fd, hidden);
        if (result != 0 && errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR &&
            errno != EISDIR)
            break;
    }
    return result == 0 ? CGP_OK : undeletable(from, name);
}

bool cli_run_directory_is_temporary(const char *name) {
    return fnmatch(".cgpipe-*.tmp", name, 0) == 0 || fnmatch(".cgpipe-*.old", name, 0) == 0 ||
           fnmatch(".cgpipe-*.gone", name, 0) == 0;
}

/* Hide the checkpoints in `from` whose step exceeds `step`. If `temporary` is true, also
 * hide the half-written entries of a killed process, and the directory of published files. */
static cgp_status hide_after(const cli_run_directory *directory, const cli_run_directory *from,
                             int64_t step, bool temporary) {
    cgp_status status = CGP_OK;
    DIR *entries = cli_run_directory_list(from);
    int reason = 0;
    if (!entries) return unwritable(from->path);
    for (struct dirent *entry; status == CGP_OK && (entry = cli_entry_next(entries, &reason));) {
        if (cli_entry_step(entry->d_name) > step ||
            (temporary && (cli_run_directory_is_temporary(entry->d_name) ||
                           strcmp(entry->d_name, CLI_PUBLISHED) == 0)))
            status = hide(directory, from, entry->d_name);
    }
    closedir(entries);
    errno = reason;
    return status == CGP_OK && reason ? unwritable(from->path) : status;
}

/* Delete hidden entries. A failure is only a warning, because hidden entries do no harm. */
static void delete_hidden(const cli_run_directory *directory) {
    if (cgp_checkpoint_clean(library_path(directory)) != CGP_OK) cli_warn();
}

static cgp_status sync_directory(const cli_run_directory *directory) {
    return fsync(directory->fd) == 0 || errno == EINVAL ? CGP_OK : unwritable(directory->path);
}

cgp_status cli_run_directory_drop_after(const cli_run_directory *directory, int64_t step) {
    CGP_TRY(hide_after(directory, directory, step, false));
    CGP_TRY(sync_directory(directory));
    /* Delete only after the sync. Then a crash cannot bring a deleted checkpoint back under its old
     * name. */
    delete_hidden(directory);
    return CGP_OK;
}

cgp_status cli_run_directory_clear(const cli_run_directory *directory) {
    CGP_TRY(delete_file(directory, CLI_RECORD));
    CGP_TRY(delete_file(directory, CLI_LATEST));
    CGP_TRY(cli_run_directory_drop_after(directory, -1));
    cli_run_directory_drop(directory, CLI_PUBLISHED);
    CGP_TRY(delete_file(directory, CLI_RESTARTS));
    CGP_TRY(delete_file(directory, CLI_DIGESTS));
    CGP_TRY(delete_file(directory, CLI_MEASURED));
    CGP_TRY(delete_file(directory, CLI_REPORT));
    return delete_file(directory, CLI_METRICS);
}

void cli_run_directory_drop(const cli_run_directory *directory, const char *name) {
    struct stat info;
    if (fstatat(directory->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
    char *message = cli_text("%s", cgp_message());
    if (hide(directory, directory, name) == CGP_OK)
        (void)!cgp_checkpoint_clean(library_path(directory));
    (void)cgp_fail(CGP_EIO, "%s", message);
    free(message);
}

void cli_run_directory_drop_report(const cli_run_directory *directory) {
    if (delete_file(directory, CLI_REPORT) != CGP_OK) cli_warn();
}

void cli_run_directory_undo(const cli_run_directory *directory) {
    (void)unlinkat(directory->fd, CLI_RECORD, 0);
    (void)unlinkat(directory->fd, CLI_METRICS, 0);
    (void)unlinkat(directory->fd, CLI_DIGESTS, 0);
    (void)unlinkat(directory->fd, CLI_MEASURED, 0);
    cli_run_directory_drop(directory, CLI_PUBLISHED);
}

/* --- a run in place of another ---
 *
 *     .new/        the new run, complete before any file of the old run moves
 *     .replaced/   the old run until the new one is in place; its run.json moves there first
 *
 * The new run's run.json moves to the run directory last. Then settle() runs, also after a failure.
 * If the process was killed, settle() runs when a process next locks the directory. If run.json is
 * in the run directory, settle() deletes the old run; otherwise it puts the old run back. */

/* Delete `inside`, a directory in this one, and its entries that have cgpipe's names. If it has
 * other entries, fail: they and the directory stay. */
static cgp_status empty_inside(const cli_run_directory *directory, const cli_run_directory *inside,
                               const char *name) {
    static const char *const files[] = {CLI_RECORD,   CLI_LATEST, CLI_METRICS,  CLI_DIGESTS,
                                        CLI_MEASURED, CLI_REPORT, CLI_RESTARTS, CLI_LOCK};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        CGP_TRY(delete_file(inside, files[i]));
    CGP_TRY(hide_after(directory, inside, -1, true));
    if (unlinkat(directory->fd, name, AT_REMOVEDIR) != 0) return undeletable(directory, name);
    delete_hidden(directory);
    return CGP_OK;
}

static cgp_status delete_new(const cli_run_directory *directory) {
    cli_run_directory fresh;
    struct stat info;
    const int fd = open_inside(directory, FRESH), reason = fd < 0 ? errno : 0;
    if (reason == ENOENT) return CGP_OK;
    if (fd < 0 && fstatat(directory->fd, FRESH, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(info.st_mode))
        return delete_file(directory, FRESH);
    if (fd < 0)
        return cgp_fail(CGP_EIO, "%s/" FRESH ": blocks the making of a run (%s; move it away)",
                        directory->path, strerror(reason));
    name_files(&fresh, cli_text("%s/" FRESH, directory->path), fd);
    const cgp_status status = empty_inside(directory, &fresh, FRESH);
    cli_run_directory_close(&fresh);
    return status;
}

void cli_run_directory_clean(const cli_run_directory *directory) {
    delete_hidden(directory);
    if (delete_new(directory) != CGP_OK) cli_warn();
}

cgp_status cli_run_directory_new_begin(const cli_run_directory *directory,
                                       cli_run_directory *fresh) {
    CGP_TRY(delete_new(directory));
    char *path = cli_text("%s/" FRESH, library_path(directory));
    const int fd = mkdirat(directory->fd, FRESH, 0777) == 0 ? open_inside(directory, FRESH) : -1;
    name_files(fresh, path, fd);
    errno = fresh->reason;
    const cgp_status status = fd >= 0 ? lock(fresh) : unwritable(path);
    return status == CGP_OK ? CGP_OK : cli_run_directory_new_end(directory, fresh, status);
}

/* Move an entry if it exists. */
static cgp_status move(const cli_run_directory *from, const cli_run_directory *to,
                       const char *name) {
    if (renameat(from->fd, name, to->fd, name) == 0 || errno == ENOENT) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s/%s: cannot be moved to %s (%s)", from->path, name, to->path,
                    strerror(errno));
}

static cgp_status move_steps(const cli_run_directory *from, const cli_run_directory *to) {
    cgp_status status = CGP_OK;
    DIR *entries = cli_run_directory_list(from);
    int reason = 0;
    if (!entries) return unwritable(from->path);
    for (struct dirent *entry; status == CGP_OK && (entry = cli_entry_next(entries, &reason));) {
        if (cli_entry_step(entry->d_name) >= 0) status = move(from, to, entry->d_name);
    }
    closedir(entries);
    errno = reason;
    return status == CGP_OK && reason ? unwritable(from->path) : status;
}

static cgp_status move_all_but_record(const cli_run_directory *from, const cli_run_directory *to) {
    CGP_TRY(move_steps(from, to));
    CGP_TRY(move(from, to, CLI_LATEST));
    CGP_TRY(move(from, to, CLI_METRICS));
    CGP_TRY(move(from, to, CLI_DIGESTS));
    CGP_TRY(move(from, to, CLI_MEASURED));
    CGP_TRY(move(from, to, CLI_PUBLISHED));
    CGP_TRY(move(from, to, CLI_REPORT));
    return move(from, to, CLI_RESTARTS);
}

/* Move a run into the directory. run.json moves after the rest is on disk: without run.json the
 * rest is not a run. */
static cgp_status move_in(const cli_run_directory *from, const cli_run_directory *to) {
    CGP_TRY(move_all_but_record(from, to));
    CGP_TRY(sync_directory(to));
    CGP_TRY(move(from, to, CLI_RECORD));
    return sync_directory(to);
}

static cgp_status move_out(const cli_run_directory *from, const cli_run_directory *to) {
    CGP_TRY(move(from, to, CLI_RECORD));
    CGP_TRY(move_all_but_record(from, to));
    CGP_TRY(sync_directory(to));
    return sync_directory(from);
}

/* Put the old run back. If .new has no checkpoint, the checkpoints and the published files in the
 * directory belong to the new run: move them back to .new first. */
static cgp_status put_back(const cli_run_directory *directory, const cli_run_directory *old) {
    cli_run_directory fresh;
    cli_run_directory_enter(&fresh, directory, FRESH);
    cgp_status status = CGP_OK;
    if (fresh.fd >= 0 && cli_run_directory_newest(&fresh) == CLI_NO_STEP) {
        status = move(directory, &fresh, CLI_LATEST);
        if (status == CGP_OK) status = move(directory, &fresh, CLI_PUBLISHED);
        if (status == CGP_OK) status = move_steps(directory, &fresh);
    }
    cli_run_directory_close(&fresh);
    return status == CGP_OK ? move_in(old, directory) : status;
}

/* Set *found to whether run.json exists. Fails if the system cannot tell. */
static cgp_status find_run(const cli_run_directory *directory, bool *found) {
    struct stat info;
    *found = fstatat(directory->fd, CLI_RECORD, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (*found || errno == ENOENT) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", directory->record, strerror(errno));
}

static cgp_status settle_old(const cli_run_directory *directory, const cli_run_directory *old) {
    bool here = false, there = false;
    CGP_TRY(find_run(directory, &here));
    CGP_TRY(find_run(old, &there));
    if (!here && there) CGP_TRY(put_back(directory, old));
    if (empty_inside(directory, old, CLI_REPLACED) != CGP_OK) cli_warn();
    return CGP_OK;
}

static cgp_status settle(const cli_run_directory *directory) {
    cli_run_directory old;
    cli_run_directory_enter(&old, directory, CLI_REPLACED);
    /* If old.fd is -1, the directory is missing or cgpipe did not make it. */
    cgp_status status = old.fd >= 0 ? settle_old(directory, &old) : CGP_OK;
    if (status != CGP_OK) {
        char *why = cli_text("%s", cgp_message());
        status =
            cgp_fail(CGP_EIO, "%s (the run that was there is in %s, start again)", why, old.path);
        free(why);
    }
    cli_run_directory_close(&old);
    return status;
}

/* Move the old run out of the directory, and the new run into it. */
static cgp_status exchange(const cli_run_directory *directory, const cli_run_directory *fresh) {
    cli_run_directory old;
    const int64_t step = cli_run_directory_newest(fresh);
    if (step < 0)
        return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", fresh->path,
                        step == CLI_NO_STEP ? "it has no checkpoint" : strerror(errno));
    if (mkdirat(directory->fd, CLI_REPLACED, 0777) != 0)
        return cgp_fail(CGP_EIO, "%s/" CLI_REPLACED ": cannot be made (%s)", directory->path,
                        strerror(errno));
    cli_run_directory_enter(&old, directory, CLI_REPLACED);
    errno = old.reason;
    cgp_status status = old.fd >= 0 ? move_out(directory, &old) : unwritable(old.path);
    if (status == CGP_OK) status = move_in(fresh, directory);
    cli_run_directory_close(&old);
    return status;
}

/* If `status` is a failure, its message is kept. */
cgp_status cli_run_directory_new_end(const cli_run_directory *directory, cli_run_directory *fresh,
                                     cgp_status status) {
    if (status == CGP_OK) status = exchange(directory, fresh);
    char *message = cli_text("%s", cgp_message());
    cli_run_directory_close(fresh);
    const cgp_status settled = settle(directory);
    const cgp_status deleted = settled == CGP_OK ? delete_new(directory) : CGP_OK;
    if (settled == CGP_OK && (status != CGP_OK || deleted != CGP_OK) && *message)
        (void)cgp_fail(CGP_EIO, "%s", message);
    free(message);
    return settled == CGP_OK ? status : settled;
}

void cli_run_directory_close(cli_run_directory *directory) {
    if (directory->locked) (void)cli_run_directory_take_stop(directory);
    if (directory->lock_file) cli_lock_release(directory->fd);
    if (directory->made) rmdir(directory->path); /* deletes only an empty directory */
    if (directory->fd >= 0) close(directory->fd);
    free(directory->target);
    free(directory->metrics);
    free(directory->record);
    free(directory->path);
    *directory = (cli_run_directory){.fd = -1};
}
