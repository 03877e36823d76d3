/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h -- the parts of a device's parameters that a replica updates. Replicas divide each piece
 * of the parameters by recursive halving. With `shard_optimizer`, a replica has optimizer state
 * only for its parts (ZeRO stage 1: Rajbhandari and others 2020, "ZeRO: Memory Optimizations Toward
 * Training Trillion Parameter Models"). */
#ifndef CGP_SRC_PLAN_SHARDS_H
#define CGP_SRC_PLAN_SHARDS_H

#include <cgpipe/plan.h>

typedef struct cgp__copy cgp__copy;
typedef struct cgp__device_plan cgp__device_plan;
typedef struct cgp__setup cgp__setup;

/* Bytes begin .. end - 1 of a piece, a section or a tensor. */
typedef struct cgp__byte_range {
    int64_t begin, end;
} cgp__byte_range;

/* Return log2 of the number of replicas. */
int cgp__shard_levels(const cgp__setup *setup);

/* Return the size in bytes of the lower half of a range of `bytes` bytes. `bytes` is a multiple of
 * 4. */
int64_t cgp__shard_half(int64_t bytes);

/* Divide a range between a replica and its peer, replica xor 2^level. The lower of the two gets the
 * lower half. */
void cgp__shard_divide(cgp__byte_range whole, int replica, int level, cgp__byte_range *own,
                       cgp__byte_range *other);

/* Replicas exchange a section of `end` bytes piece by piece, the bytes before `untied` first. A
 * piece has at most setup.reduce_bytes. Backward completes gradients in about the opposite order of
 * their offsets, so the last piece of either part is exchanged first. The first function returns
 * the number of pieces, the second function a piece in this order, and the third function the
 * number of the piece that has byte `at`. */
int cgp__shard_pieces(const cgp__setup *setup, int64_t untied, int64_t end);
cgp__byte_range cgp__shard_piece(const cgp__setup *setup, int64_t untied, int64_t end, int piece);
int cgp__shard_piece_at(const cgp__setup *setup, int64_t untied, int64_t end, int64_t at);

/* Set the size of an optimizer state of a device, whose parameters are placed. With
 * `shard_optimizer`, it is the size of the largest shard. */
void cgp__shard_place(const cgp__setup *setup, cgp__device_plan *device);

/* A part of a copy that a replica updates. */
typedef struct cgp__shard_part {
    cgp__byte_range range; /* bytes of the copy */
    int64_t state; /* offset of the part's first byte in each optimizer state of the device */
} cgp__shard_part;

/* Find the first part of a copy that ends after byte `at` of the copy. Return false if there is
 * none. The parameter must not be frozen. */
bool cgp__shard_part_after(const cgp_plan *plan, int replica, const cgp__copy *copy, int64_t at,
                           cgp__shard_part *out);

#endif
