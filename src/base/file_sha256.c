/* SPDX-License-Identifier: Apache-2.0 */
/* file_sha256.c -- computes the SHA-256 of a whole file. */
#include "base/file_sha256.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static cgp_status unreadable(const char *path) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
}

static cgp_status add_all(cgp__sha256 *hash, const char *path, int fd) {
    unsigned char block[1 << 14];
    for (;;) {
        const ssize_t got = read(fd, block, sizeof block);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path);
        if (got == 0) return CGP_OK;
        CGP_TRY(cgp__sha256_add(hash, block, (size_t)got));
    }
}

static cgp_status digest(const char *path, int fd, char hex[65]) {
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = add_all(hash, path, fd);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex);
    cgp__sha256_destroy(hash);
    return status;
}

cgp_status cgp__file_sha256(const char *path, char hex[65]) {
    struct stat info;
    /* with O_NONBLOCK, open() does not block on a pipe */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return unreadable(path);
    cgp_status status = CGP_OK;
    if (fstat(fd, &info) != 0)
        status = unreadable(path);
    else if (!S_ISREG(info.st_mode))
        status = cgp_fail(CGP_EIO, "%s: is not a regular file", path);
    else
        status = digest(path, fd, hex);
    close(fd);
    return status;
}
