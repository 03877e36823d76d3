/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c -- pooling over an image [H, W, C], one row of y or dx at a time. A row is first reduced
 * down the columns, then across the columns.
 *
 *     sum, mean   t(w) = sum over rows of x
 *                 y(j) = sum over columns of t; the mean divides by the pixels of the window
 *     back        t(j) = sum over i of dy(i, j); the mean divides each by the rows of window i
 *                 dx(w) = sum over j of t(j); the mean divides each by the columns of window j
 *     maximum     t(w) = maximum, u(w) = kernel_width times the row of the maximum
 *                 y(j) = maximum of t; argmax = u + column of the maximum in the window
 *     back        dx(p) = sum of dy(i, j) over the windows with their argmax at p
 *
 * Among equal elements, the first in row order is the maximum; a NaN counts as larger than all
 * numbers. The row t is f32 in `scratch`, so every element of y and dx is rounded only once, when
 * it is stored. Down the columns, a row is one long vector, even if it has few channels. Across the
 * columns, WIDE vectors of channels are processed at a time, and t may be read up to WIDE - 1
 * vectors past its end. */
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/operands.h"

#define WIDE 4     /* number of vectors of channels that are processed at a time */
#define AHEAD 2048 /* number of elements of t that are computed per step */

/* A range of indices begin .. end - 1. */
typedef struct span {
    int64_t begin, end;
} span;

INLINE span within(int64_t begin, int64_t end, int64_t side) {
    return (span){begin > 0 ? begin : 0, end < side ? end : side};
}

INLINE int64_t length(span s) {
    return s.end - s.begin;
}

/* The windows along one axis. */
typedef struct side {
    int64_t stride, front, kernel, pixels, windows;
} side;

INLINE side down_of(const cgp_op_windows *g) {
    return (side){g->stride_height, g->top, g->kernel_height, g->height, g->out_height};
}

INLINE side across_of(const cgp_op_windows *g) {
    return (side){g->stride_width, g->left, g->kernel_width, g->width, g->out_width};
}

/* Return the pixels of window i that are within the image. */
INLINE span pixels_of(side s, int64_t i) {
    const int64_t begin = i * s.stride - s.front;
    return within(begin, begin + s.kernel, s.pixels);
}

/* Return the windows i that contain pixel p: i stride - front <= p < i stride - front + kernel. */
INLINE span windows_of(side s, int64_t p) {
    const int32_t last = (int32_t)(p + s.front), stride = (int32_t)s.stride;
    const int32_t first = last - (int32_t)s.kernel + stride;
    return within(first < 0 ? 0 : first / stride, last / stride + 1, s.windows);
}

/* Return 1 / number of pixels of window i. */
INLINE float reciprocal(side s, int64_t i) {
    return 1.0f / (float)length(pixels_of(s, i));
}

/* Call an INLINE function for elements begin .. end - 1. Its last arguments are the first element,
 * the number of vectors and the number of elements left. */
#define FOR_VECTORS(begin, end, function, ...)                                                     \
    do {                                                                                           \
        int64_t e_ = (begin);                                                                      \
        for (; e_ + WIDE * LANES <= (end); e_ += WIDE * LANES)                                     \
            function(__VA_ARGS__, e_, WIDE, WIDE *LANES);                                          \
        if (e_ + LANES < (end))                                                                    \
            function(__VA_ARGS__, e_, WIDE, (end)-e_);                                             \
        else if (e_ < (end))                                                                       \
            function(__VA_ARGS__, e_, 1, (end)-e_);                                                \
    } while (0)

/* Return the index after the last element of t that is computed next. It is at least `needed`.
 * Usually AHEAD elements are computed at a time, so that they stay in the L1 cache until they are
 * read. */
INLINE int64_t next_end(int64_t done, int64_t needed, int64_t all) {
    if (needed <= done) return done;
    const int64_t end = done + AHEAD > needed ? done + AHEAD : needed;
    const int64_t whole = (end + WIDE * LANES - 1) / (WIDE * LANES) * (WIDE * LANES);
    return whole < all ? whole : all;
}

/* --- sums --- */

