/* SPDX-License-Identifier: Apache-2.0 */
/* amx.c -- GEMM in bf16 on AMX: c [m, n] = a [m, k] b [k, n], for a block of rows of `a` and a
 * range of columns of `b`.
 *
 *              a, packed                    b, packed                        c
 *         k  0..31       32..63        k    micro-panel, 32 columns     +----+----+
 *          +----+----   +----          0,1  | c0 k0 k1 | c1 k0 k1 |..   | t0 | t1 |   16 rows
 *   rows   | t4 | ..    | t4           2,3  |          |          |     +----+----+
 *   0..15  +----+       +----           :   +----- t6 -+----- t7 -+     | t2 | t3 |   16 rows
 *   16..31 | t5 |       | t5          30,31                             +----+----+
 *          +----+       +----                                           16 columns each
 *
 *
 * A tile is 16 rows of 64 bytes. A tile of `a` has 16 rows and 32 columns (k indices). A tile of
 * `b` has 16 pairs of k indices by 16 columns. A tile of `c` has 16 rows and 16 columns of f32. A
 * panel of `a` has 32 rows, and a micro-panel of `b` has 32 columns. Each step of 32 k indices
 * loads four tiles and multiplies four times. Tiles at the edges are padded with zeros, computed in
 * full and stored in part.
 *
 * The thread that runs a range configures the tiles when the range begins, and releases them when
 * it ends. So between calls, the system has no tile state to save. */
#define FIRST(p) (2 * (p))
#define SECOND(p) (2 * (p) + 1)
#define in_pairs(x) (x)

#include "backend/cpu/kernels/bf16/range.h"

#define TILE_BYTES LINE /* bytes in a row of a tile */

typedef struct __attribute__((packed)) configuration {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} configuration;
_Static_assert(sizeof(configuration) == 64, "as the processor reads it");

static void begin_range(void) {
    configuration c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = TILE_BYTES;
        c.rows[i] = TILE_ROWS;
    }
    MEMORY();
    _tile_loadconfig(&c);
}

static void end_range(void) {
    _tile_release();
}

static void multiply(square sums, bool add, const uint16_t *a, int64_t rows, const uint16_t *b,
                     int64_t steps, prefetches *prefetch) {
    const int64_t row = sizeof sums[0];
    (void)rows;
    MEMORY();
    if (add) {
        _tile_loadd(0, &sums[0][0], row);
        _tile_loadd(1, &sums[0][TILE_ROWS], row);
        _tile_loadd(2, &sums[TILE_ROWS][0], row);
        _tile_loadd(3, &sums[TILE_ROWS][TILE_ROWS], row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t step = 0; step < steps; step++, a += 2 * TILE_WORDS, b += 2 * TILE_WORDS) {
        _tile_loadd(4, a, TILE_BYTES);
        _tile_loadd(6, b, TILE_BYTES);
        _tile_loadd(5, a + TILE_WORDS, TILE_BYTES);
        _tile_loadd(7, b + TILE_WORDS, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        prefetch_some(&prefetch->b, 0);
        prefetch_some(&prefetch->c, 1);
    }
    _tile_stored(0, &sums[0][0], row);
    _tile_stored(1, &sums[0][TILE_ROWS], row);
    _tile_stored(2, &sums[TILE_ROWS][0], row);
    _tile_stored(3, &sums[TILE_ROWS][TILE_ROWS], row);
    MEMORY();
}

const cgp__cpu_tiles cgp__cpu_tiles_amx = {pack_a, pack_b, pack_lines, pack_turned, run_columns};
