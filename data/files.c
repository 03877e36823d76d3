/* SPDX-License-Identifier: Apache-2.0 */
/* files.c -- reads regular files at offsets, and lists directories.
 *
 * A directory is walked with a list of pending directories, so that deep trees need no recursion:
 *
 *     pending: notes        files:
 *     pending: notes/b      files: notes/c.txt notes/a.txt      (in readdir's order)
 *     pending:              files: notes/c.txt notes/a.txt notes/b/x.txt
 *                   sorted: notes/a.txt notes/b/x.txt notes/c.txt
 *
 * Links to directories are not followed, so each directory is visited once. */
#include "data/files.h"
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- one file --- */

static cgp_status unreadable(const char *path, int reason) {
    if (reason == ENOENT) return cgp_fail(CGP_EIO, "%s: no such file", path);
    if (reason == EMFILE)
        return cgp_fail(CGP_EIO,
                        "%s: cannot be opened, too many files are open (raise ulimit -n: each "
                        "token file stays open)",
                        path);
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(reason));
}

/* Open with O_NONBLOCK, because open() of a named pipe would otherwise block until the pipe has a
 * writer. */
cgp_status cgp__data_file_open(const char *path, const char *expected, int *fd, int64_t *bytes) {
    struct stat info;
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) return unreadable(path, errno);
    const int failed = fstat(opened, &info) ? errno : 0;
    if (!failed && S_ISREG(info.st_mode)) {
        *fd = opened;
        *bytes = info.st_size;
        return CGP_OK;
    }
    close(opened);
    if (failed) return unreadable(path, failed);
    if (S_ISDIR(info.st_mode))
        return cgp_fail(CGP_EIO, "%s: is a directory, expected %s", path, expected);
    return cgp_fail(CGP_EIO, "%s: is not a regular file (pipes and devices have no length)", path);
}

cgp_status cgp__data_file_read(const char *path, int fd, int64_t offset, void *bytes,
                               int64_t count) {
    struct stat info;
    int64_t done = 0;
    while (done < count) {
        const ssize_t got = pread(fd, (char *)bytes + done, (size_t)(count - done), offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path, errno);
        if (got == 0)
            return cgp_fail(CGP_EIO,
                            "%s: became shorter while it was read, expected at least %" PRId64
                            " bytes, got %" PRId64,
                            path, offset + count,
                            fstat(fd, &info) ? offset + done : (int64_t)info.st_size);
        done += got;
    }
    return CGP_OK;
}

cgp_status cgp__data_file_load(const char *path, const char *expected, int64_t max, uint8_t **bytes,
                               int64_t *size) {
    int fd = -1;
    uint8_t *read = NULL;
    cgp_status status = CGP_OK;
    CGP_TRY(cgp__data_file_open(path, expected, &fd, size));
    if (*size > max)
        status = cgp_fail(CGP_EFORMAT, "%s: expected at most %" PRId64 " bytes, got %" PRId64, path,
                          max, *size);
    else if (!(read = cgp__calloc((size_t)*size + 1, 1)))
        status = cgp__no_memory(path, (size_t)*size);
    else
        status = cgp__data_file_read(path, fd, 0, read, *size);
    close(fd);
    if (status != CGP_OK) free(read);
    if (status == CGP_OK) *bytes = read;
    return status;
}

cgp_status cgp__data_file_size(const char *path, int64_t *bytes) {
    struct stat info;
    if (stat(path, &info) != 0) return unreadable(path, errno);
    *bytes = info.st_size;
    return CGP_OK;
}

/* --- names --- */

/* Append a name and take ownership of it, also on failure. `name` is NULL if there was no memory
 * for it. */
static cgp_status append(cgp__data_files *names, char *name) {
    const int need = names->n + 1;
    if (!name || !cgp__grow(&names->items, &names->capacity, need, sizeof *names->items)) {
        free(name);
        return cgp__no_memory("list of files", (size_t)need * sizeof *names->items);
    }
    names->items[names->n++] = name;
    return CGP_OK;
}

