/* SPDX-License-Identifier: Apache-2.0 */
/* digest_file.c -- see digest_file.h. */
#include "report/digest_file.h"

#include "json_file.h"
#include "text.h"

#include <cgpipe/digest.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "{\"cgpipe_digests\":"
#define VERSION 1
#define LARGEST_HEADER ((size_t)64 << 20)
#define MOST_LOSSES (1 << 20)

json_t *cli_digest_header(const cgp_plan *plan) {
    json_t *tensors = json_array();
    const int n = cgp_plan_digest_tensors(plan);
    for (int i = 0; i < n; i++) {
        const cgp_digest_tensor t = cgp_plan_digest_tensor_at(plan, i);
        if (json_array_append_new(tensors, json_pack("[s, s]", t.name, t.part)) == 0) continue;
        json_decref(tensors);
        return NULL;
    }
    const size_t rest = cgp_plan_digest_bytes(plan) - sizeof(int64_t) - CGP_DIGEST_ROOT_BYTES -
                        (size_t)n * CGP_DIGEST_TENSOR_BYTES;
    return json_pack("{s:i, s:I, s:o}", "cgpipe_digests", VERSION, "losses",
                     (json_int_t)(rest / sizeof(double)), "tensors", tensors);
}

static cgp_status unreadable(const cli_digest_file *file) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", file->path, strerror(errno));
}

/* Read up to `count` bytes at an offset. Return the number of bytes read, or -1 on a failure, whose
 * reason is in errno. */
