/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c -- see folder.h. */
#include "folder.h"

#include "common.h"

#include <cgpipe/checkpoint.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- names --- */

static char *join(const char *folder, const char *name) {
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = cli_calloc(size, 1);
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

void cli_folder_name(cli_folder *folder, const char *path) {
    *folder = (cli_folder){.path = path, .lock = -1};
    folder->record = join(path, "run.json");
    folder->metrics = join(path, "metrics.jsonl");
    folder->latest = join(path, "latest");
    folder->weights = join(path, "latest/weights.safetensors");
}

static cgp_status unwritable(const char *path) {
    return cgp_fail(CGP_EIO, "run folder %s: cannot be written (%s)", path, strerror(errno));
}

/* --- what is there --- */

/* The folder that `path` will be made in. */
static cgp_status check_parent(const char *path) {
    char *parent = strdup(path);
    if (!parent) return cgp_fail(CGP_ENOMEM, "out of memory");
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/')
        parent[--length] = '\0';
    char *slash = strrchr(parent, '/');
    if (slash) slash[slash == parent] = '\0'; /* keeps the slash of the root */
    const char *name = slash ? parent : ".";
    cgp_status status = CGP_OK;
    struct stat info;
    if (stat(name, &info) != 0)
        status = cgp_fail(CGP_EIO, "run folder %s: cannot be made (%s: %s)", path, name,
                          strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        status =
            cgp_fail(CGP_EIO, "run folder %s: cannot be made (%s is no folder)", path, name);
    else if (access(name, W_OK | X_OK) != 0)
        status = unwritable(path);
    free(parent);
    return status;
}

/* Two processes in one run would undo each other's steps. Without locks (some network file
 * systems) nobody is kept out. */
static cgp_status lock(cli_folder *folder) {
    if (folder->lock >= 0) return CGP_OK;
    folder->lock = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->lock < 0) return unwritable(folder->path);
    if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return CGP_OK;
    return cgp_fail(CGP_EIO,
                    "run folder %s: another cgpipe train is at work in it (stop that one, or "
                    "another --run)",
                    folder->path);
}

cgp_status cli_folder_check(cli_folder *folder) {
    struct stat info;
    if (stat(folder->path, &info) != 0) {
        if (errno == ENOENT) return check_parent(folder->path);
        return unwritable(folder->path);
    }
    if (!S_ISDIR(info.st_mode))
        return cgp_fail(CGP_EIO, "run folder %s: is a file, expected a folder", folder->path);
    if (access(folder->path, W_OK | X_OK) != 0) return unwritable(folder->path);
    return lock(folder);
}

static bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

bool cli_folder_has_record(const cli_folder *folder) {
    return exists(folder->record);
}

bool cli_folder_has_run(const cli_folder *folder) {
    return exists(folder->record) || exists(folder->metrics) || exists(folder->latest) ||
           cli_folder_newest(folder) >= 0;
}

/* The 42 of "step-00000042"; -1: another name. */
static int64_t step_of(const char *name) {
    static const char prefix[] = "step-";
    int64_t step = 0;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
    return cli_parse_whole(name + sizeof prefix - 1, 0, INT64_MAX, &step) ? step : -1;
}

int64_t cli_folder_newest(const cli_folder *folder) {
    DIR *entries = opendir(folder->path);
    int64_t newest = -1;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const int64_t step = step_of(entry->d_name);
        newest = step > newest ? step : newest;
    }
    if (entries) closedir(entries);
    return newest;
}

/* The library names the whole checkpoint before a damaged one, "; step-00000008 is whole (..)".
 * Here it is loaded by an option. */
static cgp_status damaged(void) {
    const char *message = cgp_message(), *other = strstr(message, "; step-");
    const int64_t step = other ? strtoll(other + strlen("; step-"), NULL, 10) : -1;
    if (step < 0) return CGP_EFORMAT;
    return cgp_fail(CGP_EFORMAT, "%.*s; step-%08" PRId64 " is whole (--from-step %" PRId64 ")",
                    (int)(other - message), message, step, step);
}

cgp_status cli_folder_load(const cli_folder *folder, int64_t step, cgp_pipeline *pipeline,
                           char **note) {
    char name[32];
    snprintf(name, sizeof name, "step-%08" PRId64, step);
    char *path = step >= 0 ? join(folder->path, name) : NULL;
    const cgp_status status = cgp_pipeline_load(pipeline, path ? path : folder->path, note);
    free(path);
    return status == CGP_EFORMAT ? damaged() : status;
}

/* --- changes --- */

cgp_status cli_folder_make(cli_folder *folder) {
    if (mkdir(folder->path, 0777) == 0)
        folder->made = true;
    else if (errno != EEXIST)
        return unwritable(folder->path);
    return lock(folder);
}

static cgp_status undeletable(const char *path) {
    return cgp_fail(CGP_EIO, "%s: cannot be deleted (%s)", path, strerror(errno));
}

static cgp_status delete_file(const char *path) {
    return unlink(path) == 0 || errno == ENOENT ? CGP_OK : undeletable(path);
}

