/* SPDX-License-Identifier: Apache-2.0 */
/* test_nh.c -- the hash NH equals the sum in its definition, for every length and alignment. A
 * flipped bit changes the hash. */
#include "support.h"

#include "base/base.h"
#include "base/nh.h"

enum { WORDS = CGP__NH_BLOCK / 4 };

static cgp__nh_key key;

/* Compute NH as nh.h defines it, as sums over pairs of words. Data are padded with zeros to a
 * multiple of 32 bytes. */
static void expected(const unsigned char *data, size_t bytes, uint64_t out[4]) {
    static uint32_t words[WORDS];
    memset(words, 0, sizeof words);
    memcpy(words, data, bytes);
    for (int p = 0; p < 4; p++) {
        out[p] = 0;
        for (size_t i = 0; i < (bytes + 31) / 32 * 4; i++) {
            const uint32_t a = words[2 * i] + key.words[2 * i + 4 * (size_t)p];
            const uint32_t b = words[2 * i + 1] + key.words[2 * i + 1 + 4 * (size_t)p];
            out[p] += (uint64_t)a * b;
        }
    }
}

TEST_CASE(a_block_is_hashed_as_defined) {
    static unsigned char memory[CGP__NH_BLOCK + 32];
    uint64_t state = test_seed();
    cgp__nh_key_fill(&key);
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (unsigned char)test_random(&state);
    for (int i = 0; i < 400; i++) {
        const size_t at = (size_t)test_between(&state, 0, 31);
        const size_t most = i % 2 ? CGP__NH_BLOCK : 100;
        const size_t bytes = i == 0 ? CGP__NH_BLOCK : (size_t)test_between(&state, 0, (int)most);
        uint64_t got[4], wanted[4];
        cgp__nh(&key, memory + at, bytes, got);
        expected(memory + at, bytes, wanted);
        assert_memory_equal(got, wanted, sizeof got);
    }
}

TEST_CASE(the_key_is_philox_of_the_counter) {
    cgp__nh_key_fill(&key);
    uint32_t out[4];
    assert_int_equal(sizeof key.words / 4, WORDS + 12);
    cgp__philox(out, (const uint32_t[4]){WORDS / 4 + 2, 0, 0, 0}, (cgp__rng_key){0x4E48, 0});
    assert_memory_equal(out, &key.words[WORDS + 8], sizeof out);
}

TEST_CASE(every_flipped_bit_changes_all_passes) {
    static unsigned char block[CGP__NH_BLOCK];
    uint64_t state = test_seed();
    cgp__nh_key_fill(&key);
    for (int i = 0; i < 2000; i++) {
        const size_t at = (size_t)test_between(&state, 0, CGP__NH_BLOCK - 1);
        uint64_t before[4], after[4];
        cgp__nh(&key, block, sizeof block, before);
        block[at] ^= (unsigned char)(1 << test_between(&state, 0, 7));
        cgp__nh(&key, block, sizeof block, after);
        for (int p = 0; p < 4; p++)
            assert_true(before[p] != after[p]);
    }
}
