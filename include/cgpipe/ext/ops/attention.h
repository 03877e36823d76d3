/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h -- ATTENTION, and CACHED_ATTENTION for prediction.
 *
 *  op               x[0]          x[1]               y          saved                     param
 *  ATTENTION        q [n,R,in]    k, v               [n,R,C]    max, log_sum [n,heads,R]  -
 *    fused          qkv [n,R,3C]  -                  [n,R,C]    max, log_sum [n,heads,R]  -
 *  CACHED_ATTENTION q [n,in]      k, v, positions    [n,C]      -                         -
 *
 * In ATTENTION, x[1] is k [n, keys, kv_heads D] and x[2] is v [n, keys, kv_heads DV], with D = in /
 * heads and DV = C / heads. If fused, q, k and v lie side by side in x[0], and D = DV = C / heads.
 * Query head h uses key/value head h / (heads / kv_heads). Query t attends to all keys. If causal,
 * it attends to the keys up to t only, or to the last `window` of these keys. y = softmax(scale q
 * k^T) v. If causal, the terms of a row of y do not depend on R. For each query, max is the largest
 * q k, and log_sum = log sum exp(scale (q k - max)).
 *
 * In CACHED_ATTENTION, R = 1, x[1] is k [n, kv_heads D], x[2] is v [n, kv_heads DV], and x[3] is
 * positions [n] i32, each 0 .. keys - 1. state[0] is its cache, of the spec's type: keys [keys,
 * kv_heads D], then values [keys, kv_heads DV]. Forward first writes rows k and v of all samples at
 * their positions; if several samples have the same position, the last sample is kept. Then each
 * query attends to the rows of the cache up to its position, or to the last `window` of these rows.
 * A row of y is bit-identical to row positions[t] of causal ATTENTION over the cache. */
#ifndef CGPIPE_EXT_OPS_ATTENTION_H
#define CGPIPE_EXT_OPS_ATTENTION_H

#include <cgpipe/ext/ops/common.h>

typedef struct CGP_OP_STRUCT cgp_op_attention {
    CGP_OP_COMMON
    int64_t heads;
    /** Number of key/value heads. */
    int64_t kv_heads;
    /** Number of rows of k and v or, in CACHED_ATTENTION, number of rows of the cache. */
    int64_t keys;
    /** If causal: a query attends only to the last `window` keys up to its own position. 0: it
     *  attends to all keys up to its own position. */
    int64_t window;
    /** Scale of q k^T. */
    float scale;
    /** 1: x[0] has q, k and v side by side. */
    int32_t fused;
    /** 1: a query attends to no key after its own position. */
    int32_t causal;
    int32_t unused;
} cgp_op_attention;

#endif