void cgp__data_files_release(cgp__data_files *names) {
    for (int i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
    *names = (cgp__data_files){0};
}

/* For qsort(): compare names as bytes. strcmp() does this in every locale. */
static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* --- directories --- */

static bool is_listed(cgp__data_files *files, const char *path, const struct stat *info) {
    if (!S_ISREG(info->st_mode) || (info->st_size == 0 && !files->filter)) return false;
    files->seen++;
    return !files->filter || files->filter(path);
}

/* Append a directory's entry to the files or to the directories, or skip it. If `files` is NULL,
 * append only directories, and follow links to directories. This function takes ownership of
 * `path`, the entry's full name. */
static cgp_status visit_entry(int fd, const char *name, char *path, cgp__data_files *files,
                              cgp__data_files *directories) {
    struct stat info;
    if (!path) return append(directories, NULL);
    const bool found = fstatat(fd, name, &info, files ? AT_SYMLINK_NOFOLLOW : 0) == 0;
    if (found && S_ISDIR(info.st_mode)) return append(directories, path);
    const bool reached = found && fstatat(fd, name, &info, 0) == 0;
    const int reason = errno;
    cgp_status status = CGP_OK;
    if (files && reached && is_listed(files, path, &info)) return append(files, path);
    if (files && found && !reached && (reason == ENOENT || reason == ELOOP))
        status = cgp_fail(CGP_EIO, "%s: is a link that leads nowhere (delete it)", path);
    else if (files && !reached)
        status = unreadable(path, reason);
    free(path);
    return status;
}

static cgp_status visit_directory(const char *directory, cgp__data_files *files,
                                  cgp__data_files *directories) {
    DIR *list = opendir(directory);
    if (!list) return unreadable(directory, errno);
    const char *joint = directory[strlen(directory) - 1] == '/' ? "" : "/";
    cgp_status status = CGP_OK;
    while (status == CGP_OK) {
        errno = 0; /* readdir returns NULL both at the end and for an error */
        const struct dirent *entry = readdir(list);
        if (!entry) {
            if (errno) status = unreadable(directory, errno);
            break;
        }
        if (entry->d_name[0] == '.') continue;
        char *path = cgp__format("%s%s%s", directory, joint, entry->d_name);
        status = visit_entry(dirfd(list), entry->d_name, path, files, directories);
    }
    closedir(list);
    return status;
}

static void sort_from(cgp__data_files *names, int first) {
    if (names->n > first)
        qsort(names->items + first, (size_t)(names->n - first), sizeof *names->items, by_bytes);
}

cgp_status cgp__data_directories_find(cgp__data_files *directories, const char *path) {
    const int before = directories->n;
    CGP_TRY(visit_directory(path, NULL, directories));
    sort_from(directories, before);
    return CGP_OK;
}

static cgp_status walk(const char *directory, cgp__data_files *files) {
    cgp__data_files directories = {0};
    const int before = files->n, seen_before = files->seen;
    cgp_status status = append(&directories, cgp__strdup(directory));
    while (status == CGP_OK && directories.n > 0) {
        char *next = directories.items[--directories.n];
        status = visit_directory(next, files, &directories);
        free(next);
    }
    cgp__data_files_release(&directories);
    if (status != CGP_OK) return status;
    if (files->seen == seen_before)
        return cgp_fail(CGP_EINVAL, "%s: has no file to read (hidden and empty files are left out)",
                        directory);
    sort_from(files, before);
    return CGP_OK;
}

cgp_status cgp__data_files_find(cgp__data_files *files, const char *const *paths, int n_paths) {
    for (int i = 0; i < n_paths; i++) {
        struct stat info;
        if (stat(paths[i], &info) == 0 && S_ISDIR(info.st_mode))
            CGP_TRY(walk(paths[i], files));
        else
            CGP_TRY(append(files, cgp__strdup(paths[i])));
    }
    return CGP_OK;
}
