/* SPDX-License-Identifier: Apache-2.0 */
/* file.c -- replaces a file atomically, and reads a file.
 *
 *     create   directory/.cgpipe-file-@<process>-<counter>.tmp, new and locked
 *     write    to the temporary file
 *     commit   fsync it, rename it to the path, fsync the directory
 *
 * At any time, even after a crash, a reader sees the old file or the new file. A temporary file is
 * left behind only if its process is killed. The file then has no lock, and cgp_checkpoint_clean()
 * deletes it. The temporary name does not contain the final name, so it cannot become too long. The
 * directory is open from create to commit, and all names are relative to it. */
#include <cgpipe/checkpoint.h>

#include "base/base.h"
#include "base/file_sha256.h"
#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct cgp__file {
    pid_t process; /* the process that created the file, and the only one that may write it */
    int fd;
    int directory; /* descriptor of the file's directory */
    char *name;    /* the path as the caller wrote it, for messages */
    char *parent;  /* the path of `directory`, for messages */
    char *entry;   /* the file's name in `directory` */
    /* The temporary name in `directory`; "" while there is no file to delete. */
    cgp__entry_name temporary;
    bool failed; /* a write failed: the temporary file is incomplete */
};

void cgp__file_abandon(cgp__file *file) {
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    if (file->temporary.text[0] && file->process == getpid())
        unlinkat(file->directory, file->temporary.text, 0);
    if (file->directory >= 0) close(file->directory);
    free(file->entry);
    free(file->parent);
    free(file->name);
    free(file);
}

/* Refuse to replace a directory or a device. (The user root could replace /dev/null.) */
static cgp_status check_kind(const char *name, mode_t mode) {
    if (S_ISREG(mode)) return CGP_OK;
    if (S_ISDIR(mode))
        return cgp_fail(CGP_EIO, "%s: is a directory, expected a file to replace", name);
    if (S_ISLNK(mode))
        return cgp_fail(CGP_EIO, "%s: is a link, which is not followed here (put a file there)",
                        name);
    return cgp_fail(CGP_EIO, "%s: is not a regular file, so it cannot be replaced", name);
}

const char *cgp__last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Find the file at `name`, following links. *path is owned by the caller, also after a failure. */
static cgp_status find_target(const char *name, char **path) {
    struct stat info;
    const bool exists = lstat(name, &info) == 0;
    if (!exists && errno != ENOENT)
        return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", name, strerror(errno));
    if (!exists && !*cgp__last_part(name))
        return cgp_fail(CGP_EIO, "%s: is not the name of a file", name[0] ? name : "\"\"");
    const bool links = exists && S_ISLNK(info.st_mode);
    *path = links ? realpath(name, NULL) : cgp__strdup(name);
    if (!*path && (!links || errno == ENOMEM)) return cgp__no_memory(name, strlen(name) + 1);
    if (links && (!*path || stat(*path, &info)))
        return cgp_fail(CGP_EIO, "%s: is a link that leads nowhere (%s)", name, strerror(errno));
    return exists ? check_kind(name, info.st_mode) : CGP_OK;
}

char *cgp__directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return cgp__strdup(".");
    return cgp__format("%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* Lock the new file against cgp_checkpoint_clean(). Return 0; EAGAIN if the file was deleted before
 * the lock; or another errno. On a file system without locks, neither this process nor the cleaning
 * process holds a lock. */
static int lock(int fd) {
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) return EAGAIN;
    if (fstat(fd, &info)) return errno;
    return info.st_nlink > 0 ? 0 : EAGAIN;
}

