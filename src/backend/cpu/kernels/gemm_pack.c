/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_pack.c -- packing for the GEMM: rows of `a` into micro-panels [k][MR], columns of `b` into
 * micro-panels [k][NR]. */
#include "backend/cpu/kernels/gemm_pack.h"

/* Number of k indices in a run, for contiguous rows and for contiguous columns. All rows of `a` are
 * packed for one run of k before the next run. */
#define RUN_OF_ROWS 64
#define RUN_OF_COLUMNS 8

/* Store a vector of LANES rows at one k in a micro-panel, or in two micro-panels of LANES / 2
 * rows. */
INLINE void store_rows(float *to, vec x, int64_t panel) {
#if MICRO_ROWS < LANES
    const halfvec low = LOW_HALF(x), high = HIGH_HALF(x);
    memcpy(to, &low, sizeof low);
    memcpy(to + panel, &high, sizeof high);
#else
    (void)panel;
    store(to, x);
#endif
}

/* packed_row() returns the address of row i at k = 0, in consecutive micro-panels [k][MR]; i is a
 * multiple of LANES. rows_there() returns the number of rows that exist among rows i .. i + LANES
 * - 1, if the matrix has `rows` rows. */
INLINE float *packed_row(float *to, int64_t i, int64_t k) {
    return MR < LANES ? to + i * k : to + i / MR * MR * k + i % MR;
}

INLINE int64_t rows_there(int64_t rows, int64_t i) {
    return rows - i < 0 ? 0 : rows - i < LANES ? rows - i : LANES;
}

/* Return the number of rows, including the padding of the last micro-panel. This number is a
 * multiple of LANES. */
INLINE int64_t padded_rows(int64_t rows) {
    return MR < LANES ? rows : (rows + MR - 1) / MR * MR;
}

/* Pack elements `from` .. `end` - 1 of LANES rows of `a`. Only `there` of these rows exist; the
 * others are zero. */
INLINE void pack_run(cgp_dtype type, float *to, int64_t panel, const cgp__matrix *a, int64_t first,
                     int64_t there, int64_t from, int64_t end) {
    for (int64_t p = from; a->column != 1 && p < end; p++) {
        const int64_t at = first + p * a->column;
        const vec x =
            there == LANES ? load_as(type, a->at, at) : load_part_as(type, a->at, at, there);
        store_rows(to + p * MR, x, panel);
    }
    for (int64_t p = from; a->column == 1 && p < end; p += LANES) {
        const int64_t n = end - p < LANES ? end - p : LANES;
        vec r[LANES];
        load_transposed(type, r, a->at, first + p, a->row, there, n);
        for (int64_t q = 0; q < n; q++)
            store_rows(to + (p + q) * MR, r[q], panel);
    }
}

/* Pack rows of `a`, LANES at a time, into consecutive micro-panels [k][MR]; missing rows are zero.
 * All rows of a run of k are packed before the next run. So contiguous columns are read along
 * memory, which is fast. A run has only few columns, because each column may lie in a different
 * page. */
INLINE void pack_rows(cgp_dtype type, float *to, const cgp__matrix *a, int64_t rows, int64_t k) {
    const int64_t panel = k * MR, run = a->column == 1 ? RUN_OF_ROWS : RUN_OF_COLUMNS;
    for (int64_t p = 0; p < k; p += run)
        for (int64_t i = 0; i < padded_rows(rows); i += LANES)
            pack_run(type, packed_row(to, i, k), panel, a, i * a->row, rows_there(rows, i), p,
                     k - p < run ? k : p + run);
}

void CGP__CPU_NAME(gemm_pack_a)(float *to, const cgp__matrix *a, int64_t rows, int64_t k) {
    FOR_TYPE(a->type, pack_rows, to, a, rows, k);
}

/* Pack windows as columns of `a`. The rows of `a` are contiguous within a window. Copy LANES rows
 * from each window, one window after the other. */
void CGP__CPU_NAME(gemm_pack_windows)(float *to, const float *at, const int64_t *windows,
                                      int64_t count, int64_t first, int64_t rows) {
    const int64_t panel = count * MR;
    for (int64_t i = 0; i < padded_rows(rows); i += LANES) {
        float *const row = packed_row(to, i, count);
        const int64_t there = rows_there(rows, i);
        const float *from = at + first + i;
        for (int64_t p = 0; there == LANES && p < count; p++)
            store_rows(row + p * MR, load(from + windows[p]), panel);
        for (int64_t p = 0; there < LANES && p < count; p++)
            store_rows(row + p * MR, load_part(from + windows[p], there), panel);
    }
}

void CGP__CPU_NAME(gemm_pack_b)(float *to, const cgp__matrix *b, int64_t columns, int64_t k) {
    for (int64_t j = 0; j < columns; j += NR) {
        const cgp__matrix panel = cgp__matrix_from(*b, 0, j);
        pack_columns(to + j * k, &panel, columns - j < NR ? columns - j : NR, k);
    }
}
