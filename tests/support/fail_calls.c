/* SPDX-License-Identifier: Apache-2.0 */
/* fail_calls.c -- a library for LD_PRELOAD that makes one file call fail. It counts the calls of
 * one kind on paths in one directory, and the call with the given number fails.
 *
 *     FAIL_BELOW=/tmp/x           count calls on paths in this directory
 *     FAIL_CALL=write:17:ENOSPC   the 17th write fails; HOW is ENOSPC, EIO, SHORT, KILL, STOP (the
 *                                 process gets SIGSTOP first), or HANG (it never returns)
 *     FAIL_LOCKS=none             each flock fails with ENOLCK, as on a file system without locks
 *     FAIL_LOCKS=apart            each flock succeeds, as if all other locks were on another host
 *     FAIL_LINKS=1                each link fails with EPERM, as without hard links
 *     FAIL_HOST=node7             the name of the host
 *     FAIL_REPORT=/tmp/report     gets the line "failed write:17:ENOSPC /tmp/x/run/..", and at a
 *                                 regular exit "count write 40" for each kind
 *
 *     kind       calls                                                    HOW
 *     create     open with O_CREAT, fopen to write, mkdir, symlink        ENOSPC EIO KILL
 *     write      write, pwrite                                            ENOSPC EIO SHORT KILL
 *     flush      fflush, and fclose with buffered bytes                   ENOSPC EIO KILL
 *     sync       fsync, fdatasync                                         ENOSPC EIO KILL
 *     rename     rename, renameat, renameat2, link, linkat                ENOSPC EIO KILL
 *     unlink     unlink, unlinkat, rmdir                                  EIO KILL
 *     truncate   ftruncate                                                EIO KILL
 *     open       open to read, fopen to read, opendir, fdopendir          EIO
 *     read       read, pread                                              EIO SHORT
 *     list       readdir                                                  EIO
 *     stat       stat, lstat, fstat, fstatat, access, faccessat           EIO
 *     lock       flock                                                    EIO
 *     close      close, fclose                                            EIO
 *
 * A full disk stays full: after ENOSPC, every call that needs space fails too. If a write fails
 * with ENOSPC, or if the process is killed during a write, half of the bytes are in the file. SHORT
 * reads or writes half of the bytes and returns that count. fsync does nothing, because no machine
 * crashes in these tests. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum kind {
    CREATE,
    WRITE,
    FLUSH,
    SYNC,
    RENAME,
    UNLINK,
    TRUNCATE,
    OPEN,
    READ,
    LIST,
    STAT,
    LOCK,
    CLOSE,
    KINDS
} kind;

static const char *const kind_names[KINDS] = {"create", "write",    "flush", "sync", "rename",
                                              "unlink", "truncate", "open",  "read", "list",
                                              "stat",   "lock",     "close"};

enum { NOTHING = 0, SHORT = -1 }; /* errors; all other values are errno numbers */

static struct {
    char below[PATH_MAX], call[64];
    const char *report;
    int kind, error; /* `error`: NOTHING, SHORT or errno */
    bool kill, stop, hang, no_links;
    const char *locks;
    unsigned long n;
} wanted = {.kind = -1};

static atomic_ulong counts[KINDS];
static atomic_bool full;

/* --- environment, report --- */

static void report(const char *line) {
    const int fd = wanted.report ? (int)syscall(SYS_openat, AT_FDCWD, wanted.report,
                                                O_WRONLY | O_CREAT | O_APPEND, 0600)
                                 : -1;
    if (fd < 0) return;
    (void)!syscall(SYS_write, fd, line, strlen(line));
    syscall(SYS_close, fd);
}

static void take_call(const char *text) {
    char name[16] = "", how[16] = "";
    if (sscanf(text, "%15[a-z]:%lu:%15[A-Z]", name, &wanted.n, how) != 3) return;
    snprintf(wanted.call, sizeof wanted.call, "%s", text);
    for (int k = 0; k < KINDS; k++) {
        if (strcmp(kind_names[k], name) == 0) wanted.kind = k;
    }
    wanted.kill = strcmp(how, "KILL") == 0;
    wanted.stop = strcmp(how, "STOP") == 0;
    wanted.hang = strcmp(how, "HANG") == 0;
    wanted.error = strcmp(how, "ENOSPC") == 0 ? ENOSPC : strcmp(how, "SHORT") == 0 ? SHORT : EIO;
}

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("FAIL_BELOW"), *call = getenv("FAIL_CALL");
    wanted.report = getenv("FAIL_REPORT");
    wanted.locks = getenv("FAIL_LOCKS");
    wanted.no_links = getenv("FAIL_LINKS") != NULL;
    if (below) snprintf(wanted.below, sizeof wanted.below, "%s", below);
    if (call) take_call(call);
}

