/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.c -- y = (x - mean) rstd weight + bias, rows of C.
 *
 *     mean = sum x / C     rstd = 1 / sqrt(sum (x - mean)^2 / C + eps)     h = (x - mean) rstd
 *     g = dy weight        dx = rstd (g - sum g / C - h sum (g h) / C)
 *     dweight = sum over rows of dy h        dbias = sum over rows of dy    (blocks of 64 rows)
 *
 * Forward saves mean and rstd, backward reads them and x. dx may be dy: a row of dy is read for
 * the last time before that row of dx is written. Rows go four at a time through the
 * sums, which hides the latency of additions and saves traffic; each row's sums are computed as for one row. */
#include "backend/cpu/kernels/vec.h"

#include <math.h>

/* Sums of `count` rows of (x - shift)^power, power 1 or 2 */
INLINE void row_sums(cgp_dtype type, float *sums, const void *x, const float *shift,
                     int64_t width, int count, bool square) {
    vec sum[4] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        for (int k = 0; k < count; k++) {
            vec v = load_as(type, x, k * width + c);
            if (square) {
                v -= shift[k];
                v *= v;
            }
            sum[k] += v;
        }
    }
    for (int k = 0; c < width && k < count; k++) {
        vec v = load_part_as(type, x, k * width + c, width - c);
        if (square) {
            v = keep(lanes_below(width - c), v - shift[k]);
            v *= v;
        }
        sum[k] += v;
    }
    for (int k = 0; k < count; k++)
        sums[k] = sum_lanes(sum[k]);
}

INLINE void forward_rows(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, int count) {
    const int64_t width = a->width;
    const void *x = cgp__cpu_at(type, a->x, row * width);
    void *y = cgp__cpu_at(type, a->y, row * width);
    float mean[4] = {0}, rstd[4];
    row_sums(type, mean, x, NULL, width, count, false);
    for (int k = 0; k < count; k++)
        a->mean[row + k] = mean[k] = mean[k] / (float)width;
    row_sums(type, rstd, x, mean, width, count, true);
    for (int k = 0; k < count; k++)
        a->rstd[row + k] = rstd[k] = 1.0f / sqrtf(rstd[k] / (float)width + a->eps);
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        const vec weight = load(a->weight + c), bias = load(a->bias + c);
        for (int k = 0; k < count; k++) {
            const int64_t at = k * width + c;
            store_as(type, y, at, (load_as(type, x, at) - mean[k]) * rstd[k] * weight + bias);
        }
    }
    if (c == width) return;
    const int64_t left = width - c;
    const vec weight = load_part(a->weight + c, left), bias = load_part(a->bias + c, left);
    for (int k = 0; k < count; k++) {
        const int64_t at = k * width + c;
        const vec normal = (load_part_as(type, x, at, left) - mean[k]) * rstd[k];
        store_part_as(type, y, at, normal * weight + bias, left);
    }
}

/* Four rows or one. A call per group of rows frees the vector registers: a loop over the rows would keep constants in them that
 * the last loop over a row has no space for. */
INLINE void forward(cgp_dtype type, const cgp__cpu_norm *norm, int64_t row, bool four) {
    const cgp__cpu_norm a = *norm; /* a local copy: no store aliases it */
    if (four)
        forward_rows(type, &a, row, 4);
    else
        forward_rows(type, &a, row, 1);
}

TYPED(forward, (const cgp__cpu_norm *norm, int64_t row, bool four), norm, row, four)

void CGP__CPU_NAME(layer_norm_forward)(const cgp__cpu_norm *norm) {
    int64_t row = 0;
    for (; row + 4 <= norm->rows; row += 4)
        CALL_TYPED(norm->type, forward, norm, row, true);
    for (; row < norm->rows; row++)
        CALL_TYPED(norm->type, forward, norm, row, false);
}

