/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.h -- elementwise ops. They have only the common fields.
 *
 *  op               x[0]       x[1]       y          saved  param
 *  one input        [n,R,C]    -          [n,R,C]    -      -
 *  ADD              [n,R,C]    [n,R,C]    [n,R,C]    -      -
 *  SUBTRACT         [n,R,C]    [n,R,C]    [n,R,C]    -      -
 *  MULTIPLY         [n,R,C]    [n,R,C]    [n,R,C]    -      -
 *  POSITION         [n,R,C]    -          [n,R,C]    -      weight [R,C]
 *  DROPOUT          [n,R,C]    -          [n,R,C]    -      -
 *  DROPOUT2D        [n,R,C]    -          [n,R,C]    -      -
 *  DETACH           [n,R,C]    -          [n,R,C]    -      -
 *
 * GELU is the erf form, GELU_TANH the tanh form. POSITION adds its weight to each sample. DETACH
 * copies x, and has no backward. */
#ifndef CGPIPE_EXT_OPS_ELEMENTWISE_H
#define CGPIPE_EXT_OPS_ELEMENTWISE_H

#include <cgpipe/ext/ops/common.h>

/** The elementwise ops with one input, whose backward reads x, y or neither: X(KIND, name,
 *  FAMILY). */
#define CGP_ELEMENTWISE_OPS(X)                                                                     \
    X(GELU, gelu, PLAIN)                                                                           \
    X(GELU_TANH, gelu_tanh, PLAIN)                                                                 \
    X(SILU, silu, PLAIN)                                                                           \
    X(RELU, relu, PLAIN)                                                                           \
    X(SCALE, scale, PLAIN)                                                                         \
    X(SIGMOID, sigmoid, PLAIN)                                                                     \
    X(TANH, tanh, PLAIN)

#endif