/* Set t to the sum over rows of `from`, which are `stride` apart. If `averaged` is not NULL, divide
 * each row by the number of rows of its window. */
INLINE void sum_down(cgp_dtype type, float *t, const void *from, int64_t stride, span rows,
                     const side *averaged, int64_t e, int count, int64_t left) {
    vec sum[WIDE] = {{0}};
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const float factor = averaged ? reciprocal(*averaged, row) : 1.0f;
        for (int k = 0; k < count; k++) {
            const vec x = load_left(type, from, row * stride + e + k * LANES, left - k * LANES);
            sum[k] += averaged ? x * factor : x;
        }
    }
    for (int k = 0; k < count; k++)
        store(t + e + k * LANES, sum[k]);
}

/* Set `to` to the sum over columns of t, divided by `pixels`, or add the result to `to`. If
 * `averaged` is not NULL, divide each column by the number of columns of its window. */
INLINE void sum_across(cgp_dtype type, void *to, const float *t, int64_t channels, span columns,
                       const side *averaged, float pixels, bool add, int64_t c, int count,
                       int64_t left) {
    vec sum[WIDE] = {{0}};
    for (int64_t column = columns.begin; column < columns.end; column++) {
        const float *from = t + column * channels + c;
        const float factor = averaged ? reciprocal(*averaged, column) : 1.0f;
        for (int k = 0; k < count; k++) {
            const vec x = load(from + k * LANES);
            sum[k] += averaged ? x * factor : x;
        }
    }
    for (int k = 0; k < count; k++)
        store_left(type, to, c + k * LANES, pixels != 1.0f ? sum[k] / pixels : sum[k],
                   left - k * LANES, add);
}

INLINE void sum_row(cgp_dtype type, const cgp__cpu_pool *p, void *y, int64_t i) {
    const cgp_op_windows *g = p->attributes;
    const side down = down_of(g), across = across_of(g);
    const int64_t channels = g->in, stride = g->width * channels;
    const span rows = pixels_of(down, i);
    int64_t done = 0;
    for (int64_t j = 0; j < g->out_width; j++) {
        const span columns = pixels_of(across, j);
        const int64_t end = next_end(done, columns.end * channels, stride);
        FOR_VECTORS(done, end, sum_down, type, p->scratch, p->from, stride, rows, NULL);
        done = end;
        const float pixels = p->mean ? (float)(length(rows) * length(columns)) : 1.0f;
        FOR_VECTORS(0, channels, sum_across, type, cgp__cpu_at(type, y, j * channels), p->scratch,
                    channels, columns, NULL, pixels, p->add);
    }
}

TYPED(sum_row, (const cgp__cpu_pool *p, void *y, int64_t i), p, y, i)

void CGP__CPU_NAME(pool_sum)(const cgp__cpu_pool *p, void *y, int64_t i) {
    CALL_TYPED(p->type, sum_row, p, y, i);
}

/* Handle the case of one channel and a single window that covers the whole row. All pixels get the
 * window's gradient t[0]. */
INLINE void sum_back_whole(cgp_dtype type, const cgp__cpu_pool *p, void *dx, bool mean) {
    const side across = across_of(p->attributes);
    const float factor = mean ? reciprocal(across, 0) : 1.0f;
    const vec out = splat(0.0f) + splat(p->scratch[0]) * factor;
    for (int64_t c = 0; c < across.pixels; c += LANES)
        store_left(type, dx, c, out, across.pixels - c, p->add);
}

INLINE void sum_back_row(cgp_dtype type, const cgp__cpu_pool *p, void *dx, int64_t row, bool mean) {
    const cgp_op_windows *g = p->attributes;
    const side down = down_of(g), across = across_of(g);
    const int64_t channels = g->in, stride = g->out_width * channels;
    const span rows = windows_of(down, row);
    int64_t done = 0;
    if (stride == 1 && g->left == 0 && g->kernel_width >= g->width) {
        FOR_VECTORS(0, 1, sum_down, type, p->scratch, p->from, stride, rows, mean ? &down : NULL);
        sum_back_whole(type, p, dx, mean);
        return;
    }
    for (int64_t column = 0; column < g->width; column++) {
        const span columns = windows_of(across, column);
        const int64_t end = next_end(done, columns.end * channels, stride);
        FOR_VECTORS(done, end, sum_down, type, p->scratch, p->from, stride, rows,
                    mean ? &down : NULL);
        done = end;
        FOR_VECTORS(0, channels, sum_across, type, cgp__cpu_at(type, dx, column * channels),
                    p->scratch, channels, columns, mean ? &across : NULL, 1.0f, p->add);
    }
}

