/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.c -- macro-kernel of a GEMM with one row (GEMV): c [n] = a [k] b [k, n], or c += the
 * product, for a range of columns of b.
 *
 * b is read once, so memory bandwidth limits the speed, and packing would not pay. An element of c
 * is computed by the same chain as in gemm.c: FMAs over k in order, then the bias, then the value
 * to which the product is added.
 *
 *     contiguous columns (a weight [out, in])   2 LANES columns at a time, loaded and transposed
 *     contiguous rows (a weight [in, out])      ROWS rows at a time, CHUNK sums in the L1 cache */
#include "backend/cpu/gemm/block.h"
#include "backend/cpu/kernels/load_transposed.h"

#define GROUPS 2
#define ROWS 8
#define CHUNK 1024
_Static_assert(CHUNK <= 2 * 16 * CGP__GEMM_NR, "sums fit the micro-panels of the least k");

/* Return element p of `a`. */
INLINE float row_at(const cgp__block *block, int64_t p) {
    return block->rows_at ? block->rows_at[p] : block->a[p * MICRO_ROWS];
}

/* Finish n <= LANES elements of c, starting at column j: add bias and `from`, and store. */
INLINE void finish(const cgp__block *block, int64_t j, vec sum, int64_t n) {
    if (block->bias) sum += load_part(block->bias + j, n);
    if (block->from.at) sum += load_part_as(block->from.type, block->from.at, j, n);
    store_part_as(block->type, block->c, j, sum, n);
}

/* --- contiguous columns --- */

/* Compute two vectors of columns, starting at j, or the columns up to `end` if fewer remain. */
INLINE void dot_columns(cgp_dtype type, const cgp__block *block, int64_t j, int64_t end) {
    const int64_t stride = block->b.column, k = block->k;
    vec sums[GROUPS] = {{0}};
    for (int64_t p = 0; p < k; p += LANES) {
        const int64_t n = k - p < LANES ? k - p : LANES;
        for (int g = 0; g < GROUPS && j + g * LANES < end; g++) {
            const int64_t first = j + g * LANES, left = end - first;
            const int64_t at = p + first * stride;
            vec r[LANES];
            for (int i = 0; i < LANES; i++) /* prefetch the same rows of the next columns */
                __builtin_prefetch(
                    cgp__cpu_at(type, block->b.at, at + (GROUPS * LANES + i) * stride), 0, 2);
            load_transposed(type, r, block->b.at, at, stride, left < LANES ? left : LANES, n);
            if (n == LANES)
                UNROLL for (int q = 0; q < LANES; q++) sums[g] =
                    multiply_add(splat(row_at(block, p + q)), r[q], sums[g]);
            else
                for (int64_t q = 0; q < n; q++)
                    sums[g] = multiply_add(splat(row_at(block, p + q)), r[q], sums[g]);
        }
    }
    for (int g = 0; g < GROUPS && j + g * LANES < end; g++) {
        const int64_t left = end - j - g * LANES;
        finish(block, j + g * LANES, sums[g], left < LANES ? left : LANES);
    }
}

INLINE void columns_of(cgp_dtype type, const cgp__block *block, int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += GROUPS * LANES)
        dot_columns(type, block, j, end);
}

/* --- contiguous rows --- */

/* Multiply rows p .. p + ROWS - 1 of `b` by elements of `a`, and add the products to `sums`, for
 * `count` <= CHUNK columns starting at column j. */
INLINE void add_rows(cgp_dtype type, float *sums, const cgp__block *block, int64_t p, int64_t j,
                     int64_t count) {
    const int64_t stride = block->b.row, at = p * stride + j;
    vec x[ROWS];
    UNROLL for (int q = 0; q < ROWS; q++) x[q] = splat(row_at(block, p + q));
    int64_t c = 0;
    for (; c + LANES <= count; c += LANES) {
        vec sum = load(sums + c);
        UNROLL for (int q = 0; q < ROWS; q++) sum =
            multiply_add(x[q], load_as(type, block->b.at, at + q * stride + c), sum);
        store(sums + c, sum);
    }
    if (c == count) return;
    vec sum = load(sums + c);
    UNROLL for (int q = 0; q < ROWS; q++) sum =
        multiply_add(x[q], load_part_as(type, block->b.at, at + q * stride + c, count - c), sum);
    store(sums + c, sum);
}

/* Multiply row p of `b` by element p of `a`, and add the products to `sums`, for `count` columns
 * starting at column j. */
INLINE void add_row(cgp_dtype type, float *sums, const cgp__block *block, int64_t p, int64_t j,
                    int64_t count) {
    const int64_t at = p * block->b.row + j;
    const vec x = splat(row_at(block, p));
    for (int64_t c = 0; c < count; c += LANES) {
        const int64_t n = count - c < LANES ? count - c : LANES;
        store(sums + c,
              multiply_add(x, load_part_as(type, block->b.at, at + c, n), load(sums + c)));
    }
}

INLINE void rows_of(cgp_dtype type, const cgp__block *block, int64_t begin, int64_t end,
                    float *sums) {
    for (int64_t j = begin; j < end; j += CHUNK) {
        const int64_t count = end - j < CHUNK ? end - j : CHUNK;
        int64_t p = 0;
        for (int64_t c = 0; c < count; c += LANES)
            store(sums + c, (vec){0});
        for (; p + ROWS <= block->k; p += ROWS)
            add_rows(type, sums, block, p, j, count);
        for (; p < block->k; p++)
            add_row(type, sums, block, p, j, count);
        for (int64_t c = 0; c < count; c += LANES)
            finish(block, j + c, load(sums + c), count - c < LANES ? count - c : LANES);
    }
}

TYPED(columns_of, (const cgp__block *block, int64_t begin, int64_t end), block, begin, end)
TYPED(rows_of, (const cgp__block *block, int64_t begin, int64_t end, float *sums), block, begin,
      end, sums)

void CGP__CPU_NAME(gemv_columns)(const cgp__block *block, int64_t begin, int64_t end, float *sums) {
    if (block->b.column == 1)
        CALL_TYPED(block->b.type, rows_of, block, begin, end, sums);
    else
        CALL_TYPED(block->b.type, columns_of, block, begin, end);
}