/* The files of a folder, and the folder. */
static cgp_status delete_flat(const char *path) {
    cgp_status status = CGP_OK;
    DIR *entries = opendir(path);
    if (!entries) return undeletable(path);
    for (struct dirent *entry; status == CGP_OK && (entry = readdir(entries));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *file = join(path, entry->d_name);
        status = delete_file(file);
        free(file);
    }
    closedir(entries);
    if (status == CGP_OK && rmdir(path) != 0) status = undeletable(path);
    return status;
}

/* First it gets a name that is no checkpoint's, one that the next start cleans up. */
static cgp_status delete_checkpoint(const cli_folder *folder, const char *name) {
    char hidden[300];
    snprintf(hidden, sizeof hidden, ".cgpipe-%s-%ld-0.gone", name, (long)getpid());
    char *from = join(folder->path, name), *to = join(folder->path, hidden);
    cgp_status status = rename(from, to) == 0 ? CGP_OK : undeletable(from);
    if (status == CGP_OK) status = delete_flat(to);
    free(to);
    free(from);
    return status;
}

cgp_status cli_folder_drop_after(const cli_folder *folder, int64_t step) {
    cgp_status status = CGP_OK;
    DIR *entries = opendir(folder->path);
    if (!entries) return unwritable(folder->path);
    for (struct dirent *entry; status == CGP_OK && (entry = readdir(entries));) {
        if (step_of(entry->d_name) > step) status = delete_checkpoint(folder, entry->d_name);
    }
    closedir(entries);
    return status;
}

static cgp_status delete_run(const cli_folder *folder) {
    CGP_TRY(delete_file(folder->record));
    CGP_TRY(delete_file(folder->latest));
    CGP_TRY(cli_folder_drop_after(folder, -1));
    return delete_file(folder->metrics);
}

/* --- a run in place of another --- */

#define FRESH ".new"

static cgp_status delete_new(const cli_folder *folder) {
    char *path = join(folder->path, FRESH);
    cli_folder fresh;
    cli_folder_name(&fresh, path);
    cgp_status status = CGP_OK;
    if (exists(path)) {
        status = cgp_checkpoint_clean(path);
        if (status == CGP_OK) status = delete_run(&fresh);
        if (status == CGP_OK && rmdir(path) != 0) status = undeletable(path);
    }
    cli_folder_close(&fresh);
    free(path);
    return status;
}

cgp_status cli_folder_clean(const cli_folder *folder) {
    CGP_TRY(cgp_checkpoint_clean(folder->path));
    return delete_new(folder);
}

cgp_status cli_folder_clear(const cli_folder *folder) {
    CGP_TRY(delete_run(folder));
    return delete_new(folder);
}

cgp_status cli_folder_new_begin(const cli_folder *folder, cli_folder *fresh) {
    CGP_TRY(delete_new(folder));
    cli_folder_name(fresh, join(folder->path, FRESH));
    const cgp_status status = cli_folder_make(fresh);
    if (status != CGP_OK) cli_folder_new_abandon(folder, fresh);
    return status;
}

static cgp_status move(const char *from, const char *to) {
    if (rename(from, to) == 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be moved to %s (%s)", from, to, strerror(errno));
}

/* A run without run.json is none: that comes when all the rest is on the disk. */
static cgp_status move_run(const cli_folder *from, const cli_folder *to) {
    char name[32];
    snprintf(name, sizeof name, "step-%08" PRId64, cli_folder_newest(from));
    char *old = join(from->path, name), *new = join(to->path, name);
    cgp_status status = move(old, new);
    if (status == CGP_OK) status = move(from->latest, to->latest);
    if (status == CGP_OK && fsync(to->lock) != 0) status = unwritable(to->path);
    if (status == CGP_OK) status = move(from->record, to->record);
    if (status == CGP_OK && fsync(to->lock) != 0) status = unwritable(to->path);
    free(new);
    free(old);
    return status;
}

cgp_status cli_folder_new_commit(const cli_folder *folder, cli_folder *fresh) {
    cgp_status status = delete_run(folder);
    if (status == CGP_OK) status = move_run(fresh, folder);
    cli_folder_new_abandon(folder, fresh); /* it is empty */
    return status;
}

/* Keeps the message of what failed before. */
void cli_folder_new_abandon(const cli_folder *folder, cli_folder *fresh) {
    char *path = (char *)fresh->path, *message = strdup(cgp_message());
    fresh->made = false; /* delete_new() removes it */
    cli_folder_close(fresh);
    free(path);
    if (delete_new(folder) != CGP_OK && message && *message)
        (void)cgp_fail(CGP_EIO, "%s", message);
    free(message);
}

void cli_folder_close(cli_folder *folder) {
    if (folder->made) rmdir(folder->path); /* if it is empty */
    if (folder->lock >= 0) close(folder->lock);
    free(folder->weights);
    free(folder->latest);
    free(folder->metrics);
    free(folder->record);
    *folder = (cli_folder){.lock = -1};
}
