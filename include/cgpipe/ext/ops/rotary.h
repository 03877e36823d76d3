/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.h -- ROTARY, rotary position embedding.
 *
 *  op               x[0]       x[1]                       y          saved  param
 *  ROTARY           [n,R,C]    positions [n,R] or NULL    [n,R,C]    -      -
 *
 * ROTARY rotates the first `rotated` columns of each of `heads` heads, in pairs: (i, i + rotated /
 * 2) or, if interleaved, (2 i, 2 i + 1). A pair becomes (a, b) -> (a cos - b sin, b cos + a sin).
 * Pair i of row t rotates by the angle float(offset + t) f[i], with f[i] = 1 / theta^(2 i /
 * rotated). If x[1], positions, is not NULL, the row's position replaces t. Angle, cos and sin are
 * rounded to f32; all arithmetic except the power is in f32.
 *
 * LINEAR scaling divides f by `factor`. LLAMA3 scaling depends on the wavelength w = 2 pi / f:
 *
 *     w > original_length / low_freq_factor     f / factor
 *     w < original_length / high_freq_factor    f
 *     between                                   (1 - s) f / factor + s f
 *
 * with s = (original_length / w - low_freq_factor) / (high_freq_factor - low_freq_factor). */
#ifndef CGPIPE_EXT_OPS_ROTARY_H
#define CGPIPE_EXT_OPS_ROTARY_H

#include <cgpipe/ext/ops/common.h>

typedef struct CGP_OP_STRUCT cgp_op_rotary {
    CGP_OP_COMMON
    int64_t heads;
    /** Number of columns of a head that are rotated. */
    int64_t rotated;
    /** Position of row 0. */
    int64_t offset;
    /** Base of the frequencies. */
    float theta;
    /** Constants of the scaling. */
    float factor, low_freq_factor, high_freq_factor;
    /** LLAMA3: sequence length for which the model was first trained. */
    int64_t original_length;
    /** 1: pairs are columns (2 i, 2 i + 1). 0: pairs are columns (i, i + rotated / 2). */
    int32_t interleaved;
    /** Kind of scaling, a cgp_rotary_scaling. */
    int32_t scaling;
} cgp_op_rotary;

#endif
