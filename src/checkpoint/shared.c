/* SPDX-License-Identifier: Apache-2.0 */
/* shared.c -- lets several ranks write one checkpoint.
 *
 *     rank 0                                      the others
 *     create  .cgpipe-step-00000042-@...tmp/
 *     share   a nonce in it         ──ticket──►   join: open the directory, read the nonce
 *     add     its files                           add their files
 *     add_entries                  ◄──entries──   entries: names, sizes, SHA-256
 *     commit                                      abandon
 *
 * If a rank finds another nonce, or none, the path leads to another directory on its host. In that
 * case the hosts do not share storage. */
#include "checkpoint/internal.h"

#include "base/base.h"
#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void name_host(char *host, size_t size) {
    if (gethostname(host, size - 1) != 0) snprintf(host, size, "unknown");
    host[size - 1] = '\0';
}

cgp_status cgp__checkpoint_share(cgp__checkpoint_writer *writer, cgp__checkpoint_ticket *ticket) {
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    memset(ticket, 0, sizeof *ticket);
    name_host(ticket->host, sizeof ticket->host);
    snprintf(ticket->temporary, sizeof ticket->temporary, "%s", writer->temporary.text);
    snprintf(ticket->nonce, sizeof ticket->nonce, "%ld %" PRId64 ".%09ld\n", (long)getpid(),
             (int64_t)now.tv_sec, now.tv_nsec);
    writer->shared = true;
    return cgp_file_replace_at(writer->lock, CGP__NONCE,
                               cgp__checkpoint_file(writer, CGP__NONCE).text, ticket->nonce,
                               strlen(ticket->nonce));
}

/* --- the other ranks --- */

/* Open the directories and compare the nonce. Return 0; ENOENT if the path leads to another
 * directory; or another errno. */
static int find_temporary(cgp__checkpoint_writer *writer, const char *nonce) {
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    char text[sizeof(cgp__checkpoint_ticket)];
    writer->run = open(writer->directory, flags);
    if (writer->run < 0) return errno;
    writer->lock = openat(writer->run, writer->temporary.text, flags | O_NOFOLLOW);
    if (writer->lock < 0) return errno;
    const int fd = openat(writer->lock, CGP__NONCE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno;
    const ssize_t got = pread(fd, text, sizeof text, 0);
    const int reason = got < 0 ? errno : 0;
    close(fd);
    if (reason) return reason;
    return (size_t)got == strlen(nonce) && memcmp(text, nonce, (size_t)got) == 0 ? 0 : ENOENT;
}

static cgp_status not_found(const char *directory, const char *other, int reason) {
    char host[256];
    if (reason == 0) return CGP_OK;
    name_host(host, sizeof host);
    if (reason != ENOENT && reason != ENOTDIR)
        return cgp_fail(CGP_EIO, "%s: cannot be read on host %s (%s)", directory, host,
                        strerror(reason));
    return cgp_fail(CGP_EIO,
                    "%s: expected on host %s the directory that rank 0 writes to on host %s, got "
                    "another one (take one on a file system that all ranks share)",
                    directory, host, other);
}

cgp_status cgp__checkpoint_join(cgp__checkpoint_writer **out, const char *directory,
                                const cgp__checkpoint_ticket *ticket) {
    cgp__checkpoint_writer *writer = NULL;
    CGP_TRY(CGP__NEW(writer, 1, directory));
    writer->lock = writer->run = -1;
    writer->joined = true;
    snprintf(writer->temporary.text, sizeof writer->temporary.text, "%s", ticket->temporary);
    writer->directory = cgp__without_slashes(directory);
    writer->files = json_array();
    const cgp_status status =
        writer->directory && writer->files
            ? not_found(directory, ticket->host, find_temporary(writer, ticket->nonce))
            : cgp__no_memory(directory, strlen(directory));
    if (status == CGP_OK)
        *out = writer;
    else
        cgp__checkpoint_abandon(writer);
    return status;
}

/* Identify the directory by its inode and its change time. A copy has another change time, because
 * programs cannot set the change time. */
void cgp__checkpoint_identify(const char *directory, char text[CGP__IDENTITY_BYTES]) {
    struct stat info;
    text[0] = '\0';
    if (stat(directory, &info) == 0)
        snprintf(text, CGP__IDENTITY_BYTES, "%ju %jd.%09ld", (uintmax_t)info.st_ino,
                 (intmax_t)info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

/* --- names, sizes and SHA-256 of files --- */

char *cgp__checkpoint_entries(const cgp__checkpoint_writer *writer) {
    return cgp__json_text(writer->files, JSON_COMPACT);
}

cgp_status cgp__checkpoint_add_entries(cgp__checkpoint_writer *writer, const char *text,
                                       size_t length) {
    cgp__json_error error;
    json_t *files = cgp__json_read(text, length, &error);
    if (!files && error.refused == CGP_OK && !error.reason[0])
        return cgp__no_memory(writer->directory, length);
    if (!files)
        return cgp_fail(error.refused != CGP_OK ? error.refused : CGP_EIO,
                        "%s: the files of another rank: %s", writer->directory, error.reason);
    const int failed = json_array_extend(writer->files, files);
    json_decref(files);
    return failed ? cgp__no_memory(writer->directory, length) : CGP_OK;
}
