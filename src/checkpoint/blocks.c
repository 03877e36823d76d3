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
#include <string.h>

/* The result of a check. */
typedef struct findings {
    int64_t file_bytes;
    int64_t first; /* block; -1: none */
    int64_t bad;   /* blocks, up to the end of the file */
} findings;

cgp_status cgp__digest(const void *data, size_t bytes, char hex[65]) {
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = cgp__sha256_add(hash, data, bytes);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex);
    cgp__sha256_destroy(hash);
    return status;
}

static cgp_status digest_all(int fd, const char *path, char *block, int64_t *bytes,
                             json_t *digests) {
    size_t got = CGP__BLOCK_BYTES;
    char hex[65];
    for (*bytes = 0; got == CGP__BLOCK_BYTES; *bytes += (int64_t)got) {
        CGP_TRY(cgp__read_at(fd, path, *bytes, block, CGP__BLOCK_BYTES, &got));
        if (got == 0) break;
        CGP_TRY(cgp__digest(block, got, hex));
        if (json_array_append_new(digests, json_string(hex))) return cgp__no_memory(path, 65);
    }
    return CGP_OK;
}

cgp_status cgp__blocks_digest(int fd, const char *path, int64_t *bytes, json_t **digests) {
    char *block = cgp__calloc(CGP__BLOCK_BYTES, 1);
    json_t *list = json_array();
    cgp_status status = block && list ? digest_all(fd, path, block, bytes, list)
                                      : cgp__no_memory(path, CGP__BLOCK_BYTES);
    free(block);
    if (status == CGP_OK)
        *digests = list;
    else
        json_decref(list);
    return status;
}

/* Stop at the block in which the file ends early. */
static cgp_status check_all(int fd, const char *path, char *block, int64_t bytes,
                            const json_t *digests, findings *found) {
    char hex[65];
    size_t got = 0;
    for (int64_t b = 0; b < (int64_t)json_array_size(digests); b++) {
        const int64_t begin = b * CGP__BLOCK_BYTES;
        const size_t wanted = (size_t)cgp__min(bytes - begin, CGP__BLOCK_BYTES);
        CGP_TRY(cgp__read_at(fd, path, begin, block, wanted, &got));
        CGP_TRY(cgp__digest(block, got, hex));
        const char *expected = json_string_value(json_array_get(digests, (size_t)b));
        if (got == wanted && strcmp(hex, expected) == 0) continue;
        if (found->bad++ == 0) found->first = b;
        if (got < wanted) break;
    }
    return CGP_OK;
}

static cgp_status report(const char *path, int64_t bytes, const findings *found) {
    char size[96] = "", more[64] = "";
    int64_t begin = bytes, end = found->file_bytes; /* only extra bytes at the end */
    if (found->bad == 0 && found->file_bytes == bytes) return CGP_OK;
    if (found->bad > 0) {
        begin = found->first * CGP__BLOCK_BYTES;
        end = cgp__min(bytes, begin + CGP__BLOCK_BYTES);
    }
    if (found->file_bytes != bytes)
        snprintf(size, sizeof size, "; the file has %" PRId64 " bytes, expected %" PRId64,
                 found->file_bytes, bytes);
    if (found->bad > 1)
        snprintf(more, sizeof more, " and in %" PRId64 " more block%s", found->bad - 1,
                 found->bad > 2 ? "s" : "");
    return cgp_fail(
        CGP_EFORMAT, "%s: damaged between byte %" PRId64 " and %" PRId64 "%s (%s%s)", path,
        begin, end, more, found->bad > 0 ? "SHA-256 differs" : "bytes follow its end", size);
}

cgp_status cgp__blocks_check(int fd, const char *path, int64_t bytes, const json_t *digests) {
    findings found = {.first = -1};
    char *block = NULL;
    CGP_TRY(cgp__file_bytes(fd, path, &found.file_bytes));
    CGP_TRY(CGP__NEW(block, CGP__BLOCK_BYTES, path));
    cgp_status status = check_all(fd, path, block, bytes, digests, &found);
    free(block);
    if (status == CGP_OK) status = report(path, bytes, &found);
    return status;
}