INLINE void sum_back(cgp_dtype type, const cgp__cpu_pool *p, void *dx, int64_t row) {
    if (p->mean)
        sum_back_row(type, p, dx, row, true);
    else
        sum_back_row(type, p, dx, row, false);
}

TYPED(sum_back, (const cgp__cpu_pool *p, void *dx, int64_t row), p, dx, row)

void CGP__CPU_NAME(pool_sum_back)(const cgp__cpu_pool *p, void *dx, int64_t row) {
    CALL_TYPED(p->type, sum_back, p, dx, row);
}

/* --- the maximum --- */

INLINE ivec choose(ivec mask, ivec a, ivec b) {
    return (mask & a) | (~mask & b);
}

/* Compute t and u. An element of u is an integer: kernel_width times the row of the maximum within
 * the window, which begins at row `top`. */
INLINE void max_down(cgp_dtype type, float *t, float *u, const void *from, int64_t stride,
                     span rows, int64_t top, int32_t kernel_width, int64_t e, int count,
                     int64_t left) {
    vec max[WIDE];
    ivec argmax[WIDE];
    for (int k = 0; k < count; k++) {
        max[k] = load_left(type, from, rows.begin * stride + e + k * LANES, left - k * LANES);
        argmax[k] = (ivec){0} + (int32_t)(rows.begin - top) * kernel_width;
    }
    for (int64_t row = rows.begin + 1; row < rows.end; row++) {
        const ivec here = (ivec){0} + (int32_t)(row - top) * kernel_width;
        for (int k = 0; k < count; k++) {
            const vec x = load_left(type, from, row * stride + e + k * LANES, left - k * LANES);
            /* NOLINTNEXTLINE(misc-redundant-expression): x != x if x is NaN */
            const ivec better = (x > max[k]) | (x != x);
            max[k] = pick(better, x, max[k]);
            argmax[k] = choose(better, here, argmax[k]);
        }
    }
    for (int k = 0; k < count; k++) {
        store(t + e + k * LANES, max[k]);
        if (u) store(u + e + k * LANES, (vec)argmax[k]);
    }
}

/* Compute y or, if `u` is not NULL, the argmax. If elements of two columns are equal, the element
 * in the earlier row is the maximum. */
INLINE void max_across(cgp_dtype type, void *to, const float *t, const float *u,
                       const cgp_op_windows *g, span columns, int64_t first, int64_t c, int count,
                       int64_t left) {
    vec max[WIDE];
    ivec row[WIDE], argmax[WIDE];
    for (int k = 0; k < count; k++) {
        const int64_t at = columns.begin * g->in + c + k * LANES;
        max[k] = load(t + at);
        row[k] = u ? (ivec)load(u + at) : (ivec){0};
        argmax[k] = row[k] + (int32_t)(columns.begin - first);
    }
    for (int64_t column = columns.begin + 1; column < columns.end; column++) {
        for (int k = 0; k < count; k++) {
            const int64_t at = column * g->in + c + k * LANES;
            const vec x = load(t + at);
            /* NOLINTNEXTLINE(misc-redundant-expression): x != x if x is NaN */
            ivec better = (x > max[k]) | (x != x);
            if (u) {
                const ivec its_row = (ivec)load(u + at);
                better |= (x == max[k]) & (its_row < row[k]);
                row[k] = choose(better, its_row, row[k]);
                argmax[k] = choose(better, its_row + (int32_t)(column - first), argmax[k]);
            }
            max[k] = pick(better, x, max[k]);
        }
    }
    for (int k = 0; k < count; k++)
        store_left(u ? CGP_F32 : type, to, c + k * LANES, u ? (vec)argmax[k] : max[k],
                   left - k * LANES, false);
}

