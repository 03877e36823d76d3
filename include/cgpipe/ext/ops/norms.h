/* SPDX-License-Identifier: Apache-2.0 */
/* norms.h -- normalization of rows and of channels.
 *
 *  op               x[0]       x[1]  y          saved                     param
 *  LAYER_NORM       [n,R,C]    -     [n,R,C]    mean [n,R], rstd [n,R]    weight, bias [C]
 *  RMS_NORM         [n,R,C]    -     [n,R,C]    rstd [n,R]                weight [C]
 *  BATCH_NORM       [n,R,C]    -     [n,R,C]    mean [C], rstd [C]        weight, bias [C]
 *  INSTANCE_NORM    [n,R,C]    -     [n,R,C]    mean, rstd [n,C]          -
 *  GROUP_NORM       [n,R,C]    -     [n,R,C]    mean, rstd [n,groups]     weight, bias [C]
 *
 * BATCH_NORM computes the mean and variance of each channel over all samples and rows of the run.
 * INSTANCE_NORM computes them for each channel of a sample, over the rows of the sample. GROUP_NORM
 * computes them for each group of C / groups adjacent channels of a sample, over the rows of the
 * sample and the channels of the group. If a variance is above FLT_MAX, results are NaN.
 *
 * BATCH_NORM's state is its running statistics. In `training`, forward collects these statistics in
 * `accumulator`, unless that is NULL, and commit() moves them to the state. Outside training,
 * forward normalises with the state and saves nothing, and backward does not run. */
#ifndef CGPIPE_EXT_OPS_NORMS_H
#define CGPIPE_EXT_OPS_NORMS_H

#include <cgpipe/ext/ops/common.h>

typedef struct CGP_OP_STRUCT cgp_op_norm {
    CGP_OP_COMMON
    /** GROUP_NORM: number of groups, which divides `out`. */
    int64_t groups;
    /** Constant that is added to the variance or, in RMS_NORM, to the mean square. */
    float eps;
    /** BATCH_NORM: weight of the new value in running statistics. If this is negative, the weight
     *  is 1 / number of updates. */
    float momentum;
} cgp_op_norm;

#endif
