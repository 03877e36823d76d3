/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c -- prints, as JSON, the peak arithmetic rate of one core and its instruction set: gflops
 * and isa. The member gflops_fed is the rate of the same FMAs in a loop that does nothing but
 * compute a GEMM tile from operands in the L1 cache. Loads take power, so they may lower a core's
 * clock.
 *
 * The member gflops is the rate of f32 fused multiply-adds on registers, in the best of 50 runs.
 * Enough FMAs are in flight to hide their latency:
 *
 *     a0 = a0 x + y    a1 = a1 x + y   ...        (independent chains, each as long as the loop)
 *
 * Two FMA units with a latency of 4 cycles need 8 chains, and AVX-512 has registers for 24. Values
 * stay near y / (1 - x). Their sum is used, so that the compiler cannot eliminate them. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { ITERATIONS = 2000000, DEPTH = 128, TILES = 2000, RUNS = 50 };

static float a[DEPTH * 8], b[DEPTH * 48], c[8 * 48];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- on registers --- */

/* The accumulators are separate variables, because GCC 12 keeps an array of them in memory. */
#define EACH_12(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define EACH_24(DO)                                                                                \
    EACH_12(DO)                                                                                    \
    DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23)
#define BEGIN(i) vector a##i = zero + (float)(i + 1);
#define STEP_V3(i) a##i = (vector)_mm256_fmadd_ps((__m256)a##i, (__m256)x, (__m256)y);
#define STEP_V4(i) a##i = (vector)_mm512_fmadd_ps((__m512)a##i, (__m512)x, (__m512)y);
#define ADD(i) sum += a##i;

/* Define a function that runs the loop and returns the sum of all lanes. */
#define DEFINE_LOOP(name, isa, lanes, EACH, STEP)                                                  \
    __attribute__((target(isa))) static float name(float scale, int64_t n) {                       \
        typedef float vector __attribute__((vector_size(4 * (lanes))));                            \
        const vector zero = {0}, x = zero + scale, y = zero + 0.25f;                               \
        EACH(BEGIN)                                                                                \
        for (int64_t k = 0; k < n; k++) {                                                          \
            EACH(STEP)                                                                             \
        }                                                                                          \
        vector sum = zero;                                                                         \
        EACH(ADD)                                                                                  \
        float total = 0;                                                                           \
        for (int i = 0; i < (lanes); i++)                                                          \
            total += sum[i];                                                                       \
        return total;                                                                              \
    }

DEFINE_LOOP(loop_v3, "avx2,fma", 8, EACH_12, STEP_V3) /* 16 registers */
DEFINE_LOOP(loop_v4, "avx512f", 16, EACH_24, STEP_V4) /* 32 registers */

static double peak_flops(bool v4) {
    const double flops = 2.0 * ITERATIONS * (v4 ? 24 * 16 : 12 * 8);
    double best = 0;
    volatile float sum = 0;
    for (int run = 0; run < RUNS; run++) {
        const double start = now();
        sum = v4 ? loop_v4(0.5f, ITERATIONS) : loop_v3(0.5f, ITERATIONS);
        const double rate = flops / (now() - start);
        if (rate > best) best = rate;
    }
    (void)sum;
    return best;
}

/* --- from the L1 cache --- */

#define UNROLL _Pragma("GCC unroll 8")

/* Define a function that computes the matrix product c [count, 3 vectors] = `a` `b` once. For each
 * k, it loads 3 vectors of `b` and `count` numbers of `a`. */
#define DEFINE_TILE(name, isa, lanes, count, vector, ZERO, LOAD, SPLAT, FMA, STORE)                \
    __attribute__((target(isa), noinline)) static void name(void) {                                \
        vector sums[count][3];                                                                     \
        UNROLL for (int i = 0; i < (count); i++) UNROLL for (int j = 0; j < 3; j++) sums[i][j] =   \
            ZERO();                                                                                \
        for (int k = 0; k < DEPTH; k++) {                                                          \
            const float *const y = b + k * 3 * (lanes);                                            \
            const vector y0 = LOAD(y), y1 = LOAD(y + (lanes)), y2 = LOAD(y + 2 * (lanes));         \
            UNROLL for (int i = 0; i < (count); i++) {                                             \
                const vector x = SPLAT(a[k * (count) + i]);                                        \
                sums[i][0] = FMA(x, y0, sums[i][0]);                                               \
                sums[i][1] = FMA(x, y1, sums[i][1]);                                               \
                sums[i][2] = FMA(x, y2, sums[i][2]);                                               \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < (count); i++) UNROLL for (int j = 0; j < 3; j++)                \
            STORE(c + (i * 3 + j) * (lanes), sums[i][j]);                                          \
    }

DEFINE_TILE(tile_v3, "avx2,fma", 8, 4, __m256, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_set1_ps,
            _mm256_fmadd_ps, _mm256_storeu_ps)
DEFINE_TILE(tile_v4, "avx512f", 16, 8, __m512, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_set1_ps,
            _mm512_fmadd_ps, _mm512_storeu_ps)

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
    const bool v4 = __builtin_cpu_supports("avx512f");
    if (!v4 && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) {
        fprintf(stderr, "bench_peak: expects a processor with AVX2 and FMA\n");
        return 1;
    }
    printf("{\"gflops\": %.2f, \"gflops_fed\": %.2f, \"isa\": \"%s\"}\n", 1e-9 * peak_flops(v4),
           1e-9 * fed_flops(v4), v4 ? "x86-64-v4" : "x86-64-v3");
    return 0;
}
