/* SPDX-License-Identifier: Apache-2.0 */
/* range.h -- macro-kernel of GEMM in bf16, for amx.c and avx512.c. It computes c [m, n] = a [m, k]
 * b [k, n] for a block of rows of `a` and a range of columns of `b`.
 *
 * Squares of 32 x 32 sums are always computed in full, with zeros at the edges of c; only the part
 * within c is stored. A panel's sums are stored after the instructions that multiply the next
 * panel, so that the processor overlaps the two. The file that includes this header defines the
 * multiplication. */
#ifndef CGP_SRC_CPU_BF16_RANGE_H
#define CGP_SRC_CPU_BF16_RANGE_H

#include "backend/cpu/kernels/bf16/pack.h"

/* Sums of 32 x 32 elements of c. */
typedef float square[SIDE][SIDE];

/* Each step prefetches from two streams: the part of b that is packed next, and the square of c
 * that is stored next. */
typedef struct prefetches {
    prefetch_stream b, c;
} prefetches;

/* Callbacks before and after a range, on the thread that runs it. */
static void begin_range(void);
static void end_range(void);

/* Set sums to a panel of `a` times a micro-panel of `b`, or add the product; compute at least the
 * first `rows` rows. */
static void multiply(square sums, bool add, const uint16_t *a, int64_t rows, const uint16_t *b,
                     int64_t steps, prefetches *prefetch);

/* --- sums to c --- */

/* Load n <= 16 elements as f32; widening is exact. */
INLINE __m512 load_floats(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    if (type == CGP_F32) return _mm512_maskz_loadu_ps(floats_below(n), (const float *)from + i);
    return (__m512)widen(
        (hvec)_mm256_maskz_loadu_epi16(floats_below(n), (const uint16_t *)from + i));
}

/* The part of c that a square covers: at most 32 rows and 32 columns. */
typedef struct corner {
    const cgp__tile_block *block;
    int64_t row, column, rows, columns;
} corner;

INLINE int64_t c_row(const cgp__tile_block *block, int64_t row) {
    return block->c_rows ? block->c_rows[row] : row * block->stride;
}