/* sum g and sum (g h) of `count` rows, to sums[0][k] and sums[1][k]; dweight and dbias grow */
INLINE void backward_sums(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, int count,
                          float sums[2][4], float *dweight, float *dbias) {
    const int64_t width = a->width;
    const void *x = cgp__cpu_at(type, a->x, row * width);
    const void *dy = cgp__cpu_at(type, a->dy, row * width);
    const float *mean = a->mean + row, *rstd = a->rstd + row;
    vec g_sum[4] = {{0}}, gh_sum[4] = {{0}};
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t left = width - c;
        const bool part = left < LANES;
        const vec weight = part ? load_part(a->weight + c, left) : load(a->weight + c);
        vec dw = load(dweight + c), db = load(dbias + c); /* these are padded */
        for (int k = 0; k < count; k++) {
            const int64_t at = k * width + c;
            const vec d = part ? load_part_as(type, dy, at, left) : load_as(type, dy, at);
            const vec in = part ? load_part_as(type, x, at, left) : load_as(type, x, at);
            const vec h = (in - mean[k]) * rstd[k];
            const vec g = d * weight;
            g_sum[k] += g;
            gh_sum[k] += g * h;
            dw += d * h;
            db += d;
        }
        store(dweight + c, dw);
        store(dbias + c, db);
    }
    for (int k = 0; k < count; k++) {
        sums[0][k] = sum_lanes(g_sum[k]) / (float)width;
        sums[1][k] = sum_lanes(gh_sum[k]) / (float)width;
    }
}

/* dx of one row; g and gh are the means of g and of g h */
INLINE void backward_row(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, float g, float gh,
                         bool add) {
    const int64_t width = a->width;
    const void *x = cgp__cpu_at(type, a->x, row * width);
    const void *dy = cgp__cpu_at(type, a->dy, row * width);
    const float mean = a->mean[row], rstd = a->rstd[row];
    void *dx = cgp__cpu_at(type, a->dx, row * width);
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        const vec h = (load_as(type, x, c) - mean) * rstd;
        const vec out = rstd * (load_as(type, dy, c) * load(a->weight + c) - g - h * gh);
        store_as(type, dx, c, add ? load_as(type, dx, c) + out : out);
    }
    if (c == width) return;
    const int64_t left = width - c;
    const vec h = (load_part_as(type, x, c, left) - mean) * rstd;
    const vec d = load_part_as(type, dy, c, left) * load_part(a->weight + c, left);
    const vec out = rstd * (d - g - h * gh);
    store_part_as(type, dx, c, add ? load_part_as(type, dx, c, left) + out : out, left);
}

INLINE void backward_rows(cgp_dtype type, const cgp__cpu_norm *a, int64_t row, int count,
                          float *dweight, float *dbias) {
    float sums[2][4];
    backward_sums(type, a, row, count, sums, dweight, dbias);
    for (int k = 0; a->dx && k < count; k++) {
        if (a->add)
            backward_row(type, a, row + k, sums[0][k], sums[1][k], true);
        else
            backward_row(type, a, row + k, sums[0][k], sums[1][k], false);
    }
}

INLINE void backward_all(cgp_dtype type, const cgp__cpu_norm *a) {
    const int64_t padded = cgp__cpu_padded(a->width);
    float *dweight = a->sums, *dbias = dweight + padded;
    memset(a->sums, 0, (size_t)(2 * padded) * sizeof *a->sums);
    int64_t row = 0;
    for (; row + 4 <= a->rows; row += 4)
        backward_rows(type, a, row, 4, dweight, dbias);
    for (; row < a->rows; row++)
        backward_rows(type, a, row, 1, dweight, dbias);
}

INLINE void backward(cgp_dtype type, const cgp__cpu_norm *norm) {
    const cgp__cpu_norm a = *norm; /* a local copy: no store aliases it */
    backward_all(type, &a);
}

TYPED(backward, (const cgp__cpu_norm *norm), norm)

void CGP__CPU_NAME(layer_norm_backward)(const cgp__cpu_norm *norm) {
    CALL_TYPED(norm->type, backward, norm);
}
