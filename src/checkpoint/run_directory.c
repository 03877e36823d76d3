/* SPDX-License-Identifier: Apache-2.0 */
/* run_directory.c -- makes and parses the names in a run's directory, and cleans up after dead
 * processes.
 *
 *     step-00000042                       a complete checkpoint
 *     .cgpipe-step-00000044-@P-0.tmp      process P (process.c) writes it, and holds a lock on it
 *     .cgpipe-step-00000042-@P-1.old      moved away, to be replaced
 *     .cgpipe-step-00000036-@P-2.gone     being deleted
 *
 * A lock ends with its process, so a missing lock identifies dead processes of this place
 * (process.c) even if pids are reused. Locks held on other hosts may be invisible on this host, so
 * a .tmp or .old file or directory of another host is never deleted. */
#include "checkpoint/internal.h"

#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
    char process[CGP_PROCESS_BYTES] = "";
    (void)!cgp_process_name(process);
    snprintf(name.text, sizeof name.text, TEMPORARY "%.32s-@%s-%u%s", what, process,
             atomic_fetch_add(&counter, 1), ending);
    return name;
}

static bool ends_with(const char *text, const char *ending) {
    const size_t length = strlen(text), end = strlen(ending);
    return length >= end && strcmp(text + length - end, ending) == 0;
}

/* Return the name of the process in an entry's name; NULL: the name is from an older version. */
static const char *process_of(const char *name) {
    const char *at = strchr(name, '@');
    return at ? at + 1 : NULL;
}

/* Lock a new directory. Return 0 if the directory still has its name; EAGAIN if
 * cgp_checkpoint_clean() deleted it before the lock; or another errno. On a file system without
 * locks, neither this process nor the cleaning process holds a lock. */
static int lock_new(int run, int fd, const char *name) {
    struct stat info, now;
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) return EAGAIN;
    if (fstat(fd, &info)) return errno;
    if (fstatat(run, name, &now, AT_SYMLINK_NOFOLLOW)) return errno == ENOENT ? EAGAIN : errno;
    return now.st_ino == info.st_ino ? 0 : EAGAIN;
}

/* Make a directory and lock it. Return 0; EAGAIN if the caller should try another name; or another
 * errno. After a failure there is no new directory. */
static int make_locked(int run, const char *name, int *lock) {
    if (mkdirat(run, name, 0777)) return errno == EEXIST ? EAGAIN : errno;
    const int fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int reason = fd >= 0 ? lock_new(run, fd, name) : errno;
    if (fd < 0 && reason == ENOENT) reason = EAGAIN;
    if (reason && reason != EAGAIN) (void)unlinkat(run, name, AT_REMOVEDIR);
    if (reason && fd >= 0) close(fd);
    if (reason == 0) *lock = fd;
    return reason;
}

int cgp__temporary_make(int run, const char *what, cgp__entry_name *name, int *lock) {
    int reason = EAGAIN;
    for (int attempt = 0; reason == EAGAIN && attempt < 1000; attempt++) {
        *name = cgp__temporary_name(what, CGP__WRITTEN);
        reason = make_locked(run, name->text, lock);
    }
    return reason;
}

cgp_status cgp_temporary_directory(int directory, const char *what, const char *path,
                                   char name[CGP_TEMPORARY_BYTES], int *fd) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    CGP__NEED(what);
    CGP__NEED(path);
    CGP__NEED(name);
    CGP__NEED(fd);
    cgp__entry_name made;
    int lock = -1;
    if (!*what || strlen(what) > 32 || what[strspn(what, letters)])
        return cgp_fail(CGP_EINVAL, "%s: expected a word of at most 32 letters, got \"%s\"", path,
                        what);
    const int reason = cgp__temporary_make(directory, what, &made, &lock);
    if (reason) return cgp_fail(CGP_EIO, "%s: cannot be written to (%s)", path, strerror(reason));
    memcpy(name, made.text, sizeof made.text);
    *fd = lock;
    return CGP_OK;
}

/* --- listing --- */