/* Compute a row of y or, if `u` is not NULL, of the argmax. */
INLINE void max_row(cgp_dtype type, const cgp__cpu_pool *p, void *to, float *u, int64_t i) {
    const cgp_op_windows *g = p->attributes;
    const side down = down_of(g), across = across_of(g);
    const int64_t channels = g->in, stride = g->width * channels;
    const cgp_dtype to_type = u ? CGP_F32 : type;
    int64_t done = 0;
    for (int64_t j = 0; j < g->out_width; j++) {
        const span columns = pixels_of(across, j);
        const int64_t end = next_end(done, columns.end * channels, stride);
        FOR_VECTORS(done, end, max_down, type, p->scratch, u, p->from, stride, pixels_of(down, i),
                    i * down.stride - down.front, g->kernel_width);
        done = end;
        FOR_VECTORS(0, channels, max_across, type, cgp__cpu_at(to_type, to, j * channels),
                    p->scratch, u, g, columns, j * across.stride - across.front);
    }
}

INLINE void max_forward(cgp_dtype type, const cgp__cpu_pool *p, void *y, int64_t i) {
    max_row(type, p, y, NULL, i);
}

INLINE void argmax_row(cgp_dtype type, const cgp__cpu_pool *p, float *argmax, int64_t i) {
    max_row(type, p, argmax, p->scratch + cgp__cpu_pool_scratch(p->attributes), i);
}

TYPED(max_forward, (const cgp__cpu_pool *p, void *y, int64_t i), p, y, i)
TYPED(argmax_row, (const cgp__cpu_pool *p, float *argmax, int64_t i), p, argmax, i)

void CGP__CPU_NAME(pool_max)(const cgp__cpu_pool *p, void *y, int64_t i) {
    CALL_TYPED(p->type, max_forward, p, y, i);
}

void CGP__CPU_NAME(pool_argmax)(const cgp__cpu_pool *p, float *argmax, int64_t i) {
    CALL_TYPED(p->type, argmax_row, p, argmax, i);
}

/* Compute pixel (row, column) of dx. The windows that contain the pixel are `rows` x `columns`. */
INLINE void max_back_pixel(cgp_dtype type, void *dx, const cgp__cpu_pool *p, int64_t row,
                           int64_t column, span rows, span columns, int64_t c, int count,
                           int64_t left) {
    const cgp_op_windows *g = p->attributes;
    vec sum[WIDE] = {{0}};
    for (int64_t i = rows.begin; i < rows.end; i++) {
        const int64_t u = row + g->top - i * g->stride_height;
        for (int64_t j = columns.begin; j < columns.end; j++) {
            const int64_t v = column + g->left - j * g->stride_width;
            const ivec here = (ivec){0} + (int32_t)(u * g->kernel_width + v);
            const int64_t at = (i * g->out_width + j) * g->in + c;
            const float *argmax = p->argmax + (at - p->first * g->out_width * g->in);
            for (int k = 0; k < count; k++) {
                const vec dy = load_left(type, p->from, at + k * LANES, left - k * LANES);
                sum[k] += keep((ivec)load(argmax + k * LANES) == here, dy);
            }
        }
    }
    for (int k = 0; k < count; k++)
        store_left(type, dx, c + k * LANES, sum[k], left - k * LANES, p->add);
}

INLINE void max_back(cgp_dtype type, const cgp__cpu_pool *p, void *dx, int64_t row) {
    const cgp_op_windows *g = p->attributes;
    const side across = across_of(g);
    const span rows = windows_of(down_of(g), row);
    for (int64_t column = 0; column < g->width; column++)
        FOR_VECTORS(0, g->in, max_back_pixel, type, cgp__cpu_at(type, dx, column * g->in), p, row,
                    column, rows, windows_of(across, column));
}

TYPED(max_back, (const cgp__cpu_pool *p, void *dx, int64_t row), p, dx, row)

void CGP__CPU_NAME(pool_max_back)(const cgp__cpu_pool *p, void *dx, int64_t row) {
    CALL_TYPED(p->type, max_back, p, dx, row);
}
