/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.h -- computes the frequencies of ROTARY (RoPE, Su et al. 2021, arXiv:2104.09864) on the
 * host, for all backends, in C and C++.
 *
 *     f[i] = 1 / theta^(2 i / rotated)
 *
 * Each operation is rounded to f32, as in the implementations of published models. In LLAMA3
 * scaling, w = 2 pi / f is the wavelength and L the original length:
 *
 *     w < L / high: f      w > L / low: f / factor
 *     otherwise: (1 - s) f / factor + s f, s = (L / w - low) / (high - low) */
#ifndef CGP_SRC_BACKEND_ROTARY_H
#define CGP_SRC_BACKEND_ROTARY_H

#include <cgpipe/ext/ops.h>

#include <math.h>

/* Maximum number of rotated columns of a head. It is limited because the frequencies are an
 * argument of a kernel launch. */
enum { CGP__ROTARY_MAX = 1024, CGP__ROTARY_PAIRS = CGP__ROTARY_MAX / 2 };

static inline float cgp__rotary_llama3(const cgp_op_rotary *g, float f) {
    const float length = (float)g->original_length;
    const float low = g->low_freq_factor, high = g->high_freq_factor;
    const float wavelength = 6.283185307179586f / f;
    if (wavelength < length / high) return f;
    if (wavelength > length / low) return f / g->factor;
    const float s = (length / wavelength - low) / (high - low);
    return (1.0f - s) * f / g->factor + s * f;
}

/* Set the frequencies of pairs 0 .. rotated / 2 - 1, and set all later elements of `out` to
 * zero. */
static inline void cgp__rotary_frequencies(const cgp_op_rotary *g, float out[CGP__ROTARY_PAIRS]) {
    for (int i = 0; i < CGP__ROTARY_PAIRS; i++) {
        const float exponent = (float)(2 * i) / (float)g->rotated;
        float f = 0.0f;
        if (2 * i < g->rotated) f = 1.0f / (float)pow((double)g->theta, (double)exponent);
        if (f > 0.0f && g->scaling == CGP_ROTARY_LINEAR) f = f / g->factor;
        if (f > 0.0f && g->scaling == CGP_ROTARY_LLAMA3) f = cgp__rotary_llama3(g, f);
        out[i] = f;
    }
}

/* Return the position of row `row` of sample `sample`. `positions`: [n, R], or NULL. */
static inline float cgp__rotary_position(const cgp_op_rotary *g, const int32_t *positions,
                                         int64_t sample, int64_t row) {
    return (float)(g->offset + (positions ? positions[sample * g->rows + row] : row));
}

#endif
