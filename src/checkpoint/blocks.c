/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c -- computes SHA-256 digests of the blocks of a file, to locate damage.
 *
 *     |-------- 1 MiB --------|-------- 1 MiB --------|--- rest ---|
 *         digests[0]              digests[1]            digests[2] */
#include "checkpoint/internal.h"

#include "base/base.h"
#include "checkpoint/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

cgp_status cgp__digest(const void *data, size_t bytes, char hex[65]) {
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = cgp__sha256_add(hash, data, bytes);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex);
    cgp__sha256_destroy(hash);
    return status;
}

static cgp_status digest_all(const cgp__file_reader *file, const char *path, char *block,
                             int64_t *bytes, json_t *digests) {
    size_t got = CGP__BLOCK_BYTES;
    char hex[65];
    for (*bytes = 0; got == CGP__BLOCK_BYTES; *bytes += (int64_t)got) {
        CGP_TRY(cgp__file_reader_read(file, path, *bytes, block, CGP__BLOCK_BYTES, &got));
        if (got == 0) break;
        CGP_TRY(cgp__digest(block, got, hex));
        if (json_array_append_new(digests, json_string(hex))) return cgp__no_memory(path, 65);
    }
    return CGP_OK;
}

cgp_status cgp__blocks_digest(const cgp__file_reader *file, const char *path, int64_t *bytes,
                              json_t **digests) {
    char *block = cgp__calloc(CGP__BLOCK_BYTES, 1);
    json_t *list = json_array();
    cgp_status status = block && list ? digest_all(file, path, block, bytes, list)
                                      : cgp__no_memory(path, CGP__BLOCK_BYTES);
    free(block);
    if (status == CGP_OK)
        *digests = list;
    else
        json_decref(list);
    return status;
}

/* Number of blocks in a part that differ from the manifest, and the index of the first such block.
 * If the file ends early, later blocks are not counted. */
typedef struct bad_blocks {
    int64_t count, first;
} bad_blocks;

static cgp_status find_bad(const cgp__file_reader *file, const char *path, int64_t bytes,
                           const json_t *expected, cgp__checkpoint_part part, char *block,
                           bad_blocks *bad) {
    const int64_t n = (int64_t)json_array_size(expected);
    size_t got = 0, wanted = 0;
    for (int64_t b = part.number; b < n && got == wanted; b += part.of) {
        const int64_t at = b * CGP__BLOCK_BYTES;
        char hex[65];
        wanted = (size_t)cgp__min(bytes - at, CGP__BLOCK_BYTES);
        CGP_TRY(cgp__file_reader_read(file, path, at, block, wanted, &got));
        CGP_TRY(cgp__digest(block, got, hex));
        const char *digest = json_string_value(json_array_get(expected, (size_t)b));
        if (got == wanted && strcmp(hex, digest) == 0) continue;
        if (bad->count++ == 0) bad->first = b;
    }
    return CGP_OK;
}

static cgp_status damaged(const char *path, int64_t bytes, int64_t file_bytes,
                          const bad_blocks *bad) {
    char size[96] = "", more[64] = "";
    /* if no block is bad, the damage is extra bytes at the end */
    const int64_t begin = bad->count > 0 ? bad->first * CGP__BLOCK_BYTES : bytes;
    const int64_t end = bad->count > 0 ? cgp__min(bytes, begin + CGP__BLOCK_BYTES) : file_bytes;
    if (file_bytes != bytes)
        snprintf(size, sizeof size, "; the file has %" PRId64 " bytes, expected %" PRId64,
                 file_bytes, bytes);
    if (bad->count > 1)
        snprintf(more, sizeof more, " and in %" PRId64 " more block%s", bad->count - 1,
                 bad->count > 2 ? "s" : "");
    return cgp_fail(CGP_EFORMAT, "%s: damaged between byte %" PRId64 " and %" PRId64 "%s (%s%s)",
                    path, begin, end, more,
                    bad->count > 0 ? "SHA-256 differs" : "bytes follow its end", size);
}

/* If a part is damaged, check the whole file, so that the message covers all damage. */
cgp_status cgp__blocks_check(const cgp__file_reader *file, const char *path, int64_t bytes,
                             const json_t *digests, cgp__checkpoint_part part) {
    const cgp__checkpoint_part whole = {0, 1};
    bad_blocks bad = {0, 0};
    char *block = cgp__calloc(CGP__BLOCK_BYTES, 1);
    if (!block) return cgp__no_memory(path, CGP__BLOCK_BYTES);
    cgp_status status = find_bad(file, path, bytes, digests, part, block, &bad);
    const bool good = status == CGP_OK && bad.count == 0 && file->bytes == bytes;
    if (status == CGP_OK && !good && part.of > 1) {
        bad = (bad_blocks){0, 0};
        status = find_bad(file, path, bytes, digests, whole, block, &bad);
    }
    free(block);
    return status == CGP_OK && !good ? damaged(path, bytes, file->bytes, &bad) : status;
}
