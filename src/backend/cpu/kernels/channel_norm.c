/* SPDX-License-Identifier: Apache-2.0 */
/* channel_norm.c -- BATCH_NORM, INSTANCE_NORM and GROUP_NORM of a matrix. A column of the matrix is
 * a channel, or one of several columns of a channel (ops/channel_norm.c).
 *
 *     y = (x - mean) scale + shift        dx = ((dy - shift) + (x - mean) slope) scale
 *     GROUP_NORM                          dx = (dy scale - shift) + (x - mean) slope
 *
 * Statistics are computed in f32 over blocks of rows that stay in the cache. For a block of n rows,
 * first `mean` is computed. Then s is the sum of the differences from `mean`, and q is the sum of
 * the squares of these differences. With m = mean + s / n, the sum of squared differences from m is
 * q - s^2 / n. This corrects the rounding of `mean`. Blocks are merged in order and in double
 * (Chan, Golub, LeVeque 1979):
 *
 *     d = m - M        M += d n / (N + n)        Q += q - s^2 / n + d^2 N n / (N + n)
 *
 * The gradient dx may alias dy, because an element of dy is read for the last time before the same
 * element of dx is written. */
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/operands.h"

#define BLOCK 32  /* rows of a block */
#define CHUNK 512 /* number of columns whose sums fit in the L1 cache */

/* `rows` rows of a range of columns. The range has `width` columns, at most CHUNK. */
typedef struct block {
    const void *x, *dy;
    int64_t rows, width, stride;
} block;

/* --- statistics --- */

/* Over `count` rows: sum += x - mean, squares += (x - mean)^2. */
INLINE void add_squares(cgp_dtype type, float *sum, float *squares, const float *mean,
                        const void *x, int64_t width, int64_t stride, int count) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t left = width - c;
        const vec m = load(mean + c);
        vec s = load(sum + c), q = load(squares + c);
        for (int k = 0; k < count; k++) {
            const int64_t at = k * stride + c;
            const vec in = left < LANES ? load_part_as(type, x, at, left) : load_as(type, x, at);
            const vec d = in - m;
            s += d;
            q = multiply_add(d, d, q);
        }
        store(sum + c, s);
        store(squares + c, q);
    }
}

static void merge_moments(double *mean, double *squares, int64_t before, const float *m,
                          const float *s, const float *q, int64_t rows, int64_t width) {
    const double n = (double)rows, fraction = n / (double)(before + rows);
    const double weight = (double)before * fraction;
    for (int64_t c = 0; c < width; c++) {
        const double offset = (double)s[c] / n, block_mean = (double)m[c] + offset;
        const double spread = (double)q[c] - (double)s[c] * offset;
        const double d = before ? block_mean - mean[c] : 0.0;
        mean[c] = before ? mean[c] + d * fraction : block_mean;
        squares[c] = before ? squares[c] + (spread + d * d * weight) : spread;
    }
}

INLINE void block_moments(cgp_dtype type, const block *b, float *m, float *s, float *q) {
    const int64_t padded = cgp__cpu_padded(b->width);
    memset(m, 0, (size_t)padded * sizeof *m);
    memset(s, 0, (size_t)padded * sizeof *s);
    memset(q, 0, (size_t)padded * sizeof *q);
    add_block(type, m, b->x, b->rows, b->width, b->stride);
    for (int64_t c = 0; c < padded; c += LANES)
        store(m + c, load(m + c) / (float)b->rows);
    int64_t row = 0;
    for (; row + 4 <= b->rows; row += 4)
        add_squares(type, s, q, m, cgp__cpu_at(type, b->x, row * b->stride), b->width, b->stride,
                    4);
    for (; row < b->rows; row++)
        add_squares(type, s, q, m, cgp__cpu_at(type, b->x, row * b->stride), b->width, b->stride,
                    1);
}

INLINE void moments(cgp_dtype type, const cgp__cpu_columns *a) {
    float m[CHUNK], s[CHUNK], q[CHUNK];
    for (int64_t c = 0; c < a->width; c += CHUNK) {
        for (int64_t row = 0; row < a->rows; row += BLOCK) {
            const block b = {.x = cgp__cpu_at(type, a->x, row * a->stride + c),
                             .rows = cgp__min(BLOCK, a->rows - row),
                             .width = cgp__min(CHUNK, a->width - c),
                             .stride = a->stride};
            block_moments(type, &b, m, s, q);
            merge_moments(a->sums[0] + c, a->sums[1] + c, a->before + row, m, s, q, b.rows,
                          b.width);
        }
    }
}

TYPED(moments, (const cgp__cpu_columns *a), a)

void CGP__CPU_NAME(columns_moments)(const cgp__cpu_columns *a) {
    CALL_TYPED(a->type, moments, a);
}

/* --- the sums of backward --- */

/* Over `count` rows: sum += dy, product += dy (x - mean). */
INLINE void add_products(cgp_dtype type, float *sum, float *product, const float *mean,
                         const block *b, int64_t row, int count) {
    for (int64_t c = 0; c < b->width; c += LANES) {
        const int64_t left = b->width - c;
        const vec m = load(mean + c);
        vec s = load(sum + c), p = load(product + c);
        for (int k = 0; k < count; k++) {
            const int64_t at = (row + k) * b->stride + c;
            const bool part = left < LANES;
            const vec x = part ? load_part_as(type, b->x, at, left) : load_as(type, b->x, at);
            const vec d = part ? load_part_as(type, b->dy, at, left) : load_as(type, b->dy, at);
            s += d;
            p = multiply_add(d, x - m, p);
        }
        store(sum + c, s);
        store(product + c, p);
    }
}

