/* pool.c -- windows over an image [H, W, C], loops over channels inside.
 *
 *     y(i, j) = max or sum (mean) of x over the pixels that window (i, j) sees
 *     maximum:  dx(p) += dy(i, j) where p is the first of the largest; the windows in order
 *     sum:      dx(p)  = sum of dy(i, j), or of dy(i, j) / pixels seen, over the windows that see p, in order
 *
 * Sums are float and rounded once, when they are stored. A NaN is larger than all numbers. Channels go
 * four vectors at a time, then one, then what is left. */
#include "backend/cpu/kernels/vec.h"

#define WIDE 4 /* vectors */

/* From begin to end - 1. */
typedef struct span {
    int64_t begin, end;
} span;

INLINE span within(int64_t begin, int64_t end, int64_t side) {
    return (span){begin > 0 ? begin : 0, end < side ? end : side};
}

/* Pixels that window i of a side sees. */
INLINE span seen(int64_t i, int64_t stride, int64_t front, int64_t kernel, int64_t side) {
    const int64_t begin = i * stride - front;
    return within(begin, begin + kernel, side);
}

/* Windows that see pixel p of a side: i stride - front <= p < i stride - front + kernel. */
INLINE span seeing(int64_t p, int64_t stride, int64_t front, int64_t kernel, int64_t windows) {
    const int32_t last = (int32_t)(p + front), first = (int32_t)(last - kernel + stride);
    return within(first < 0 ? 0 : first / (int32_t)stride, last / (int32_t)stride + 1, windows);
}

INLINE span seen_rows(const cgp__geometry *g, int64_t i) {
    return seen(i, g->stride_height, g->top, g->kernel_height, g->height);
}

INLINE span seen_columns(const cgp__geometry *g, int64_t j) {
    return seen(j, g->stride_width, g->left, g->kernel_width, g->width);
}

/* Element i, of a vector or of the `left` elements that are left. */
INLINE vec get(cgp_dtype type, const void *from, int64_t i, int64_t left) {
    return left < LANES ? load_part_as(type, from, i, left) : load_as(type, from, i);
}

INLINE void put(cgp_dtype type, void *to, int64_t i, vec x, int64_t left, bool add) {
    if (add) x = get(type, to, i, left) + x;
    if (left < LANES)
        store_part_as(type, to, i, x, left);
    else
        store_as(type, to, i, x);
}

/* Call a strip's function for all channels: (.., channel, vectors, channels left) */
#define FOR_CHANNELS(channels, function, ...)                                                  \
    do {                                                                                       \
        int64_t c_ = 0;                                                                        \
        for (; c_ + WIDE * LANES <= (channels); c_ += WIDE * LANES)                            \
            function(__VA_ARGS__, c_, WIDE, LANES);                                            \
        for (; c_ + LANES <= (channels); c_ += LANES)                                          \
            function(__VA_ARGS__, c_, 1, LANES);                                               \
        if (c_ < (channels)) function(__VA_ARGS__, c_, 1, (channels)-c_);                      \
    } while (0)

/* --- the largest --- */

INLINE ivec beats(vec x, vec most) {
    return (x > most) | (x != x);
}

/* What a window sees of an image. */
typedef struct window {
    const cgp__geometry *g;
    const void *x;
    span rows, columns;
} window;

INLINE int64_t element(const window *w, int64_t row, int64_t column) {
    return (row * w->g->width + column) * w->g->in;
}

