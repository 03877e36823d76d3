/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h -- Philox4x32-10 (Salmon et al. 2011) for LANES / 2 counters at once. The result is
 * bit-identical to base/rng.c.
 *
 * A 32-bit word of the state is in the low half of a 64-bit lane. The high half holds a part of the
 * last product that is not needed; a widening multiplication does not read the high half. */
#ifndef CGP_SRC_CPU_PHILOX_H
#define CGP_SRC_CPU_PHILOX_H

#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/operands.h"

/* Compute the random words of elements 4 * block .. 4 * block + 2 * LANES - 1, in order. */
INLINE void philox(uvec words[2], const cgp__cpu_mask *mask, uint32_t group, uint64_t block) {
    const wvec iota = WIDE_IOTA, zero = {0};
    wvec c0 = iota + block, c1 = zero + group;
    wvec c2 = zero + (mask->sample & 0xFFFFFFFFu), c3 = zero + (mask->sample >> 32);
    uint32_t k0 = mask->key.k0, k1 = mask->key.k1;
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        const wvec p0 = multiply_wide(c0, zero + 0xD2511F53u);
        const wvec p1 = multiply_wide(c2, zero + 0xCD9E8D57u);
        c0 = (p1 >> 32) ^ c1 ^ (zero + k0);
        c2 = (p0 >> 32) ^ c3 ^ (zero + k1);
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const wvec low = (c0 & 0xFFFFFFFFu) | (c1 << 32), high = (c2 & 0xFFFFFFFFu) | (c3 << 32);
    words[0] = (uvec)WIDE_LOW(low, high);
    words[1] = (uvec)WIDE_HIGH(low, high);
}

/* Compute the dropout factors, which are mask->scale or 0, of 2 * LANES elements, starting at
 * element 4 * block. */
INLINE void dropout_factors(vec factors[2], const cgp__cpu_mask *mask, uint32_t group,
                            uint64_t block) {
    uvec words[2];
    philox(words, mask, group, block);
    for (int i = 0; i < 2; i++)
        factors[i] = keep((ivec)(words[i] >= mask->threshold), splat(mask->scale));
}

#endif