INLINE void finish_row(cgp_dtype type, const corner *p, int64_t row, const float *sums, int64_t n) {
    const cgp__tile_block *block = p->block;
    const int64_t at = c_row(block, row) + p->column;
    __m512 low = _mm512_load_ps(sums), high = _mm512_load_ps(sums + TILE_ROWS);
    if (block->bias) {
        low += load_floats(CGP_F32, block->bias, p->column, n);
        high += load_floats(CGP_F32, block->bias, p->column + TILE_ROWS, n - TILE_ROWS);
    }
    if (block->from.at) {
        const cgp__matrix *from = &block->from;
        const int64_t i = (block->from_rows ? block->from_rows[row] : row * from->row) + p->column;
        low += load_floats(from->type, from->at, i, n);
        high += load_floats(from->type, from->at, i + TILE_ROWS, n - TILE_ROWS);
    }
    if (type == CGP_BF16) {
        _mm512_mask_storeu_epi16((uint16_t *)block->c + at, halves_below(n), round_two(low, high));
        return;
    }
    _mm512_mask_storeu_ps((float *)block->c + at, floats_below(n), low);
    _mm512_mask_storeu_ps((float *)block->c + at + TILE_ROWS, floats_below(n - TILE_ROWS), high);
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

/* Return the depth of the part of b that is packed at a time. k is divided into equal parts of at
 * most CGP__TILE_KC, so that a part fits the L1 cache. */
INLINE int64_t depth_of(int64_t k) {
    const int64_t parts = (k + CGP__TILE_KC - 1) / CGP__TILE_KC;
    return steps_of((k + parts - 1) / parts) * SIDE;
}

typedef struct range {
    const cgp__tile_block *block;
    /* First column of the micro-panel; end of the range; number of columns in the micro-panel, at
     * most 32. */
    int64_t begin, end, columns;
    /* First k and depth of the current part of k. */
    int64_t q, k;
    int64_t panels;
    /* [panels] The sums of each panel. */
    square *sums;
    const uint16_t *micro_panel;
} range;

/* Return the part of a prepacked micro-panel that begins at k = q. */
INLINE const uint16_t *packed_part(const cgp__tile_block *block, int64_t column, int64_t q) {
    return block->packed_b + column / SIDE * block->packed_stride + q * SIDE;
}

/* Prefetch the part of `b` that is packed or multiplied next. Each step of the current part issues
 * its share of the prefetches. */
static void prefetch_b(prefetches *prefetch, const range *r) {
    const cgp__tile_block *block = r->block;
    const cgp__matrix *b = &block->b;
    const bool last = r->q + r->k >= r->block->k, along = b->row == 1;
    const int64_t q = last ? 0 : r->q + r->k, column = last ? r->begin + SIDE : r->begin;
    const int64_t columns = r->end - column < SIDE ? r->end - column : SIDE;
    const int64_t left = block->k - q, k = left < r->k ? left : r->k;
    const int64_t steps = r->panels * steps_of(r->k);
    *prefetch = (prefetches){.b = {.count = 0}};
    if (columns <= 0) return;
    if (block->packed_b)
        prefetch->b =
            prefetch_stream_of(packed_part(block, column, q), 1,
                               bytes_of(CGP_BF16, steps_of(k) * 2 * TILE_WORDS), 0, steps);
    else
        prefetch->b =
            prefetch_stream_of(cgp__cpu_at(b->type, b->at, q * b->row + column * b->column),
                               along ? columns : k, bytes_of(b->type, along ? k : columns),
                               bytes_of(b->type, along ? b->column : b->row), steps);
}

/* Prefetch the square of c that is stored while the next square is multiplied. */
static void prefetch_c(prefetches *prefetch, const corner *p, int64_t steps) {
    const cgp__tile_block *block = p->block;
    prefetch->c = prefetch_stream_of(
        cgp__cpu_at(block->type, block->c, c_row(block, p->row) + p->column), p->rows,
        bytes_of(block->type, p->columns), bytes_of(block->type, block->stride), steps);
}

static corner corner_at(const range *r, int64_t panel) {
    const int64_t row = panel * SIDE, left = r->block->rows - row;
    return (corner){r->block, row, r->begin, left < SIDE ? left : SIDE, r->columns};
}

/* Multiply all panels by a micro-panel, for one part of k. In the last part, store each panel's
 * sums to c while the next panel is multiplied. */
static void run_part(const range *r, prefetches *prefetch) {
    const int64_t all = steps_of(r->block->k), steps = steps_of(r->k);
    const bool last = r->q + r->k >= r->block->k;
    for (int64_t i = 0; i < r->panels; i++) {
        const uint16_t *a = r->block->a + (i * all + r->q / SIDE) * 2 * TILE_WORDS;
        const corner p = corner_at(r, i), before = corner_at(r, i - 1);
        if (last) prefetch_c(prefetch, &p, steps);
        multiply(r->sums[i], r->q > 0, a, p.rows, r->micro_panel, steps, prefetch);
        if (last && i > 0) finish(&before, r->sums[i - 1]);
    }
    const corner p = corner_at(r, r->panels - 1);
    if (last) finish(&p, r->sums[r->panels - 1]);
}

static void run_columns(const cgp__tile_block *block, int64_t begin, int64_t end, void *scratch) {
    const int64_t depth = depth_of(block->k);
    range r = {.block = block,
               .begin = begin,
               .end = end,
               .panels = steps_of(block->rows),
               .sums = scratch};
    uint16_t *const packed = (uint16_t *)(void *)(r.sums + r.panels);
    begin_range();
    for (; r.begin < end; r.begin += SIDE) {
        r.columns = end - r.begin < SIDE ? end - r.begin : SIDE;
        for (r.q = 0; r.q < block->k; r.q += depth) {
            const cgp__matrix b = cgp__matrix_from(block->b, r.q, r.begin);
            const source from = {b.type, b.at, b.column, b.row};
            prefetches prefetch;
            r.k = block->k - r.q < depth ? block->k - r.q : depth;
            r.micro_panel = packed;
            if (block->packed_b)
                r.micro_panel = packed_part(block, r.begin, r.q);
            else
                pack_micro_panel(packed, &from, r.columns, r.k);
            prefetch_b(&prefetch, &r);
            run_part(&r, &prefetch);
        }
    }
    end_range();
}

#endif
