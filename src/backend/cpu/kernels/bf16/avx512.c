/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c -- GEMM in bf16 by AVX512_BF16, for processors without AMX, to the same bits.
 *
 * A lane of VDPBF16PS adds a pair of products to its sum, the upper half's first, each as an FMA that rounds to nearest even and
 * takes denormals for 0. AMX has two chains of products in a step of 32 of k, of even and of odd k, and adds both to the sum.
 * So a pair here is two even k, or two odd ones, and each sum has two accumulators:
 *
 *     pair            0      1      2      3    ..    15
 *     upper half    k 0    k 1    k 4    k 5        k 29        even: pairs 0, 2, 4, ...
 *     lower half    k 2    k 3    k 6    k 7        k 31        odd:  pairs 1, 3, 5, ...
 *
 * A step of a square is 32 rows, MR at a time, by two vectors of columns, with its sums in memory: then a and b are read once, and
 * sums go to and from the L1 cache once in 16 products. The last additions are those of AVX-512, with denormals off
 * in MXCSR while squares are multiplied, and only then. */
#define SECOND(p) (4 * ((p) / 2) + (p) % 2)
#define FIRST(p) (SECOND(p) + 2)
#define in_pairs(x) interleave_fours(x)

#include <immintrin.h>

#define MR 6 /* 24 accumulators */

/* Of each four elements: 2, 0, 3, 1. */
static inline __m512i interleave_fours(__m512i x) {
    const __m512i order = _mm512_set4_epi32(0x0B0A0F0E, 0x09080D0C, 0x03020706, 0x01000504);
    return _mm512_shuffle_epi8(x, order);
}

#include "backend/cpu/kernels/bf16/range.h"

#define DENORMALS_OFF 0x8040u /* of MXCSR: results, operands */

static void begin_range(void) {
}

static void end_range(void) {
}

/* `rows` <= MR rows of a step. */
INLINE void multiply_rows(float *sums, bool add, const uint16_t *a, const uint16_t *b,
                          int rows) {
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

/* A step of `rows` <= 32 rows; not instrumented, as the micro-kernel of gemm.c. */
__attribute__((no_sanitize("thread"), no_sanitize("address"))) static void
multiply_step(square sums, bool add, const uint16_t *a, int64_t rows, const uint16_t *b) {
    int64_t i = 0;
    for (; i + MR <= rows; i += MR)
        multiply_rows(sums[i], add, a + i * SIDE, b, MR);
    for (; i + 2 <= rows; i += 2)
        multiply_rows(sums[i], add, a + i * SIDE, b, 2);
    if (i < rows) multiply_rows(sums[i], add, a + i * SIDE, b, 1);
}

static void multiply(square sums, bool add, const uint16_t *a, int64_t rows, const uint16_t *b,
                     int64_t steps, prefetches *prefetch) {
    const unsigned control = _mm_getcsr();
    MEMORY();
    _mm_setcsr(control | DENORMALS_OFF);
    MEMORY();
    for (int64_t step = 0; step < steps; step++, a += 2 * TILE_WORDS, b += 2 * TILE_WORDS) {
        multiply_step(sums, add || step > 0, a, rows, b);
        prefetch_some(&prefetch->b, 0);
        prefetch_some(&prefetch->c, 1);
    }
    MEMORY();
    _mm_setcsr(control);
    MEMORY();
}

const cgp__cpu_tiles cgp__cpu_tiles_v4_bf16 = {pack_a, pack_b, pack_lines, pack_turned,
                                               run_columns};
