/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_read.c -- finds a checkpoint, and verifies all of it before any part of it is used.
 *
 * A checkpoint's directory is opened once, and its files are opened relative to it. So the files
 * belong together even if a training process renames directories meanwhile. The caller's path may
 * be a link, but not if it ends in the name of a checkpoint. In a run or checkpoint, no link is
 * followed except `latest`, whose target must be the name of a checkpoint. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "checkpoint/internal.h"

#include "base/base.h"
#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUM_BYTES = 64 + sizeof CGP__SUM_LINE - 1 - 2 };

static const cgp__checkpoint_part whole = {0, 1};

struct cgp__checkpoint {
    char *path;
    int directory; /* a file descriptor */
    int n_files;
    cgp__file_reader *files; /* [n_files] */
    cgp__manifest manifest;
    char digest[65]; /* SHA-256 of the manifest */
};

void cgp__checkpoint_close(cgp__checkpoint *checkpoint) {
    if (!checkpoint) return;
    for (int f = 0; f < checkpoint->n_files; f++)
        cgp__file_reader_close(&checkpoint->files[f]);
    free(checkpoint->files);
    if (checkpoint->directory >= 0) close(checkpoint->directory);
    cgp__manifest_release(&checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

/* --- one checkpoint --- */

static cgp__path_text path_of(const cgp__checkpoint *checkpoint, const char *name) {
    return cgp__path_text_of(checkpoint->path, name);
}

static cgp_status open_file(const cgp__checkpoint *checkpoint, const char *name,
                            cgp__file_reader *file) {
    return cgp__file_reader_open(file, checkpoint->directory, name, path_of(checkpoint, name).text,
                                 "a file of the checkpoint", CGP_EFORMAT);
}

/* Read a whole file of at most `max` bytes. */
static cgp_status read_all(const cgp__file_reader *file, const char *path, int64_t max, char **text,
                           size_t *length) {
    if (file->bytes > max)
        return cgp_fail(CGP_EFORMAT,
                        "%s: damaged between byte 0 and %lld (expected at most %lld bytes)", path,
                        (long long)file->bytes, (long long)max);
    CGP_TRY(CGP__NEW(*text, file->bytes, path));
    return cgp__file_reader_read(file, path, 0, *text, (size_t)file->bytes, length);
}

/* Open a file of the checkpoint, and read all of it. The caller frees *text, also after a
 * failure. */
static cgp_status read_file(const cgp__checkpoint *checkpoint, const char *name, int64_t max,
                            char **text, size_t *length) {
    cgp__file_reader file;
    CGP_TRY(open_file(checkpoint, name, &file));
    const cgp_status status = read_all(&file, path_of(checkpoint, name).text, max, text, length);
    cgp__file_reader_close(&file);
    return status;
}

/* Compare the step in the manifest with the step in the directory's name, because a valid manifest
 * may be from another checkpoint. */
static cgp_status check_step(const cgp__checkpoint *checkpoint) {
    const int64_t named = cgp__step_of_name(cgp__last_part(checkpoint->path));
    if (named < 0 || named == checkpoint->manifest.info.step) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s/" CGP__MANIFEST ": is of step %" PRId64
                    ", in the directory of step %" PRId64,
                    checkpoint->path, checkpoint->manifest.info.step, named);
}

/* Compare checkpoint.sha256 with the manifest. The manifest is valid, so if they differ,
 * checkpoint.sha256 is damaged. */
static cgp_status check_sum(cgp__checkpoint *checkpoint, const char *manifest, size_t length) {
    char line[SUM_BYTES + 1];
    char *text = NULL;
    size_t got = 0, same = 0;
    CGP_TRY(cgp__digest(manifest, length, checkpoint->digest));
    snprintf(line, sizeof line, CGP__SUM_LINE, checkpoint->digest);
    cgp_status status = read_file(checkpoint, CGP__MANIFEST_SUM, 4096, &text, &got);
    while (status == CGP_OK && same < got && same < SUM_BYTES && text[same] == line[same])
        same++;
    if (status == CGP_OK && (same < SUM_BYTES || got != SUM_BYTES))
        status =
            cgp_fail(CGP_EFORMAT,
                     "%s/" CGP__MANIFEST_SUM
                     ": damaged between byte %zu and %zu (expected the SHA-256 of " CGP__MANIFEST
                     ", which is whole)",
                     checkpoint->path, same, got > SUM_BYTES ? got : (size_t)SUM_BYTES);
    free(text);
    return status;
}

static cgp_status read_manifest(cgp__checkpoint *checkpoint) {
    const cgp__path_text path = path_of(checkpoint, CGP__MANIFEST);
    char *text = NULL;
    size_t length = 0;
    cgp_status status =
        read_file(checkpoint, CGP__MANIFEST, CGP__MAX_MANIFEST_BYTES, &text, &length);
    if (status == CGP_OK)
        status = cgp__manifest_parse(&checkpoint->manifest, path.text, text, length);
    if (status == CGP_OK) status = check_step(checkpoint);
    if (status == CGP_OK) status = check_sum(checkpoint, text, length);
    free(text);
    return status;
}

/* Verify a part of a file. The number of the part is shifted by the index `f` of the file, so that
 * files of a single block are distributed among the ranks too. */
static cgp_status check_file(cgp__checkpoint *checkpoint, int f, cgp__checkpoint_part part) {
    const cgp__manifest_file *file = &checkpoint->manifest.files[f];
    const cgp__checkpoint_part shifted = {(part.number + f) % part.of, part.of};
    CGP_TRY(open_file(checkpoint, file->name, &checkpoint->files[f]));
    checkpoint->n_files++;
    return cgp__blocks_check(&checkpoint->files[f], path_of(checkpoint, file->name).text,
                             file->bytes, file->digests, shifted);
}

/* Return the number of files that stay open: a quarter of the files that this process may open. */
static int64_t max_open(void) {
    const long limit = sysconf(_SC_OPEN_MAX);
    return limit < 0 ? INT64_MAX : limit / 4; /* -1: no limit */
}

static cgp_status check_files(cgp__checkpoint *checkpoint, cgp__checkpoint_part part) {
    const int n = checkpoint->manifest.n_files;
    const int64_t open = max_open();
    CGP_TRY(CGP__NEW(checkpoint->files, n, checkpoint->path));
    for (int f = 0; f < n; f++) {
        CGP_TRY(check_file(checkpoint, f, part));
        if (f >= open) cgp__file_reader_close(&checkpoint->files[f]);
    }
    return CGP_OK;
}

/* In the functions below, a checkpoint is either a name in a run's open directory, where no link is
 * followed, or the caller's path (AT_FDCWD), where links are followed. */

static cgp_status open_directory(cgp__checkpoint *checkpoint, int directory, const char *name) {
    struct stat info;
    const int links = directory == AT_FDCWD ? 0 : O_NOFOLLOW;
    checkpoint->directory = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | links);
    if (checkpoint->directory >= 0) return CGP_OK;
    const int reason = errno;
    if (reason == ENOENT) return cgp_fail(CGP_EIO, "%s: no such directory", checkpoint->path);
    if (links && fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode))
        return cgp_fail(CGP_EFORMAT, "%s: is a link, expected the directory of a checkpoint",
                        checkpoint->path);
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", checkpoint->path, strerror(reason));
}

