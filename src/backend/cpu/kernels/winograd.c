/* SPDX-License-Identifier: Apache-2.0 */
/* winograd.c -- the transforms of Winograd convolution, F(2 x 2, 3 x 3) (Lavin and Gray 2016,
 * arXiv:1509.09308): a 3 x 3 convolution by tiles of 2 x 2 output pixels.
 *
 *     y = A^T [ (G w G^T) * (B^T d B) ] A        d: 4 x 4 pixels of x
 *     dw = G^T [ sum over tiles (B^T d B)^T (A dy A^T) ] G
 *     *: 16 matrix products, [tiles, in] by [in, out]
 *
 *            0  1  1  0          1/2  1/2  1/2          0  1 -1 -1
 *            0 -1  1  0          1/2 -1/2  1/2
 *            0  1  0 -1          0    0    1
 *
 *
 * Vectors hold channels, which are contiguous. Sums are f32, also for bf16. The 16 elements of a
 * transformed tile are in 16 different matrices. Pixels outside an image are zeros. */
#include "backend/cpu/gemm/block.h"
#include "backend/cpu/kernels/load_transposed.h"

#define SIDE CGP__WINOGRAD_SIDE
#define ELEMENTS CGP__WINOGRAD_ELEMENTS
#define NR MICRO_COLUMNS
/* Prefetch distances, in rows, elements and tiles. */
#define ROWS_AHEAD 8
#define ELEMENTS_AHEAD 256
#define TILES_AHEAD 6

INLINE vec load_channels(cgp_dtype type, const void *x, int64_t i, int64_t n) {
    return n >= LANES ? load_as(type, x, i) : load_part_as(type, x, i, n);
}

INLINE void store_channels(cgp_dtype type, void *y, int64_t i, vec x, int64_t n) {
    if (n >= LANES)
        store_as(type, y, i, x);
    else
        store_part_as(type, y, i, x, n);
}

/* Multiply four elements by B^T. */
INLINE void transform_four(vec to[SIDE], const vec d[SIDE]) {
    to[0] = d[0] - d[2];
    to[1] = d[1] + d[2];
    to[2] = d[2] - d[1];
    to[3] = d[1] - d[3];
}

/* Prefetch pixels of one row for the tile that is TILES_AHEAD tiles ahead: the first vector of each
 * of the two columns that are new in that tile. */
INLINE void prefetch_two(cgp_dtype type, const void *row, int64_t column, int64_t step,
                         bool write) {
    for (int j = 0; j < 2; j++) {
        const void *at = cgp__cpu_at(type, row, (column + 2 * TILES_AHEAD + j) * step);
        if (write)
            __builtin_prefetch(at, 1, 3);
        else
            __builtin_prefetch(at, 0, 3);
    }
}

/* A vector of channels in four rows of pixels: the address of pixel 0 in each row, and the number
 * of elements from one pixel to the next. */
typedef struct four_rows {
    const void *at[SIDE];
    int64_t step[SIDE];
} four_rows;

static const float zeros[LANES];

INLINE four_rows rows_from(cgp_dtype type, const cgp__winograd_row *r, int64_t c, int count) {
    four_rows f = {{0}, {0}};
    for (int i = 0; i < count; i++) {
        f.at[i] = r->rows[i] ? cgp__cpu_at(type, r->rows[i], c) : zeros;
        f.step[i] = r->rows[i] ? r->channels : 0;
    }
    return f;
}

/* Load the pixels of column j multiplied by B^T, or zeros if the column is outside the image. */
INLINE void load_column(cgp_dtype type, vec to[SIDE], const four_rows *f, int64_t j, bool inside,
                        int64_t n) {
    vec d[SIDE];
    UNROLL for (int i = 0; i < SIDE; i++) d[i] =
        inside ? load_channels(type, f->at[i], j * f->step[i], n) : (vec){0};
    transform_four(to, d);
}

/* Store the 16 elements of a transformed tile, which are computed from B^T times the tile's
 * columns. */
