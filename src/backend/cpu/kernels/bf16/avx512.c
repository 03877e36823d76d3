/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c -- GEMM in bf16 by AVX512_BF16, for processors without AMX. The results are
 * bit-identical to those of AMX.
 *
 * A lane of VDPBF16PS adds a pair of products to its sum: first the product of the upper halves,
 * then the product of the lower halves. Each addition is an FMA that rounds to nearest even and
 * treats denormals as 0. In a step of 32 k indices, AMX computes two chains of products, one for
 * even k and one for odd k, and adds both to the sum. So in this file a pair consists of two even k
 * or of two odd k, and each sum has two accumulators:
 *
 *     pair            0      1      2      3    ..    15
 *     upper half    k 0    k 1    k 4    k 5        k 29        even: pairs 0, 2, 4, ...
 *     lower half    k 2    k 3    k 6    k 7        k 31        odd:  pairs 1, 3, 5, ...
 *
 * A step of a square (32 x 32 sums) multiplies 32 rows, MR at a time, by two vectors of columns.
 * The sums are kept in memory, so that `a` and `b` are read only once. A sum is loaded and stored
 * once per 16 products. The final additions use plain AVX-512. Denormals are turned off in MXCSR
 * only while squares are multiplied. */
#define SECOND(p) (4 * ((p) / 2) + (p) % 2)
#define FIRST(p) (SECOND(p) + 2)
#define in_pairs(x) interleave_fours(x)

#include <immintrin.h>

#define MR 6 /* 24 accumulators */

/* In each group of four elements, reorder elements 0, 1, 2, 3 to 2, 0, 3, 1. */
static inline __m512i interleave_fours(__m512i x) {
    const __m512i order = _mm512_set4_epi32(0x0B0A0F0E, 0x09080D0C, 0x03020706, 0x01000504);
    return _mm512_shuffle_epi8(x, order);
}

#include "backend/cpu/kernels/bf16/range.h"

#define DENORMALS_OFF 0x8040u /* bits of MXCSR that make denormal results and operands 0 */

static void set_control(unsigned control) {
    MEMORY();
    _mm_setcsr(control);
    MEMORY();
}

/* Turn denormals off; return the previous MXCSR. */
static unsigned denormals_off(void) {
    const unsigned control = _mm_getcsr();
    set_control(control | DENORMALS_OFF);
    return control;
}

static void begin_range(void) {
}

static void end_range(void) {
}

/* Multiply `rows` <= MR rows of a step. */
INLINE void multiply_rows(float *sums, bool add, const uint16_t *a, const uint16_t *b, int rows) {
    __m512 sum[2][MR][2];
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < 2; j++) sum[h][i][j] = _mm512_setzero_ps();
    for (int64_t p = 0; p < TILE_ROWS; p += 2, a += 4, b += 2 * SIDE)
        UNROLL for (int h = 0; h < 2; h++) {
            const __m512bh left = (__m512bh)_mm512_loadu_si512(b + h * SIDE);
            const __m512bh right = (__m512bh)_mm512_loadu_si512(b + h * SIDE + TILE_WORDS);
            UNROLL for (int i = 0; i < rows; i++) {
                int32_t pair;
                memcpy(&pair, a + i * SIDE + 2 * h, sizeof pair);
                const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
                sum[h][i][0] = _mm512_dpbf16_ps(sum[h][i][0], x, left);
                sum[h][i][1] = _mm512_dpbf16_ps(sum[h][i][1], x, right);
            }
        }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < 2; j++) {
        float *const at = sums + i * SIDE + j * TILE_ROWS;
        const __m512 before = add ? _mm512_load_ps(at) : _mm512_setzero_ps();
        _mm512_store_ps(at, before + (sum[0][i][j] + sum[1][i][j]));
    }
}

/* Multiply a step of `rows` <= 32 rows. Sanitizers do not instrument this function, for the reason
 * given in gemm.c. */
__attribute__((no_sanitize("thread"), no_sanitize("address"))) static void
multiply_step(square sums, bool add, const uint16_t *a, int64_t rows, const uint16_t *b) {
    int64_t i = 0;
    for (; i + MR <= rows && rows - i != 8; i += MR) /* 32 rows: 6 + 6 + 6 + 6 + 4 + 4 */
        multiply_rows(sums[i], add, a + i * SIDE, b, MR);
    for (; i + 4 <= rows; i += 4)
        multiply_rows(sums[i], add, a + i * SIDE, b, 4);
    for (; i + 2 <= rows; i += 2)
        multiply_rows(sums[i], add, a + i * SIDE, b, 2);
    if (i < rows) multiply_rows(sums[i], add, a + i * SIDE, b, 1);
}

