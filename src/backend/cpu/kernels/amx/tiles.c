/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.c -- c [m, n] = a [m, k] b [k, n] in bf16 on AMX: a block of rows of a by a range of columns of b.
 *
 *              a, packed                    b, packed                        c
 *         k  0..31       32..63        k    sliver of 32 columns        +----+----+
 *          +----+----   +----          0,1  | c0 k0 k1 | c1 k0 k1 |..   | t0 | t1 |   16 rows
 *   rows   | t4 | ..    | t4           2,3  |          |          |     +----+----+
 *   0..15  +----+       +----           :   +----- t6 -+----- t7 -+     | t2 | t3 |   16 rows
 *   16..31 | t5 |       | t5          30,31                             +----+----+
 *          +----+       +----                                           16 columns each
 *
 * A tile is 16 rows of 64 bytes: of a 16 rows by 32 of k, of b 16 pairs of k by 16 columns, of c 16 rows by 16
 * columns of f32. A panel of a is 32 rows, a sliver of b 32 columns: at each step of 32 of k four tiles are
 * loaded and four multiplied. All are computed whole, on zeros where there is nothing, and stored in part.
 *
 * The tiles are configured at the beginning of a range and released at its end, on the thread that runs it: between
 * two calls no thread has state in tiles, which the system would have to keep for it.
 *
 * Packing along k rounds 32 of a row and is done for a; across k it rounds two rows into pairs and is done
 * for b. The other way about, a square of 16 x 16 pairs changes rows with columns. */
#include "backend/cpu/kernels/lines.h"
#include "backend/cpu/tiles.h"

#define SIDE CGP__TILE_SIDE
#define HALF 16            /* rows of a tile */
#define UNIT (HALF * SIDE) /* halves in a tile */
#define TILE_BYTES LINE    /* in a row of a tile */

#define UNROLL _Pragma("GCC unroll 16")

/* The intrinsics say nothing of memory: so neither may what they read be written later nor what they
 * write be read earlier. */
#define MEMORY() __asm__ volatile("" ::: "memory")

/* --- packing --- */

INLINE __mmask32 halves_below(int64_t n) {
    return n >= SIDE ? 0xFFFFFFFFu : n <= 0 ? 0u : (1u << n) - 1u;
}

INLINE __mmask16 floats_below(int64_t n) {
    return n >= HALF ? (__mmask16)0xFFFFu : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1u);
}

/* Two vectors of floats, rounded; `low` in the lower half. */
INLINE __m512i round_two(__m512 low, __m512 high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* n <= 32 elements from i on. */
INLINE __m512i load_along(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    if (type == CGP_BF16)
        return _mm512_maskz_loadu_epi16(halves_below(n), (const uint16_t *)from + i);
    const float *at = (const float *)from + i;
    const __m512 low = _mm512_maskz_loadu_ps(floats_below(n), at);
    return round_two(low, n > HALF ? _mm512_maskz_loadu_ps(floats_below(n - HALF), at + HALF)
                                   : _mm512_setzero_ps());
}

/* n <= 16 elements from i on, and as many `depth` further if `both`: pairs of one each. */
INLINE __m512i load_across(cgp_dtype type, const void *from, int64_t i, int64_t depth,
                           int64_t n, bool both) {
    static const uint16_t in_turn[SIDE] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
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
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(in_turn), x);
}

