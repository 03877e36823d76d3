/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.c -- c [m, n] = a [m, k] b [k, n] in bf16 on AMX: a block of rows of a by a range of columns of b.
 *
 *              a, packed                    b, packed                        c
 *         k  0..31       32..63        k    micro-panel, 32 columns     +----+----+
 *          +----+----   +----          0,1  | c0 k0 k1 | c1 k0 k1 |..   | t0 | t1 |   16 rows
 *   rows   | t4 | ..    | t4           2,3  |          |          |     +----+----+
 *   0..15  +----+       +----           :   +----- t6 -+----- t7 -+     | t2 | t3 |   16 rows
 *   16..31 | t5 |       | t5          30,31                             +----+----+
 *          +----+       +----                                           16 columns each
 *
 * A tile is 16 rows of 64 bytes: of a 16 rows by 32 of k, of b 16 pairs of k by 16 columns, of c 16 rows by 16 columns of f32.
 * A panel of a is 32 rows, a micro-panel of b 32 columns: each step of 32 of k loads four tiles and multiplies four
 * times. Tiles are computed whole, on zeros at the edges, and stored in part.
 *
 * A range configures the tiles at its beginning and releases them at its end, on the thread that runs it: between calls no
 * thread has tile state for the system to save.
 *
 * Packing along k rounds 32 of a row and is done for a; across k it rounds two rows into pairs and is done for b. In the
 * opposite layouts a square of 16 x 16 pairs is transposed. */
#include "backend/cpu/gemm/tiles.h"
#include "backend/cpu/kernels/prefetch.h"

#define SIDE CGP__TILE_SIDE
#define TILE_ROWS 16
#define TILE_WORDS (TILE_ROWS * SIDE) /* bf16 elements of a tile */
#define TILE_BYTES LINE               /* in a row of a tile */

#define UNROLL _Pragma("GCC unroll 16")

/* Orders memory around the intrinsics, which declare no access to it. */
#define MEMORY() __asm__ volatile("" ::: "memory")

/* --- packing --- */

INLINE __mmask32 halves_below(int64_t n) {
    return n >= SIDE ? 0xFFFFFFFFu : n <= 0 ? 0u : (1u << n) - 1u;
}

INLINE __mmask16 floats_below(int64_t n) {
    return n >= TILE_ROWS ? (__mmask16)0xFFFFu
           : n <= 0       ? (__mmask16)0
                          : (__mmask16)((1u << n) - 1u);
}

/* Two vectors of floats, rounded; `low` in the lower lanes. */
INLINE __m512i round_two(__m512 low, __m512 high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* n <= 32 elements from i on. */
INLINE __m512i load_along(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    if (type == CGP_BF16)
        return _mm512_maskz_loadu_epi16(halves_below(n), (const uint16_t *)from + i);
    const float *at = (const float *)from + i;
    const __m512 low = _mm512_maskz_loadu_ps(floats_below(n), at);
    return round_two(
        low, n > TILE_ROWS ? _mm512_maskz_loadu_ps(floats_below(n - TILE_ROWS), at + TILE_ROWS)
                           : _mm512_setzero_ps());
}

/* Pairs of n <= 16 elements from i on and, if `both`, those `depth` further; otherwise zeros. */
INLINE __m512i load_across(cgp_dtype type, const void *from, int64_t i, int64_t depth,
                           int64_t n, bool both) {
    static const uint16_t interleaved[SIDE] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                               21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                               11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __mmask16 mask = floats_below(n), mask_2 = both ? mask : (__mmask16)0;
    const int64_t j = both ? i + depth : i;
    __m512i x;
    if (type == CGP_BF16) {
        const uint16_t *at = from;
        const __m256i low = _mm256_maskz_loadu_epi16(mask, at + i);
        x = _mm512_inserti64x4(_mm512_castsi256_si512(low),
                               _mm256_maskz_loadu_epi16(mask_2, at + j), 1);
    } else {
        const float *at = from;
        x = round_two(_mm512_maskz_loadu_ps(mask, at + i),
                      _mm512_maskz_loadu_ps(mask_2, at + j));
    }
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(interleaved), x);
}

