/* SPDX-License-Identifier: Apache-2.0 */
/* test_rng.c -- Philox4x32-10 is compared with the known answers in Random123 (kat_vectors), the
 * library of Philox's authors. The file also tests the keys and draws that are built on Philox. */
#include "base/base.h"
#include "support.h"

static void assert_philox(const uint32_t counter[4], cgp__rng_key key, const uint32_t expected[4]) {
    uint32_t out[4];
    cgp__philox(out, counter, key);
    for (int i = 0; i < 4; i++)
        assert_int_equal(out[i], expected[i]);
}

TEST_CASE(philox_gives_the_known_answers) {
    const uint32_t f = 0xffffffff;
    assert_philox((const uint32_t[]){0, 0, 0, 0}, (cgp__rng_key){0, 0},
                  (const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    assert_philox((const uint32_t[]){f, f, f, f}, (cgp__rng_key){f, f},
                  (const uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    /* counter and key are digits of pi */
    assert_philox((const uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                  (cgp__rng_key){0xa4093822, 0x299f31d0},
                  (const uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static int compare_keys(const void *a, const void *b) {
    return memcmp(a, b, sizeof(cgp__rng_key));
}

/* Philox is a bijection of the counter, but a key is only half of the output. Therefore two keys
 * can collide, but only by chance. The probability of a collision among 2 * 3 * 40 * 40 = 9600 keys
 * is 2e-12. */
TEST_CASE(keys_differ_by_seed_use_step_and_id) {
    enum { SEEDS = 2, USES = 3, STEPS = 40, IDS = 40, KEYS = SEEDS * USES * STEPS * IDS };
    static cgp__rng_key keys[KEYS];
    const uint64_t seed = 20240607;
    int n = 0;
    for (int s = 0; s < SEEDS; s++) {
        for (int use = CGP__RNG_DROPOUT; use <= CGP__RNG_DATA; use++) {
            for (int step = 0; step < STEPS; step++) {
                for (uint32_t id = 0; id < IDS; id++) {
                    /* both halves of the 64-bit seed and step matter */
                    const uint64_t high = (uint64_t)(step % 2) << 32;
                    keys[n++] = cgp__rng_derive(seed + ((uint64_t)s << 32), (cgp__rng_use)use,
                                                high + (uint64_t)(step / 2), id);
                }
            }
        }
    }
    assert_int_equal(n, KEYS);
    qsort(keys, KEYS, sizeof *keys, compare_keys);
    for (int i = 1; i < KEYS; i++)
        assert_memory_not_equal(&keys[i - 1], &keys[i], sizeof *keys);
}

TEST_CASE(a_key_depends_on_nothing_else) {
    const cgp__rng_key first = cgp__rng_derive(1, CGP__RNG_DROPOUT, 2, 3);
    cgp__rng_derive(7, CGP__RNG_DATA, 8, 9);
    const cgp__rng_key again = cgp__rng_derive(1, CGP__RNG_DROPOUT, 2, 3);
    assert_memory_equal(&first, &again, sizeof first);
}

/* Chi-square over b bins has mean b - 1 and standard deviation sqrt(2 (b - 1)). The tested bound is
 * 5 deviations above the mean. The draws are fixed, so the test always has the same result. */
TEST_CASE(below_is_in_range_and_uniform) {
    static const uint32_t bounds[] = {1, 2, 3, 10, 64, 1000};
    enum { DRAWS = 100000 };
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        int counts[1000] = {0};
        const cgp__rng_key key = cgp__rng_derive(5, CGP__RNG_DATA, 0, (uint32_t)b);
        for (uint64_t i = 0; i < DRAWS; i++) {
            const uint64_t draw = cgp__rng_below(key, i, bounds[b]);
            assert_in_range(draw, 0, bounds[b] - 1);
            counts[draw]++;
        }
        const double mean = (double)DRAWS / bounds[b];
        double chi = 0.0;
        for (uint32_t k = 0; k < bounds[b]; k++)
            chi += (counts[k] - mean) * (counts[k] - mean) / mean;
        const double freedom = bounds[b] - 1.0, limit = freedom + 5.0 * sqrt(2.0 * freedom);
        if (chi > limit)
            fail_msg("below %u: chi-square %g, expected at most %g", bounds[b], chi, limit);
    }
}

TEST_CASE(below_takes_both_halves_of_the_index) {
    const cgp__rng_key key = cgp__rng_derive(5, CGP__RNG_DATA, 0, 0);
    const uint64_t low = cgp__rng_below(key, 1, UINT32_MAX);
    const uint64_t high = cgp__rng_below(key, 1 + ((uint64_t)1 << 32), UINT32_MAX);
    assert_int_not_equal(low, high);
    assert_in_range(cgp__rng_below(key, UINT64_MAX, UINT32_MAX), 0, UINT32_MAX - 1);
}