static void multiply(square sums, bool add, const uint16_t *a, int64_t rows, const uint16_t *b,
                     int64_t steps, prefetches *prefetch) {
    const unsigned control = denormals_off();
    for (int64_t step = 0; step < steps; step++, a += 2 * TILE_WORDS, b += 2 * TILE_WORDS) {
        multiply_step(sums, add || step > 0, a, rows, b);
        prefetch_some(&prefetch->b, 0);
        prefetch_some(&prefetch->c, 1);
    }
    set_control(control);
}

/* --- one row --- */

/* With one row, b is not packed, because memory bandwidth limits the speed. Each step multiplies
 * ROW_WIDTH columns, and prefetches the ROW_WIDTH columns that are AHEAD columns further on. */
#define ROW_WIDTH 64
#define ROW_VECTORS (ROW_WIDTH / TILE_ROWS)
#define AHEAD 128

/* Multiply k <= 32 elements of `a` by n <= ROW_WIDTH columns of `b`. */
INLINE void multiply_row(cgp_dtype type, float *sums, bool add, const uint16_t *a,
                         const cgp__matrix *b, int64_t k, int64_t n) {
    __m512 sum[2][ROW_VECTORS];
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int j = 0; j < ROW_VECTORS; j++) sum[h][j] =
        _mm512_setzero_ps();
    for (int64_t p = 0; p < TILE_ROWS; p += 2)
        UNROLL for (int h = 0; h < 2; h++) {
            const int64_t first = FIRST(p) + h, second = SECOND(p) + h;
            int32_t pair;
            memcpy(&pair, a + 2 * (p + h), sizeof pair);
            const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
            UNROLL for (int j = 0; j < ROW_VECTORS; j++) {
                const __m512i y =
                    load_across(type, b->at, first * b->row + j * TILE_ROWS, first < k,
                                second * b->row + j * TILE_ROWS, second < k, n - j * TILE_ROWS);
                sum[h][j] = _mm512_dpbf16_ps(sum[h][j], x, (__m512bh)y);
            }
        }
    UNROLL for (int j = 0; j < ROW_VECTORS; j++) {
        float *const at = sums + j * TILE_ROWS;
        const __m512 before = add ? _mm512_load_ps(at) : _mm512_setzero_ps();
        _mm512_store_ps(at, before + (sum[0][j] + sum[1][j]));
    }
}

INLINE void multiply_row_as(cgp_dtype type, float *sums, bool add, const uint16_t *a,
                            const cgp__matrix *b, int64_t k, int64_t n) {
    if (k == SIDE && n == ROW_WIDTH)
        multiply_row(type, sums, add, a, b, SIDE, ROW_WIDTH);
    else
        multiply_row(type, sums, add, a, b, k, n);
}

INLINE void prefetch_rows(const cgp__matrix *b, int64_t k) {
    for (int64_t d = 0; d < k; d++) {
        const char *const at = cgp__cpu_at(b->type, b->at, d * b->row + AHEAD);
        for (int64_t line = 0; line < bytes_of(b->type, ROW_WIDTH); line += LINE)
            __builtin_prefetch(at + line, 0, 2);
    }
}

/* Compute at most 1024 columns, whose sums fill a square row by row. */
static void run_row(const cgp__tile_block *block, int64_t begin, int64_t end, void *scratch) {
    float *const sums = scratch;
    for (int64_t q = 0; q < block->k; q += SIDE)
        for (int64_t j = begin; j < end; j += ROW_WIDTH) {
            const int64_t k = block->k - q < SIDE ? block->k - q : SIDE;
            const int64_t n = end - j < ROW_WIDTH ? end - j : ROW_WIDTH;
            const cgp__matrix b = cgp__matrix_from(block->b, q, j);
            if (j + AHEAD + ROW_WIDTH <= end) prefetch_rows(&b, k);
            FOR_TYPE(b.type, multiply_row_as, sums + (j - begin), q > 0,
                     block->a + q / SIDE * 2 * TILE_WORDS, &b, k, n);
        }
}

static void store_row(const cgp__tile_block *block, int64_t begin, int64_t end, void *scratch) {
    float(*const sums)[SIDE] = scratch;
    for (int64_t j = begin; j < end; j += SIDE) {
        const corner p = {block, 0, j, 1, end - j < SIDE ? end - j : SIDE};
        finish(&p, sums + (j - begin) / SIDE);
    }
}

static void run(const cgp__tile_block *block, int64_t begin, int64_t end, void *scratch) {
    if (block->rows > 1 || block->packed_b || block->b.column != 1) {
        run_columns(block, begin, end, scratch);
        return;
    }
    for (; begin < end; begin += SIDE * SIDE) {
        const int64_t stop = end - begin < SIDE * SIDE ? end : begin + SIDE * SIDE;
        const unsigned control = denormals_off();
        run_row(block, begin, stop, scratch);
        set_control(control);
        store_row(block, begin, stop, scratch);
    }
}

const cgp__cpu_tiles cgp__cpu_tiles_v4_bf16 = {pack_a, pack_b, pack_lines, pack_turned, run};
