/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c -- see staging.h. The replaced files stay in the staging directory, with the ending
 * ".before", until all new files are in place. */
#include "session/staging.h"

#include "session/entries.h"
#include "text.h"

#include <cgpipe/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEFORE ".before"
#define MAX_FILES 256

/* Names of the files in a staging directory; the essence is the last. */
typedef struct names {
    char *items[MAX_FILES];
    int count;
} names;

static void release(names *n) {
    for (int i = 0; i < n->count; i++)
        free(n->items[i]);
    n->count = 0;
}

static cgp_status unwritable(const cli_staging *s) {
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", s->to, strerror(errno));
}

/* List the files, with the essence at the end. */
static cgp_status list(const cli_staging *s, names *n) {
    const int fd = dup(s->fd);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (!entries && fd >= 0) close(fd);
    if (!entries) return unwritable(s);
    rewinddir(entries);
    bool essence = false;
    int reason = 0;
    for (const struct dirent *entry;
         n->count < MAX_FILES - 1 && (entry = cli_entry_next(entries, &reason));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        if (strcmp(name, s->essence) == 0)
            essence = true;
        else
            n->items[n->count++] = cli_text("%s", name);
    }
    closedir(entries);
    if (essence) n->items[n->count++] = cli_text("%s", s->essence);
    errno = reason;
    return reason ? unwritable(s) : CGP_OK;
}

cgp_status cli_staging_make(cli_staging *s, const char *to, const char *essence) {
    char name[CGP_TEMPORARY_BYTES];
    *s = (cli_staging){.to = to,
                       .fd = -1,
                       .target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                       .essence = essence};
    if (s->target < 0) return unwritable(s);
    CGP_TRY(cgp_temporary_directory(s->target, "convert", to, name, &s->fd));
    s->path = cli_text("%s/%s", to, name);
    return CGP_OK;
}

void cli_staging_remove(cli_staging *s) {
    names n = {.count = 0};
    if (s->fd >= 0) (void)!list(s, &n);
    for (int i = 0; i < n.count; i++)
        (void)unlinkat(s->fd, n.items[i], 0);
    release(&n);
    if (s->path) (void)rmdir(s->path);
    if (s->target >= 0) close(s->target);
    if (s->fd >= 0) close(s->fd);
    free(s->path);
}

/* --- moves --- */

static cgp_status not_replaced(const cli_staging *s, const char *name) {
    return cgp_fail(CGP_EIO, "%s/%s: cannot be replaced (%s)", s->to, name, strerror(errno));
}

static cgp_status move_away(const cli_staging *s, const char *name) {
    struct stat info;
    char *old = cli_text("%s" BEFORE, name);
    const bool directory =
        fstatat(s->target, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
    const bool moved =
        !directory && (renameat(s->target, name, s->fd, old) == 0 || errno == ENOENT);
    free(old);
    if (moved) return CGP_OK;
    if (directory) errno = EISDIR;
    return not_replaced(s, name);
}

static cgp_status move_in(const cli_staging *s, const char *name) {
    if (renameat(s->fd, name, s->target, name) != 0) return not_replaced(s, name);
    return fsync(s->target) == 0 ? CGP_OK : unwritable(s);
}

/* Put an old file back. If there was no old file, delete the new one. */
static void put_back(const cli_staging *s, const char *name) {
    char *old = cli_text("%s" BEFORE, name);
    if (renameat(s->fd, old, s->target, name) != 0 && faccessat(s->fd, name, F_OK, 0) != 0)
        (void)unlinkat(s->target, name, 0);
    free(old);
}

static cgp_status exchange(const cli_staging *s, const names *n) {
    for (int i = n->count - 1; i >= 0; i--)
        CGP_TRY(move_away(s, n->items[i]));
    for (int i = 0; i < n->count; i++)
        CGP_TRY(move_in(s, n->items[i]));
    return CGP_OK;
}

cgp_status cli_staging_commit(const cli_staging *s) {
    names n = {.count = 0};
    cgp_status status = list(s, &n);
    if (status == CGP_OK) status = exchange(s, &n);
    /* If the essence is in place, all files are: only the last sync failed. */
    if (status != CGP_OK && faccessat(s->fd, s->essence, F_OK, 0) == 0) {
        for (int i = 0; i < n.count; i++)
            put_back(s, n.items[i]);
    }
    release(&n);
    return status;
}
