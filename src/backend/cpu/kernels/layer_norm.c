/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.c -- LAYER_NORM (Ba et al. 2016, arXiv:1607.06450) and RMS_NORM (Zhang and Sennrich
 * 2019, arXiv:1910.07467): y = (x - mean) rstd weight + bias, over rows of C.
 *
 *     mean = sum x / C     rstd = 1 / sqrt(sum (x - mean)^2 / C + eps)     h = (x - mean) rstd
 *     g = dy weight        dx = rstd (g - sum g / C - h sum (g h) / C)
 *     dweight = sum over rows of dy h        dbias = sum over rows of dy    (blocks of 64 rows)
 *
 * RMS_NORM is not `centred`, which means that it leaves out mean, bias and the sum of g. If the sum
 * of squares overflows, rstd is NaN.
 *
 * Forward saves mean and rstd; backward reads them and x. The gradient dx may alias dy, because a
 * row of dy is read for the last time before the same row of dx is written. Four rows are summed at
 * a time, which hides the latency of additions and saves memory traffic. Each row's sum is
 * bit-identical to the sum of the row alone. */
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/operands.h"

#include <math.h>

/* Set sums[k] to the sum of row k of x, for `count` rows. If `shift` is not NULL, first subtract
 * shift[k] from the elements of row k. If `square` is set, sum the squares of the elements. */
INLINE void row_sums(cgp_dtype type, float *sums, const void *x, const float *shift, int64_t width,
                     int count, bool square) {
    vec sum[4] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        for (int k = 0; k < count; k++) {
            vec v = load_as(type, x, k * width + c);
            if (shift) v -= shift[k];
            sum[k] += square ? v * v : v;
        }
    }
    for (int k = 0; c < width && k < count; k++) {
        vec v = load_part_as(type, x, k * width + c, width - c);
        if (shift) v = keep(lanes_below(width - c), v - shift[k]);
        sum[k] += square ? v * v : v;
    }
    for (int k = 0; k < count; k++)
        sums[k] = sum_lanes(sum[k]);
}

/* Return rstd from a row's sum of squares. If the sum has overflowed, return NaN, because 1 /
 * infinity would hide the overflow. */
INLINE float reciprocal_deviation(float squares, const cgp__cpu_norm *a) {
    return squares < INFINITY ? 1.0f / sqrtf(squares / (float)a->width + a->eps) : NAN;
}

/* Return h, the normalised x. */
INLINE vec normal(vec x, float mean, float rstd, bool centred) {
    return (centred ? x - mean : x) * rstd;
}

INLINE vec scaled(vec h, vec weight, vec bias, bool centred) {
    return centred ? h * weight + bias : h * weight;
}

INLINE void forward_rows(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, int count,
                         bool centred) {
    const int64_t width = a->width;
    const void *x = cgp__cpu_at(type, a->x, row * width);
    void *y = cgp__cpu_at(type, a->y, row * width);
    float mean[4] = {0}, rstd[4];
    if (centred) row_sums(type, mean, x, NULL, width, count, false);
    for (int k = 0; centred && k < count; k++)
        a->mean[row + k] = mean[k] = mean[k] / (float)width;
    row_sums(type, rstd, x, centred ? mean : NULL, width, count, true);
    for (int k = 0; k < count; k++)
        a->rstd[row + k] = rstd[k] = reciprocal_deviation(rstd[k], a);
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        const vec weight = load(a->weight + c);
        const vec bias = centred ? load(a->bias + c) : weight;
        for (int k = 0; k < count; k++) {
            const int64_t at = k * width + c;
            const vec h = normal(load_as(type, x, at), mean[k], rstd[k], centred);
            store_as(type, y, at, scaled(h, weight, bias, centred));
        }
    }
    if (c == width) return;
    const int64_t left = width - c;
    const vec weight = load_part(a->weight + c, left);
    const vec bias = centred ? load_part(a->bias + c, left) : weight;
    for (int k = 0; k < count; k++) {
        const int64_t at = k * width + c;
        const vec h = normal(load_part_as(type, x, at, left), mean[k], rstd[k], centred);
        store_part_as(type, y, at, scaled(h, weight, bias, centred), left);
    }
}

/* Process four rows, or one row. Each group of rows has a separate call, which frees vector
 * registers. A loop over all rows would keep constants in registers, and the last loop over a row
 * needs these registers. */
INLINE void forward(cgp_dtype type, const cgp__cpu_norm *norm, int64_t row, bool four,
                    bool centred) {
    const cgp__cpu_norm a = *norm; /* a local copy: no store aliases it */
    if (four)
        forward_rows(type, &a, row, 4, centred);
    else
        forward_rows(type, &a, row, 1, centred);
}

INLINE void layer_forward(cgp_dtype type, const cgp__cpu_norm *norm, int64_t row, bool four) {
    forward(type, norm, row, four, true);
}

INLINE void rms_forward(cgp_dtype type, const cgp__cpu_norm *norm, int64_t row, bool four) {
    forward(type, norm, row, four, false);
}

TYPED(layer_forward, (const cgp__cpu_norm *norm, int64_t row, bool four), norm, row, four)
TYPED(rms_forward, (const cgp__cpu_norm *norm, int64_t row, bool four), norm, row, four)

