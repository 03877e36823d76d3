/* SPDX-License-Identifier: Apache-2.0 */
/* hasher.c -- implements hasher.h. A device with memory of its own copies its bytes to the host in
 * pieces. */
#include "pipeline/run/hasher.h"

#include "pipeline/run/worker.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 64 * CGP__NH_BLOCK }; /* number of bytes that one copy from a device transfers */

cgp_status cgp__hasher_create(cgp__hasher *hasher, const cgp__nh_key *key, bool copies) {
    hasher->key = key;
    CGP_TRY(cgp__sha256_create(&hasher->hash));
    return copies ? CGP__NEW(hasher->piece, PIECE, "digest") : CGP_OK;
}

void cgp__hasher_release(cgp__hasher *hasher) {
    cgp__sha256_destroy(hasher->hash);
    free(hasher->piece);
}

/* Add the blocks of `bytes` bytes of host memory to the SHA-256. */
static cgp_status add_blocks(const cgp__worker *worker, const cgp__hasher *hasher, const char *data,
                             size_t bytes) {
    uint64_t sums[64][CGP__NH_PASSES];
    int n = 0;
    for (size_t at = 0; at < bytes && !cgp__is_stopped(worker); at += CGP__NH_BLOCK) {
        const size_t left = bytes - at;
        cgp__nh(hasher->key, data + at, left < CGP__NH_BLOCK ? left : CGP__NH_BLOCK, sums[n++]);
        if (n < 64 && left > CGP__NH_BLOCK) continue;
        CGP_TRY(cgp__sha256_add(hasher->hash, sums, (size_t)n * sizeof sums[0]));
        n = 0;
    }
    return CGP_OK;
}

cgp_status cgp__hasher_begin(const cgp__hasher *hasher) {
    return cgp__sha256_restart(hasher->hash);
}

cgp_status cgp__hasher_add(cgp__worker *worker, const cgp__hasher *hasher, const char *data,
                           bool on_host, size_t bytes) {
    if (!hasher->piece || on_host) return add_blocks(worker, hasher, data, bytes);
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        CGP_TRY(cgp__worker_read(worker, hasher->piece, data + at, n));
        if (cgp__is_stopped(worker)) return CGP_OK;
        CGP_TRY(add_blocks(worker, hasher, hasher->piece, n));
    }
    return CGP_OK;
}

cgp_status cgp__hasher_end(const cgp__hasher *hasher, cgp__hash16 out) {
    unsigned char digest[32];
    CGP_TRY(cgp__sha256_finish_bytes(hasher->hash, digest));
    memcpy(out, digest, sizeof(cgp__hash16));
    return CGP_OK;
}

cgp_status cgp__hasher_run(cgp__worker *worker, const cgp__hasher *hasher, const char *data,
                           bool on_host, size_t bytes, cgp__hash16 out) {
    CGP_TRY(cgp__hasher_begin(hasher));
    CGP_TRY(cgp__hasher_add(worker, hasher, data, on_host, bytes));
    return cgp__hasher_end(hasher, out);
}