/* The largest, and its place: the number of the pixel in the image's rows. */
INLINE void largest(cgp_dtype type, vec *most, ivec *place, const window *w, int64_t c,
                    int count, int64_t left) {
    for (int k = 0; k < count; k++) {
        most[k] =
            get(type, w->x, element(w, w->rows.begin, w->columns.begin) + c + k * LANES, left);
        place[k] = (ivec){0};
    }
    int32_t number = 0;
    for (int64_t row = w->rows.begin; row < w->rows.end; row++) {
        for (int64_t column = w->columns.begin; column < w->columns.end; column++) {
            const int64_t at = element(w, row, column) + c;
            const ivec here = (ivec){0} + number++;
            for (int k = 0; k < count; k++) {
                const vec x = get(type, w->x, at + k * LANES, left);
                const ivec better = beats(x, most[k]);
                most[k] = pick(better, x, most[k]);
                place[k] = (better & here) | (~better & place[k]);
            }
        }
    }
}

INLINE void max_strip(cgp_dtype type, void *y, const window *w, int64_t c, int count,
                      int64_t left) {
    vec most[WIDE];
    ivec place[WIDE]; /* of no use here, and left out by the compiler */
    largest(type, most, place, w, c, count, left);
    for (int k = 0; k < count; k++)
        put(type, y, c + k * LANES, most[k], left, false);
}

INLINE void max_row(cgp_dtype type, void *y, const void *x, const cgp__geometry *g, int64_t i) {
    window w = {.g = g, .x = x, .rows = seen_rows(g, i)};
    for (int64_t j = 0; j < g->out_width; j++) {
        void *to = cgp__cpu_at(type, y, j * g->in);
        w.columns = seen_columns(g, j);
        FOR_CHANNELS(g->in, max_strip, type, to, &w);
    }
}

TYPED(max_row, (void *y, const void *x, const cgp__geometry *g, int64_t i), y, x, g, i)

void CGP__CPU_NAME(pool_max)(cgp_dtype type, void *y, const void *x, const cgp__geometry *g,
                             int64_t i) {
    CALL_TYPED(type, max_row, y, x, g, i);
}

/* dy to the rows of `only`; sums begins with its first. */
INLINE void max_back_strip(cgp_dtype type, float *sums, span only, const void *dy,
                           const window *w, int64_t c, int count, int64_t left) {
    vec most[WIDE], d[WIDE];
    ivec place[WIDE];
    largest(type, most, place, w, c, count, left);
    for (int k = 0; k < count; k++)
        d[k] = get(type, dy, c + k * LANES, left);
    int32_t number = 0;
    for (int64_t row = w->rows.begin; row < w->rows.end; row++) {
        const bool inside = row >= only.begin && row < only.end;
        for (int64_t column = w->columns.begin; column < w->columns.end; column++, number++) {
            float *to = sums + element(w, inside ? row - only.begin : 0, column) + c;
            for (int k = 0; inside && k < count; k++)
                put(CGP_F32, to, k * LANES, keep(place[k] == number, d[k]), left, true);
        }
    }
}

INLINE void max_back(cgp_dtype type, float *sums, int64_t begin, int64_t end, const void *x,
                     const void *dy, const cgp__geometry *g, int64_t i) {
    const span only = {begin, end};
    window w = {.g = g, .x = x, .rows = seen_rows(g, i)};
    for (int64_t j = 0; j < g->out_width; j++) {
        const void *from = cgp__cpu_at(type, dy, j * g->in);
        w.columns = seen_columns(g, j);
        FOR_CHANNELS(g->in, max_back_strip, type, sums, only, from, &w);
    }
}

TYPED(max_back,
      (float *sums, int64_t begin, int64_t end, const void *x, const void *dy,
       const cgp__geometry *g, int64_t i),
      sums, begin, end, x, dy, g, i)

void CGP__CPU_NAME(pool_max_back)(cgp_dtype type, float *sums, int64_t begin, int64_t end,
                                  const void *x, const void *dy, const cgp__geometry *g,
                                  int64_t i) {
    CALL_TYPED(type, max_back, sums, begin, end, x, dy, g, i);
}

/* --- sums and means --- */

