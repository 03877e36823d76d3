/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c -- prints what one core can do at most, and with which instructions, as JSON: gflops, isa; and
 * what is left of it for a product: gflops_fed, of the same FMAs when a tile reads its operands from the
 * L1 cache and nothing else is done. Loads take power, so a core's clock may fall with them. */
#include <cgpipe/partition.h>

#include <immintrin.h>
#include <stdio.h>
#include <time.h>

enum { DEPTH = 128, TILES = 2000, RUNS = 50 };

static float a[DEPTH * 8], b[DEPTH * 48], c[8 * 48];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define UNROLL _Pragma("GCC unroll 8")

/* A function that computes c [rows, 3 vectors] = a b once: for each of k, 3 vectors and `rows` numbers are loaded. */
#define DEFINE_TILE(name, isa, lanes, count, vector, ZERO, LOAD, SPLAT, FMA, STORE)            \
    __attribute__((target(isa), noinline)) static void name(void) {                            \
        vector sums[count][3];                                                                 \
        UNROLL for (int i = 0; i < (count); i++) UNROLL for (int j = 0; j < 3; j++)            \
            sums[i][j] = ZERO();                                                               \
        for (int k = 0; k < DEPTH; k++) {                                                      \
            const float *const y = b + k * 3 * (lanes);                                        \
            const vector y0 = LOAD(y), y1 = LOAD(y + (lanes)), y2 = LOAD(y + 2 * (lanes));     \
            UNROLL for (int i = 0; i < (count); i++) {                                         \
                const vector x = SPLAT(a[k * (count) + i]);                                    \
                sums[i][0] = FMA(x, y0, sums[i][0]);                                           \
                sums[i][1] = FMA(x, y1, sums[i][1]);                                           \
                sums[i][2] = FMA(x, y2, sums[i][2]);                                           \
            }                                                                                  \
        }                                                                                      \
        UNROLL for (int i = 0; i < (count); i++) UNROLL for (int j = 0; j < 3; j++)            \
            STORE(c + (i * 3 + j) * (lanes), sums[i][j]);                                      \
    }

DEFINE_TILE(tile_v3, "avx2,fma", 8, 4, __m256, _mm256_setzero_ps, _mm256_loadu_ps,
            _mm256_set1_ps, _mm256_fmadd_ps, _mm256_storeu_ps)
DEFINE_TILE(tile_v4, "avx512f", 16, 8, __m512, _mm512_setzero_ps, _mm512_loadu_ps,
            _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps)

static double fed_flops(bool v4) {
    const double flops = 2.0 * TILES * DEPTH * 3 * (v4 ? 8 * 16 : 4 * 8);
    double best = 0;
    for (int i = 0; i < DEPTH * 8; i++)
        a[i] = (float)(i % 61) / 61 - 0.5f;
    for (int i = 0; i < DEPTH * 48; i++)
        b[i] = (float)(i % 59) / 59 - 0.5f;
    for (int run = 0; run < RUNS; run++) {
        const double start = now();
        for (int i = 0; i < TILES; i++) {
            if (v4)
                tile_v4();
            else
                tile_v3();
        }
        const double rate = flops / (now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

int main(void) {
    const double flops = cgp_core_peak_flops();
    const bool v4 = __builtin_cpu_supports("avx512f");
    if (!(flops > 0)) {
        fprintf(stderr, "bench_peak: expects a processor with AVX2 and FMA\n");
        return 1;
    }
    printf("{\"gflops\": %.2f, \"gflops_fed\": %.2f, \"isa\": \"%s\"}\n", 1e-9 * flops,
           1e-9 * fed_flops(v4), v4 ? "x86-64-v4" : "x86-64-v3");
    return 0;
}
