/* SPDX-License-Identifier: Apache-2.0 */
/* rng.c -- Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1,
 * 2, 3"). Random numbers are a function of (key, counter). The generator has no state, so a dropout
 * mask can be recomputed anywhere. Bounded integers use multiply-shift without rejection (Lemire
 * 2019, arXiv:1805.10941). */
#include "base/base.h"

void cgp__philox(uint32_t out[4], const uint32_t counter[4], cgp__rng_key key) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key.k0, k1 = key.k1;
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

cgp__rng_key cgp__rng_derive(uint64_t seed, cgp__rng_use use, uint64_t step, uint32_t id) {
    const cgp__rng_key key = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), id, (uint32_t)use};
    uint32_t out[4];
    cgp__philox(out, counter, key);
    return (cgp__rng_key){out[0], out[1]};
}

uint64_t cgp__rng_below(cgp__rng_key key, uint64_t index, uint32_t bound) {
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0};
    uint32_t out[4];
    cgp__philox(out, counter, key);
    const uint64_t draw = ((uint64_t)out[1] << 32) | out[0];
    return (uint64_t)(((unsigned __int128)draw * bound) >> 64);
}