INLINE void store_tile(float *to, int64_t matrix, vec columns[SIDE][SIDE], int64_t n) {
    UNROLL for (int i = 0; i < SIDE; i++) {
        const vec d[SIDE] = {columns[0][i], columns[1][i], columns[2][i], columns[3][i]};
        vec v[SIDE];
        transform_four(v, d);
        UNROLL for (int j = 0; j < SIDE; j++)
            store_channels(CGP_F32, to, (i * SIDE + j) * matrix, v[j], n);
    }
}

/* Transform all tiles of one vector of channels. */
INLINE void input_channels(cgp_dtype type, float *to, int64_t matrix, const cgp__winograd_row *r,
                           int64_t c, int64_t n) {
    const four_rows f = rows_from(type, r, c, SIDE);
    vec columns[SIDE][SIDE];
    int64_t j = r->column;
    for (int k = 0; k < 2; k++, j++)
        load_column(type, columns[k], &f, j, j >= 0 && j < r->width, n);
    for (int64_t t = 0; t < r->tiles; t++, j += 2) {
        UNROLL for (int i = 0; i < SIDE; i++) prefetch_two(type, f.at[i], j, f.step[i], false);
        if (j >= 0 && j + 1 < r->width) {
            load_column(type, columns[2], &f, j, true, n);
            load_column(type, columns[3], &f, j + 1, true, n);
        } else {
            load_column(type, columns[2], &f, j, j >= 0 && j < r->width, n);
            load_column(type, columns[3], &f, j + 1, j + 1 >= 0 && j + 1 < r->width, n);
        }
        store_tile(to + t * r->count + c, matrix, columns, n);
        UNROLL for (int i = 0; i < SIDE; i++) {
            columns[0][i] = columns[2][i];
            columns[1][i] = columns[3][i];
        }
    }
}

INLINE void input_row(cgp_dtype type, float *to, int64_t matrix, const cgp__winograd_row *row) {
    const cgp__winograd_row r = *row; /* a local copy: no store aliases it */
    int64_t c = 0;
    for (; c + LANES <= r.count; c += LANES)
        input_channels(type, to, matrix, &r, c, LANES);
    if (c < r.count) input_channels(type, to, matrix, &r, c, r.count - c);
}

TYPED(input_row, (float *to, int64_t matrix, const cgp__winograd_row *row), to, matrix, row)

void CGP__CPU_NAME(winograd_input)(float *to, int64_t matrix, const cgp__winograd_row *row) {
    CALL_TYPED(row->type, input_row, to, matrix, row);
}

/* Multiply two pixels by A. */
INLINE void spread_two(vec to[SIDE], vec a, vec b) {
    to[0] = a;
    to[1] = a + b;
    to[2] = a - b;
    to[3] = (vec){0} - b;
}

INLINE void gradient_channels(cgp_dtype type, float *to, int64_t matrix, const cgp__winograd_row *r,
                              int64_t c, int64_t n) {
    const four_rows f = rows_from(type, r, c, 2);
    for (int64_t t = 0; t < r->tiles; t++) {
        const int64_t column = r->column + 2 * t;
        vec d[2][2], half[2][SIDE];
        for (int i = 0; i < 2; i++) {
            d[i][0] = load_channels(type, f.at[i], column * f.step[i], n);
            d[i][1] = column + 1 < r->width
                          ? load_channels(type, f.at[i], (column + 1) * f.step[i], n)
                          : (vec){0};
        }
        for (int i = 0; i < 2; i++)
            spread_two(half[i], d[i][0], d[i][1]);
        UNROLL for (int j = 0; j < SIDE; j++) {
            vec z[SIDE];
            spread_two(z, half[0][j], half[1][j]);
            UNROLL for (int i = 0; i < SIDE; i++)
                store_channels(CGP_F32, to + t * r->count + c, (i * SIDE + j) * matrix, z[i], n);
        }
    }
}

INLINE void gradient_row(cgp_dtype type, float *to, int64_t matrix, const cgp__winograd_row *row) {
    const cgp__winograd_row r = *row; /* a local copy: no store aliases it */
    int64_t c = 0;
    for (; c + LANES <= r.count; c += LANES)
        gradient_channels(type, to, matrix, &r, c, LANES);
    if (c < r.count) gradient_channels(type, to, matrix, &r, c, r.count - c);
}

