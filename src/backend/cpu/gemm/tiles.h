/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.h -- GEMM of bf16 by bf16, summed in f32, on the tiles of AMX or, to the same bits, by vectors of AVX512_BF16.
 *
 * Operands in f32 are rounded to bf16 as they are packed. A sum is a chain over the k of a block, 32 deep at a time, from 0 on:
 *
 *     even = sum of a[2 p] b[2 p]      odd = sum of a[2 p + 1] b[2 p + 1]      p = 0 .. 15, in order
 *     sum := sum + (even + odd)
 *
 * then c = sum + bias + the value it is added to. Each of these operations rounds to nearest even; denormal operands and
 * results are 0, except for the sums of the last line where c is f32. Beyond the end of k there are zeros. An element is thus a
 * function of its row of a, its column of b and the value it is added to. */
#ifndef CGP_SRC_CPU_TILES_H
#define CGP_SRC_CPU_TILES_H

#include "backend/cpu/kernels.h"

/* Rows of a panel of a, columns of a micro-panel of b, depth of a step: two tiles by two. */
#define CGP__TILE_SIDE 32
/* Depth of b that is packed at a time, at most. */
#define CGP__TILE_KC 512

/* c [rows, columns] = from + a [rows, k] b [k, columns] + bias [columns]. */
typedef struct cgp__tile_block {
    int64_t rows, columns, k;
    /* Packed by pack_a() below. */
    const uint16_t *a;
    /* f32 or bf16. */
    cgp__matrix b;
    /* NULL: none. */
    const float *bias;
    /* Its columns are contiguous; may be c. at == NULL: nothing is added. */
    cgp__matrix from;
    /* Of c. */
    cgp_dtype type;
    void *c;
    /* Elements from row to row of c. */
    int64_t stride;
} cgp__tile_block;

typedef struct cgp__cpu_tiles {
    /* Pack `rows` rows of a matrix to whole panels, k rounded up; zeros where the matrix has nothing. */
    void (*pack_a)(uint16_t *to, const cgp__matrix *a, int64_t rows, int64_t k);
    /* Columns begin .. end - 1, begin at a micro-panel; scratch: cgp__tile_scratch_bytes(). */
    void (*columns)(const cgp__tile_block *block, int64_t begin, int64_t end, void *scratch);
} cgp__cpu_tiles;

/* Sums of a micro-panel's columns for `rows` rows, and the packed part of the micro-panel. */
static inline int64_t cgp__tile_scratch_bytes(int64_t rows, int64_t k) {
    const int64_t side = CGP__TILE_SIDE, depth = cgp__min(k, CGP__TILE_KC);
    return cgp__ceil_div(rows, side) * side * side * (int64_t)sizeof(float) +
           cgp__ceil_div(depth, side) * side * side * (int64_t)sizeof(uint16_t);
}

extern const cgp__cpu_tiles cgp__cpu_tiles_v4_bf16, cgp__cpu_tiles_amx;

#endif