__attribute__((destructor)) static void end(void) {
    for (int k = 0; k < KINDS; k++) {
        char line[64];
        snprintf(line, sizeof line, "count %s %lu\n", kind_names[k], atomic_load(&counts[k]));
        report(line);
    }
}

/* --- counting calls --- */

/* Return true if a path is below FAIL_BELOW. The path is `name` in directory `at`. If `name` is
 * NULL, it is the path of the open file `at`. `path` gets the whole path. */
static bool is_below(int at, const char *name, char path[PATH_MAX]) {
    char base[PATH_MAX] = "", link[64];
    const size_t length = strlen(wanted.below);
    if (length == 0) return false;
    if (!name || name[0] != '/') {
        if (at == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        const long got = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
        base[got > 0 ? got : 0] = '\0';
    }
    const size_t used = strlen(base);
    memcpy(path, base, used + 1);
    if (name && used + strlen(name) + 2 < PATH_MAX) {
        if (used > 0) strcat(path, "/");
        strcat(path, name);
    }
    return strncmp(path, wanted.below, length) == 0 &&
           (path[length] == '/' || path[length] == '\0');
}

static void fire(const char *path) {
    char line[PATH_MAX + 96];
    snprintf(line, sizeof line, "failed %s %s\n", wanted.call, path);
    report(line);
    if (wanted.error == ENOSPC) atomic_store(&full, true);
}

static void die(void) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

static bool needs_space(kind k) {
    return k == CREATE || k == WRITE || k == FLUSH;
}

/* Count a call. Return NOTHING, SHORT or an error. If the process must be killed in this call, kill
 * it. Exception: for writes and flushes, return, because the caller first writes half of the
 * bytes. */
static int intercept(kind k, int at, const char *name) {
    char path[PATH_MAX];
    const int before = errno;
    const bool ours = is_below(at, name, path);
    errno = before;
    if (!ours) return NOTHING;
    const unsigned long n = atomic_fetch_add(&counts[k], 1) + 1;
    if (atomic_load(&full) && needs_space(k)) return ENOSPC;
    if ((int)k != wanted.kind || n != wanted.n) return NOTHING;
    fire(path);
    if (wanted.kill && k != WRITE && k != FLUSH) die();
    while (wanted.hang)
        pause();
    if (!wanted.stop) return wanted.error;
    syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
    return NOTHING;
}

/* Look up the real function that a wrapper shadows. */
#define NEXT(name)                                                                                 \
    static __typeof__(&(name)) next;                                                               \
    if (!next) next = (__typeof__(&(name)))dlsym(RTLD_NEXT, #name)

#define FAIL_WITH(code, result)                                                                    \
    do {                                                                                           \
        const int code_ = (code);                                                                  \
        if (code_ > 0) {                                                                           \
            errno = code_;                                                                         \
            return result;                                                                         \
        }                                                                                          \
    } while (0)

/* --- open --- */

static int open_any(int at, const char *path, int flags, mode_t mode) {
    FAIL_WITH(intercept(flags & O_CREAT ? CREATE : OPEN, at, path), -1);
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

#define MODE_OF(flags, mode)                                                                       \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                                        \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, mode_t);                                                               \
        va_end(rest);                                                                              \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return open_any(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return open_any(at, path, flags, mode);
}

int open64(const char *, int, ...) __attribute__((alias("open")));
int openat64(int, const char *, int, ...) __attribute__((alias("openat")));

/* With _FORTIFY_SOURCE, calls of open() become calls of these functions. */
int __open_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);

int __open_2(const char *path, int flags) {
    return open_any(AT_FDCWD, path, flags, 0);
}

int __openat_2(int at, const char *path, int flags) {
    return open_any(at, path, flags, 0);
}

int __open64_2(const char *, int) __attribute__((alias("__open_2")));
int __openat64_2(int, const char *, int) __attribute__((alias("__openat_2")));

FILE *fopen(const char *path, const char *mode) {
    NEXT(fopen);
    FAIL_WITH(intercept(strpbrk(mode, "wa") ? CREATE : OPEN, AT_FDCWD, path), NULL);
    return next(path, mode);
}

FILE *fopen64(const char *, const char *) __attribute__((alias("fopen")));

DIR *opendir(const char *path) {
    NEXT(opendir);
    FAIL_WITH(intercept(OPEN, AT_FDCWD, path), NULL);
    return next(path);
}

DIR *fdopendir(int fd) {
    NEXT(fdopendir);
    FAIL_WITH(intercept(OPEN, fd, NULL), NULL);
    return next(fd);
}

struct dirent *readdir(DIR *list) {
    NEXT(readdir);
    FAIL_WITH(intercept(LIST, dirfd(list), NULL), NULL);
    return next(list);
}

struct dirent64 *readdir64(DIR *) __attribute__((alias("readdir")));

/* --- write, read --- */

/* Write half of the bytes, rounded down. */
static ssize_t write_half(int fd, const void *bytes, size_t count) {
    return count > 1 ? syscall(SYS_write, fd, bytes, count / 2) : 0;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    const int result = intercept(WRITE, fd, NULL);
    const bool first =
        result == ENOSPC && wanted.kind == WRITE && atomic_load(&counts[WRITE]) == wanted.n;
    if (result == NOTHING) return syscall(SYS_write, fd, bytes, count);
    const ssize_t half = result == SHORT || wanted.kill || first ? write_half(fd, bytes, count) : 0;
    if (wanted.kill) die();
    if (half > 0) return half;
    if (result == SHORT) return syscall(SYS_write, fd, bytes, count);
    FAIL_WITH(result, -1);
    return -1;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    const int result = intercept(WRITE, fd, NULL);
    const size_t half = result == SHORT && count > 1 ? count / 2 : count;
    if (result > 0 && wanted.kill) (void)!syscall(SYS_pwrite64, fd, bytes, count / 2, at);
    if (result > 0 && wanted.kill) die();
    FAIL_WITH(result, -1);
    return syscall(SYS_pwrite64, fd, bytes, half, at);
}

ssize_t pwrite64(int, const void *, size_t, off_t) __attribute__((alias("pwrite")));

ssize_t read(int fd, void *bytes, size_t count) {
    const int result = intercept(READ, fd, NULL);
    FAIL_WITH(result, -1);
    return syscall(SYS_read, fd, bytes, result == SHORT && count > 1 ? count / 2 : count);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at) {
    const int result = intercept(READ, fd, NULL);
    FAIL_WITH(result, -1);
    return syscall(SYS_pread64, fd, bytes, result == SHORT && count > 1 ? count / 2 : count, at);
}

ssize_t pread64(int, void *, size_t, off_t) __attribute__((alias("pread")));

// NOLINTBEGIN(readability-redundant-declaration): only fortified headers declare these
ssize_t __read_chk(int fd, void *bytes, size_t count, size_t capacity);
ssize_t __pread_chk(int fd, void *bytes, size_t count, off_t at, size_t capacity);
// NOLINTEND(readability-redundant-declaration)

ssize_t __read_chk(int fd, void *bytes, size_t count, size_t capacity) {
    if (count > capacity) abort();
    return read(fd, bytes, count);
}

ssize_t __pread_chk(int fd, void *bytes, size_t count, off_t at, size_t capacity) {
    if (count > capacity) abort();
    return pread(fd, bytes, count, at);
}

ssize_t __pread64_chk(int, void *, size_t, off_t, size_t) __attribute__((alias("__pread_chk")));

/* --- streams --- */

/* Write half of the buffered bytes of `file`. The rest stays in the buffer, as on a full disk. */
static int flush_half(FILE *file, int (*flush)(FILE *), int error) {
    const int fd = fileno(file), kept = dup(fd);
    const int none = (int)syscall(SYS_openat, AT_FDCWD, "/dev/full", O_WRONLY, 0);
    (void)write_half(fd, file->_IO_write_base, __fpending(file));
    if (wanted.kill) die();
    dup2(none, fd);
    (void)flush(file);
    dup2(kept, fd);
    syscall(SYS_close, none);
    syscall(SYS_close, kept);
    errno = error;
    return EOF;
}

int fflush(FILE *file) {
    NEXT(fflush);
    if (!file || __fpending(file) == 0) return next(file);
    const int result = intercept(FLUSH, fileno(file), NULL);
    return result > 0 ? flush_half(file, next, result) : next(file);
}

int fclose(FILE *file) {
    NEXT(fclose);
    const bool flushed = fflush(file) == 0;
    const int reason = flushed ? intercept(CLOSE, fileno(file), NULL) : errno;
    if (!flushed) __fpurge(file);
    const int result = next(file);
    FAIL_WITH(reason, EOF);
    return result;
}

/* --- other calls --- */

int fsync(int fd) {
    FAIL_WITH(intercept(SYNC, fd, NULL), -1);
    return 0;
}

int fdatasync(int) __attribute__((alias("fsync")));

int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
    FAIL_WITH(intercept(RENAME, at, from), -1);
    return (int)syscall(SYS_renameat2, at, from, to_at, to, flags);
}

int renameat(int at, const char *from, int to_at, const char *to) {
    return renameat2(at, from, to_at, to, 0);
}

int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    char path[PATH_MAX];
    FAIL_WITH(intercept(RENAME, to_at, to), -1);
    FAIL_WITH(wanted.no_links && is_below(to_at, to, path) ? EPERM : NOTHING, -1);
    return (int)syscall(SYS_linkat, at, from, to_at, to, flags);
}