static int ascending(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* Open a new list of the entries of an open directory. */
static cgp_status open_list(int run, const char *path, DIR **list) {
    const int fd = openat(run, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (*list) return CGP_OK;
    const int reason = errno;
    if (fd >= 0) close(fd);
    if (reason == ENOMEM) return cgp__no_memory(path, 32768);
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(reason));
}

/* Return the next entry, or NULL at the end or on an error. Set *reason to errno on an error, else
 * to 0. */
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

/* Return whether a name belongs to a checkpoint. A link is not a checkpoint, whatever its
 * target. */
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

/* Delete an entry. Two processes may clean at the same time, so ENOENT counts as deleted. */
static int unlink_any(int directory, const char *name) {
    if (unlinkat(directory, name, 0) == 0 || errno == ENOENT) return 0;
    const int reason = errno;
    if (unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
    if (errno == ENOTDIR) errno = reason; /* the entry is a file: report the first error */
    return -1;
}

static cgp_status not_deleted(const char *path, const char *name, int reason) {
    return cgp_fail(CGP_EIO, "%s/%s: cannot be deleted (%s)", path, name, strerror(reason));
}

/* Delete the files in a directory, and directories in it that are empty. Continue after a failure;
 * report the first failure. */
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
    return not_deleted(path, name, reason); /* the listing failed, so entries may be left */
}

cgp_status cgp__entry_remove(int run, const char *path, const char *name) {
    if (unlink_any(run, name) == 0) return CGP_OK;
    int reason = errno;
    if (reason != ENOTEMPTY && reason != EEXIST) return not_deleted(path, name, reason);
    const int fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR) return not_deleted(path, name, reason); /* a file or a link */
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

/* HIDDEN: this process cannot look up the owner */
typedef enum owner { LIVES, GONE, HIDDEN } owner;

/* Return the state of a link's writer. A link cannot be locked. It has its temporary name only for
 * an instant, and its writer retries if the link is lost. So a link older than 10 s is abandoned,
 * whoever made it. */
static owner owner_of_link(const char *process, const struct stat *info) {
    const bool gone = process && cgp__process_state_of(process) == CGP_PROCESS_GONE;
    return gone || time(NULL) - info->st_mtime > 10 ? GONE : LIVES;
}

static owner owner_by_process(const char *process) {
    switch (process ? cgp__process_state_of(process) : CGP_PROCESS_UNKNOWN) {
    case CGP_PROCESS_RUNS:
        return LIVES;
    case CGP_PROCESS_GONE:
        return GONE;
    default:
        return HIDDEN;
    }
}

/* Return the state of an entry's writer. *lock is a descriptor to close, or -1. The descriptor is
 * locked unless another process of this place holds the lock. The name is checked again after
 * locking, because the writer may have renamed the entry meanwhile. */
static owner owner_of(int directory, const char *name, int *lock) {
    struct stat now, locked;
    const char *process = process_of(name);
    *lock = -1;
    if (fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW)) return LIVES;
    if (!S_ISREG(now.st_mode) && !S_ISDIR(now.st_mode)) return owner_of_link(process, &now);
    *lock = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*lock < 0) return LIVES;         /* the entry was renamed, or cannot be opened */
    if (flock(*lock, LOCK_EX | LOCK_NB)) /* an error other than EWOULDBLOCK means that the file
                                          * system has no locks */
        return errno == EWOULDBLOCK ? LIVES : owner_by_process(process);
    const bool same = fstat(*lock, &locked) == 0 &&
                      fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
                      now.st_ino == locked.st_ino && now.st_dev == locked.st_dev;
    if (!same) return LIVES;
    return !process || cgp__process_is_here(process) ? GONE : HIDDEN;
}

/* Restore a checkpoint that was moved away, if its replacement was never completed. A link is not a
 * checkpoint. */
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

/* Clean one entry. A process that replaces a checkpoint retries if the old checkpoint is restored
 * meanwhile. So checkpoints that hidden processes moved away are restored too. */
static cgp_status clean_entry(int run, const char *path, const char *name, cgp__clean how) {
    int lock = -1;
    cgp_status status = CGP_OK;
    if (how == CGP__CLEAN_RESTORE && !ends_with(name, CGP__REPLACED)) return CGP_OK;
    if (ends_with(name, CGP__DELETED)) return cgp__entry_remove(run, path, name);
    const owner writer = owner_of(run, name, &lock);
    const bool restored = writer != LIVES && restore(run, name);
    if (writer == GONE && !restored && how != CGP__CLEAN_RESTORE)
        status = cgp__entry_remove(run, path, name);
    if (writer == HIDDEN && !restored && how == CGP__CLEAN_TELL)
        cgp_log(CGP_LOG_WARN, "checkpoint",
                "%s/%s stays: a process of another host, boot or container may write it (if it "
                "has ended, delete it)",
                path, name);
    if (lock >= 0) close(lock);
    return status;
}

static bool is_temporary(const char *name) {
    return strncmp(name, TEMPORARY, strlen(TEMPORARY)) == 0 &&
           (ends_with(name, CGP__WRITTEN) || ends_with(name, CGP__REPLACED) ||
            ends_with(name, CGP__DELETED));
}

cgp_status cgp__run_clean(int run, const char *path, cgp__clean how) {
    cgp_status status = CGP_OK;
    DIR *list = NULL;
    int reason = 0;
    CGP_TRY(open_list(run, path, &list));
    for (struct dirent *item; (item = next_entry(list, &reason));) {
        if (is_temporary(item->d_name) &&
            clean_entry(dirfd(list), path, item->d_name, how) != CGP_OK)
            status = CGP_EIO;
    }
    closedir(list);
    return status == CGP_OK ? end_of_list(path, reason) : status;
}

cgp_status cgp_checkpoint_clean(const char *directory) {
    CGP__NEED(directory);
    const int run = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run < 0 && errno == ENOENT) return CGP_OK;
    if (run < 0) return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", directory, strerror(errno));
    const cgp_status status = cgp__run_clean(run, directory, CGP__CLEAN_TELL);
    close(run);
    return status;
}