static cgp_status open_temporary(cgp__file *file) {
    int reason = EAGAIN;
    /* EEXIST: another process with the same name left a file. (Without /proc, names of processes
     * repeat.) Try the next name. */
    for (int attempt = 0; (reason == EAGAIN || reason == EEXIST) && attempt < 1000; attempt++) {
        const cgp__entry_name name = cgp__temporary_name("file", CGP__WRITTEN);
        file->fd = openat(file->directory, name.text,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        reason = file->fd >= 0 ? lock(file->fd) : errno;
        if (file->fd >= 0 && reason != EAGAIN) /* cgp__file_abandon() deletes it */
            file->temporary = name;
        if (reason == 0) return CGP_OK;
        if (file->fd >= 0) close(file->fd);
        file->fd = -1;
    }
    return cgp_fail(CGP_EIO, "%s: cannot write in directory %s (%s)", file->name, file->parent,
                    strerror(reason));
}

/* Allocate a cgp__file that will replace `entry` in the directory of `path`. This function opens
 * nothing. */
static cgp_status new_file(cgp__file **out, const char *name, const char *path, const char *entry) {
    CGP_TRY(CGP__NEW(*out, 1, name));
    cgp__file *file = *out;
    file->process = getpid();
    file->fd = file->directory = -1;
    file->name = cgp__strdup(name);
    file->parent = cgp__directory_of(path);
    file->entry = cgp__strdup(entry);
    if (file->name && file->parent && file->entry) return CGP_OK;
    return cgp__no_memory(name, strlen(path) + 1);
}

/* Open the temporary file, and set *out to `file`. After a failure, free `file`. */
static cgp_status finish_create(cgp__file **out, cgp__file *file, cgp_status status) {
    if (status == CGP_OK) status = open_temporary(file);
    if (status == CGP_OK)
        *out = file;
    else
        cgp__file_abandon(file);
    return status;
}

/* Open the directory; all later accesses are relative to it. */
static cgp_status open_directory(cgp__file *file) {
    file->directory = open(file->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file->directory >= 0) return CGP_OK;
    if (errno == ENOENT)
        return cgp_fail(CGP_EIO, "%s: no such directory %s", file->name, file->parent);
    return cgp_fail(CGP_EIO, "%s: cannot write in directory %s (%s)", file->name, file->parent,
                    strerror(errno));
}

cgp_status cgp__file_create(cgp__file **out, const char *path) {
    cgp__file *file = NULL;
    char *target = NULL;
    cgp_status status = find_target(path, &target);
    if (status == CGP_OK) status = new_file(&file, path, target, cgp__last_part(target));
    free(target);
    if (status == CGP_OK) status = open_directory(file);
    return finish_create(out, file, status);
}

/* Duplicate the descriptor of the caller's directory. If the directory has an entry of the file's
 * name, check the entry. If such an entry is made later, the rename replaces it and follows no
 * link. */
static cgp_status check_entry(cgp__file *file, int directory) {
    struct stat info;
    file->directory = fcntl(directory, F_DUPFD_CLOEXEC, 0);
    if (file->directory >= 0 &&
        fstatat(file->directory, file->entry, &info, AT_SYMLINK_NOFOLLOW) == 0)
        return check_kind(file->name, info.st_mode);
    if (file->directory >= 0 && errno == ENOENT) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", file->name, strerror(errno));
}

cgp_status cgp__file_create_at(cgp__file **out, int directory, const char *name, const char *path) {
    cgp__file *file = NULL;
    cgp_status status = new_file(&file, path, path, name);
    if (status == CGP_OK) status = check_entry(file, directory);
    return finish_create(out, file, status);
}

/* Check that this process created the file: a child made by fork() must not write it. */
static cgp_status check_writer(const cgp__file *file) {
    if (file->process != getpid())
        return cgp_fail(CGP_ESTATE,
                        "%s: expected a call of process %ld, which writes it, got one of %ld",
                        file->name, (long)file->process, (long)getpid());
    return file->failed ? cgp_fail(CGP_EIO, "%s: an earlier write failed", file->name) : CGP_OK;
}

cgp_status cgp__file_write(cgp__file *file, const void *data, size_t bytes) {
    const size_t max = (size_t)1 << 30; /* Linux writes at most 2 GB at once */
    const char *from = data;
    CGP_TRY(check_writer(file));
    while (bytes > 0) {
        const ssize_t done = write(file->fd, from, bytes < max ? bytes : max);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            file->failed = true;
            return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", file->name,
                            strerror(done < 0 ? errno : ENOSPC));
        }
        from += done;
        bytes -= (size_t)done;
    }
    return CGP_OK;
}

int cgp__sync_directory(int directory) {
    const int reason = fsync(directory) ? errno : 0;
    return reason == EINVAL ? 0 : reason; /* EINVAL: the file system cannot sync directories */
}

static cgp_status replace(cgp__file *file) {
    CGP_TRY(check_writer(file));
    if (fsync(file->fd))
        return cgp_fail(CGP_EIO, "%s: cannot be synced (%s)", file->name, strerror(errno));
    /* The file stays open and locked until it is renamed. After a sync, close() cannot fail. */
    if (renameat(file->directory, file->temporary.text, file->directory, file->entry))
        return cgp_fail(CGP_EIO, "%s: cannot be replaced (%s)", file->name, strerror(errno));
    file->temporary.text[0] = '\0';
    const int reason = cgp__sync_directory(file->directory);
    if (reason == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: is replaced, but its directory cannot be synced (%s)", file->name,
                    strerror(reason));
}

cgp_status cgp__file_commit(cgp__file *file) {
    const cgp_status status = replace(file);
    cgp__file_abandon(file);
    return status;
}

static cgp_status write_whole(cgp__file *file, const void *data, size_t bytes) {
    const cgp_status status = cgp__file_write(file, data, bytes);
    if (status == CGP_OK) return cgp__file_commit(file);
    cgp__file_abandon(file);
    return status;
}

