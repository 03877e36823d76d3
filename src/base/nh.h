/* SPDX-License-Identifier: Apache-2.0 */
/* nh.h -- NH, a universal hash function. It hashes data at memory speed.
 *
 * A block has 32-bit words m[0], m[1], ..., little-endian. Pass p = 0 .. 3 computes a sum over
 * pairs of words. The sum is modulo 2^64; key words are added to data words modulo 2^32:
 *
 *     NH_p(m) = sum over i of  (m[2i] + k[2i + 4p]) (m[2i + 1] + k[2i + 1 + 4p])
 *
 * If two different blocks of equal length do not depend on the key, all four passes agree with a
 * probability of at most 2^-128. The key is fixed, so the hash guards against faults, but not
 * against an adversary.
 *
 * The sum does not depend on the order of its terms, so the bits depend neither on the number of
 * threads nor on the vector length.
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

/* Hash a block of at most CGP__NH_BLOCK bytes, as if it were padded with zeros to a multiple of 32
 * bytes. `out` receives the four sums, as little-endian words. */
void cgp__nh(const cgp__nh_key *key, const void *data, size_t bytes, uint64_t out[CGP__NH_PASSES]);

#endif
