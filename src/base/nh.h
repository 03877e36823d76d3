/* SPDX-License-Identifier: Apache-2.0 */
/* nh.h -- NH, a universal hash that reads data at memory speed.
 *
 * A block has words m[0], m[1], ... of 32 bits, little-endian. Pass p = 0 .. 3 sums over pairs of
 * words, modulo 2^64, where words are added modulo 2^32:
 *
 *     NH_p(m) = sum over i of  (m[2i] + k[2i + 4p]) (m[2i + 1] + k[2i + 1 + 4p])
 *
 * Two different blocks of one length, chosen without looking at the key, agree in all four passes
 * with a probability of at most 2^-128. The key is fixed, so this guards against faults, and not
 * against an adversary.
 *
 * The sum does not depend on the order of its terms, so threads and vectors of any length give the
 * same bits.
 *
 * Source: Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: fast and secure message
 * authentication" (CRYPTO 1999). The key has UMAC's Toeplitz extension with four passes and a shift
 * of four words, as in Crowley and Biggers, "Adiantum" (IACR ToSC 2018(4)). */
#ifndef CGP_SRC_BASE_NH_H
#define CGP_SRC_BASE_NH_H

#include <stddef.h>
#include <stdint.h>

enum { CGP__NH_BLOCK = 16384, CGP__NH_PASSES = 4, CGP__NH_SHIFT = 4 };

/* The key of the hash. Its word 4i + j is output word j of Philox4x32-10 with counter (i, 0, 0, 0)
 * and Philox key (0x4E48, 0). */
typedef struct cgp__nh_key {
    uint32_t words[CGP__NH_BLOCK / 4 + CGP__NH_SHIFT * (CGP__NH_PASSES - 1)];
} cgp__nh_key;

void cgp__nh_key_fill(cgp__nh_key *key);

/* Hash a block of at most CGP__NH_BLOCK bytes, as if zeros followed up to a multiple of 32 bytes.
 * Words of `out` are little-endian. */
void cgp__nh(const cgp__nh_key *key, const void *data, size_t bytes, uint64_t out[CGP__NH_PASSES]);

#endif
