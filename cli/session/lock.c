/* SPDX-License-Identifier: Apache-2.0 */
/* lock.c -- see lock.h. A lock file is written under a temporary name and then linked to its final
 * name, which fails if that name exists. link() is atomic on network file systems too, and the file
 * is complete when its name appears.
 *
 * Replacing the lock file of a dead process takes two calls, so only one process at a time may
 * replace it. The process must be in the pid namespace of the dead process, and it first locks the
 * file of that namespace in /proc. */
#include "session/lock.h"

#include "errors.h"
#include "machine.h"
#include "text.h"

#include <cgpipe/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES = 512, ATTEMPTS = 10 };

/* The contents of a lock file. */
typedef struct holder {
    char host[80], date[CLI_DATE], process[CGP_PROCESS_BYTES];
    long pid;
} holder;

typedef enum look { ABSENT, THERE, STRANGE } look;

/* --- flock --- */

/* Take the flock. Retries for a moment, because another process may take the lock briefly to test
 * whether it is free. Returns 0 on success. EWOULDBLOCK: another process has the lock; any other
 * error: the file system has no locks. */
static int lock_exclusively(int fd) {
    const struct timespec moment = {.tv_nsec = 10000000};
    int reason = EWOULDBLOCK;
    for (int i = 0; i < 5 && reason == EWOULDBLOCK; i++) {
        if (i > 0) nanosleep(&moment, NULL);
        reason = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    }
    return reason;
}

/* --- the file --- */

/* Read the lock file without following a link or blocking on a pipe. */
static cgp_status read_file(int directory, const char *path, look *found, holder *who) {
    char text[FILE_BYTES + 1];
    struct stat info;
    const int fd = openat(directory, CLI_LOCK, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int reason = fd < 0 || fstat(fd, &info) ? errno : 0;
    const bool regular = reason == 0 && S_ISREG(info.st_mode);
    const ssize_t got = regular ? pread(fd, text, FILE_BYTES, 0) : 0;
    if (got < 0) reason = errno;
    if (fd >= 0) close(fd);
    *found = reason == ENOENT ? ABSENT : STRANGE;
    if (reason == ENOENT || reason == ELOOP || reason == ENXIO) return CGP_OK;
    if (reason)
        return cgp_fail(CGP_EIO, "%s/" CLI_LOCK ": cannot be read (%s)", path, strerror(reason));
    text[got] = '\0';
    if (regular &&
        sscanf(text, "%79s %ld %31s %191s", who->host, &who->pid, who->date, who->process) == 4)
        *found = THERE;
    return CGP_OK;
}

/* Fail if the process that the lock file names may still hold the lock. CGP_OK: that process is
 * gone. */
static cgp_status check_gone(const char *path, look found, const holder *who) {
    cgp_process_state state = CGP_PROCESS_UNKNOWN;
    if (found == THERE) CGP_TRY(cgp_process_find(&state, who->process));
    if (state == CGP_PROCESS_GONE) return CGP_OK;
    if (state == CGP_PROCESS_RUNS)
        return cgp_fail(CGP_EIO,
                        "run directory %s: another cgpipe train is at work in it, process %ld of "
                        "this host, since %s (stop that one, or another --run)",
                        path, who->pid, cli_shown(who->date));
    char *file = cli_text("%s%s/" CLI_LOCK, *path == '-' ? "./" : "", path);
    char *word = cli_shell_word(file);
    if (found == THERE)
        (void)cgp_fail(CGP_EIO,
                       "run directory %s: process %ld on host %s has locked it since %s, and "
                       "cannot be inspected from here (if it has ended: rm %s)",
                       path, who->pid, cli_shown(who->host), cli_shown(who->date), word);
    else
        (void)cgp_fail(CGP_EIO,
                       "%s/" CLI_LOCK ": expected the lock file of a cgpipe train, got something "
                       "else (if nothing trains there: rm -r %s)",
                       path, word);
    free(word);
    free(file);
    return CGP_EIO;
}

/* --- taking over --- */

/* Return a descriptor that holds the lock of this pid namespace; -1 if another process has that
 * lock or if there is no /proc. */
static int lock_namespace(void) {
    const int fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || lock_exclusively(fd) == 0) return fd;
    close(fd);
    return -1;
}

/* Delete the lock file of a dead process, if it is still there. */
static cgp_status take_over(int directory, const char *path, const holder *gone) {
    holder now;
    look found = ABSENT;
    const int guard = lock_namespace();
    if (guard < 0)
        return cgp_fail(
            CGP_EIO, "run directory %s: another process takes over its lock (start again)", path);
    cgp_status status = read_file(directory, path, &found, &now);
    if (status == CGP_OK && found == THERE && strcmp(now.process, gone->process) == 0 &&
        unlinkat(directory, CLI_LOCK, 0) != 0 && errno != ENOENT)
        status =
            cgp_fail(CGP_EIO, "%s/" CLI_LOCK ": cannot be deleted (%s)", path, strerror(errno));
    close(guard);
    return status;
}

/* --- making --- */