/* Transpose 16 rows of 16 pairs. */
INLINE void transpose_pairs(__m512i r[TILE_ROWS]) {
    __m512i s[TILE_ROWS];
    UNROLL for (int i = 0; i < TILE_ROWS; i += 2) {
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < TILE_ROWS; i += 4) {
        r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
    /* r[4 g + q] has columns q, 4 + q, 8 + q, 12 + q of rows 4 g .. 4 g + 3. */
    UNROLL for (int q = 0; q < 4; q++) {
        s[q] = _mm512_shuffle_i32x4(r[q], r[4 + q], 0x88);
        s[4 + q] = _mm512_shuffle_i32x4(r[q], r[4 + q], 0xDD);
        s[8 + q] = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0x88);
        s[12 + q] = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0xDD);
    }
    UNROLL for (int q = 0; q < 4; q++) {
        r[q] = _mm512_shuffle_i32x4(s[q], s[8 + q], 0x88);
        r[8 + q] = _mm512_shuffle_i32x4(s[q], s[8 + q], 0xDD);
        r[4 + q] = _mm512_shuffle_i32x4(s[4 + q], s[12 + q], 0x88);
        r[12 + q] = _mm512_shuffle_i32x4(s[4 + q], s[12 + q], 0xDD);
    }
}

/* A matrix of lines (rows of a, columns of b) by k. */
typedef struct source {
    cgp_dtype type;
    const void *at;
    /* Elements from one to the next; one of them is 1. */
    int64_t line, depth;
} source;

/* `count` <= 16 lines by k <= 32 to a tile: rows of a or, as `pairs`, columns of b. */
INLINE void pack_tile(cgp_dtype type, uint16_t *to, const source *from, int64_t i,
                      int64_t count, int64_t k, bool pairs, bool along) {
    __m512i r[TILE_ROWS];
    if (along) {
        UNROLL for (int row = 0; row < TILE_ROWS; row++) r[row] =
            row < count ? load_along(type, from->at, i + row * from->line, k)
                        : _mm512_setzero_si512();
    } else {
        UNROLL for (int p = 0; p < TILE_ROWS; p++) r[p] =
            2 * p < k ? load_across(type, from->at, i + 2 * p * from->depth, from->depth, count,
                                    2 * p + 1 < k)
                      : _mm512_setzero_si512();
    }
    if (along == pairs) transpose_pairs(r);
    UNROLL for (int row = 0; row < TILE_ROWS; row++)
        _mm512_storeu_si512(to + row * SIDE, r[row]);
}

/* `count` <= 32 lines by k, rounded up, to [step][2][tile]. */
INLINE void pack_lines_as(cgp_dtype type, uint16_t *to, const source *from, int64_t count,
                          int64_t k, bool pairs, bool along) {
    for (int64_t q = 0; q < k; q += SIDE)
        for (int64_t line = 0; line < SIDE; line += TILE_ROWS, to += TILE_WORDS) {
            const int64_t i = line * from->line + q * from->depth;
            if (count - line >= TILE_ROWS && k - q >= SIDE)
                pack_tile(type, to, from, i, TILE_ROWS, SIDE, pairs, along);
            else if (count > line)
                pack_tile(type, to, from, i,
                          count - line < TILE_ROWS ? count - line : TILE_ROWS,
                          k - q < SIDE ? k - q : SIDE, pairs, along);
            else
                memset(to, 0, TILE_WORDS * sizeof *to);
        }
}

INLINE void pack_along(cgp_dtype type, uint16_t *to, const source *from, int64_t count,
                       int64_t k, bool pairs) {
    pack_lines_as(type, to, from, count, k, pairs, true);
}

INLINE void pack_across(cgp_dtype type, uint16_t *to, const source *from, int64_t count,
                        int64_t k, bool pairs) {
    pack_lines_as(type, to, from, count, k, pairs, false);
}

static void pack_panel(uint16_t *to, const source *from, int64_t count, int64_t k) {
    if (from->depth == 1)
        FOR_TYPE(from->type, pack_along, to, from, count, k, false);
    else
        FOR_TYPE(from->type, pack_across, to, from, count, k, false);
}

