/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.h -- products of bf16 by bf16, summed in f32, on the tiles of AMX.
 *
 * What is multiplied is rounded to bf16 as it is packed, unless it is bf16 already. A sum is a chain over the k of a block,
 * 32 deep at a time, from 0 on:
 *
 *     even = sum of a[2 p] b[2 p]      odd = sum of a[2 p + 1] b[2 p + 1]      p = 0 .. 15, in order
 *     sum := sum + (even + odd)
 *
 * and then c = sum + bias + what it is added to. Each of these operations is rounded to the nearest, halfway to even; denormal operands
 * and results are 0, but for the sums of the last line where c is f32. Beyond the end of k there are zeros. So an element is a function of its
 * row of a, its column of b and what it is added to. */
#ifndef CGP_SRC_CPU_TILES_H
#define CGP_SRC_CPU_TILES_H

#include "backend/cpu/kernels.h"

/* Rows of a panel of a, columns of a sliver of b, depth of a step: two tiles by two. */
#define CGP__TILE_SIDE 32
/* Depth of b that is packed at a time, at most. */
#define CGP__TILE_DEPTH 512

/* c [rows, columns] = from + a [rows, k] b [k, columns] + bias [columns]. */
typedef struct cgp__tile_block {
    int64_t rows, columns, k;
    const uint16_t *a; /* packed by `rows` below */
    cgp__matrix b;     /* of f32 or bf16 */
    const float *bias; /* NULL: none */
    cgp__matrix from;  /* its columns are contiguous; may be c. at == NULL: nothing is added */
    cgp_dtype type;    /* of c */
    void *c;
    int64_t stride; /* elements from row to row of c */
} cgp__tile_block;

typedef struct cgp__cpu_tiles {
    /* `rows` rows of a matrix to whole panels of k rounded up, zeros where there is nothing. */
    void (*rows)(uint16_t *to, const cgp__matrix *a, int64_t rows, int64_t k);
    /* Columns begin .. end - 1, begin a multiple of a sliver's; room: cgp__tile_capacity(). */
    void (*columns)(const cgp__tile_block *block, int64_t begin, int64_t end, void *capacity);
} cgp__cpu_tiles;

/* Bytes: sums of a sliver's columns for so many rows, and as much of the sliver as is packed at a time. */
static inline int64_t cgp__tile_capacity(int64_t rows, int64_t k) {
    const int64_t side = CGP__TILE_SIDE, max = k < CGP__TILE_DEPTH ? k : CGP__TILE_DEPTH;
    return cgp__ceil_div(rows, side) * side * side * (int64_t)sizeof(float) +
           cgp__ceil_div(max, side) * side * side * (int64_t)sizeof(uint16_t);
}

extern const cgp__cpu_tiles cgp__cpu_tiles_amx;

#endif