TYPED(gradient_row, (float *to, int64_t matrix, const cgp__winograd_row *row), to, matrix, row)

void CGP__CPU_NAME(winograd_gradient)(float *to, int64_t matrix, const cgp__winograd_row *row) {
    CALL_TYPED(row->type, gradient_row, to, matrix, row);
}

/* Multiply four elements by A^T. */
INLINE void gather_four(vec to[2], const vec m[SIDE]) {
    const vec sum = m[1] + m[2], difference = m[1] - m[2];
    to[0] = m[0] + sum;
    to[1] = difference - m[3];
}

INLINE void output_channels(cgp_dtype type, const float *from, int64_t matrix,
                            const cgp__winograd_pixels *p, int64_t c, int64_t n) {
    const vec bias = p->bias ? load_channels(CGP_F32, p->bias, c, n) : (vec){0};
    for (int64_t t = 0; t < p->tiles; t++) {
        vec half[2][SIDE];
        for (int i = 0; i < p->rows; i++)
            prefetch_two(type, cgp__cpu_at(type, p->at, i * p->row + c), p->column + 2 * t,
                         p->channels, true);
        UNROLL for (int j = 0; j < SIDE; j++) {
            vec m[SIDE], two[2];
            UNROLL for (int i = 0; i < SIDE; i++) m[i] =
                load_channels(CGP_F32, from + t * p->count + c, (i * SIDE + j) * matrix, n);
            gather_four(two, m);
            half[0][j] = two[0];
            half[1][j] = two[1];
        }
        for (int i = 0; i < p->rows; i++) {
            vec y[2];
            gather_four(y, half[i]);
            for (int j = 0; j < 2 && p->column + 2 * t + j < p->width; j++) {
                const int64_t at = i * p->row + (p->column + 2 * t + j) * p->channels + c;
                vec sum = y[j] + bias;
                if (p->add) sum += load_channels(type, p->at, at, n);
                store_channels(type, p->at, at, sum, n);
            }
        }
    }
}

INLINE void output_row(cgp_dtype type, const float *from, int64_t matrix,
                       const cgp__winograd_pixels *pixels) {
    const cgp__winograd_pixels p = *pixels; /* a local copy: no store aliases it */
    int64_t c = 0;
    for (; c + LANES <= p.count; c += LANES)
        output_channels(type, from, matrix, &p, c, LANES);
    if (c < p.count) output_channels(type, from, matrix, &p, c, p.count - c);
}

TYPED(output_row, (const float *from, int64_t matrix, const cgp__winograd_pixels *pixels), from,
      matrix, pixels)

void CGP__CPU_NAME(winograd_output)(const float *from, int64_t matrix,
                                    const cgp__winograd_pixels *pixels) {
    CALL_TYPED(pixels->type, output_row, from, matrix, pixels);
}

/* --- weights --- */

/* Multiply three taps by G. */
INLINE void widen_three(vec to[SIDE], vec a, vec b, vec c) {
    const vec outer = a + c;
    to[0] = a;
    to[1] = 0.5f * (outer + b);
    to[2] = 0.5f * (outer - b);
    to[3] = c;
}

/* For a vector of columns of row p, store the 16 transformed elements in the micro-panels of 16
 * matrices [k, columns]. */
INLINE void store_weights(float *to, int64_t matrix, const vec w[9], int64_t p, int64_t column,
                          int64_t k) {
    float *at = to + column / NR * NR * k + p * NR + column % NR;
    vec half[SIDE][3];
    UNROLL for (int j = 0; j < 3; j++) {
        vec four[SIDE];
        widen_three(four, w[j], w[3 + j], w[6 + j]);
        UNROLL for (int i = 0; i < SIDE; i++) half[i][j] = four[i];
    }
    UNROLL for (int i = 0; i < SIDE; i++) {
        vec u[SIDE];
        widen_three(u, half[i][0], half[i][1], half[i][2]);
        UNROLL for (int j = 0; j < SIDE; j++) store(at + (i * SIDE + j) * matrix, u[j]);
    }
}