/* A row of a window at a time: the sum of a large one stays exact enough. */
INLINE void sum_strip(cgp_dtype type, void *y, const window *w, bool mean, bool add, int64_t c,
                      int count, int64_t left) {
    vec sum[WIDE] = {{0}};
    const int64_t pixels = (w->rows.end - w->rows.begin) * (w->columns.end - w->columns.begin);
    for (int64_t row = w->rows.begin; row < w->rows.end; row++) {
        vec part[WIDE] = {{0}};
        for (int64_t column = w->columns.begin; column < w->columns.end; column++) {
            const int64_t at = element(w, row, column) + c;
            for (int k = 0; k < count; k++)
                part[k] += get(type, w->x, at + k * LANES, left);
        }
        for (int k = 0; k < count; k++)
            sum[k] += part[k];
    }
    for (int k = 0; k < count; k++)
        put(type, y, c + k * LANES, mean ? sum[k] / (float)pixels : sum[k], left, add);
}

INLINE void sum_row(cgp_dtype type, void *y, const void *x, const cgp__geometry *g, int64_t i,
                    bool mean, bool add) {
    window w = {.g = g, .x = x, .rows = seen_rows(g, i)};
    for (int64_t j = 0; j < g->out_width; j++) {
        void *to = cgp__cpu_at(type, y, j * g->in);
        w.columns = seen_columns(g, j);
        FOR_CHANNELS(g->in, sum_strip, type, to, &w, mean, add);
    }
}

TYPED(sum_row, (void *y, const void *x, const cgp__geometry *g, int64_t i, bool mean, bool add),
      y, x, g, i, mean, add)

void CGP__CPU_NAME(pool_sum)(cgp_dtype type, void *y, const void *x, const cgp__geometry *g,
                             int64_t i, bool mean, bool add) {
    CALL_TYPED(type, sum_row, y, x, g, i, mean, add);
}

/* 1 / pixels that a window sees. */
INLINE float share(const cgp__geometry *g, int64_t i, int64_t j) {
    const span rows = seen_rows(g, i), columns = seen_columns(g, j);
    return 1.0f / (float)((rows.end - rows.begin) * (columns.end - columns.begin));
}

/* One pixel of x, seen by the windows (rows, columns). */
INLINE void spread_strip(cgp_dtype type, void *x, const void *y, const cgp__geometry *g,
                         span rows, span columns, bool mean, bool add, int64_t c, int count,
                         int64_t left) {
    vec sum[WIDE] = {{0}};
    for (int64_t i = rows.begin; i < rows.end; i++) {
        for (int64_t j = columns.begin; j < columns.end; j++) {
            const int64_t at = (i * g->out_width + j) * g->in + c;
            const float factor = mean ? share(g, i, j) : 1.0f;
            for (int k = 0; k < count; k++) {
                const vec d = get(type, y, at + k * LANES, left);
                sum[k] += mean ? d * factor : d;
            }
        }
    }
    for (int k = 0; k < count; k++)
        put(type, x, c + k * LANES, sum[k], left, add);
}

INLINE void spread_row(cgp_dtype type, void *x, const void *y, const cgp__geometry *g,
                       int64_t row, bool mean, bool add) {
    const span rows = seeing(row, g->stride_height, g->top, g->kernel_height, g->out_height);
    for (int64_t column = 0; column < g->width; column++) {
        const span columns =
            seeing(column, g->stride_width, g->left, g->kernel_width, g->out_width);
        void *to = cgp__cpu_at(type, x, column * g->in);
        FOR_CHANNELS(g->in, spread_strip, type, to, y, g, rows, columns, mean, add);
    }
}

TYPED(spread_row,
      (void *x, const void *y, const cgp__geometry *g, int64_t i, bool mean, bool add), x, y, g,
      i, mean, add)

void CGP__CPU_NAME(pool_spread)(cgp_dtype type, void *x, const void *y, const cgp__geometry *g,
                                int64_t i, bool mean, bool add) {
    CALL_TYPED(type, spread_row, x, y, g, i, mean, add);
}