/* Return whether the name now refers to another directory, or to none. */
static bool has_moved(const cgp__checkpoint *checkpoint, int directory, const char *name) {
    struct stat opened, now;
    if (fstatat(directory, name, &now, directory == AT_FDCWD ? 0 : AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT;
    return checkpoint->directory >= 0 && fstat(checkpoint->directory, &opened) == 0 &&
           (opened.st_ino != now.st_ino || opened.st_dev != now.st_dev);
}

/* Open a checkpoint's directory and check everything in it. The last part of `path` gives the step.
 * The function takes ownership of `path`, which is NULL if memory was short. *moved is true if the
 * call failed because the checkpoint was deleted or replaced meanwhile. */
static cgp_status open_one(cgp__checkpoint **out, int directory, const char *name, char *path,
                           cgp__checkpoint_part part, bool *moved) {
    cgp__checkpoint *checkpoint = cgp__calloc(1, sizeof *checkpoint);
    *moved = false;
    if (!checkpoint || !path) {
        free(checkpoint);
        free(path);
        return cgp__no_memory(name, sizeof *checkpoint);
    }
    checkpoint->path = path;
    cgp_status status = open_directory(checkpoint, directory, name);
    if (status == CGP_OK) status = read_manifest(checkpoint);
    if (status == CGP_OK) status = check_files(checkpoint, part);
    if (status == CGP_OK) {
        *out = checkpoint;
        return CGP_OK;
    }
    *moved = has_moved(checkpoint, directory, name);
    cgp__checkpoint_close(checkpoint);
    return status;
}

/* --- the checkpoints of a run --- */

/* A run's directory, which is open. */
typedef struct run_directory {
    int fd; /* O_PATH: look-ups work even without permission to list */
    const char *path;
} run_directory;

/* Return the last words of the message about a damaged checkpoint, for the case that no complete
 * older checkpoint was found. An older checkpoint that could not be read may be complete. */
static const char *none_before(bool all_read) {
    return all_read ? "; there is no whole checkpoint before it"
                    : "; not all checkpoints before it could be read";
}

/* Open a checkpoint by its name in a run. */
static cgp_status open_in(cgp__checkpoint **out, const run_directory *run, const char *name,
                          cgp__checkpoint_part part, bool *moved) {
    return open_one(out, run->fd, name, cgp__format("%s/%s", run->path, name), part, moved);
}

/* Among the complete checkpoints of steps less than `below`, open the checkpoint of the highest
 * step. Verify all of it, and log the checkpoints that are skipped. If none is complete, return the
 * failure of the highest checkpoint. *all_read is set to true if all checkpoints could be read.
 * CGP_EIO: there are no checkpoints. */
static cgp_status open_newest(cgp__checkpoint **out, const run_directory *run, int64_t below,
                              bool *all_read) {
    int64_t *steps = NULL;
    int count = 0, unread = 0;
    bool moved = false;
    char message[1024] = "";
    *all_read = false;
    CGP_TRY(cgp__steps_list(run->fd, run->path, &steps, &count));
    cgp_status first = CGP_OK, status = CGP_EIO;
    for (int i = count - 1; i >= 0 && status != CGP_OK && status != CGP_ENOMEM; i--) {
        if (steps[i] >= below) continue;
        status = open_in(out, run, cgp__step_name_of(steps[i]).text, whole, &moved);
        if (status == CGP_OK) break;
        cgp_log(CGP_LOG_WARN, "checkpoint", "%s", cgp_message());
        unread += status == CGP_EIO && !moved;
        if (first != CGP_OK) continue;
        first = status;
        snprintf(message, sizeof message, "%s", cgp_message());
    }
    free(steps);
    if (status == CGP_OK || status == CGP_ENOMEM) return status;
    *all_read = unread == 0;
    if (first == CGP_OK) return cgp_fail(CGP_EIO, "%s: there is no checkpoint here", run->path);
    const bool others_read = unread == (first == CGP_EIO ? 1 : 0);
    return cgp_fail(first, "%s%s", message, none_before(others_read));
}

/* Find the last complete checkpoint before the damaged checkpoint, and append its name to the
 * message of the failure. */
static cgp_status suggest_older(cgp_status status, const run_directory *run, int64_t step) {
    char message[1024];
    bool all_read = false;
    cgp__checkpoint *other = NULL;
    snprintf(message, sizeof message, "%s", cgp_message());
    if (status != CGP_EFORMAT && status != CGP_EIO) return status;
    if (open_newest(&other, run, step, &all_read) != CGP_OK)
        return cgp_fail(status, "%s%s", message, none_before(all_read));
    status = cgp_fail(status, "%s; %s is whole (load %s)", message,
                      cgp__step_name_of(other->manifest.info.step).text, other->path);
    cgp__checkpoint_close(other);
    return status;
}

/* Return the status of opening the checkpoint `name` of a run. If the checkpoint is damaged, add
 * the name of an older checkpoint to the message. */
static cgp_status end_of_open(cgp_status status, const run_directory *run, const char *name,
                              bool moved) {
    const int64_t step = cgp__step_of_name(name);
    if (status == CGP_OK || moved || step < 0) return status;
    return suggest_older(status, run, step);
}

static bool has_entry(int directory, const char *name) {
    struct stat info;
    return fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static cgp_status open_run_directory(run_directory *run, const char *path) {
    *run = (run_directory){open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), path};
    if (run->fd >= 0) return CGP_OK;
    if (errno == ENOENT) return cgp_fail(CGP_EIO, "%s: no such directory", path);
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
}

/* Read the target of `latest` into *name; "" if there is none. A directory named `latest`, made by
 * a copy that follows links, is itself the checkpoint. */
static cgp_status read_latest(const run_directory *run, cgp__entry_name *name) {
    char target[32];
    name->text[0] = '\0';
    const ssize_t length = readlinkat(run->fd, CGP__LATEST, target, sizeof target - 1);
    if (length < 0 && errno == EINVAL)
        snprintf(name->text, sizeof name->text, CGP__LATEST); /* not a link */
    if (length <= 0) return CGP_OK;
    target[length] = '\0';
    if (cgp__step_of_name(target) < 0)
        return cgp_fail(
            CGP_EFORMAT,
            "%s/" CGP__LATEST
            ": leads to %s%s, expected the name of a checkpoint in the run (load one of them)",
            run->path, target, (size_t)length == sizeof target - 1 ? "..." : "");
    if (has_entry(run->fd, target)) snprintf(name->text, sizeof name->text, "%s", target);
    return CGP_OK;
}

static cgp_status open_latest(cgp__checkpoint **out, const run_directory *run,
                              cgp__checkpoint_part part, bool *moved) {
    bool all_read = false;
    cgp__entry_name name;
    *moved = false;
    CGP_TRY(read_latest(run, &name));
    if (!name.text[0]) {
        CGP_TRY(cgp__run_clean(run->fd, run->path, CGP__CLEAN_RESTORE));
        CGP_TRY(read_latest(run, &name));
    }
    if (!name.text[0]) {
        CGP_TRY(open_newest(out, run, INT64_MAX, &all_read));
        cgp_log(CGP_LOG_WARN, "checkpoint", "%s/" CGP__LATEST " leads nowhere: taking %s",
                run->path, (*out)->path);
        return CGP_OK;
    }
    const cgp_status status = open_in(out, run, name.text, part, moved);
    return end_of_open(status, run, name.text, *moved);
}

/* --- the caller's path --- */

/* Open a path that ends in the name of a checkpoint, which may not be a link. */
static cgp_status open_named(cgp__checkpoint **out, const char *path, cgp__checkpoint_part part,
                             bool *moved) {
    run_directory run;
    const char *name = cgp__last_part(path);
    char *directory = cgp__directory_of(path);
    if (!directory) return cgp__no_memory(path, strlen(path));
    cgp_status status = open_run_directory(&run, directory);
    if (status == CGP_OK) {
        status = open_one(out, run.fd, name, cgp__strdup(path), part, moved);
        status = end_of_open(status, &run, name, *moved);
        close(run.fd);
    }
    free(directory);
    return status;
}

/* Open a checkpoint by the caller's path. If the path leads into a run and the checkpoint is
 * damaged, suggest an older checkpoint. */
static cgp_status open_elsewhere(cgp__checkpoint **out, const char *path, char *real,
                                 cgp__checkpoint_part part, bool *moved) {
    cgp_status status = open_one(out, AT_FDCWD, path, cgp__strdup(path), part, moved);
    char *slash = real ? strrchr(real, '/') : NULL;
    const int64_t step = slash ? cgp__step_of_name(slash + 1) : -1;
    run_directory run;
    if (status == CGP_OK || *moved || step < 0) return status;
    slash[slash == real] = '\0'; /* keep the slash of the root directory */
    char message[1024];
    snprintf(message, sizeof message, "%s", cgp_message());
    if (open_run_directory(&run, real) != CGP_OK) return cgp_fail(status, "%s", message);
    status = suggest_older(status, &run, step);
    close(run.fd);
    return status;
}

/* Open a checkpoint or a run. To distinguish the two, look at the name to which the path resolves,
 * or at the directory's entries. */
static cgp_status open_path(cgp__checkpoint **out, const char *path, cgp__checkpoint_part part,
                            bool *moved) {
    *moved = false;
    if (cgp__step_of_name(cgp__last_part(path)) >= 0) return open_named(out, path, part, moved);
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM) return cgp__no_memory(path, PATH_MAX);
    bool one = real && cgp__step_of_name(cgp__last_part(real)) >= 0;
    run_directory run;
    cgp_status status = open_run_directory(&run, path);
    if (status == CGP_OK) {
        one = one || has_entry(run.fd, CGP__MANIFEST) || has_entry(run.fd, CGP__MANIFEST_SUM);
        status = one ? open_elsewhere(out, path, real, part, moved)
                     : open_latest(out, &run, part, moved);
        close(run.fd);
    }
    free(real);
    return status;
}

cgp_status cgp__checkpoint_open(cgp__checkpoint **out, const char *directory,
                                cgp__checkpoint_part part) {
    cgp_status status = CGP_OK;
    bool moved = true;
    char *path = cgp__without_slashes(directory);
    if (!path) return cgp__no_memory(directory, strlen(directory));
    for (int attempt = 0; moved && attempt < 100; attempt++)
        status = open_path(out, path, part, &moved);
    free(path);
    return status;
}

/* --- contents --- */

const cgp__checkpoint_info *cgp__checkpoint_info_of(const cgp__checkpoint *checkpoint) {
    return &checkpoint->manifest.info;
}

const char *cgp__checkpoint_digest(const cgp__checkpoint *checkpoint) {
    return checkpoint->digest;
}

const char *cgp__checkpoint_path(const cgp__checkpoint *checkpoint) {
    return checkpoint->path;
}

static cgp_status find_file(const cgp__checkpoint *checkpoint, const char *name, int *f) {
    const cgp__manifest *manifest = &checkpoint->manifest;
    for (*f = 0; *f < manifest->n_files; (*f)++) {
        if (strcmp(manifest->files[*f].name, name) == 0) return CGP_OK;
    }
    return cgp_fail(CGP_EFORMAT, "%s/" CGP__MANIFEST ": has no file %s", checkpoint->path, name);
}

int cgp__checkpoint_files(const cgp__checkpoint *checkpoint) {
    return checkpoint->n_files;
}

cgp_status cgp__checkpoint_text(const cgp__checkpoint *checkpoint, const char *name, char **text,
                                size_t *length) {
    int f = 0;
    CGP_TRY(find_file(checkpoint, name, &f));
    return read_all(&checkpoint->files[f], path_of(checkpoint, name).text, CGP__MAX_MANIFEST_BYTES,
                    text, length);
}

cgp_status cgp__checkpoint_tensors(const cgp__checkpoint *checkpoint, const char *name,
                                   cgp_safetensors **out) {
    int f = 0;
    CGP_TRY(find_file(checkpoint, name, &f));
    return cgp__safetensors_open_on(out, path_of(checkpoint, name).text, &checkpoint->files[f]);
}

cgp_status cgp_checkpoint_find(char **path, int64_t *step, char **note, const char *directory) {
    CGP__NEED(directory);
    cgp__checkpoint *checkpoint = NULL;
    CGP_TRY(cgp__checkpoint_open(&checkpoint, directory, whole));
    const cgp__checkpoint_info *info = &checkpoint->manifest.info;
    cgp_status status = CGP_OK;
    char *text = note ? cgp__strdup(info->note) : NULL;
    if (note && !text) {
        status = cgp__no_memory("checkpoint", strlen(info->note));
    } else {
        if (note) *note = text;
        if (step) *step = info->step;
        if (path) *path = checkpoint->path;
        if (path) checkpoint->path = NULL;
    }
    cgp__checkpoint_close(checkpoint);
    return status;
}
