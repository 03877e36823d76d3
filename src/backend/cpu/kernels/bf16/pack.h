/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h -- packs the operands of GEMM in bf16, in steps of 32 k indices, for amx.c and avx512.c.
 *
 *              a, packed                    b, packed
 *         k  0..31       32..63        pair   micro-panel, 32 columns
 *          +----+----   +----            0  | c0     | c1     | ..
 *   rows   | 16 | ..    | 16             1  |        |        |
 *   0..15  +----+       +----            :  +--- 16 columns --+--- 16 columns --
 *   16..31 | 16 |       | 16            15
 *          +----+       +----                a pair: two k of a column, side by side
 *
 * A step of a panel is 2 x 16 rows by 32 k indices; a step of a micro-panel is 2 x 16 pairs of k
 * indices by 16 columns. Operand `a` is packed along k: 32 elements of a row are rounded at a time.
 * Operand b is packed across k: two rows are rounded at a time and interleaved as pairs. An operand
 * that is stored the other way is transposed in squares of 16 x 16 pairs.
 *
 * The file that includes this header defines which two k of a step form pair p: FIRST(p) and
 * SECOND(p), in memory order. It also defines in_pairs(), which reorders the 32 elements of a step
 * into pairs. */
#ifndef CGP_SRC_CPU_BF16_PACK_H
#define CGP_SRC_CPU_BF16_PACK_H

#include "backend/cpu/gemm/tiles.h"
#include "backend/cpu/kernels/prefetch.h"

#define SIDE CGP__TILE_SIDE
#define TILE_ROWS 16
#define TILE_WORDS (TILE_ROWS * SIDE) /* bf16 elements in a tile */

#define UNROLL _Pragma("GCC unroll 16")

/* Compiler barrier around intrinsics that declare no access to memory. */
#define MEMORY() __asm__ volatile("" ::: "memory")

INLINE __mmask32 halves_below(int64_t n) {
    return n >= SIDE ? 0xFFFFFFFFu : n <= 0 ? 0u : (1u << n) - 1u;
}

INLINE __mmask16 floats_below(int64_t n) {
    return n >= TILE_ROWS ? (__mmask16)0xFFFFu
           : n <= 0       ? (__mmask16)0
                          : (__mmask16)((1u << n) - 1u);
}