static void pack_micro_panel(uint16_t *to, const source *from, int64_t count, int64_t k) {
    if (from->depth == 1)
        FOR_TYPE(from->type, pack_along, to, from, count, k, true);
    else
        FOR_TYPE(from->type, pack_across, to, from, count, k, true);
}

INLINE int64_t steps_of(int64_t k) {
    return (k + SIDE - 1) / SIDE;
}

static void pack_a(uint16_t *to, const cgp__matrix *a, int64_t rows, int64_t k) {
    for (int64_t i = 0; i < rows; i += SIDE, to += steps_of(k) * 2 * TILE_WORDS) {
        const cgp__matrix panel = cgp__matrix_from(*a, i, 0);
        const source from = {a->type, panel.at, a->row, a->column};
        pack_panel(to, &from, rows - i < SIDE ? rows - i : SIDE, k);
    }
}

/* --- tiles --- */

typedef struct __attribute__((packed)) configuration {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} configuration;
_Static_assert(sizeof(configuration) == 64, "as the processor reads it");

static void configure(void) {
    configuration c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = TILE_BYTES;
        c.rows[i] = TILE_ROWS;
    }
    MEMORY();
    _tile_loadconfig(&c);
}

/* Sums of 32 x 32 elements of c: four tiles. */
typedef float square[SIDE][SIDE];

/* Prefetches of each step: the part of b to be packed next, and the square of c to be stored next. */
typedef struct prefetches {
    prefetch_stream b, c;
} prefetches;