/* 16 rows of 16 pairs: lane j of r[i] becomes what lane i of r[j] was. */
INLINE void transpose_pairs(__m512i r[HALF]) {
    __m512i s[HALF];
    UNROLL for (int i = 0; i < HALF; i += 2) {
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < HALF; i += 4) {
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

/* Where a unit of 16 lines (rows of a, columns of b) by 32 of k is in a matrix. */
typedef struct source {
    cgp_dtype type;
    const void *at;
    int64_t line, depth; /* elements from one to the next; one of them is 1 */
} source;

/* One unit to a tile: rows of a or, as `pairs`, those of b. `count` <= 16 lines and k <= 32 are there. */
INLINE void pack_unit(cgp_dtype type, uint16_t *to, const source *from, int64_t i,
                      int64_t count, int64_t k, bool pairs, bool along) {
    __m512i r[HALF];
    if (along) {
        UNROLL for (int row = 0; row < HALF; row++) r[row] =
            row < count ? load_along(type, from->at, i + row * from->line, k)
                        : _mm512_setzero_si512();
    } else {
        UNROLL for (int p = 0; p < HALF; p++) r[p] =
            2 * p < k ? load_across(type, from->at, i + 2 * p * from->depth, from->depth, count,
                                    2 * p + 1 < k)
                      : _mm512_setzero_si512();
    }
    if (along == pairs) transpose_pairs(r);
    UNROLL for (int row = 0; row < HALF; row++) _mm512_storeu_si512(to + row * SIDE, r[row]);
}

/* Up to 32 lines, `count`, by k, k rounded up, to [step][2][tile]. */
INLINE void pack_lines_as(cgp_dtype type, uint16_t *to, const source *from, int64_t count,
                          int64_t k, bool pairs, bool along) {
    for (int64_t q = 0; q < k; q += SIDE)
        for (int64_t line = 0; line < SIDE; line += HALF, to += UNIT) {
            const int64_t i = line * from->line + q * from->depth;
            if (count - line >= HALF && k - q >= SIDE)
                pack_unit(type, to, from, i, HALF, SIDE, pairs, along);
            else if (count > line)
                pack_unit(type, to, from, i, count - line < HALF ? count - line : HALF,
                          k - q < SIDE ? k - q : SIDE, pairs, along);
            else
                memset(to, 0, UNIT * sizeof *to);
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

static void pack_sliver(uint16_t *to, const source *from, int64_t count, int64_t k) {
    if (from->depth == 1)
        FOR_TYPE(from->type, pack_along, to, from, count, k, true);
    else
        FOR_TYPE(from->type, pack_across, to, from, count, k, true);
}

INLINE int64_t steps_of(int64_t k) {
    return (k + SIDE - 1) / SIDE;
}

static void pack_rows(uint16_t *to, const cgp__matrix *a, int64_t rows, int64_t k) {
    for (int64_t i = 0; i < rows; i += SIDE, to += steps_of(k) * 2 * UNIT) {
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
        c.rows[i] = HALF;
    }
    MEMORY();
    _tile_loadconfig(&c);
}

/* Sums of a corner of c: four tiles. */
typedef float square[SIDE][SIDE];

/* What is called from memory meanwhile, at each step: what is packed next, where tiles go next. */
typedef struct calls {
    lines b, c;
} calls;

/* sums = or += a panel of a by a sliver of b. */
static void multiply(square sums, bool add, const uint16_t *a, const uint16_t *b, int64_t steps,
                     calls *ahead) {
    const int64_t row = sizeof sums[0];
    MEMORY();
    if (add) {
        _tile_loadd(0, &sums[0][0], row);
        _tile_loadd(1, &sums[0][HALF], row);
        _tile_loadd(2, &sums[HALF][0], row);
        _tile_loadd(3, &sums[HALF][HALF], row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t step = 0; step < steps; step++, a += 2 * UNIT, b += 2 * UNIT) {
        _tile_loadd(4, a, TILE_BYTES);
        _tile_loadd(6, b, TILE_BYTES);
        _tile_loadd(5, a + UNIT, TILE_BYTES);
        _tile_loadd(7, b + UNIT, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        call_lines(&ahead->b, 0);
        call_lines(&ahead->c, 1);
    }
    _tile_stored(0, &sums[0][0], row);
    _tile_stored(1, &sums[0][HALF], row);
    _tile_stored(2, &sums[HALF][0], row);
    _tile_stored(3, &sums[HALF][HALF], row);
    MEMORY();
}

/* --- sums to c --- */

/* n <= 16 floats; widening is exact. */
INLINE __m512 load_floats(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    if (type == CGP_F32) return _mm512_maskz_loadu_ps(floats_below(n), (const float *)from + i);
    return (__m512)widen(
        (hvec)_mm256_maskz_loadu_epi16(floats_below(n), (const uint16_t *)from + i));
}

/* Rows and columns of c that a square has: rows <= 32, columns <= 32. */
typedef struct place {
    const cgp__tile_block *block;
    int64_t row, column, rows, columns;
} place;

INLINE void finish_row(cgp_dtype type, const place *p, int64_t row, const float *sums,
                       int64_t n) {
    const cgp__tile_block *block = p->block;
    const int64_t at = row * block->stride + p->column;
    __m512 low = _mm512_load_ps(sums), high = _mm512_load_ps(sums + HALF);
    if (block->bias) {
        low += load_floats(CGP_F32, block->bias, p->column, n);
        high += load_floats(CGP_F32, block->bias, p->column + HALF, n - HALF);
    }
    if (block->from.at) {
        const cgp__matrix *from = &block->from;
        const int64_t i = row * from->row + p->column;
        low += load_floats(from->type, from->at, i, n);
        high += load_floats(from->type, from->at, i + HALF, n - HALF);
    }
    if (type == CGP_BF16) {
        _mm512_mask_storeu_epi16((uint16_t *)block->c + at, halves_below(n),
                                 round_two(low, high));
        return;
    }
    _mm512_mask_storeu_ps((float *)block->c + at, floats_below(n), low);
    _mm512_mask_storeu_ps((float *)block->c + at + HALF, floats_below(n - HALF), high);
}

INLINE void finish_as(cgp_dtype type, const place *p, square sums) {
    if (p->columns == SIDE) {
        for (int64_t i = 0; i < p->rows; i++)
            finish_row(type, p, p->row + i, sums[i], SIDE);
        return;
    }
    for (int64_t i = 0; i < p->rows; i++)
        finish_row(type, p, p->row + i, sums[i], p->columns);
}

static void finish(const place *p, square sums) {
    FOR_TYPE(p->block->type, finish_as, p, sums);
}

/* --- a range of columns --- */

/* Depth of b that is packed at a time, so that it stays in the L1 cache: equal parts of at most 512. */
INLINE int64_t depth_of(int64_t k) {
    const int64_t parts = (k + CGP__TILE_DEPTH - 1) / CGP__TILE_DEPTH;
    return steps_of((k + parts - 1) / parts) * SIDE;
}

/* Where a range is at: a sliver, a part of k. */
typedef struct range {
    const cgp__tile_block *block;
    int64_t begin, end, columns; /* of the sliver, of the range; <= 32 */
    int64_t q, k;                /* the part's beginning and depth */
    int64_t panels;
    square *sums; /* [panels] */
    uint16_t *sliver;
} range;

/* Lines of the part of b that is packed next, for the steps of this part to call. */
static void share_sliver(calls *ahead, const range *r) {
    const cgp__matrix *b = &r->block->b;
    const bool last = r->q + r->k >= r->block->k, along = b->row == 1;
    const int64_t q = last ? 0 : r->q + r->k, column = last ? r->begin + SIDE : r->begin;
    const int64_t columns = r->end - column < SIDE ? r->end - column : SIDE;
    const int64_t left = r->block->k - q, k = left < r->k ? left : r->k;
    *ahead = (calls){.b = {.count = 0}};
    if (columns <= 0) return;
    ahead->b =
        lines_of(cgp__cpu_at(b->type, b->at, q * b->row + column * b->column),
                 along ? columns : k, bytes_of(b->type, along ? k : columns),
                 bytes_of(b->type, along ? b->column : b->row), r->panels * steps_of(r->k));
}

/* Where the sums of this place go once the next place is done. */
static void share_corner(calls *ahead, const place *p, int64_t steps) {
    const cgp__tile_block *block = p->block;
    ahead->c = lines_of(cgp__cpu_at(block->type, block->c, p->row * block->stride + p->column),
                        p->rows, bytes_of(block->type, p->columns),
                        bytes_of(block->type, block->stride), steps);
}

static place place_at(const range *r, int64_t panel) {
    const int64_t row = panel * SIDE, left = r->block->rows - row;
    return (place){r->block, row, r->begin, left < SIDE ? left : SIDE, r->columns};
}

/* A part of k by a sliver: all panels. Sums go to c with the last part, those of a panel while the tiles are
 * busy with the next one. */
static void run_part(const range *r, calls *ahead) {
    const int64_t all = steps_of(r->block->k), steps = steps_of(r->k);
    const bool last = r->q + r->k >= r->block->k;
    for (int64_t i = 0; i < r->panels; i++) {
        const uint16_t *a = r->block->a + (i * all + r->q / SIDE) * 2 * UNIT;
        const place p = place_at(r, i), before = place_at(r, i - 1);
        if (last) share_corner(ahead, &p, steps);
        multiply(r->sums[i], r->q > 0, a, r->sliver, steps, ahead);
        if (last && i > 0) finish(&before, r->sums[i - 1]);
    }
    const place p = place_at(r, r->panels - 1);
    if (last) finish(&p, r->sums[r->panels - 1]);
}

static void run_columns(const cgp__tile_block *block, int64_t begin, int64_t end,
                        void *capacity) {
    const int64_t depth = depth_of(block->k);
    range r = {.block = block,
               .begin = begin,
               .end = end,
               .panels = steps_of(block->rows),
               .sums = capacity};
    r.sliver = (uint16_t *)(void *)(r.sums + r.panels);
    configure();
    for (; r.begin < end; r.begin += SIDE) {
        r.columns = end - r.begin < SIDE ? end - r.begin : SIDE;
        for (r.q = 0; r.q < block->k; r.q += depth) {
            const cgp__matrix b = cgp__matrix_from(block->b, r.q, r.begin);
            const source from = {b.type, b.at, b.column, b.row};
            calls ahead;
            r.k = block->k - r.q < depth ? block->k - r.q : depth;
            pack_sliver(r.sliver, &from, r.columns, r.k);
            share_sliver(&ahead, &r);
            run_part(&r, &ahead);
        }
    }
    _tile_release();
}

const cgp__cpu_tiles cgp__cpu_tiles_amx = {pack_rows, run_columns};