/* Round two vectors of f32 to bf16; `low` goes to the lower lanes. */
INLINE __m512i round_two(__m512 low, __m512 high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Load n <= 32 elements in order, starting at element i. */
INLINE __m512i load_along(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    if (type == CGP_BF16)
        return _mm512_maskz_loadu_epi16(halves_below(n), (const uint16_t *)from + i);
    const float *at = (const float *)from + i;
    const __m512 low = _mm512_maskz_loadu_ps(floats_below(n), at);
    return round_two(low, n > TILE_ROWS
                              ? _mm512_maskz_loadu_ps(floats_below(n - TILE_ROWS), at + TILE_ROWS)
                              : _mm512_setzero_ps());
}

/* Load n <= 16 pairs of two rows: elements starting at i (zeros if `first` is false) and elements
 * starting at j (zeros if `second` is false). */
INLINE __m512i load_across(cgp_dtype type, const void *from, int64_t i, bool first, int64_t j,
                           bool second, int64_t n) {
    static const uint16_t interleaved[SIDE] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                               21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                               11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __mmask16 mask = first ? floats_below(n) : (__mmask16)0;
    const __mmask16 mask_2 = second ? floats_below(n) : (__mmask16)0;
    __m512i x;
    if (type == CGP_BF16) {
        const uint16_t *at = from;
        const __m256i low = _mm256_maskz_loadu_epi16(mask, at + i);
        x = _mm512_inserti64x4(_mm512_castsi256_si512(low),
                               _mm256_maskz_loadu_epi16(mask_2, at + j), 1);
    } else {
        const float *at = from;
        x = round_two(_mm512_maskz_loadu_ps(mask, at + i), _mm512_maskz_loadu_ps(mask_2, at + j));
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

/* A matrix as lines along k. Lines are rows of `a` or columns of `b`. */
typedef struct source {
    cgp_dtype type;
    const void *at;
    /* Numbers of elements from one line to the next, and from one k to the next. One of the two is
     * 1. */
    int64_t line, depth;
} source;

/* Pack `count` <= 16 lines of k <= 32 elements into a tile. Lines are rows of `a` or, if `pairs` is
 * set, columns of `b`. */
INLINE void pack_tile(cgp_dtype type, uint16_t *to, const source *from, int64_t i, int64_t count,
                      int64_t k, bool pairs, bool along) {
    __m512i r[TILE_ROWS];
    if (along) {
        UNROLL for (int row = 0; row < TILE_ROWS; row++) r[row] =
            row < count ? in_pairs(load_along(type, from->at, i + row * from->line, k))
                        : _mm512_setzero_si512();
    } else {
        UNROLL for (int p = 0; p < TILE_ROWS; p++) r[p] =
            load_across(type, from->at, i + FIRST(p) * from->depth, FIRST(p) < k,
                        i + SECOND(p) * from->depth, SECOND(p) < k, count);
    }
    if (along == pairs) transpose_pairs(r);
    UNROLL for (int row = 0; row < TILE_ROWS; row++) _mm512_storeu_si512(to + row * SIDE, r[row]);
}

/* Pack `count` <= 32 lines of k elements to [step][2][tile]; k is rounded up to full steps. */
INLINE void pack_lines_as(cgp_dtype type, uint16_t *to, const source *from, int64_t count,
                          int64_t k, bool pairs, bool along) {
    for (int64_t q = 0; q < k; q += SIDE)
        for (int64_t line = 0; line < SIDE; line += TILE_ROWS, to += TILE_WORDS) {
            const int64_t i = line * from->line + q * from->depth;
            if (count - line >= TILE_ROWS && k - q >= SIDE)
                pack_tile(type, to, from, i, TILE_ROWS, SIDE, pairs, along);
            else if (count > line)
                pack_tile(type, to, from, i, count - line < TILE_ROWS ? count - line : TILE_ROWS,
                          k - q < SIDE ? k - q : SIDE, pairs, along);
            else
                memset(to, 0, TILE_WORDS * sizeof *to);
        }
}

INLINE void pack_along(cgp_dtype type, uint16_t *to, const source *from, int64_t count, int64_t k,
                       bool pairs) {
    pack_lines_as(type, to, from, count, k, pairs, true);
}

INLINE void pack_across(cgp_dtype type, uint16_t *to, const source *from, int64_t count, int64_t k,
                        bool pairs) {
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

static void pack_b(uint16_t *to, const cgp__matrix *b, int64_t columns, int64_t k) {
    for (int64_t j = 0; j < columns; j += SIDE, to += steps_of(k) * 2 * TILE_WORDS) {
        const cgp__matrix panel = cgp__matrix_from(*b, 0, j);
        const source from = {b->type, panel.at, b->column, b->row};
        pack_micro_panel(to, &from, columns - j < SIDE ? columns - j : SIDE, k);
    }
}

/* --- packing lines made of runs --- */

/* A piece: contiguous elements within a step of k. `from` is the offset that element 0 of the step
 * would have, relative to the start of the line. */
typedef struct piece {
    __mmask32 mask;
    int64_t from;
} piece;

/* Split k <= 32 elements, starting at q, into pieces; return the number of pieces. */
static int pieces_of(const cgp__tile_lines *lines, int64_t q, int64_t k, piece pieces[SIDE]) {
    int count = 0;
    for (int64_t d = 0, n; d < k; d += n) {
        const int64_t run = (q + d) / lines->length, inside = (q + d) % lines->length;
        n = lines->length - inside < k - d ? lines->length - inside : k - d;
        pieces[count++] =
            (piece){halves_below(n) << d,
                    run / lines->per * lines->outer + run % lines->per * lines->inner + inside - d};
    }
    return count;
}

INLINE __m512i load_pieces(cgp_dtype type, const void *from, int64_t i, const piece *pieces,
                           int count) {
    __m512i x = _mm512_setzero_si512();
    __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
    for (int n = 0; n < count; n++) {
        const __mmask32 mask = pieces[n].mask;
        const int64_t at = i + pieces[n].from;
        if (type == CGP_BF16) {
            x = _mm512_mask_loadu_epi16(x, mask, (const uint16_t *)from + at);
            continue;
        }
        low = _mm512_mask_loadu_ps(low, (__mmask16)mask, (const float *)from + at);
        high = _mm512_mask_loadu_ps(high, (__mmask16)(mask >> TILE_ROWS),
                                    (const float *)from + at + TILE_ROWS);
    }
    return type == CGP_BF16 ? x : round_two(low, high);
}

INLINE int64_t line_at(const cgp__tile_lines *from, int64_t i) {
    return from->lines ? from->lines[i] : i * from->line;
}

/* Pack one step of `count` lines. */
INLINE void pack_step(cgp_dtype type, uint16_t *to, const cgp__tile_lines *from, int64_t first,
                      int64_t count, const piece *pieces, int n, bool pairs) {
    __m512i r[TILE_ROWS];
    for (int row = 0; row < TILE_ROWS; row++)
        r[row] = row < count
                     ? in_pairs(load_pieces(type, from->at, line_at(from, first + row), pieces, n))
                     : _mm512_setzero_si512();
    if (pairs) transpose_pairs(r);
    UNROLL for (int row = 0; row < TILE_ROWS; row++) _mm512_storeu_si512(to + row * SIDE, r[row]);
}

static void pack_lines(uint16_t *to, const cgp__tile_lines *from, int64_t first, int64_t count,
                       int64_t q, int64_t k, bool pairs) {
    piece pieces[SIDE];
    for (int64_t i = 0; i < count; i += SIDE)
        for (int64_t d = 0; d < k; d += SIDE) {
            const int n = pieces_of(from, q + d, k - d < SIDE ? k - d : SIDE, pieces);
            for (int64_t line = i; line < i + SIDE; line += TILE_ROWS, to += TILE_WORDS)
                FOR_TYPE(from->type, pack_step, to, from, first + line, count - line, pieces, n,
                         pairs);
        }
}

/* Pack 16 rows of a step from k <= 32 lines, transposed. */
INLINE void turn_step(cgp_dtype type, uint16_t *to, const cgp__tile_lines *from, int64_t first,
                      int64_t rows, const int64_t *lines, int64_t k) {
    __m512i r[TILE_ROWS];
    UNROLL for (int p = 0; p < TILE_ROWS; p++) {
        const bool one = FIRST(p) < k, other = SECOND(p) < k;
        r[p] = load_across(type, from->at, one ? lines[FIRST(p)] + first : 0, one,
                           other ? lines[SECOND(p)] + first : 0, other, rows);
    }
    transpose_pairs(r);
    UNROLL for (int row = 0; row < TILE_ROWS; row++) _mm512_storeu_si512(to + row * SIDE, r[row]);
}

static void pack_turned(uint16_t *to, const cgp__tile_lines *from, int64_t first, int64_t rows,
                        int64_t k) {
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t d = 0; d < k; d += SIDE)
            for (int64_t row = i; row < i + SIDE; row += TILE_ROWS, to += TILE_WORDS)
                FOR_TYPE(from->type, turn_step, to, from, first + row, rows - row, from->lines + d,
                         k - d < SIDE ? k - d : SIDE);
}

#endif
