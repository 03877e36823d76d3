/* SPDX-License-Identifier: Apache-2.0 */
/* digests.c -- see digests.h. */
#include "report/digests.h"

#include "errors.h"
#include "report/digest_file.h"
#include "session/run_directory.h"
#include "text.h"

#include <cgpipe/digest.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static cgp_status unwritable(const cli_digests *digests) {
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", digests->path, strerror(errno));
}

/* Append bytes, with a single write if the system can do that. */
static cgp_status append(const cli_digests *digests, const void *bytes, size_t count) {
    for (const char *at = bytes; count > 0;) {
        const ssize_t done = write(digests->fd, at, count);
        if (done < 0 && errno != EINTR) return unwritable(digests);
        if (done > 0) {
            at += done;
            count -= (size_t)done;
        }
    }
    return CGP_OK;
}

/* Warn of a damaged file, with the message of the last failure. `what` says what was done about the
 * damage. Takes ownership of `what`. */
static void warn(char *what) {
    (void)cgp_fail(CGP_EFORMAT, "%s (%s)", cgp_message(), what);
    free(what);
    cli_warn();
}

/* Find the last record to keep, and cut off what follows it. */
static cgp_status cut(const cli_digests *digests, cli_digest_file *file, int64_t step) {
    int64_t n = 0;
    cgp_status status = CGP_OK;
    for (; n < file->records; n++) {
        status = cli_digest_file_read(file, n);
        if (status != CGP_OK || file->step > step) break;
    }
    if (status != CGP_OK && status != CGP_EFORMAT) return status;
    if (status != CGP_OK) /* a crash may leave zeros at the end */
        warn(cli_text("records deleted from there on: %" PRId64, file->records - n));
    const size_t end = file->begin + (size_t)n * file->record_bytes;
    if (ftruncate(digests->fd, (off_t)end) != 0) return unwritable(digests);
    return CGP_OK;
}

static cgp_status begin(const cli_digests *digests, json_t *header) {
    char *text = json_dumps(header, JSON_COMPACT);
    if (!text) return cgp_fail(CGP_ENOMEM, "%s: out of memory", digests->path);
    char *line = cli_text("%s\n", text);
    cgp_status status = ftruncate(digests->fd, 0) == 0 ? CGP_OK : unwritable(digests);
    if (status == CGP_OK) status = append(digests, line, strlen(line));
    if (status != CGP_OK) (void)!ftruncate(digests->fd, 0); /* leave no half-written header */
    free(line);
    free(text);
    return status;
}

/* In a file that is not empty, keep the records up to `step`. If its header is damaged, replace the
 * contents by `header` or, if `header` is NULL, leave the file as it is. */
static cgp_status keep(const cli_digests *digests, int64_t step, json_t *header) {
    cli_digest_file file = {.fd = -1};
    const int fd = dup(digests->fd);
    if (fd < 0) return unwritable(digests);
    cgp_status status = cli_digest_file_open(&file, digests->path, fd);
    if (status == CGP_OK) {
        status = cut(digests, &file, step);
    } else if (status == CGP_EFORMAT) {
        warn(header ? cli_text("the file begins again after step %" PRId64, step)
                    : cli_text("the file is left as it is"));
        status = header ? begin(digests, header) : CGP_OK;
    }
    cli_digest_file_release(&file);
    return status;
}

/* Continue the open file after `step`, or begin it again. */
static cgp_status prepare(cli_digests *digests, const cgp_plan *plan, int64_t step, bool writes) {
    struct stat info;
    json_t *header = writes ? cli_digest_header(plan) : NULL;
    cgp_status status = CGP_OK;
    if (fstat(digests->fd, &info) != 0)
        status = unwritable(digests);
    else if (info.st_size > 0 && step > 0)
        status = keep(digests, step, header);
    else if (writes)
        status = begin(digests, header);
    else if (step == 0 && ftruncate(digests->fd, 0) != 0)
        status = unwritable(digests);
    json_decref(header);
    if (status == CGP_OK && lseek(digests->fd, 0, SEEK_END) < 0) return unwritable(digests);
    return status;
}

static cgp_status open_file(const cli_run_directory *directory, int flags, int *fd) {
    CGP_TRY(cli_run_directory_unshare(directory, CLI_DIGESTS));
    return cli_run_directory_open(directory, CLI_DIGESTS, flags, fd);
}

/* Check the header of an open file, and close the file. Accepts a damaged file, because keep()
 * handles it. */
static cgp_status check_tensors(const char *path, int fd, const json_t *header) {
    cli_digest_file file;
    cgp_status status = cli_digest_file_open(&file, path, fd);
    if (status == CGP_EFORMAT)
        status = CGP_OK;
    else if (status == CGP_OK && !json_equal(header, file.header))
        status = cgp_fail(
            CGP_EINVAL, "%s: has digests of other tensors (delete it, or --digest-every 0)", path);
    cli_digest_file_release(&file);
    return status;
}

cgp_status cli_digests_check(const cli_run_directory *directory, const cgp_plan *plan, int64_t step,
                             int64_t every) {
    json_t *header = every > 0 ? cli_digest_header(plan) : NULL;
    char *path = cli_text("%s/" CLI_DIGESTS, directory->path);
    cgp_status status = CGP_OK;
    int fd = -1;
    if (every > 0 && !header)
        status = cgp_fail(CGP_EINVAL, "%s: expected names of tensors in UTF-8", path);
    if (status == CGP_OK && step > 0) status = open_file(directory, O_RDWR, &fd);
    if (fd >= 0 && header)
        status = check_tensors(path, fd, header);
    else if (fd >= 0)
        close(fd);
    json_decref(header);
    free(path);
    return status;
}

cgp_status cli_digests_open(cli_digests *digests, const cli_run_directory *directory,
                            const cgp_plan *plan, int64_t step, int64_t every) {
    *digests = (cli_digests){.path = cli_text("%s/" CLI_DIGESTS, directory->path), .fd = -1};
    CGP_TRY(open_file(directory, every > 0 ? O_RDWR | O_CREAT : O_RDWR, &digests->fd));
    if (digests->fd < 0) return CGP_OK;
    CGP_TRY(prepare(digests, plan, step, every > 0));
    if (every == 0) return cli_digests_sync(digests);
    digests->bytes = cgp_plan_digest_bytes(plan);
    digests->record = cli_calloc(digests->bytes, 1);
    return cli_digests_sync(digests);
}

cgp_status cli_digests_add(cli_digests *digests, cgp_pipeline *pipeline) {
    CGP_TRY(cgp_pipeline_digest(pipeline, digests->record));
    if (!digests->record) return CGP_OK;
    const unsigned char *root = digests->record + digests->bytes - CGP_DIGEST_ROOT_BYTES;
    for (int i = 0; i < CGP_DIGEST_ROOT_BYTES; i++)
        snprintf(digests->root + 2 * i, 3, "%02x", root[i]);
    return append(digests, digests->record, digests->bytes);
}

cgp_status cli_digests_sync(const cli_digests *digests) {
    if (!digests->path || digests->fd < 0 || fsync(digests->fd) == 0) return CGP_OK;
    return unwritable(digests);
}

void cli_digests_close(cli_digests *digests) {
    if (digests->path && digests->fd >= 0) close(digests->fd);
    free(digests->record);
    free(digests->path);
    *digests = (cli_digests){.fd = -1};
}
