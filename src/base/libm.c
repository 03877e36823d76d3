/* SPDX-License-Identifier: Apache-2.0 */
/* libm.c -- computes a digest of libm's results. Equal digests show that two processes compute the
 * same bits. The last bit of a result depends on the C library, and on the function variant that
 * the library selects for the processor. Initial weights, learning rates and the `ref` kernels
 * depend on these functions. */
#include "base/base.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 1024 };

/* Compute the results of nine functions. `x` is in (0, 1), as for initial weights; the other
 * arguments cover the ranges that the library uses. */
static void results_of(double x, double y, double out[9]) {
    out[0] = log(x);
    out[1] = cos(6.283185307179586 * x);
    out[2] = sin(6.283185307179586 * x);
    out[3] = pow(0.9 + 0.0999 * x, 1000 * y);
    out[4] = exp(20 * (x - y));
    out[5] = tanh(4 * (x - y));
    out[6] = erf(4 * (x - y));
    out[7] = log1p(x);
    out[8] = expm1(x - y);
}

void cgp__libm_digest(char hex[17]) {
    const cgp__rng_key key = cgp__rng_derive(1, CGP__RNG_WEIGHTS, 0, 0);
    uint64_t digest = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const uint32_t counter[4] = {i, 0, 0, 0};
        uint32_t words[4];
        double results[10];
        cgp__philox(words, counter, key);
        results_of((words[0] + 0.5) / 0x1p32, (words[1] + 0.5) / 0x1p32, results);
        memcpy(&results[9], &digest, sizeof digest);
        digest = cgp__hash(results, sizeof results);
    }
    snprintf(hex, 17, "%016" PRIx64, digest);
}