int link(const char *from, const char *to) {
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int mkdirat(int at, const char *path, mode_t mode) {
    FAIL_WITH(intercept(CREATE, at, path), -1);
    return (int)syscall(SYS_mkdirat, at, path, mode);
}

int mkdir(const char *path, mode_t mode) {
    return mkdirat(AT_FDCWD, path, mode);
}

int symlinkat(const char *target, int at, const char *path) {
    FAIL_WITH(intercept(CREATE, at, path), -1);
    return (int)syscall(SYS_symlinkat, target, at, path);
}

int symlink(const char *target, const char *path) {
    return symlinkat(target, AT_FDCWD, path);
}

int unlinkat(int at, const char *path, int flags) {
    FAIL_WITH(intercept(UNLINK, at, path), -1);
    return (int)syscall(SYS_unlinkat, at, path, flags);
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int ftruncate(int fd, off_t length) {
    FAIL_WITH(intercept(TRUNCATE, fd, NULL), -1);
    return (int)syscall(SYS_ftruncate, fd, length);
}

int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));

int fstatat(int at, const char *path, struct stat *info, int flags) {
    FAIL_WITH(intercept(STAT, at, *path ? path : NULL), -1);
    return (int)syscall(SYS_newfstatat, at, path, info, flags);
}

int stat(const char *path, struct stat *info) {
    return fstatat(AT_FDCWD, path, info, 0);
}