cgp_status cgp_file_replace(const char *path, const void *data, size_t bytes) {
    CGP__NEED(path);
    if (bytes > 0) CGP__NEED(data);
    cgp__file *file = NULL;
    CGP_TRY(cgp__file_create(&file, path));
    return write_whole(file, data, bytes);
}

cgp_status cgp_file_replace_at(int directory, const char *name, const char *path, const void *data,
                               size_t bytes) {
    CGP__NEED(name);
    CGP__NEED(path);
    if (bytes > 0) CGP__NEED(data);
    cgp__file *file = NULL;
    if (!*name || strchr(name, '/'))
        return cgp_fail(CGP_EINVAL, "%s: \"%s\" is not the name of a file in a directory", path,
                        name);
    CGP_TRY(cgp__file_create_at(&file, directory, name, path));
    return write_whole(file, data, bytes);
}

/* --- reading --- */

cgp_status cgp_file_sha256(const char *path, char hex[65]) {
    CGP__NEED(path);
    CGP__NEED(hex);
    return cgp__file_sha256(path, hex);
}

cgp__path_text cgp__path_text_of(const char *directory, const char *name) {
    cgp__path_text path;
    snprintf(path.text, sizeof path.text, "%s/%s", directory, name);
    return path;
}

/* Open with O_NONBLOCK, because open() of a named pipe would otherwise block until the pipe has a
 * writer. */
static cgp_status open_regular(cgp__file_reader *reader, const char *path, const char *expected,
                               cgp_status damage, struct stat *info) {
    const int links = reader->directory == AT_FDCWD ? 0 : O_NOFOLLOW;
    reader->fd = openat(reader->directory, reader->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | links);
    const int reason = reader->fd < 0 || fstat(reader->fd, info) ? errno : 0;
    if (reason == 0 && S_ISREG(info->st_mode)) return CGP_OK;
    cgp__file_reader_close(reader);
    if (reason == ENOENT) return cgp_fail(damage, "%s: no such file", path);
    if (reason == ELOOP && links)
        return cgp_fail(damage, "%s: is a link, expected %s", path, expected);
    if (reason == ENXIO) /* a socket */
        return cgp_fail(damage, "%s: is not a regular file, expected %s", path, expected);
    if (reason) return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(reason));
    return cgp_fail(damage, "%s: is %s, expected %s", path,
                    S_ISDIR(info->st_mode) ? "a directory" : "not a regular file", expected);
}

cgp_status cgp__file_reader_open(cgp__file_reader *reader, int directory, const char *name,
                                 const char *path, const char *expected, cgp_status damage) {
    struct stat info;
    *reader = (cgp__file_reader){.directory = directory, .name = name, .fd = -1};
    CGP_TRY(open_regular(reader, path, expected, damage, &info));
    reader->bytes = info.st_size;
    reader->device = info.st_dev;
    reader->inode = info.st_ino;
    reader->modified = info.st_mtim;
    return CGP_OK;
}

static bool is_same(const cgp__file_reader *a, const cgp__file_reader *b) {
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec;
}

static cgp_status reopen(const cgp__file_reader *reader, const char *path,
                         cgp__file_reader *again) {
    const cgp_status status = cgp__file_reader_open(again, reader->directory, reader->name, path,
                                                    "the file that was here", CGP_EFORMAT);
    if (status == CGP_OK && is_same(reader, again)) return CGP_OK;
    if (status != CGP_OK && status != CGP_EFORMAT) return status;
    cgp__file_reader_close(again);
    return cgp_fail(CGP_EIO, "%s: was deleted or replaced while it was read (load it again)", path);
}

static cgp_status read_open(int fd, const char *path, int64_t at, void *data, size_t bytes,
                            size_t *got) {
    const size_t max = (size_t)1 << 30; /* Linux reads at most 2 GB at once */
    for (*got = 0; *got < bytes;) {
        const size_t wanted = bytes - *got < max ? bytes - *got : max;
        const ssize_t done = pread(fd, (char *)data + *got, wanted, at + (int64_t)*got);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0)
            return cgp_fail(CGP_EIO, "%s: cannot be read at byte %" PRId64 " (%s)", path,
                            at + (int64_t)*got, strerror(errno));
        if (done == 0) break;
        *got += (size_t)done;
    }
    return CGP_OK;
}

cgp_status cgp__file_reader_read(const cgp__file_reader *reader, const char *path, int64_t at,
                                 void *data, size_t bytes, size_t *got) {
    if (reader->fd >= 0) return read_open(reader->fd, path, at, data, bytes, got);
    cgp__file_reader again;
    CGP_TRY(reopen(reader, path, &again));
    const cgp_status status = read_open(again.fd, path, at, data, bytes, got);
    cgp__file_reader_close(&again);
    return status;
}

void cgp__file_reader_close(cgp__file_reader *reader) {
    if (reader->fd >= 0) close(reader->fd);
    reader->fd = -1;
}