/* Link the temporary file to its final name. Returns 0 or errno. The reply of a network file system
 * may be lost, so a link count of two counts as success. */
static int link_file(int directory, const char *temporary) {
    struct stat info;
    if (linkat(directory, temporary, directory, CLI_LOCK, 0) == 0) return 0;
    const int reason = errno;
    const bool linked =
        fstatat(directory, temporary, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_nlink == 2;
    return linked ? 0 : reason;
}

static bool has_no_links(int reason) {
    return reason == EPERM || reason == EOPNOTSUPP || reason == ENOSYS || reason == EMLINK;
}

/* Make the lock file. Returns 0, EEXIST if a lock file exists already, or another errno. Sets
 * *status if a failure occurs before the file is linked. */
static int make_file(int directory, const char *path, cgp_status *status) {
    char host[CLI_HOST], date[CLI_DATE], process[CGP_PROCESS_BYTES];
    *status = cgp_process_name(process);
    if (*status != CGP_OK) return 0;
    for (char *c = cli_host(host); *c; c++)
        *c = *c <= ' ' ? '_' : *c;
    char *temporary = cli_text(".cgpipe-lock-@%s-0.tmp", process);
    char *text = cli_text("%.79s %ld %s %s\n", *host ? host : "unknown", (long)getpid(),
                          cli_date(date), process);
    char *file = cli_text("%s/" CLI_LOCK, path);
    *status = cgp_file_replace_at(directory, temporary, file, text, strlen(text));
    const int reason = *status == CGP_OK ? link_file(directory, temporary) : 0;
    if (*status == CGP_OK) (void)unlinkat(directory, temporary, 0);
    free(file);
    free(text);
    free(temporary);
    return reason;
}

/* --- the lock --- */

static cgp_status take_file(int directory, const char *path, bool *by_file, bool *again) {
    cgp_status status = CGP_OK;
    const int reason = make_file(directory, path, &status);
    CGP_TRY(status);
    *by_file = reason == 0;
    *again = reason == EEXIST;
    if (reason == 0 || reason == EEXIST) return CGP_OK;
    if (!has_no_links(reason))
        return cgp_fail(CGP_EIO, "%s/" CLI_LOCK ": cannot be made (%s)", path, strerror(reason));
    (void)cgp_fail(CGP_EIO,
                   "run directory %s: its file system has no locks and no links, so nothing "
                   "keeps another cgpipe train out of it",
                   path);
    cli_warn();
    return CGP_OK;
}

cgp_status cli_lock_take(int directory, const char *path, bool *by_file) {
    const int reason = lock_exclusively(directory);
    bool again = true;
    *by_file = false;
    if (reason == EWOULDBLOCK)
        return cgp_fail(
            CGP_EIO,
            "run directory %s: another cgpipe train is at work in it (stop that one, or "
            "another --run)",
            path);
    for (int attempt = 0; again && attempt < ATTEMPTS; attempt++) {
        holder who;
        look found = ABSENT;
        CGP_TRY(read_file(directory, path, &found, &who));
        if (found != ABSENT) {
            CGP_TRY(check_gone(path, found, &who));
            CGP_TRY(take_over(directory, path, &who));
        } else {
            again = false;
            if (reason) CGP_TRY(take_file(directory, path, by_file, &again));
        }
    }
    if (!again) return CGP_OK;
    return cgp_fail(CGP_EIO, "run directory %s: other processes keep taking its lock", path);
}

/* Tell whether the lock file belongs to this process. Return `otherwise` if the file cannot be
 * read. */
static bool is_own(int directory, bool otherwise) {
    holder who;
    look found = ABSENT;
    char process[CGP_PROCESS_BYTES];
    if (read_file(directory, "", &found, &who) != CGP_OK) return otherwise;
    return found == THERE && cgp_process_name(process) == CGP_OK &&
           strcmp(who.process, process) == 0;
}

bool cli_lock_is_kept(int directory) {
    return is_own(directory, true);
}

void cli_lock_release(int directory) {
    if (is_own(directory, false)) (void)unlinkat(directory, CLI_LOCK, 0);
}

cli_lock cli_lock_look(int directory) {
    holder who;
    look found = ABSENT;
    cgp_process_state state = CGP_PROCESS_UNKNOWN;
    const bool locks = flock(directory, LOCK_SH | LOCK_NB) == 0;
    if (!locks && errno == EWOULDBLOCK) return CLI_LOCK_HELD;
    if (locks) (void)flock(directory, LOCK_UN);
    if (read_file(directory, "", &found, &who) != CGP_OK) return CLI_LOCK_UNKNOWN;
    if (found == ABSENT) return locks ? CLI_LOCK_FREE : CLI_LOCK_UNKNOWN;
    if (found == THERE && cgp_process_find(&state, who.process) != CGP_OK) return CLI_LOCK_UNKNOWN;
    return state == CGP_PROCESS_RUNS   ? CLI_LOCK_HELD
           : state == CGP_PROCESS_GONE ? CLI_LOCK_FREE
                                       : CLI_LOCK_UNKNOWN;
}