static void add_doubles(double *to, const float *from, int64_t before, int64_t n) {
    for (int64_t c = 0; c < n; c++)
        to[c] = before ? to[c] + (double)from[c] : (double)from[c];
}

INLINE void sums(cgp_dtype type, const cgp__cpu_columns *a) {
    float s[CHUNK], p[CHUNK];
    for (int64_t c = 0; c < a->width; c += CHUNK) {
        for (int64_t first = 0; first < a->rows; first += BLOCK) {
            const int64_t at = first * a->stride + c;
            const block b = {.x = cgp__cpu_at(type, a->x, at),
                             .dy = cgp__cpu_at(type, a->dy, at),
                             .rows = cgp__min(BLOCK, a->rows - first),
                             .width = cgp__min(CHUNK, a->width - c),
                             .stride = a->stride};
            memset(s, 0, sizeof s);
            memset(p, 0, sizeof p);
            int64_t row = 0;
            for (; row + 4 <= b.rows; row += 4)
                add_products(type, s, p, a->mean + c, &b, row, 4);
            for (; row < b.rows; row++)
                add_products(type, s, p, a->mean + c, &b, row, 1);
            add_doubles(a->sums[0] + c, s, a->before + first, b.width);
            add_doubles(a->sums[1] + c, p, a->before + first, b.width);
        }
    }
}

TYPED(sums, (const cgp__cpu_columns *a), a)

void CGP__CPU_NAME(columns_sums)(const cgp__cpu_columns *a) {
    CALL_TYPED(a->type, sums, a);
}

/* --- y and dx --- */

INLINE vec forward_of(vec x, vec mean, vec scale, vec shift) {
    return multiply_add(x - mean, scale, shift);
}

INLINE vec backward_of(vec x, vec dy, vec mean, vec scale, vec shift, vec slope, bool grouped) {
    if (grouped) return multiply_add(x - mean, slope, multiply_add(dy, scale, -shift));
    return multiply_add(x - mean, slope, dy - shift) * scale;
}

/* Write `count` rows of the LANES columns that begin at column c. If only `left` < LANES columns
 * remain, write these. */
INLINE void apply_vector(cgp_dtype type, const cgp__cpu_columns *a, int64_t row, int64_t c,
                         int64_t left, int count, bool backward, bool grouped, bool add) {
    const bool part = left < LANES;
    const vec mean = load(a->mean + c), scale = load(a->scale + c), shift = load(a->shift + c);
    const vec slope = backward ? load(a->slope + c) : mean;
    for (int k = 0; k < count; k++) {
        const int64_t at = (row + k) * a->stride + c;
        vec out = part ? load_part_as(type, a->x, at, left) : load_as(type, a->x, at);
        if (backward) {
            const vec dy = part ? load_part_as(type, a->dy, at, left) : load_as(type, a->dy, at);
            out = backward_of(out, dy, mean, scale, shift, slope, grouped);
        } else {
            out = forward_of(out, mean, scale, shift);
        }
        if (add)
            out = (part ? load_part_as(type, a->to, at, left) : load_as(type, a->to, at)) + out;
        if (part)
            store_part_as(type, a->to, at, out, left);
        else
            store_as(type, a->to, at, out);
    }
}

INLINE void rows(cgp_dtype type, const cgp__cpu_columns *a, int64_t row, int count, bool backward,
                 bool grouped, bool add) {
    int64_t c = 0;
    for (; c + LANES <= a->width; c += LANES)
        apply_vector(type, a, row, c, LANES, count, backward, grouped, add);
    if (c < a->width) apply_vector(type, a, row, c, a->width - c, count, backward, grouped, add);
}

INLINE void apply(cgp_dtype type, const cgp__cpu_columns *columns, bool backward, bool grouped,
                  bool add) {
    const cgp__cpu_columns a = *columns; /* a local copy, which no store can alias */
    int64_t row = 0;
    for (; row + 4 <= a.rows; row += 4)
        rows(type, &a, row, 4, backward, grouped, add);
    for (; row < a.rows; row++)
        rows(type, &a, row, 1, backward, grouped, add);
}

INLINE void forward(cgp_dtype type, const cgp__cpu_columns *a) {
    apply(type, a, false, false, false);
}

INLINE void backward(cgp_dtype type, const cgp__cpu_columns *a) {
    if (a->add)
        apply(type, a, true, false, true);
    else
        apply(type, a, true, false, false);
}

INLINE void grouped_backward(cgp_dtype type, const cgp__cpu_columns *a) {
    if (a->add)
        apply(type, a, true, true, true);
    else
        apply(type, a, true, true, false);
}

TYPED(forward, (const cgp__cpu_columns *a), a)
TYPED(backward, (const cgp__cpu_columns *a), a)
TYPED(grouped_backward, (const cgp__cpu_columns *a), a)

void CGP__CPU_NAME(columns_forward)(const cgp__cpu_columns *a) {
    CALL_TYPED(a->type, forward, a);
}

void CGP__CPU_NAME(columns_backward)(const cgp__cpu_columns *a) {
    if (a->grouped)
        CALL_TYPED(a->type, grouped_backward, a);
    else
        CALL_TYPED(a->type, backward, a);
}
