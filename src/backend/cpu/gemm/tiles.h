/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.h -- GEMM of bf16 by bf16, summed in f32. It uses AMX tiles or AVX512_BF16 vectors; the
 * results of the two are bit-identical.
 *
 * f32 operands are rounded to bf16 when they are packed. A sum starts at 0 and runs over the k
 * indices of a block, in steps of 32:
 *
 *     even = sum of a[2 p] b[2 p]     odd = sum of a[2 p + 1] b[2 p + 1]     p = 0 .. 15, in order
 *     sum := sum + (even + odd)
 *
 * Then c = sum + bias + the value to which the product is added. Each operation rounds to nearest
 * even. Denormal operands and results count as 0, except in the formula of c if c is f32. The depth
 * k is padded with zeros. An element is thus a function of its row of `a`, its column of `b` and
 * the value to which the product is added. */
#ifndef CGP_SRC_CPU_TILES_H
#define CGP_SRC_CPU_TILES_H

#include "backend/cpu/gemm/block.h"

/* Number of rows in a panel of `a`, of columns in a micro-panel of `b`, and of k indices in a step.
 * A panel times a micro-panel gives 2 x 2 tiles of c. */
#define CGP__TILE_SIDE 32
/* Maximum depth of b that is packed at a time. */
#define CGP__TILE_KC 512

/* Lines are rows of `a` or columns of `b`. The elements of a line along k lie in runs of `length`.
 * `per` runs, `inner` elements apart, form a group; groups are `outer` elements apart. */
typedef struct cgp__tile_lines {
    cgp_dtype type;
    const void *at;
    /* Offset of each line from `at`, in elements; NULL: lines are `line` elements apart. */
    const int64_t *lines;
    int64_t line;
    int64_t length, per, inner, outer;
} cgp__tile_lines;

/* c [rows, columns] = from + a [rows, k] b [k, columns] + bias [columns]. */
typedef struct cgp__tile_block {
    int64_t rows, columns, k;
    /* Operand `a`, packed by pack_a(), pack_lines() or pack_turned(), which are described below. */
    const uint16_t *a;
    /* Operand `b`, f32 or bf16. */
    cgp__matrix b;
    /* If not NULL, this field replaces `b`: micro-panels packed by pack_b() or pack_lines(),
     * `packed_stride` elements apart. */
    const uint16_t *packed_b;
    int64_t packed_stride;
    /* NULL: no bias. */
    const float *bias;
    /* The matrix to add. Its columns are contiguous, and it may be c itself. If from.at is NULL,
     * nothing is added. */
    cgp__matrix from;
    /* Type of c. */
    cgp_dtype type;
    void *c;
    /* Number of elements from one row of c to the next. */
    int64_t stride;
    /* [rows] Offset of each row, in elements. NULL: rows are `stride` apart. */
    const int64_t *c_rows, *from_rows;
} cgp__tile_block;

typedef struct cgp__cpu_tiles {
    /* Pack `rows` rows of a matrix into full panels, with k rounded up and zeros outside the
     * matrix. */
    void (*pack_a)(uint16_t *to, const cgp__matrix *a, int64_t rows, int64_t k);
    /* Pack `columns` columns of b into full micro-panels, with the same padding. */
    void (*pack_b)(uint16_t *to, const cgp__matrix *b, int64_t columns, int64_t k);
    /* Pack lines first .. first + count - 1, starting at k = q. Lines are rows of `a` or, if
     * `pairs` is set, columns of `b`. */
    void (*pack_lines)(uint16_t *to, const cgp__tile_lines *from, int64_t first, int64_t count,
                       int64_t q, int64_t k, bool pairs);
    /* Pack the transpose: the rows of `a` are elements first .. first + rows - 1 of the k lines
     * whose offsets are in from->lines. */
    void (*pack_turned)(uint16_t *to, const cgp__tile_lines *from, int64_t first, int64_t rows,
                        int64_t k);
    /* Compute columns begin .. end - 1; `begin` must be the first column of a micro-panel.
     * `scratch` has cgp__tile_scratch_bytes() bytes. */
    void (*columns)(const cgp__tile_block *block, int64_t begin, int64_t end, void *scratch);
} cgp__cpu_tiles;

/* Return the bytes of scratch for `rows` rows of a micro-panel. The scratch holds the sums of these
 * rows, and the packed part of the micro-panel. */
static inline int64_t cgp__tile_scratch_bytes(int64_t rows, int64_t k) {
    const int64_t side = CGP__TILE_SIDE, depth = cgp__min(k, CGP__TILE_KC);
    return cgp__ceil_div(rows, side) * side * side * (int64_t)sizeof(float) +
           cgp__ceil_div(depth, side) * side * side * (int64_t)sizeof(uint16_t);
}

/* All of b [k, columns], to be packed. It is a matrix or, if b is made of taps, lines along k. */
typedef struct cgp__tile_packing {
    const cgp__cpu_tiles *tiles;
    cgp__matrix b;
    /* If lines.length > 0, these lines of b along k are packed instead of the matrix `b`. */
    cgp__tile_lines lines;
    int64_t columns, k;
    uint16_t *to;
} cgp__tile_packing;

/* Return the bytes of packed b, which consists of full micro-panels and full steps. The size is the
 * same for every instruction set; the order of elements is not. */
int64_t cgp__tiles_packed_bytes(int64_t columns, int64_t k);

/* Pack b on the threads of a device. */
void cgp__tiles_pack(cgp_device *device, const cgp__tile_packing *packing);

extern const cgp__cpu_tiles cgp__cpu_tiles_v4_bf16, cgp__cpu_tiles_amx;

#endif
