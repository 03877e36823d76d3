/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_pack.h -- the size of the GEMM's micro-tile, and functions that pack b into micro-panels. */
#ifndef CGP_SRC_CPU_GEMM_PACK_H
#define CGP_SRC_CPU_GEMM_PACK_H

#include "backend/cpu/gemm/block.h"
#include "backend/cpu/kernels/load_transposed.h"

#define MR MICRO_ROWS
#define NR MICRO_COLUMNS
#define NV (NR / LANES)
_Static_assert(CGP__GEMM_NR % NR == 0 && CGP__GEMM_MR % LANES == 0, "blocks are full micro-panels");

/* Copy `columns` <= NR elements of a row of b to NR floats; missing columns are zero. */
INLINE void copy_row(cgp_dtype type, float *to, const void *from, int64_t columns) {
    if (columns == NR) {
        UNROLL for (int j = 0; j < NR; j += LANES) store(to + j, load_as(type, from, j));
        return;
    }
    UNROLL for (int j = 0; j < NR; j += LANES) {
        const int64_t there = columns - j;
        store(to + j, there >= LANES ? load_as(type, from, j)
                      : there > 0    ? load_part_as(type, from, j, there)
                                     : (vec){0});
    }
}

/* Pack k rows of `columns` <= NR columns of b to [k][NR]. */
INLINE void pack_columns_as(cgp_dtype type, float *to, const cgp__matrix *b, int64_t columns,
                            int64_t k) {
    int64_t p = 0;
    for (; b->column == 1 && p < k; p++)
        copy_row(type, to + p * NR, cgp__cpu_at(type, b->at, p * b->row), columns);
    for (; p < k; p += LANES) {
        const int64_t n = k - p < LANES ? k - p : LANES;
        for (int64_t j = 0; j < columns; j += LANES) {
            const int64_t there = columns - j < LANES ? columns - j : LANES;
            vec r[LANES];
            load_transposed(type, r, b->at, p + j * b->column, b->column, there, n);
            for (int64_t q = 0; q < n; q++)
                store(to + (p + q) * NR + j, r[q]);
        }
    }
}

static void pack_columns(float *to, const cgp__matrix *b, int64_t columns, int64_t k) {
    FOR_TYPE(b->type, pack_columns_as, to, b, columns, k);
}

#endif