/* sums = or += a panel of a by a micro-panel of b. */
static void multiply(square sums, bool add, const uint16_t *a, const uint16_t *b, int64_t steps,
                     prefetches *prefetch) {
    const int64_t row = sizeof sums[0];
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

/* --- sums to c --- */

/* n <= 16 floats; widening is exact. */
INLINE __m512 load_floats(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    if (type == CGP_F32) return _mm512_maskz_loadu_ps(floats_below(n), (const float *)from + i);
    return (__m512)widen(
        (hvec)_mm256_maskz_loadu_epi16(floats_below(n), (const uint16_t *)from + i));
}

/* The rows <= 32 and columns <= 32 of c in a square. */
typedef struct corner {
    const cgp__tile_block *block;
    int64_t row, column, rows, columns;
} corner;

INLINE void finish_row(cgp_dtype type, const corner *p, int64_t row, const float *sums,
                       int64_t n) {
    const cgp__tile_block *block = p->block;
    const int64_t at = row * block->stride + p->column;
    __m512 low = _mm512_load_ps(sums), high = _mm512_load_ps(sums + TILE_ROWS);
    if (block->bias) {
        low += load_floats(CGP_F32, block->bias, p->column, n);
        high += load_floats(CGP_F32, block->bias, p->column + TILE_ROWS, n - TILE_ROWS);
    }
    if (block->from.at) {
        const cgp__matrix *from = &block->from;
        const int64_t i = row * from->row + p->column;
        low += load_floats(from->type, from->at, i, n);
        high += load_floats(from->type, from->at, i + TILE_ROWS, n - TILE_ROWS);
    }
    if (type == CGP_BF16) {
        _mm512_mask_storeu_epi16((uint16_t *)block->c + at, halves_below(n),
                                 round_two(low, high));
        return;
    }
    _mm512_mask_storeu_ps((float *)block->c + at, floats_below(n), low);
    _mm512_mask_storeu_ps((float *)block->c + at + TILE_ROWS, floats_below(n - TILE_ROWS),
                          high);
}

INLINE void finish_as(cgp_dtype type, const corner *p, square sums) {
    if (p->columns == SIDE) {
        for (int64_t i = 0; i < p->rows; i++)
            finish_row(type, p, p->row + i, sums[i], SIDE);
        return;
    }
    for (int64_t i = 0; i < p->rows; i++)
        finish_row(type, p, p->row + i, sums[i], p->columns);
}

static void finish(const corner *p, square sums) {
    FOR_TYPE(p->block->type, finish_as, p, sums);
}

/* --- a range of columns --- */

/* Depth of b that is packed at a time, so that it stays in the L1 cache: equal parts of at most CGP__TILE_KC. */
INLINE int64_t depth_of(int64_t k) {
    const int64_t parts = (k + CGP__TILE_KC - 1) / CGP__TILE_KC;
    return steps_of((k + parts - 1) / parts) * SIDE;
}

typedef struct range {
    const cgp__tile_block *block;
    /* First column of the micro-panel, end of the range, columns <= 32 of the micro-panel. */
    int64_t begin, end, columns;
    /* Beginning and depth of the current part of k. */
    int64_t q, k;
    int64_t panels;
    /* [panels] */
    square *sums;
    uint16_t *micro_panel;
} range;

/* Spread the lines of the part of b that is packed next over the steps of this part. */
static void prefetch_b(prefetches *prefetch, const range *r) {
    const cgp__matrix *b = &r->block->b;
    const bool last = r->q + r->k >= r->block->k, along = b->row == 1;
    const int64_t q = last ? 0 : r->q + r->k, column = last ? r->begin + SIDE : r->begin;
    const int64_t columns = r->end - column < SIDE ? r->end - column : SIDE;
    const int64_t left = r->block->k - q, k = left < r->k ? left : r->k;
    *prefetch = (prefetches){.b = {.count = 0}};
    if (columns <= 0) return;
    prefetch->b = prefetch_stream_of(
        cgp__cpu_at(b->type, b->at, q * b->row + column * b->column), along ? columns : k,
        bytes_of(b->type, along ? k : columns), bytes_of(b->type, along ? b->column : b->row),
        r->panels * steps_of(r->k));
}

/* The square of c that is stored while the next one is multiplied. */
static void prefetch_c(prefetches *prefetch, const corner *p, int64_t steps) {
    const cgp__tile_block *block = p->block;
    prefetch->c = prefetch_stream_of(
        cgp__cpu_at(block->type, block->c, p->row * block->stride + p->column), p->rows,
        bytes_of(block->type, p->columns), bytes_of(block->type, block->stride), steps);
}

static corner corner_at(const range *r, int64_t panel) {
    const int64_t row = panel * SIDE, left = r->block->rows - row;
    return (corner){r->block, row, r->begin, left < SIDE ? left : SIDE, r->columns};
}

/* A part of k by a micro-panel: all panels. With the last part sums go to c, those of a panel while the tiles multiply the
 * next one. */
static void run_part(const range *r, prefetches *prefetch) {
    const int64_t all = steps_of(r->block->k), steps = steps_of(r->k);
    const bool last = r->q + r->k >= r->block->k;
    for (int64_t i = 0; i < r->panels; i++) {
        const uint16_t *a = r->block->a + (i * all + r->q / SIDE) * 2 * TILE_WORDS;
        const corner p = corner_at(r, i), before = corner_at(r, i - 1);
        if (last) prefetch_c(prefetch, &p, steps);
        multiply(r->sums[i], r->q > 0, a, r->micro_panel, steps, prefetch);
        if (last && i > 0) finish(&before, r->sums[i - 1]);
    }
    const corner p = corner_at(r, r->panels - 1);
    if (last) finish(&p, r->sums[r->panels - 1]);
}

static void run_columns(const cgp__tile_block *block, int64_t begin, int64_t end,
                        void *scratch) {
    const int64_t depth = depth_of(block->k);
    range r = {.block = block,
               .begin = begin,
               .end = end,
               .panels = steps_of(block->rows),
               .sums = scratch};
    r.micro_panel = (uint16_t *)(void *)(r.sums + r.panels);
    configure();
    for (; r.begin < end; r.begin += SIDE) {
        r.columns = end - r.begin < SIDE ? end - r.begin : SIDE;
        for (r.q = 0; r.q < block->k; r.q += depth) {
            const cgp__matrix b = cgp__matrix_from(block->b, r.q, r.begin);
            const source from = {b.type, b.at, b.column, b.row};
            prefetches prefetch;
            r.k = block->k - r.q < depth ? block->k - r.q : depth;
            pack_micro_panel(r.micro_panel, &from, r.columns, r.k);
            prefetch_b(&prefetch, &r);
            run_part(&r, &prefetch);
        }
    }
    _tile_release();
}

const cgp__cpu_tiles cgp__cpu_tiles_amx = {pack_a, run_columns};