/* Return the number of columns including the padding of the last micro-panel. */
INLINE int64_t padded_columns(int64_t columns) {
    return (columns + NR - 1) / NR * NR;
}

static void weights_of_rows(float *to, int64_t matrix, const cgp__winograd_filter *f, int64_t p) {
    for (int64_t column = 0; column < padded_columns(f->columns); column += LANES) {
        const int64_t there = f->columns - column;
        vec taps[9];
        for (int tap = 0; tap < 9; tap++)
            __builtin_prefetch(f->at + tap * f->tap + (p + ROWS_AHEAD) * f->row + column);
        for (int tap = 0; tap < 9; tap++)
            taps[tap] =
                there > 0 ? load_channels(CGP_F32, f->at, tap * f->tap + p * f->row + column, there)
                          : (vec){0};
        store_weights(to, matrix, taps, p, column, f->k);
    }
}

/* Transform up to LANES rows of a filter whose rows are stored as columns. The taps are read in
 * reverse order. */
static void weights_of_columns(float *to, int64_t matrix, const cgp__winograd_filter *f, int64_t p,
                               int64_t n) {
    for (int64_t column = 0; column < padded_columns(f->columns); column += LANES) {
        const int64_t left = f->columns - column, some = left < LANES ? left : LANES;
        vec taps[9][LANES];
        for (int tap = 0; tap < 9; tap++)
            load_transposed(CGP_F32, taps[8 - tap], f->at, tap * f->tap + column * f->row + p,
                            f->row, some < 0 ? 0 : some, n);
        for (int64_t q = 0; q < n; q++) {
            vec w[9];
            for (int tap = 0; tap < 9; tap++)
                __builtin_prefetch(f->at + tap * f->tap + (column + q) * f->row + p + 2 * LANES);
            for (int tap = 0; tap < 9; tap++)
                w[tap] = taps[tap][q];
            store_weights(to, matrix, w, p + q, column, f->k);
        }
    }
}

void CGP__CPU_NAME(winograd_weights)(float *to, int64_t matrix, const cgp__winograd_filter *filter,
                                     int64_t begin, int64_t end) {
    for (int64_t p = begin; !filter->turned && p < end; p++)
        weights_of_rows(to, matrix, filter, p);
    for (int64_t p = begin; filter->turned && p < end; p += LANES)
        weights_of_columns(to, matrix, filter, p, end - p < LANES ? end - p : LANES);
}

/* Multiply four elements by G^T. */
INLINE void narrow_four(vec to[3], const vec u[SIDE]) {
    to[0] = u[0] + 0.5f * (u[1] + u[2]);
    to[1] = 0.5f * (u[1] - u[2]);
    to[2] = 0.5f * (u[1] + u[2]) + u[3];
}

void CGP__CPU_NAME(winograd_weights_back)(float *dw, int64_t tap, const float *from, int64_t matrix,
                                          int64_t begin, int64_t end, bool add) {
    for (int64_t i = begin; i < end; i += LANES) {
        const int64_t n = end - i;
        vec half[3][SIDE];
        for (int j = 0; j < SIDE; j++) {
            vec u[SIDE], three[3];
            for (int k = 0; k < SIDE; k++)
                u[k] = load_channels(CGP_F32, from, (k * SIDE + j) * matrix + i, n);
            narrow_four(three, u);
            for (int k = 0; k < 3; k++)
                half[k][j] = three[k];
        }
        for (int k = 0; k < 3; k++) {
            vec three[3];
            narrow_four(three, half[k]);
            for (int j = 0; j < 3; j++) {
                float *at = dw + (k * 3 + j) * tap + i;
                __builtin_prefetch(at + ELEMENTS_AHEAD, 1);
                const vec sum = add ? load_channels(CGP_F32, at, 0, n) + three[j] : three[j];
                store_channels(CGP_F32, at, 0, sum, n);
            }
        }
    }
}
