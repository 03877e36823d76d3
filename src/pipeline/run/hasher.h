/* SPDX-License-Identifier: Apache-2.0 */
/* hasher.h -- hashes bytes in a device's memory, as docs/reference/digests.md defines: NH of blocks
 * of 16384 bytes, then SHA-256 of the block hashes. Only the worker calls these functions, except
 * create and release. */
#ifndef CGP_SRC_PIPELINE_RUN_HASHER_H
#define CGP_SRC_PIPELINE_RUN_HASHER_H

#include "base/base.h"
#include "base/nh.h"

typedef struct cgp__worker cgp__worker;

typedef unsigned char cgp__hash16[16];

/* The memory with which a worker hashes. */
typedef struct cgp__hasher {
    const cgp__nh_key *key; /* borrowed */
    cgp__sha256 *hash;
    char *piece; /* NULL: the device shares the host's memory */
} cgp__hasher;

/* Create a hasher; `copies` is set if the device has memory of its own. After a failure, release
 * it too. */
cgp_status cgp__hasher_create(cgp__hasher *hasher, const cgp__nh_key *key, bool copies);
void cgp__hasher_release(cgp__hasher *hasher);

/* Begin a hash, add bytes to it, and end it. Each addition begins a new block. The address is in
 * device memory or, if `on_host`, in host memory. */
cgp_status cgp__hasher_begin(const cgp__hasher *hasher);
cgp_status cgp__hasher_add(cgp__worker *worker, const cgp__hasher *hasher, const char *data,
                           bool on_host, size_t bytes);
cgp_status cgp__hasher_end(const cgp__hasher *hasher, cgp__hash16 out);

/* Hash `bytes` bytes at `data`. */
cgp_status cgp__hasher_run(cgp__worker *worker, const cgp__hasher *hasher, const char *data,
                           bool on_host, size_t bytes, cgp__hash16 out);

#endif