static ssize_t read_at(int fd, void *out, size_t count, size_t at) {
    size_t done = 0;
    while (done < count) {
        const ssize_t n = pread(fd, (char *)out + done, count - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Read the first line, without its end. The caller frees *line. */
static cgp_status read_line(const cli_digest_file *file, char **line, size_t *length) {
    const size_t magic = strlen(MAGIC);
    for (size_t capacity = 65536;; capacity *= 4) {
        *line = malloc(capacity);
        if (!*line)
            return cgp_fail(CGP_ENOMEM, "%s: out of memory (%zu bytes)", file->path, capacity);
        const ssize_t n = read_at(file->fd, *line, capacity, 0);
        if (n < 0) return unreadable(file);
        const char *end = memchr(*line, '\n', (size_t)n);
        *length = end ? (size_t)(end - *line) : 0;
        if ((size_t)n < magic || memcmp(*line, MAGIC, magic) != 0)
            return cgp_fail(CGP_EFORMAT, "%s: expected " MAGIC " at its beginning", file->path);
        if (end) return CGP_OK;
        if ((size_t)n < capacity || capacity >= LARGEST_HEADER)
            return cgp_fail(CGP_EFORMAT,
                            "%s: expected a first line of at most %zu bytes, got no end in %zd",
                            file->path, LARGEST_HEADER, n);
        free(*line);
        *line = NULL;
    }
}

static cgp_status read_header(cli_digest_file *file) {
    char *line = NULL;
    size_t length = 0;
    cgp_status status = read_line(file, &line, &length);
    if (status == CGP_OK) status = cli_json_parse(file->path, line, length, &file->header);
    file->begin = length + 1;
    free(line);
    return status;
}

/* Tell whether a part is known. The command `cgpipe compare` counts the tensors of each part, so
 * the number of distinct parts must be bounded. */
static bool is_part(const char *part) {
    static const char *const parts[] = {"gradient", "parameter",  "state",     "momentum",
                                        "exp_avg",  "exp_avg_sq", "square_avg"};
    for (size_t i = 0; part && i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(part, parts[i]) == 0) return true;
    return false;
}

static bool is_tensor(const json_t *tensor) {
    return json_array_size(tensor) == 2 && json_is_string(json_array_get(tensor, 0)) &&
           is_part(json_string_value(json_array_get(tensor, 1)));
}

static cgp_status check_header(cli_digest_file *file) {
    const cli_json_place at = {.path = file->path, .object = file->header};
    const json_t *tensors = json_object_get(file->header, "tensors");
    int64_t version = 0, losses = 0;
    CGP_TRY(cli_json_whole(&at, "cgpipe_digests", VERSION, VERSION, &version));
    CGP_TRY(cli_json_whole(&at, "losses", 0, MOST_LOSSES, &losses));
    if (!json_is_array(tensors)) return cli_json_wrong(&at, "tensors", "a list");
    for (size_t i = 0; i < json_array_size(tensors); i++)
        if (!is_tensor(json_array_get(tensors, i)))
            return cli_json_wrong(&at, "tensors", "a list of [name, part] with known parts");
    file->losses = (int)losses;
    /* Fits an int, because the header is at most LARGEST_HEADER bytes long. */
    file->tensors = (int)json_array_size(tensors);
    file->record_bytes = sizeof(int64_t) + (size_t)losses * sizeof(double) +
                         (size_t)file->tensors * CGP_DIGEST_TENSOR_BYTES + CGP_DIGEST_ROOT_BYTES;
    return CGP_OK;
}

cgp_status cli_digest_file_open(cli_digest_file *file, const char *path, int fd) {
    struct stat info;
    *file = (cli_digest_file){.path = cli_text("%s", path), .fd = fd};
    if (fstat(fd, &info) != 0) return unreadable(file);
    CGP_TRY(read_header(file));
    CGP_TRY(check_header(file));
    const size_t size = (size_t)info.st_size,
                 /* The file may be shorter than `begin`, because another process may have
                  * truncated it. */
        left = size > file->begin ? size - file->begin : 0;
    file->records = (int64_t)(left / file->record_bytes);
    file->torn = left % file->record_bytes;
    file->record = malloc(file->record_bytes);
    if (file->record) return CGP_OK;
    return cgp_fail(CGP_ENOMEM, "%s: out of memory (%zu bytes)", path, file->record_bytes);
}

cgp_status cli_digest_file_read(cli_digest_file *file, int64_t i) {
    const size_t at = file->begin + (size_t)i * file->record_bytes;
    const ssize_t n = read_at(file->fd, file->record, file->record_bytes, at);
    int64_t step = 0;
    if (n < 0) return unreadable(file);
    if ((size_t)n < file->record_bytes)
        return cgp_fail(CGP_EFORMAT, "%s: ends within record %" PRId64, file->path, i);
    memcpy(&step, file->record, sizeof step);
    if (step <= file->step)
        return cgp_fail(CGP_EFORMAT,
                        "%s: record %" PRId64 ": expected a step above %" PRId64 ", got %" PRId64,
                        file->path, i, file->step, step);
    const cgp_status status = cgp_digest_check(file->record, file->record_bytes);
    if (status == CGP_EFORMAT)
        return cgp_fail(CGP_EFORMAT, "%s: the record of step %" PRId64 " is damaged", file->path,
                        step);
    if (status == CGP_OK) file->step = step;
    return status;
}

cgp_status cli_digest_file_check_end(const cli_digest_file *file) {
    if (file->torn == 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: ends within a record, with %zu of %zu bytes (cgpipe train --resume "
                    "continues it from its checkpoint)",
                    file->path, file->torn, file->record_bytes);
}

double cli_digest_loss(const cli_digest_file *file, int loss) {
    double value;
    memcpy(&value, file->record + sizeof(int64_t) + (size_t)loss * sizeof value, sizeof value);
    return value;
}

const unsigned char *cli_digest_hash(const cli_digest_file *file, int tensor) {
    return file->record + sizeof(int64_t) + (size_t)file->losses * sizeof(double) +
           (size_t)tensor * CGP_DIGEST_TENSOR_BYTES;
}

static const char *text_of(const cli_digest_file *file, int tensor, size_t which) {
    const json_t *tensors = json_object_get(file->header, "tensors");
    return json_string_value(json_array_get(json_array_get(tensors, (size_t)tensor), which));
}

const char *cli_digest_name(const cli_digest_file *file, int tensor) {
    return text_of(file, tensor, 0);
}

const char *cli_digest_part(const cli_digest_file *file, int tensor) {
    return text_of(file, tensor, 1);
}

void cli_digest_file_release(cli_digest_file *file) {
    if (file->path && file->fd >= 0) close(file->fd);
    json_decref(file->header);
    free(file->record);
    free(file->path);
    *file = (cli_digest_file){.fd = -1};
}
