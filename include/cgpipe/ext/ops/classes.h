/* SPDX-License-Identifier: Apache-2.0 */
/* classes.h -- ops on scores of classes (SOFTMAX, LOG_SOFTMAX, ARGMAX), and all losses.
 *
 *  op               x[0]               x[1], x[2]       y          saved                  param
 *  SOFTMAX          [n,R,C]            -                [n,R,C]    -                      -
 *  LOG_SOFTMAX      [n,R,C]            -                [n,R,C]    -                      -
 *  ARGMAX           [n,R,in]           -                [n,R]      -                      -
 *  CROSS_ENTROPY    logits [n,R,in]    targets [n,R],   -          max, log_sum [n,R]     -
 *                                      weights [n,R]
 *  BCE_WITH_LOGITS  logits [n,R,C]     targets, same    -          -                      -
 *  MSE, SMOOTH_L1   [n,R,C]            targets, same    -          -                      -
 *  WEIGHTED_MEAN    [n,R,C]            factors, same    -          -                      -
 *
 * `in` is the number of classes. CROSS_ENTROPY may have no weights; then x[2] is NULL. With p[c] =
 * softmax(x)[c], a row's loss and its gradient are
 *
 *     weight ((1 - smoothing) -log p[target] + smoothing mean_c -log p[c])
 *     loss_scale weight (p[c] - (1 - smoothing) (c == target) - smoothing / in)
 *
 * Weights, and the targets and factors of the last four ops, have the spec's type. In
 * WEIGHTED_MEAN, an element's loss is x times factor, and its gradient is loss_scale times factor.
 * WEIGHTED_MEAN may have a third input. The loss is then divided by the sum of this input over the
 * mini-batch; kernels do not read the input. */
#ifndef CGPIPE_EXT_OPS_CLASSES_H
#define CGPIPE_EXT_OPS_CLASSES_H

#include <cgpipe/ext/ops/common.h>

typedef struct CGP_OP_STRUCT cgp_op_cross_entropy {
    CGP_OP_COMMON
    /** Rows with this target are ignored. */
    int64_t ignore;
    /** Label smoothing, 0 <= smoothing < 1. */
    double smoothing;
    /** 1: x[2] has weights. 0: there are no weights. */
    int64_t weighted;
} cgp_op_cross_entropy;

typedef struct CGP_OP_STRUCT cgp_op_element_loss {
    CGP_OP_COMMON
    /** SMOOTH_L1: the loss of an element is quadratic if |x - target| < beta. 0: it is never
     *  quadratic. */
    double beta;
} cgp_op_element_loss;

#endif
