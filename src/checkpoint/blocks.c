/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c -- SHA-256 of each block of a file, to locate damage.
 *
 *     |-------- 1 MiB --------|-------- 1 MiB --------|--- rest ---|
 *         digests[0]              digests[1]            digests[2] */
#include "checkpoint/internal.h"

#include "base/base.h"
#include "checkpoint/file.h"

#include <inttypes.h>
#include <stdlib.h>

cgp_status cgp__digest(const void *data, size_t bytes, char hex[65]) {
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = cgp__sha256_add(hash, data, bytes);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex);
    cgp__sha256_destroy(hash);
    return status;
}

static cgp_status digest_all(int fd, const char *path, char *block, int64_t max, int64_t *bytes,
                             json_t *digests) {
    size_t got = CGP__BLOCK_BYTES;
    char hex[65];
    for (*bytes = 0; got == CGP__BLOCK_BYTES; *bytes += (int64_t)got) {
        const size_t wanted = (size_t)cgp__min(max - *bytes, CGP__BLOCK_BYTES);
        CGP_TRY(cgp__read_at(fd, path, *bytes, block, wanted, &got));
        if (got == 0) break;
        CGP_TRY(cgp__digest(block, got, hex));
        if (json_array_append_new(digests, json_string(hex))) return cgp__no_memory(path, 65);
    }
    return CGP_OK;
}

cgp_status cgp__blocks_digest(int fd, const char *path, int64_t max, int64_t *bytes,
                              json_t **digests) {
    char *block = cgp__calloc(CGP__BLOCK_BYTES, 1);
    json_t *list = json_array();
    cgp_status status = block && list ? digest_all(fd, path, block, max, bytes, list)
                                      : cgp__no_memory(path, CGP__BLOCK_BYTES);
    free(block);
    if (status == CGP_OK)
        *digests = list;
    else
        json_decref(list);
    return status;
}

/* Count the bad blocks, up to the one in which the file ends early; *first: the first of them. */
static int64_t count_bad(const json_t *expected, const json_t *got, int64_t bytes,
                         int64_t *first) {
    const int64_t n = (int64_t)json_array_size(expected);
    int64_t bad = 0;
    for (int64_t b = 0; b < n && b <= bytes / CGP__BLOCK_BYTES; b++) {
        if (json_equal(json_array_get(expected, (size_t)b), json_array_get(got, (size_t)b)))
            continue;
        if (bad++ == 0) *first = b;
    }
    return bad;
}

cgp_status cgp__blocks_check(int fd, const char *path, int64_t bytes, const json_t *digests) {
    char size[96] = "", more[64] = "";
    int64_t file_bytes = 0, read = 0, first = 0;
    json_t *got = NULL;
    CGP_TRY(cgp__file_bytes(fd, path, &file_bytes));
    CGP_TRY(cgp__blocks_digest(fd, path, bytes, &read, &got));
    const int64_t bad = count_bad(digests, got, read, &first);
    json_decref(got);
    if (bad == 0 && file_bytes == bytes) return CGP_OK;
    /* without a bad block there are only extra bytes at the end */
    const int64_t begin = bad > 0 ? first * CGP__BLOCK_BYTES : bytes;
    const int64_t end = bad > 0 ? cgp__min(bytes, begin + CGP__BLOCK_BYTES) : file_bytes;
    if (file_bytes != bytes)
        snprintf(size, sizeof size, "; the file has %" PRId64 " bytes, expected %" PRId64,
                 file_bytes, bytes);
    if (bad > 1)
        snprintf(more, sizeof more, " and in %" PRId64 " more block%s", bad - 1,
                 bad > 2 ? "s" : "");
    return cgp_fail(
        CGP_EFORMAT, "%s: damaged between byte %" PRId64 " and %" PRId64 "%s (%s%s)", path,
        begin, end, more, bad > 0 ? "SHA-256 differs" : "bytes follow its end", size);
}
