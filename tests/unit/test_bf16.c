/* SPDX-License-Identifier: Apache-2.0 */
/* test_bf16.c -- conversion of floats to bf16 and back. */
#include <cgpipe/tensor.h>

#include <math.h>

#include "support.h"
#include "base/bf16.h"

static uint64_t seed;

TEST_CASE(every_bf16_comes_back_as_it_was) {
    for (uint32_t bits = 0; bits < 0x10000u; bits++) {
        const float value = cgp__bf16_to_float((uint16_t)bits);
        const uint16_t back = cgp__bf16_from_float(value);
        if (isnan(value))
            assert_int_equal(back, bits | 0x40u); /* quiet */
        else
            assert_int_equal(back, bits);
    }
}

/* The test converts the midpoint of every two neighbouring bf16 numbers, and the two floats next to
 * the midpoint. */
TEST_CASE(a_float_becomes_the_nearest_bf16_halfway_to_even) {
    for (uint32_t bits = 0; bits < 0x7F80u; bits++) { /* finite values */
        uint32_t half = bits << 16 | 0x8000u;
        for (int sign = 0; sign < 2; sign++, half |= 0x80000000u) {
            const uint32_t low = half >> 16, high = low + 1; /* bf16 neighbours, |low| < |high| */
            float at[3];
            for (uint32_t k = 0; k < 3; k++) {
                const uint32_t near = half - 1 + k;
                memcpy(&at[k], &near, sizeof near);
            }
            assert_int_equal(cgp__bf16_from_float(at[0]), low);
            assert_int_equal(cgp__bf16_from_float(at[1]), low & 1 ? high : low);
            assert_int_equal(cgp__bf16_from_float(at[2]), high);
        }
    }
}

TEST_CASE(a_rounded_float_is_off_by_half_a_unit_at_max) {
    for (int i = 0; i < 100000; i++) {
        const double x = (double)(float)ldexp((double)test_between(&seed, -1000000, 1000000),
                                              test_between(&seed, -60, 60));
        const double y = cgp__bf16_to_float(cgp__bf16_from_float((float)x));
        if (!(fabs(x - y) <= ldexp(fabs(x), -8))) fail_msg("%.9g becomes %.9g", x, y);
    }
}

TEST_CASE(what_is_no_number_stays_so) {
    assert_int_equal(cgp__bf16_from_float(INFINITY), 0x7F80);
    assert_int_equal(cgp__bf16_from_float(-INFINITY), 0xFF80);
    assert_int_equal(cgp__bf16_from_float(3.4028235e38f), 0x7F80); /* the largest float */
    const uint32_t low = 0x7F800001u, high = 0xFFFFFFFFu; /* NaNs; rounding would give 0x7F80, 0 */
    float nan[2];
    memcpy(&nan[0], &low, sizeof low);
    memcpy(&nan[1], &high, sizeof high);
    for (int i = 0; i < 2; i++)
        assert_true(isnan(cgp__bf16_to_float(cgp__bf16_from_float(nan[i]))));
}

TEST_CASE(element_types_have_sizes_and_names) {
    assert_int_equal(cgp_dtype_bytes(CGP_F32), 4);
    assert_int_equal(cgp_dtype_bytes(CGP_I32), 4);
    assert_int_equal(cgp_dtype_bytes(CGP_BF16), 2);
    assert_string_equal(cgp_dtype_name(CGP_F32), "f32");
    assert_string_equal(cgp_dtype_name(CGP_I32), "i32");
    assert_string_equal(cgp_dtype_name(CGP_BF16), "bf16");
}

int main(void) {
    seed = test_seed();
    return test_run();
}
