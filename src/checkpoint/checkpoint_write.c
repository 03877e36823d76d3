/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_write.c -- writes a checkpoint atomically. Even after a crash, the checkpoint is
 * either complete or absent.
 *
 *     create   RUN/.cgpipe-step-00000042-@<process>-<n>.tmp, locked
 *     add      files, each synced after writing; shared.c adds files of other ranks
 *     commit   checkpoint.json and checkpoint.sha256; sync the temporary directory
 *              rename it to RUN/step-00000042; sync RUN        then it exists
 *              rename a new link to RUN/latest; sync RUN       then a run resumes from it
 *              rename older checkpoints to .gone; sync RUN; delete them
 *
 * An existing checkpoint of the same step is exchanged with the new checkpoint in one call
 * (RENAME_EXCHANGE). If the file system cannot exchange names, the old checkpoint is renamed to
 * .old first. After a crash between the two renames, cgp_checkpoint_clean() and readers restore
 * it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* renameat2 */
#endif
#include "checkpoint/internal.h"

#include "base/base.h"
#include "checkpoint/file.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void release(cgp__checkpoint_writer *writer) {
    if (writer->temporary.text[0] && !writer->joined &&
        cgp__entry_remove(writer->run, writer->directory, writer->temporary.text) != CGP_OK)
        cgp_log(CGP_LOG_WARN, "checkpoint", "%s", cgp_message());
    if (writer->lock >= 0) close(writer->lock);
    if (writer->run >= 0) close(writer->run);
    /* rmdir() fails if the directory is not empty */
    if (writer->made) (void)rmdir(writer->directory);
    json_decref(writer->files);
    free(writer->directory);
    free(writer);
}

void cgp__checkpoint_abandon(cgp__checkpoint_writer *writer) {
    char message[1024]; /* message of the failure before this call */
    snprintf(message, sizeof message, "%s", cgp_message());
    if (!writer) return;
    release(writer);
    (void)cgp_fail(CGP_EIO, "%s", message);
}

/* --- create --- */

static cgp_status make_directory(cgp__checkpoint_writer *writer) {
    if (mkdir(writer->directory, 0777) == 0) {
        char *parent = cgp__directory_of(writer->directory);
        const int fd = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        writer->made = true;
        const int reason = fd < 0 ? (parent ? errno : 0) : cgp__sync_directory(fd);
        if (fd >= 0) close(fd);
        free(parent);
        /* EACCES: the parent directory is writable but not readable */
        if (reason == 0 || reason == EACCES) return CGP_OK;
        return cgp_fail(CGP_EIO, "%s: its directory cannot be synced (%s)", writer->directory,
                        strerror(reason));
    }
    if (errno == EEXIST) return CGP_OK;
    if (errno == ENOENT)
        return cgp_fail(CGP_EIO, "%s: cannot be made: the directory that it is to be in is missing",
                        writer->directory);
    return cgp_fail(CGP_EIO, "%s: cannot be made (%s)", writer->directory, strerror(errno));
}

static cgp_status open_directory(cgp__checkpoint_writer *writer) {
    CGP_TRY(make_directory(writer));
    writer->run = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (writer->run >= 0) return CGP_OK;
    if (errno == ENOTDIR || errno == ENOENT) /* ENOENT: a dangling link */
        return cgp_fail(CGP_EIO, "%s: is not a directory, expected that of a run",
                        writer->directory);
    return cgp_fail(CGP_EIO, "%s: cannot be written to (%s)", writer->directory, strerror(errno));
}

