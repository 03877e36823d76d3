/* SPDX-License-Identifier: Apache-2.0 */
/* run_directory.c -- names in a run's directory, and cleaning up after dead processes.
 *
 *     step-00000042                       a complete checkpoint
 *     .cgpipe-step-00000044-7-0.tmp       process 7 writes it, and holds a lock on it
 *     .cgpipe-step-00000042-7-1.old       moved away, to be replaced
 *     .cgpipe-step-00000036-7-2.gone      being deleted
 *
 * A lock ends with its process, so it identifies dead processes even where pids are reused soon, as in containers. */
#include "checkpoint/internal.h"

#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMPORARY ".cgpipe-"

/* --- names --- */

char *cgp__without_slashes(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return cgp__format("%.*s", (int)length, path);
}

cgp__entry_name cgp__step_name_of(int64_t step) {
    cgp__entry_name name;
    snprintf(name.text, sizeof name.text, "step-%08" PRId64, step);
    return name;
}

int64_t cgp__step_of_name(const char *name) {
    int64_t step = 0;
    if (strncmp(name, "step-", 5) != 0 || strlen(name) > 5 + 18) return -1;
    for (const char *digit = name + 5; *digit; digit++) {
        if (*digit < '0' || *digit > '9') return -1;
        step = 10 * step + (*digit - '0');
    }
    return strcmp(cgp__step_name_of(step).text, name) == 0 ? step : -1;
}

cgp__entry_name cgp__temporary_name(const char *what, const char *ending) {
    static atomic_uint counter;
    cgp__entry_name name;
    snprintf(name.text, sizeof name.text, TEMPORARY "%s-%ld-%u%s", what, (long)getpid(),
             atomic_fetch_add(&counter, 1), ending);
    return name;
}

static bool ends_with(const char *text, const char *ending) {
    const size_t length = strlen(text), end = strlen(ending);
    return length >= end && strcmp(text + length - end, ending) == 0;
}

/* The pid, the second number from the end; 0 if there is none. */
static pid_t pid_of_name(const char *name) {
    long pid = 0;
    for (const char *dash = strchr(name, '-'); dash; dash = strchr(dash + 1, '-')) {
        long number = 0, counter = 0;
        if (sscanf(dash, "-%18ld-%18ld.", &number, &counter) == 2) pid = number;
    }
    return (pid_t)pid;
}

/* --- listing --- */

