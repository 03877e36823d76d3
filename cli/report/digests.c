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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static cgp_status unwritable(const cli_digests *digests) {
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", digests->path, strerror(errno));
}

/* Append bytes, as one write if the system can. */
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

/* Find the last record to keep, and cut off what follows it. */
static cgp_status cut(const cli_digests *digests, cli_digest_file *file, int64_t step) {
    int64_t n = 0;
    cgp_status status = CGP_OK;
    for (; n < file->records; n++) {
        status = cli_digest_file_read(file, n);
        if (status != CGP_OK || file->step > step) break;
    }
    if (status != CGP_OK && status != CGP_EFORMAT) return status;
    if (status != CGP_OK) cli_warn(); /* a crash may leave zeros at the end */
    const size_t end = file->begin + (size_t)n * file->record_bytes;
    if (ftruncate(digests->fd, (off_t)end) != 0) return unwritable(digests);
    return CGP_OK;
}

/* Keep the records up to `step` of a file that is not empty. `header`: what this start digests. */
static cgp_status keep(const cli_digests *digests, int64_t step, const json_t *header) {
    cli_digest_file file = {.fd = -1};
    const int fd = dup(digests->fd);
    if (fd < 0) return unwritable(digests);
    cgp_status status = cli_digest_file_open(&file, digests->path, fd);
    if (status == CGP_OK && header && !json_equal(header, file.header))
        status = cgp_fail(CGP_EINVAL,
                          "%s: has digests of other tensors (delete it, or --digest-every 0)",
                          digests->path);
    if (status == CGP_OK) status = cut(digests, &file, step);
    cli_digest_file_release(&file);
    return status;
}

static cgp_status begin(const cli_digests *digests, json_t *header) {
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    if (!text) return cgp_fail(CGP_EINVAL, "%s: expected names of tensors in UTF-8", digests->path);
    char *line = cli_text("%s\n", text);
    if (ftruncate(digests->fd, 0) != 0) return unwritable(digests);
    const cgp_status status = append(digests, line, strlen(line));
    free(line);
    free(text);
    return status;
}

/* Continue or begin the open file. */
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

cgp_status cli_digests_open(cli_digests *digests, const cli_run_directory *directory,
                            const cgp_plan *plan, int64_t step, int64_t every) {
    *digests = (cli_digests){.path = cli_text("%s/" CLI_DIGESTS, directory->path), .fd = -1};
    CGP_TRY(cli_run_directory_unshare(directory, CLI_DIGESTS));
    CGP_TRY(cli_run_directory_open(directory, CLI_DIGESTS, every > 0 ? O_RDWR | O_CREAT : O_RDWR,
                                   &digests->fd));
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
