/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c -- the peak f32 FLOPS of one core: fused multiply-adds on registers.
 *
 *     a0 = a0 x + y    a1 = a1 x + y   ...        (independent chains, each as long as the loop)
 *
 * The number of chains hides an FMA's latency: two units with a latency of 4 need 8, and AVX-512 has registers for 24. Values
 * stay near y / (1 - x); their sum is used, so that the compiler cannot eliminate them. */
#include <cgpipe/partition.h>

#include <immintrin.h>

#include "base/base.h"

enum { ITERATIONS = 2000000, RUNS = 50 };

/* The accumulators are variables of their own, as GCC 12 keeps an array of them in memory. */
#define EACH_12(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define EACH_24(DO)                                                                            \
    EACH_12(DO)                                                                                \
    DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23)
#define BEGIN(i) vector a##i = zero + (float)(i + 1);
#define STEP_V3(i) a##i = (vector)_mm256_fmadd_ps((__m256)a##i, (__m256)x, (__m256)y);
#define STEP_V4(i) a##i = (vector)_mm512_fmadd_ps((__m512)a##i, (__m512)x, (__m512)y);
#define ADD(i) sum += a##i;

/* A function that runs the loop and returns the sum of all lanes. */
#define DEFINE_LOOP(name, isa, lanes, EACH, STEP)                                              \
    __attribute__((target(isa))) static float name(float scale, int64_t n) {                   \
        typedef float vector __attribute__((vector_size(4 * (lanes))));                        \
        const vector zero = {0}, x = zero + scale, y = zero + 0.25f;                           \
        EACH(BEGIN)                                                                            \
        for (int64_t k = 0; k < n; k++) {                                                      \
            EACH(STEP)                                                                         \
        }                                                                                      \
        vector sum = zero;                                                                     \
        EACH(ADD)                                                                              \
        float total = 0;                                                                       \
        for (int i = 0; i < (lanes); i++)                                                      \
            total += sum[i];                                                                   \
        return total;                                                                          \
    }

DEFINE_LOOP(loop_v3, "avx2,fma", 8, EACH_12, STEP_V3) /* 16 registers */
DEFINE_LOOP(loop_v4, "avx512f", 16, EACH_24, STEP_V4) /* 32 registers */

double cgp_core_peak_flops(void) {
    const bool v4 = __builtin_cpu_supports("avx512f");
    if (!v4 && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return 0;
    const double flops = 2.0 * ITERATIONS * (v4 ? 24 * 16 : 12 * 8);
    double best = 0;
    volatile float sum = 0;
    for (int run = 0; run < RUNS; run++) {
        const int64_t start = cgp__now_ns();
        sum = v4 ? loop_v4(0.5f, ITERATIONS) : loop_v3(0.5f, ITERATIONS);
        const double per_second = flops / (1e-9 * (double)(cgp__now_ns() - start));
        if (per_second > best) best = per_second;
    }
    (void)sum;
    return best;
}
