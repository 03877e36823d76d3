/* SPDX-License-Identifier: Apache-2.0 */
/* files.c -- see files.h. */
#include "files.h"

#include <cgpipe/checkpoint.h>

#include "stop.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool cli_is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

cgp_status cli_file_check(const char *path) {
    const char *slash = strrchr(path, '/');
    if (cli_is_directory(path))
        return cgp_fail(CGP_EIO, "%s: is a directory, expected a file name", path);
    char *directory = slash ? cli_text("%.*s", (int)(slash - path) + 1, path) : cli_text(".");
    cgp_status status = CGP_OK;
    if (access(directory, W_OK | X_OK) != 0)
        status =
            cgp_fail(CGP_EIO, "%s: cannot be written (%s: %s)", path, directory, strerror(errno));
    else
        (void)!cgp_checkpoint_clean(directory); /* a failure to clean does not prevent the write */
    free(directory);
    return status;
}

/* --- reading --- */

static cgp_status unreadable(const char *path, const char *why) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, why);
}

static cgp_status too_large(const char *path, size_t max, int64_t size) {
    char got[CLI_NUMBER] = "more"; /* a pipe has no known size */
    if (size > 0) snprintf(got, sizeof got, "%" PRId64, size);
    return cgp_fail(CGP_EFORMAT, "%s: expected at most %zu bytes, got %s", path, max, got);
}

/* Read to the end. Tries to read `max` + 1 bytes: if that succeeds, the file is too large. */
static cgp_status read_bytes(FILE *file, const char *path, size_t max, char **bytes, size_t *size) {
    size_t capacity = 0;
    for (size_t got = 1; got > 0; *size += got) {
        if (*size > max) return too_large(path, max, 0);
        if (*size == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            if (capacity > max + 1) capacity = max + 1;
            char *grown = realloc(*bytes, capacity);
            if (!grown) return cgp_fail(CGP_ENOMEM, "%s: out of memory", path);
            *bytes = grown;
        }
        got = fread(*bytes + *size, 1, capacity - *size, file);
    }
    return ferror(file) ? unreadable(path, strerror(errno)) : CGP_OK;
}

cgp_status cli_file_read_open(int fd, const char *path, size_t max, char **bytes, size_t *size) {
    struct stat info;
    FILE *file = fdopen(fd, "r");
    cgp_status status = CGP_OK;
    *bytes = NULL;
    *size = 0;
    if (!file || fstat(fd, &info) != 0)
        status = unreadable(path, strerror(errno));
    else if (S_ISREG(info.st_mode) && (uint64_t)info.st_size > max)
        status = too_large(path, max, info.st_size);
    else
        status = read_bytes(file, path, max, bytes, size);
    if (file)
        fclose(file);
    else
        close(fd);
    if (status == CGP_OK) return CGP_OK;
    free(*bytes);
    *bytes = NULL;
    return status;
}

cgp_status cli_file_read(const char *path, size_t max, char **bytes, size_t *size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? unreadable(path, strerror(errno))
                  : cli_file_read_open(fd, path, max, bytes, size);
}

/* --- writing --- */

/* Print to standard output. It is not a failure if the reader has closed the pipe, or if the signal
 * that stops this process has also ended the reader. */
static cgp_status print_text(const char *text) {
    if (fputs(text, stdout) != EOF && fflush(stdout) == 0) return CGP_OK;
    if (cli_stop_closed() || (cli_stop_signal() && errno == EPIPE)) return CGP_OK;
    return cgp_fail(CGP_EIO, "standard output: cannot be written (%s)", strerror(errno));
}

cgp_status cli_text_write(const char *path, char *text) {
    const cgp_status status =
        strcmp(path, "-") == 0 ? print_text(text) : cgp_file_replace(path, text, strlen(text));
    free(text);
    return status;
}

cgp_status cli_file_open(const char *path, FILE **out) {
    struct stat info;
    FILE *in = fopen(path, "re");
    if (!in && errno == ENOENT) return cgp_fail(CGP_EIO, "%s: no such file", path);
    if (!in) return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
    if (fstat(fileno(in), &info) != 0 || !S_ISDIR(info.st_mode)) {
        *out = in;
        return CGP_OK;
    }
    fclose(in);
    return cgp_fail(CGP_EIO, "%s: is a directory, expected a file", path);
}

char *cli_absolute_path(const char *path) {
    char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    char *whole = here ? cli_text("%s/%s", here, path) : cli_text("%s", path);
    free(here);
    return whole;
}
