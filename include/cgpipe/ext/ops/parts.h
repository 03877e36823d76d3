/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h -- ops that move elements: CONCAT, SLICE, TRANSPOSE, RESHAPE.
 *
 *  op               x[0]               x[1]       y          saved  param
 *  CONCAT           [n,R,parts[0]]     .. x[3]    [n,R,C]    -      -
 *  SLICE            [n,R,in]           -          [n,R,C]    -      -
 *  TRANSPOSE        [n,R,C]            -          [n,R,C]    -      -
 *  RESHAPE          [n,R,C]            -          [n,R,C]    -      -
 *
 * TRANSPOSE's x is [.., i, b, j, c] with the sizes in `parts`; its y is [.., j, b, i, c]. SLICE
 * takes columns parts[0] .. parts[0] + C - 1. dx of SLICE is zero in the other columns; if the
 * kernel adds to dx, the other columns do not change. */
#ifndef CGPIPE_EXT_OPS_PARTS_H
#define CGPIPE_EXT_OPS_PARTS_H

#include <cgpipe/ext/ops/common.h>

typedef struct CGP_OP_STRUCT cgp_op_parts {
    CGP_OP_COMMON
    /** CONCAT: width of each input, 0 after the last one. TRANSPOSE: sizes i, b, j, c. SLICE: the
     *  first column. */
    int64_t parts[CGP_OP_MAX_INPUTS];
} cgp_op_parts;

#endif
