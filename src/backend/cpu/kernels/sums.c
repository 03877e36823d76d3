/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c -- sums of two tensors, sums over the rows of a matrix, and dot products of rows.
 *
 *     y = a + b          sum[c] = or += ((P0 + P1) + P2) + ...          out[i] = a[i] . b[i]
 *
 * Each P is the sum of 64 rows in ascending order, starting from zero. So rounding errors grow more
 * slowly than in one long sum. Columns are independent of each other, so threads divide the
 * columns. */
#include "backend/cpu/kernels/rows.h"

INLINE void add(cgp_dtype type, cgp_dtype b_type, void *y, const void *a, const void *b,
                int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_as(type, y, i, load_as(type, a, i) + load_as(b_type, b, i));
    if (i == n) return;
    const vec sum = load_part_as(type, a, i, n - i) + load_part_as(b_type, b, i, n - i);
    store_part_as(type, y, i, sum, n - i);
}

/* Call add() for an f32 tensor y. */
INLINE void add_to_f32(cgp_dtype b_type, void *y, const void *a, const void *b, int64_t n) {
    add(CGP_F32, b_type, y, a, b, n);
}

INLINE void add_to_bf16(cgp_dtype b_type, void *y, const void *a, const void *b, int64_t n) {
    add(CGP_BF16, b_type, y, a, b, n);
}

TYPED(add_to_f32, (void *y, const void *a, const void *b, int64_t n), y, a, b, n)
TYPED(add_to_bf16, (void *y, const void *a, const void *b, int64_t n), y, a, b, n)

void CGP__CPU_NAME(add)(cgp_dtype type, void *y, const void *a, cgp_dtype b_type, const void *b,
                        int64_t n) {
    if (type == CGP_F32)
        CALL_TYPED(b_type, add_to_f32, y, a, b, n);
    else
        CALL_TYPED(b_type, add_to_bf16, y, a, b, n);
}

INLINE void convert(cgp_dtype from_type, cgp_dtype to_type, void *to, const void *from, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_as(to_type, to, i, load_as(from_type, from, i));
    if (i < n) store_part_as(to_type, to, i, load_part_as(from_type, from, i, n - i), n - i);
}

void CGP__CPU_NAME(convert)(cgp_dtype to_type, void *to, cgp_dtype from_type, const void *from,
                            int64_t n) {
    if (to_type == from_type)
        memcpy(to, from, (size_t)n * (to_type == CGP_BF16 ? 2 : 4));
    else if (to_type == CGP_F32)
        convert(CGP_BF16, CGP_F32, to, from, n);
    else
        convert(CGP_F32, CGP_BF16, to, from, n);
}

#define CHUNK 1024 /* number of columns whose partial and total sums fit the L1 cache */

/* For the first block, copy `partial` to `whole`; for later blocks, add it. Then clear `partial`.
 * Columns are padded to LANES. */
static void end_block(float *whole, float *partial, int64_t width, bool first) {
    const vec zero = {0};
    for (int64_t c = 0; c < width; c += LANES) {
        const vec sum = load(partial + c);
        store(whole + c, first ? sum : load(whole + c) + sum);
        store(partial + c, zero);
    }
}

INLINE void sum_rows(cgp_dtype type, float *sum, const void *x, int64_t rows, int64_t width,
                     int64_t stride, bool adds) {
    float partial[CHUNK] = {0}, whole[CHUNK];
    for (int64_t begin = 0; begin < width; begin += CHUNK) {
        const int64_t columns = width - begin < CHUNK ? width - begin : CHUNK;
        for (int64_t row = 0; row < rows; row += CGP__CPU_BLOCK) {
            const int64_t left = rows - row;
            add_block(type, partial, cgp__cpu_at(type, x, row * stride + begin),
                      left < CGP__CPU_BLOCK ? left : CGP__CPU_BLOCK, columns, stride);
            end_block(whole, partial, columns, row == 0);
        }
        if (adds)
            add(CGP_F32, CGP_F32, sum + begin, sum + begin, whole, columns);
        else
            memcpy(sum + begin, whole, (size_t)columns * sizeof *sum);
    }
}

TYPED(sum_rows, (float *sum, const void *x, int64_t rows, int64_t width, int64_t stride, bool add),
      sum, x, rows, width, stride, add)

void CGP__CPU_NAME(sum_rows)(float *sum, cgp_dtype type, const void *x, int64_t rows, int64_t width,
                             int64_t stride, bool add) {
    CALL_TYPED(type, sum_rows, sum, x, rows, width, stride, add);
}

/* If `add_to` is set, add the rows (gradients) to `to`; otherwise copy them without changing a
 * bit. */
void CGP__CPU_NAME(copy_rows)(cgp_dtype type, void *to, int64_t to_stride, const void *from,
                              int64_t from_stride, int64_t rows, int64_t width, bool add_to) {
    for (int64_t row = 0; row < rows; row++) {
        void *t = cgp__cpu_at(type, to, row * to_stride);
        const void *f = cgp__cpu_at(type, from, row * from_stride);
        if (add_to)
            CGP__CPU_NAME(add)(type, t, t, type, f, width);
        else
            memcpy(t, f, (size_t)width * (type == CGP_BF16 ? 2 : 4));
    }
}

INLINE void dots(cgp_dtype type, float *out, const void *a, const void *b, int64_t rows,
                 int64_t width, int64_t stride) {
    for (int64_t row = 0; row < rows; row++) {
        const int64_t end = row * stride + width;
        vec sum = {0};
        int64_t i = row * stride;
        for (; i + LANES <= end; i += LANES)
            sum += load_as(type, a, i) * load_as(type, b, i);
        if (i < end) sum += load_part_as(type, a, i, end - i) * load_part_as(type, b, i, end - i);
        out[row] = sum_lanes(sum);
    }
}

void CGP__CPU_NAME(row_dots)(float *out, cgp_dtype type, const void *a, const void *b, int64_t rows,
                             int64_t width, int64_t stride) {
    FOR_TYPE(type, dots, out, a, b, rows, width, stride);
}

#define SQUARES 16 /* number of independent sums, the same for every vector width */

void CGP__CPU_NAME(sum_squares)(double *sum, const float *x, int64_t n) {
    double sums[SQUARES] = {0};
    int64_t i = 0;
    for (; i + SQUARES <= n; i += SQUARES) {
        for (int k = 0; k < SQUARES; k++)
            sums[k] += (double)x[i + k] * (double)x[i + k];
    }
    for (int k = 0; i + k < n; k++)
        sums[k] += (double)x[i + k] * (double)x[i + k];
    *sum = 0;
    for (int k = 0; k < SQUARES; k++)
        *sum += sums[k];
}

/* Find values that are not finite: their exponent has all bits set. */
void CGP__CPU_NAME(find_nonfinite)(int64_t *at, const float *x, int64_t n) {
    const ivec exponent = (ivec){0} + 0x7f800000;
    ivec any = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        any |= ((ivec)load(x + i) & exponent) == exponent;
    any |= ((ivec)load_part(x + i, n - i) & exponent) == exponent;
    *at = -1;
    bool found = false;
    for (int k = 0; k < LANES; k++)
        found = found || any[k];
    for (i = 0; found && *at < 0; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        if ((bits & 0x7f800000) == 0x7f800000) *at = i;
    }
}