int lstat(const char *path, struct stat *info) {
    return fstatat(AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *info) {
    return fstatat(fd, "", info, AT_EMPTY_PATH);
}

int stat64(const char *, struct stat64 *) __attribute__((alias("stat")));
int lstat64(const char *, struct stat64 *) __attribute__((alias("lstat")));
int fstat64(int, struct stat64 *) __attribute__((alias("fstat")));
int fstatat64(int, const char *, struct stat64 *, int) __attribute__((alias("fstatat")));

int access(const char *path, int mode) {
    NEXT(access);
    FAIL_WITH(intercept(STAT, AT_FDCWD, path), -1);
    return next(path, mode);
}

int faccessat(int at, const char *path, int mode, int flags) {
    NEXT(faccessat);
    FAIL_WITH(intercept(STAT, at, path), -1);
    return next(at, path, mode, flags);
}

int flock(int fd, int operation) {
    char path[PATH_MAX];
    FAIL_WITH(intercept(LOCK, fd, NULL), -1);
    const bool ours = wanted.locks && is_below(fd, NULL, path);
    FAIL_WITH(ours && strcmp(wanted.locks, "none") == 0 ? ENOLCK : NOTHING, -1);
    return ours ? 0 : (int)syscall(SYS_flock, fd, operation);
}

int gethostname(char *name, size_t size) {
    const char *host = getenv("FAIL_HOST");
    NEXT(gethostname);
    if (!host) return next(name, size);
    snprintf(name, size, "%s", host);
    return 0;
}

/* This wrapper closes the file even if the call is made to fail. */
int close(int fd) {
    const int reason = intercept(CLOSE, fd, NULL);
    const int result = (int)syscall(SYS_close, fd);
    FAIL_WITH(reason, -1);
    return result;
}