static int ascending(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* Open a new listing of an open directory. */
static cgp_status open_list(int run, const char *path, DIR **list) {
    const int fd = openat(run, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (*list) return CGP_OK;
    const int reason = errno;
    if (fd >= 0) close(fd);
    if (reason == ENOMEM) return cgp__no_memory(path, 32768);
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(reason));
}

/* Return the next entry, or NULL at the end or on an error: *reason is 0 or errno. */
static struct dirent *next_entry(DIR *list, int *reason) {
    errno = 0;
    struct dirent *item = readdir(list);
    *reason = item ? 0 : errno;
    return item;
}

static cgp_status end_of_list(const char *path, int reason) {
    if (reason == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(reason));
}

/* A link is not a checkpoint, whatever its target. */
static bool is_checkpoint(int directory, const char *name) {
    struct stat info;
    return cgp__step_of_name(name) >= 0 &&
           fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

cgp_status cgp__steps_list(int run, const char *path, int64_t **steps, int *count) {
    DIR *list = NULL;
    int capacity = 0, reason = 0;
    cgp_status status = CGP_OK;
    CGP_TRY(open_list(run, path, &list));
    *steps = NULL;
    *count = 0;
    for (struct dirent *item; status == CGP_OK && (item = next_entry(list, &reason));) {
        if (!is_checkpoint(dirfd(list), item->d_name)) continue;
        if (cgp__grow(steps, &capacity, *count + 1, sizeof **steps))
            (*steps)[(*count)++] = cgp__step_of_name(item->d_name);
        else
            status = cgp__no_memory(path, (size_t)*count * sizeof **steps);
    }
    closedir(list);
    if (status == CGP_OK) status = end_of_list(path, reason);
    if (status != CGP_OK)
        free(*steps);
    else if (*count > 0)
        qsort(*steps, (size_t)*count, sizeof **steps, ascending);
    return status;
}

/* --- deleting --- */

/* Two processes may clean at once: ENOENT counts as deleted. */
static int unlink_any(int directory, const char *name) {
    if (unlinkat(directory, name, 0) == 0 || errno == ENOENT) return 0;
    const int reason = errno;
    if (unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
    if (errno == ENOTDIR) errno = reason; /* a file: report the first error */
    return -1;
}

static cgp_status not_deleted(const char *path, const char *name, int reason) {
    return cgp_fail(CGP_EIO, "%s/%s: cannot be deleted (%s)", path, name, strerror(reason));
}

/* Delete the files in a directory; a directory in it only if it is empty. Continues after a failure and reports the first. */
static cgp_status delete_contents(DIR *list, const char *path, const char *name) {
    cgp_status status = CGP_OK;
    int reason = 0;
    for (struct dirent *item; (item = next_entry(list, &reason));) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
        if (unlink_any(dirfd(list), item->d_name) == 0 || status != CGP_OK) continue;
        status = cgp_fail(CGP_EIO, "%s/%s/%s: cannot be deleted (%s)", path, name, item->d_name,
                          strerror(errno));
    }
    if (status != CGP_OK || reason == 0) return status;
    return not_deleted(path, name, reason); /* the listing failed, so something may be left */
}

cgp_status cgp__entry_remove(int run, const char *path, const char *name) {
    if (unlink_any(run, name) == 0) return CGP_OK;
    int reason = errno;
    if (reason != ENOTEMPTY && reason != EEXIST) return not_deleted(path, name, reason);
    const int fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR) return not_deleted(path, name, reason); /* file, or link */
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    reason = list || errno == ENOENT ? 0 : errno;
    if (!list && fd >= 0) close(fd);
    if (reason) return not_deleted(path, name, reason);
    const cgp_status status = list ? delete_contents(list, path, name) : CGP_OK;
    if (list) closedir(list);
    if (status != CGP_OK || unlink_any(run, name) == 0) return status;
    return not_deleted(path, name, errno);
}

/* --- cleaning --- */

static bool is_dead(pid_t pid) {
    return pid <= 0 || (kill(pid, 0) && errno == ESRCH);
}

/* A link cannot be locked. Its temporary name is short-lived, so one older than 10 s is abandoned, even if the pid is alive
 * (reused). */
static bool is_abandoned_link(const char *name, const struct stat *info) {
    return is_dead(pid_of_name(name)) || time(NULL) - info->st_mtime > 10;
}

/* Return whether no process writes an entry any more; *lock is then held, or -1. Checks the name again after locking:
 * meanwhile its writer may have renamed it to its final name. */
static bool is_abandoned(int directory, const char *name, int *lock) {
    struct stat now, locked;
    *lock = -1;
    if (fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW)) return false;
    if (!S_ISREG(now.st_mode) && !S_ISDIR(now.st_mode)) return is_abandoned_link(name, &now);
    *lock = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0)
        return fstat(*lock, &locked) == 0 &&
               fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
               now.st_ino == locked.st_ino && now.st_dev == locked.st_dev;
    if (*lock < 0 || errno == EWOULDBLOCK) return false; /* gone, or unknown */
    return is_dead(pid_of_name(name));                   /* no locks on this file system */
}

/* Restore a replaced checkpoint if its replacement never arrived. A link is not a checkpoint. */
static bool restore(int directory, const char *name) {
    struct stat info;
    int64_t step = -1;
    if (!ends_with(name, CGP__REPLACED)) return false;
    if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(info.st_mode))
        return false;
    if (sscanf(name, TEMPORARY "step-%18" SCNd64, &step) != 1 || step < 0) return false;
    const cgp__entry_name final = cgp__step_name_of(step);
    if (fstatat(directory, final.text, &info, AT_SYMLINK_NOFOLLOW) == 0) return false;
    return renameat(directory, name, directory, final.text) == 0;
}

static cgp_status clean_entry(int run, const char *path, const char *name, bool restore_only) {
    int lock = -1;
    cgp_status status = CGP_OK;
    if (restore_only && !ends_with(name, CGP__REPLACED)) return CGP_OK;
    if (ends_with(name, CGP__DELETED)) return cgp__entry_remove(run, path, name);
    if (is_abandoned(run, name, &lock) && !restore(run, name) && !restore_only)
        status = cgp__entry_remove(run, path, name);
    if (lock >= 0) close(lock);
    return status;
}

static bool is_temporary(const char *name) {
    return strncmp(name, TEMPORARY, strlen(TEMPORARY)) == 0 &&
           (ends_with(name, CGP__WRITTEN) || ends_with(name, CGP__REPLACED) ||
            ends_with(name, CGP__DELETED));
}

cgp_status cgp__run_clean(int run, const char *path, bool restore_only) {
    cgp_status status = CGP_OK;
    DIR *list = NULL;
    int reason = 0;
    CGP_TRY(open_list(run, path, &list));
    for (struct dirent *item; (item = next_entry(list, &reason));) {
        if (is_temporary(item->d_name) &&
            clean_entry(dirfd(list), path, item->d_name, restore_only) != CGP_OK)
            status = CGP_EIO;
    }
    closedir(list);
    return status == CGP_OK ? end_of_list(path, reason) : status;
}

cgp_status cgp_checkpoint_clean(const char *directory) {
    CGP__NEED(directory);
    const int run = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run < 0 && errno == ENOENT) return CGP_OK;
    if (run < 0)
        return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", directory, strerror(errno));
    const cgp_status status = cgp__run_clean(run, directory, false);
    close(run);
    return status;
}