void CGP__CPU_NAME(layer_norm_forward)(const cgp__cpu_norm *norm) {
    for (int64_t row = 0, n; row < norm->rows; row += n) {
        const bool four = row + 4 <= norm->rows;
        n = four ? 4 : 1;
        if (norm->mean)
            CALL_TYPED(norm->type, layer_forward, norm, row, four);
        else
            CALL_TYPED(norm->type, rms_forward, norm, row, four);
    }
}

/* Return the mean of a row; 0 if rows are not centred. */
INLINE float mean_at(const cgp__cpu_norm *a, int64_t row, bool centred) {
    return centred ? a->mean[row] : 0.0f;
}

/* Set sums[0][k] and sums[1][k] to the means of g and of g h of `count` rows; add to dweight and
 * dbias. */
INLINE void backward_sums(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, int count,
                          float sums[2][4], float *dweight, float *dbias, bool centred) {
    const int64_t width = a->width;
    const void *x = cgp__cpu_at(type, a->x, row * width);
    const void *dy = cgp__cpu_at(type, a->dy, row * width);
    const float *rstd = a->rstd + row;
    vec g_sum[4] = {{0}}, gh_sum[4] = {{0}};
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t left = width - c;
        const bool part = left < LANES;
        const vec weight = part ? load_part(a->weight + c, left) : load(a->weight + c);
        /* dweight and dbias are padded, so full vectors may be loaded. */
        vec dw = load(dweight + c), db = centred ? load(dbias + c) : dw;
        for (int k = 0; k < count; k++) {
            const int64_t at = k * width + c;
            const vec d = part ? load_part_as(type, dy, at, left) : load_as(type, dy, at);
            const vec in = part ? load_part_as(type, x, at, left) : load_as(type, x, at);
            const vec h = normal(in, mean_at(a, row + k, centred), rstd[k], centred);
            const vec g = d * weight;
            if (centred) g_sum[k] += g;
            gh_sum[k] += g * h;
            dw += d * h;
            if (centred) db += d;
        }
        store(dweight + c, dw);
        if (centred) store(dbias + c, db);
    }
    for (int k = 0; k < count; k++) {
        if (centred) sums[0][k] = sum_lanes(g_sum[k]) / (float)width;
        sums[1][k] = sum_lanes(gh_sum[k]) / (float)width;
    }
}

/* Return rstd (g - mean of g - h mean of g h). */
INLINE vec slope_of(vec h, vec g, float rstd, const float means[2], bool centred) {
    return rstd * ((centred ? g - means[0] : g) - h * means[1]);
}

/* Compute dx of one row from the means of g and of g h. */
INLINE void backward_row(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, const float means[2],
                         bool add, bool centred) {
    const int64_t width = a->width;
    const void *x = cgp__cpu_at(type, a->x, row * width);
    const void *dy = cgp__cpu_at(type, a->dy, row * width);
    const float mean = mean_at(a, row, centred), rstd = a->rstd[row];
    void *dx = cgp__cpu_at(type, a->dx, row * width);
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        const vec h = normal(load_as(type, x, c), mean, rstd, centred);
        const vec g = load_as(type, dy, c) * load(a->weight + c);
        const vec out = slope_of(h, g, rstd, means, centred);
        store_as(type, dx, c, add ? load_as(type, dx, c) + out : out);
    }
    if (c == width) return;
    const int64_t left = width - c;
    const vec h = normal(load_part_as(type, x, c, left), mean, rstd, centred);
    const vec g = load_part_as(type, dy, c, left) * load_part(a->weight + c, left);
    const vec out = slope_of(h, g, rstd, means, centred);
    store_part_as(type, dx, c, add ? load_part_as(type, dx, c, left) + out : out, left);
}

INLINE void backward_rows(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, int count,
                          float *dweight, float *dbias, bool centred) {
    float sums[2][4] = {{0}};
    backward_sums(type, a, row, count, sums, dweight, dbias, centred);
    for (int k = 0; a->dx && k < count; k++) {
        const float means[] = {sums[0][k], sums[1][k]};
        if (a->add)
            backward_row(type, a, row + k, means, true, centred);
        else
            backward_row(type, a, row + k, means, false, centred);
    }
}

INLINE void backward(cgp_dtype type, const cgp__cpu_norm *norm, bool centred) {
    const cgp__cpu_norm a = *norm; /* a local copy: no store aliases it */
    const int64_t padded = cgp__cpu_padded(a.width);
    float *dweight = a.sums, *dbias = centred ? dweight + padded : NULL;
    memset(a.sums, 0, (size_t)((centred ? 2 : 1) * padded) * sizeof *a.sums);
    int64_t row = 0;
    for (; row + 4 <= a.rows; row += 4)
        backward_rows(type, &a, row, 4, dweight, dbias, centred);
    for (; row < a.rows; row++)
        backward_rows(type, &a, row, 1, dweight, dbias, centred);
}

INLINE void layer_backward(cgp_dtype type, const cgp__cpu_norm *norm) {
    backward(type, norm, true);
}

INLINE void rms_backward(cgp_dtype type, const cgp__cpu_norm *norm) {
    backward(type, norm, false);
}

TYPED(layer_backward, (const cgp__cpu_norm *norm), norm)
TYPED(rms_backward, (const cgp__cpu_norm *norm), norm)

void CGP__CPU_NAME(layer_norm_backward)(const cgp__cpu_norm *norm) {
    if (norm->mean)
        CALL_TYPED(norm->type, layer_backward, norm);
    else
        CALL_TYPED(norm->type, rms_backward, norm);
}