/* Before anything is written, check that `latest` is a link or does not exist. */
static cgp_status check_latest(const cgp__checkpoint_writer *writer) {
    struct stat info;
    const int reason = fstatat(writer->run, CGP__LATEST, &info, AT_SYMLINK_NOFOLLOW) ? errno : 0;
    if (reason == ENOENT || (reason == 0 && S_ISLNK(info.st_mode))) return CGP_OK;
    if (reason)
        return cgp_fail(CGP_EIO, "%s/" CGP__LATEST ": cannot be read (%s)", writer->directory,
                        strerror(reason));
    return cgp_fail(CGP_EIO, "%s/" CGP__LATEST ": expected a link to a checkpoint, got %s",
                    writer->directory, S_ISDIR(info.st_mode) ? "a directory" : "something else");
}

static cgp_status open_temporary(cgp__checkpoint_writer *writer) {
    cgp__entry_name name;
    const int reason = cgp__temporary_make(writer->run, writer->final.text, &name, &writer->lock);
    if (reason == 0) writer->temporary = name;
    if (reason == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be written to (%s)", writer->directory, strerror(reason));
}

cgp_status cgp__checkpoint_create(cgp__checkpoint_writer **out, const char *directory,
                                  int64_t step) {
    if (step > CGP__MAX_STEP)
        return cgp_fail(CGP_EINVAL,
                        "%s: step %" PRId64 ": no checkpoint beyond step %" PRId64 " can be named",
                        directory, step, CGP__MAX_STEP);
    cgp__checkpoint_writer *writer = NULL;
    CGP_TRY(CGP__NEW(writer, 1, directory));
    writer->lock = writer->run = -1;
    writer->step = step;
    writer->final = cgp__step_name_of(step);
    writer->directory = cgp__without_slashes(directory);
    writer->files = json_array();
    cgp_status status = writer->directory && writer->files
                            ? open_directory(writer)
                            : cgp__no_memory(directory, strlen(directory));
    if (status == CGP_OK) status = check_latest(writer);
    if (status == CGP_OK &&
        cgp__run_clean(writer->run, writer->directory, CGP__CLEAN_DELETE) != CGP_OK)
        cgp_log(CGP_LOG_WARN, "checkpoint", "%s", cgp_message());
    if (status == CGP_OK) status = open_temporary(writer);
    if (status == CGP_OK)
        *out = writer;
    else
        release(writer);
    return status;
}

cgp_status cgp__checkpoint_newest(const cgp__checkpoint_writer *writer, int64_t *step) {
    int64_t *steps = NULL;
    int count = 0;
    CGP_TRY(cgp__steps_list(writer->run, writer->directory, &steps, &count));
    *step = count > 0 ? steps[count - 1] : -1;
    free(steps);
    return CGP_OK;
}

/* --- files --- */

cgp__path_text cgp__checkpoint_file(const cgp__checkpoint_writer *writer, const char *name) {
    const cgp__path_text directory = cgp__path_text_of(writer->directory, writer->temporary.text);
    return cgp__path_text_of(directory.text, name);
}

int cgp__checkpoint_directory(const cgp__checkpoint_writer *writer) {
    return writer->lock;
}

cgp_status cgp__checkpoint_add(cgp__checkpoint_writer *writer, const char *name) {
    int64_t bytes = 0;
    cgp__file_reader file;
    json_t *digests = NULL;
    const cgp__path_text path = cgp__checkpoint_file(writer, name);
    CGP_TRY(cgp__file_reader_open(&file, writer->lock, name, path.text, "a file of the checkpoint",
                                  CGP_EIO));
    cgp_status status = cgp__blocks_digest(&file, path.text, &bytes, &digests);
    if (status == CGP_OK &&
        json_array_append_new(writer->files, cgp__manifest_entry(name, bytes, digests)))
        status = cgp__no_memory(path.text, 64);
    cgp__file_reader_close(&file);
    return status;
}

/* --- commit --- */

static cgp_status write_text(const cgp__checkpoint_writer *writer, const char *name,
                             const char *text) {
    return cgp_file_replace_at(writer->lock, name, cgp__checkpoint_file(writer, name).text, text,
                               strlen(text));
}

static cgp_status write_manifest(const cgp__checkpoint_writer *writer,
                                 const cgp__checkpoint_info *info) {
    char hex[65], sum[128];
    char *text = NULL;
    CGP_TRY(cgp__manifest_write(writer->directory, info, writer->files, &text));
    cgp_status status = cgp__digest(text, strlen(text), hex);
    snprintf(sum, sizeof sum, CGP__SUM_LINE, hex);
    if (status == CGP_OK) status = write_text(writer, CGP__MANIFEST, text);
    if (status == CGP_OK) status = write_text(writer, CGP__MANIFEST_SUM, sum);
    free(text);
    return status;
}

/* Sync the run's directory, or the temporary directory in it. */
static cgp_status sync_directory(const cgp__checkpoint_writer *writer, int directory) {
    const int reason = cgp__sync_directory(directory);
    if (reason == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be synced (%s)", writer->directory, strerror(reason));
}

/* Exchange two existing names. Return 0, or -1 with errno. */
static int exchange(int run, const char *one, const char *other) {
#ifdef RENAME_EXCHANGE
    return renameat2(run, one, run, other, RENAME_EXCHANGE);
#else
    (void)run, (void)one, (void)other;
    errno = ENOSYS;
    return -1;
#endif
}

static int rename_in(int run, const char *from, const char *to) {
    return renameat(run, from, run, to);
}

/* Replace the checkpoint in two renames, without RENAME_EXCHANGE. Afterwards the replaced
 * checkpoint has the name `old`. */
static int replace_in_two_steps(const cgp__checkpoint_writer *writer, const char *old) {
    const int run = writer->run;
    const char *final = writer->final.text, *temporary = writer->temporary.text;
    /* the lock prevents other processes from restoring the checkpoint */
    const int lock = openat(run, final, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (lock >= 0) (void)flock(lock, LOCK_EX | LOCK_NB);
    int result = -1, reason = ENOTEMPTY;
    for (int attempt = 0; result && reason == ENOTEMPTY && attempt < 100; attempt++) {
        result = rename_in(run, final, old) || rename_in(run, temporary, final);
        /* ENOTEMPTY: there are no locks, and another process restored the checkpoint */
        reason = errno;
    }
    if (result) (void)rename_in(run, old, final);
    if (lock >= 0) close(lock);
    errno = reason;
    return result;
}

/* Rename the checkpoint to its final name. writer->temporary becomes the name of the replaced
 * checkpoint, or "". */
static cgp_status rename_final(cgp__checkpoint_writer *writer) {
    struct stat info;
    const char *final = writer->final.text, *temporary = writer->temporary.text;
    cgp__entry_name old = {""};
    int result = 0;
    if (fstatat(writer->run, final, &info, AT_SYMLINK_NOFOLLOW)) {
        result = rename_in(writer->run, temporary, final);
    } else if (exchange(writer->run, temporary, final) == 0) {
        old = writer->temporary;
    } else {
        old = cgp__temporary_name(final, CGP__REPLACED);
        result = replace_in_two_steps(writer, old.text);
    }
    if (result)
        return cgp_fail(CGP_EIO, "%s/%s: cannot be put in place (%s)", writer->directory, final,
                        strerror(errno));
    writer->temporary = old;
    return sync_directory(writer, writer->run);
}

/* Point `latest` to the checkpoint. If this fails, retry: the temporary link has no lock, so
 * cleanup on another machine may delete it before the rename. */
static cgp_status point_latest(const cgp__checkpoint_writer *writer) {
    int result = -1, reason = ENOENT;
    for (int attempt = 0; result && reason == ENOENT && attempt < 100; attempt++) {
        const cgp__entry_name name = cgp__temporary_name(CGP__LATEST, CGP__WRITTEN);
        const char *link = name.text;
        /* another process with the same name may have left a link */
        (void)unlinkat(writer->run, link, 0);
        result = symlinkat(writer->final.text, writer->run, link);
        if (result == 0) result = rename_in(writer->run, link, CGP__LATEST);
        reason = errno;
        if (result) (void)unlinkat(writer->run, link, 0);
    }
    if (result == 0) return sync_directory(writer, writer->run);
    return cgp_fail(CGP_EIO, "%s/" CGP__LATEST ": cannot be pointed to the new %s (%s)",
                    writer->directory, writer->final.text, strerror(reason));
}

/* Rename a checkpoint to a temporary name. */
static cgp_status move_away(const cgp__checkpoint_writer *writer, int64_t step,
                            cgp__entry_name *to) {
    const cgp__entry_name name = cgp__step_name_of(step);
    *to = cgp__temporary_name(name.text, CGP__DELETED);
    if (rename_in(writer->run, name.text, to->text) == 0) return CGP_OK;
    to->text[0] = '\0';
    return cgp_fail(CGP_EIO, "%s/%s: cannot be renamed (%s)", writer->directory, name.text,
                    strerror(errno));
}

/* Warn that an old checkpoint stays. This is no failure, because the new checkpoint is saved. */
static void warn_kept(int64_t step) {
    cgp_log(CGP_LOG_WARN, "checkpoint", "the old %s stays: %s", cgp__step_name_of(step).text,
            cgp_message());
}

/* Delete checkpoints. Before any file is deleted, all the checkpoints are renamed, and the renames
 * are synced. So an incomplete checkpoint never has a final name. */
static cgp_status delete_steps(const cgp__checkpoint_writer *writer, const int64_t *steps,
                               int count) {
    cgp__entry_name *names = NULL;
    CGP_TRY(CGP__NEW(names, count, writer->directory));
    for (int i = 0; i < count; i++) {
        if (move_away(writer, steps[i], &names[i]) != CGP_OK) warn_kept(steps[i]);
    }
    const cgp_status status = sync_directory(writer, writer->run);
    for (int i = 0; i < count && status == CGP_OK; i++) {
        if (names[i].text[0] &&
            cgp__entry_remove(writer->run, writer->directory, names[i].text) != CGP_OK)
            warn_kept(steps[i]);
    }
    free(names);
    return status;
}

static cgp_status delete_older(const cgp__checkpoint_writer *writer, int keep) {
    int64_t *steps = NULL;
    int count = 0, older = 0;
    CGP_TRY(cgp__steps_list(writer->run, writer->directory, &steps, &count));
    while (older < count && steps[older] < writer->step)
        older++;
    const int surplus = keep > 0 ? older - (keep - 1) : 0;
    const cgp_status status = surplus > 0 ? delete_steps(writer, steps, surplus) : CGP_OK;
    free(steps);
    return status;
}

static cgp_status remove_nonce(const cgp__checkpoint_writer *writer) {
    if (!writer->shared || unlinkat(writer->lock, CGP__NONCE, 0) == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be deleted (%s)",
                    cgp__checkpoint_file(writer, CGP__NONCE).text, strerror(errno));
}

cgp_status cgp__checkpoint_commit(cgp__checkpoint_writer *writer, const cgp__checkpoint_info *info,
                                  int keep) {
    cgp_status status = remove_nonce(writer);
    if (status == CGP_OK) status = write_manifest(writer, info);
    if (status == CGP_OK) status = sync_directory(writer, writer->lock);
    if (status == CGP_OK) status = rename_final(writer);
    if (status == CGP_OK) status = point_latest(writer);
    if (status != CGP_OK) {
        cgp__checkpoint_abandon(writer);
        return status;
    }
    writer->made = false;
    cgp_log(CGP_LOG_INFO, "checkpoint", "saved %s/%s", writer->directory, writer->final.text);
    if (delete_older(writer, keep) != CGP_OK)
        cgp_log(CGP_LOG_WARN, "checkpoint", "old checkpoints stay: %s", cgp_message());
    release(writer);
    return CGP_OK;
}
