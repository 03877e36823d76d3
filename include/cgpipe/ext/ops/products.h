/* SPDX-License-Identifier: Apache-2.0 */
/* products.h -- matrix products with a weight (LINEAR, and EMBEDDING for one-hot rows) or of two
 * values (MATMUL).
 *
 *  op               x[0]          x[1]             y          saved  param
 *  EMBEDDING        ids [n,R]     -                [n,R,C]    -      weight [in,C]
 *  LINEAR           [n,R,in]      -                [n,R,C]    -      weight, bias
 *  MATMUL           [n,R,in]      [n,in,C] each    [n,R,C]    -      -
 *
 * In EMBEDDING, `in` is the vocabulary. LINEAR's weight is [C,in], or [in,C] if transposed; its
 * bias is [C], if has_bias.
 *
 * A sample of MATMUL has `heads` products A B, with matrices A [R / heads,in] from x[0] and B
 * [in,C] from x[1]. Either may be stored transposed (`transposed`). Backward computes dx[1], then
 * dx[0]. */
#ifndef CGPIPE_EXT_OPS_PRODUCTS_H
#define CGPIPE_EXT_OPS_PRODUCTS_H

#include <cgpipe/ext/ops/common.h>

typedef struct CGP_OP_STRUCT cgp_op_linear {
    CGP_OP_COMMON
    int32_t has_bias;
    /** Weight layout. 0: [out, in], y = x weight^T; 1: [in, out], y = x weight. */
    int32_t transposed;
} cgp_op_linear;

typedef struct CGP_OP_STRUCT cgp_op_matmul {
    CGP_OP_COMMON
    /** Number of matrix products in a sample. */
    int64_t heads;
    /** 1: x[k] is stored transposed. */
    int32_t transposed[2];
} cgp_op_matmul;

#endif
