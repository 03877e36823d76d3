/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_functions.c -- the cuda backend's exp, erf, tanh and log are close to libm's functions
 * in a wider type, for arguments of all exponents. Errors are measured in units in the last place
 * of the true value. The random words of dropout follow the specified rule. */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/base.h"
#include "functions.h"
#include "support.h"

static uint64_t seed;

/* Return the unit in the last place of a value, for a type with `digits` binary digits and the
 * least exponent `least`. */
static double unit_of(double value, int digits, int least) {
    int exponent;
    frexp(value, &exponent);
    if (value == 0.0 || exponent < least) exponent = least;
    return ldexp(1.0, exponent - digits);
}

typedef struct function {
    const char *name;
    float (*got)(float x);
    double (*want)(double x);
    float from, to;
    double units, absolute;
} function;

static void check_at(const function *f, float x) {
    if (!(x >= f->from && x <= f->to)) return;
    const double want = f->want((double)x), error = fabs((double)f->got(x) - want);
    const double unit = unit_of(want, FLT_MANT_DIG, FLT_MIN_EXP);
    if (!(error <= f->units * unit && error <= f->absolute))
        fail_msg("%s(%a) is off by %.3f units, by %.3g", f->name, (double)x, error / unit, error);
}

/* Test arguments of both signs. For every exponent, test the smallest number, the largest number,
 * and some numbers between. */
static void check(const function *f) {
    for (uint32_t high = 0; high < 512; high++) {
        for (uint32_t i = 0; i < 2048; i++) {
            const uint32_t low = i == 0 ? 0 : i == 1 ? 0x7fffffu : test_random(&seed) >> 41;
            const uint32_t bits = high << 23 | low;
            float x;
            memcpy(&x, &bits, sizeof x);
            check_at(f, x);
        }
    }
}

TEST_CASE(exp_is_near_libms) {
    check(&(function){"exp", function_exp, exp, -87.0f, 88.0f, 1.1, INFINITY});
    assert_true(function_exp(0.0f) == 1.0f);
    assert_true(function_exp(nextafterf(-87.0f, -INFINITY)) == 0.0f);
    assert_true(function_exp(-INFINITY) == 0.0f);
    assert_true(isnan(function_exp(NAN)));
}

/* Results below FLT_MIN are not compared, because the backend's exp returns 0 there. */
TEST_CASE(exp_of_any_number_is_near_libms) {
    check(&(function){"exp_of", function_exp_any, exp, -87.0f, 88.72f, 2.7, INFINITY});
    assert_true(function_exp_any(88.73f) == INFINITY && function_exp_any(INFINITY) == INFINITY);
    assert_true(function_exp_any(-INFINITY) == 0.0f);
    assert_true(isnan(function_exp_any(NAN)));
}

TEST_CASE(exp_minus_one_is_near_libms) {
    check(&(function){"expm1", function_exp_minus_one, expm1, -INFINITY, 0.0f, 1.0, INFINITY});
    assert_true(isnan(function_exp_minus_one(NAN)));
}

TEST_CASE(erf_is_near_libms) {
    check(&(function){"erf", function_erf, erf, -INFINITY, INFINITY, 3.7, 2e-7});
    assert_true(isnan(function_erf(NAN)));
}

TEST_CASE(tanh_is_near_libms) {
    check(&(function){"tanh", function_tanh, tanh, -INFINITY, INFINITY, 1.6, INFINITY});
    assert_true(function_tanh(INFINITY) == 1.0f && function_tanh(-INFINITY) == -1.0f);
    assert_true(isnan(function_tanh(NAN)));
}

TEST_CASE(log_one_plus_is_near_libms) {
    check(&(function){"log_one_plus", function_log_one_plus, log1p, 0.0f, 1.0f, 2.9, 1.0});
    assert_true(isnan(function_log_one_plus(NAN)));
}

static void check_log(double x) {
    const long double want = logl((long double)x);
    const double error = (double)fabsl((long double)function_log(x) - want);
    const double unit = unit_of((double)want, DBL_MANT_DIG, DBL_MIN_EXP);
    if (!(error <= 0.9 * unit)) fail_msg("log(%a) is off by %.3f units", x, error / unit);
}

/* Some arguments are near 1, where the logarithm is small. */
TEST_CASE(log_is_near_libms) {
    for (uint64_t exponent = 1; exponent < 2047; exponent++) {
        for (int i = 0; i < 512; i++) {
            const uint64_t bits = exponent << 52 | (i == 0 ? 0 : test_random(&seed) >> 12);
            double x;
            memcpy(&x, &bits, sizeof x);
            check_log(x);
        }
    }
    for (int i = 0; i < 500000; i++)
        check_log(0.5 + ldexp((double)(test_random(&seed) >> 11), -52));
    assert_true(function_log(1.0) == 0.0);
    assert_true(function_log(INFINITY) == INFINITY);
    assert_true(isnan(function_log(NAN)));
}

TEST_CASE(log_in_f32_is_near_libms) {
    check(&(function){"log_f32", function_log_f32, log, FLT_TRUE_MIN, FLT_MAX, 2.0, INFINITY});
    assert_true(function_log_f32(1.0f) == 0.0f);
    assert_true(function_log_f32(INFINITY) == INFINITY);
    assert_true(function_log_f32(0.0f) == -INFINITY && function_log_f32(-0.0f) == -INFINITY);
    assert_true(isnan(function_log_f32(-1.0f)) && isnan(function_log_f32(NAN)));
}

TEST_CASE(random_words_are_the_rules) {
    for (int i = 0; i < 1000; i++) {
        const cgp_step_values values = {.seed = test_random(&seed),
                                        .step = test_random(&seed),
                                        .sample = (int64_t)(test_random(&seed) >> 2)};
        const uint32_t id = (uint32_t)test_random(&seed), group = (uint32_t)test_random(&seed),
                       quad = (uint32_t)test_random(&seed);
        const int64_t sample = (int64_t)(test_random(&seed) >> 2);
        const uint64_t index = (uint64_t)(values.sample + sample);
        const uint32_t counter[4] = {quad, group, (uint32_t)index, (uint32_t)(index >> 32)};
        uint32_t got[4], want[4];
        cgp__philox(want, counter, cgp__rng_derive(values.seed, CGP__RNG_DROPOUT, values.step, id));
        function_dropout_words(got, &values, id, sample, group, quad);
        assert_memory_equal(got, want, sizeof got);
    }
}

int main(void) {
    seed = test_seed();
    return test_run();
}
