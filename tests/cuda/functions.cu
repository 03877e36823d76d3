/* SPDX-License-Identifier: Apache-2.0 */
/* functions.cu -- see functions.h. */
#include "functions.h"
#include "backend/cuda/math.cuh"
#include "backend/cuda/rng.cuh"

extern "C" float function_exp(float x) {
    return exp_or_zero(x);
}

extern "C" float function_erf(float x) {
    return erf_of(x);
}

extern "C" float function_tanh(float x) {
    return tanh_of(x);
}

extern "C" float function_log_one_plus(float x) {
    return log_one_plus(x);
}

extern "C" float function_exp_any(float x) {
    return exp_of(x);
}

extern "C" float function_exp_minus_one(float x) {
    return exp_minus_one(x);
}

extern "C" float function_log_f32(float x) {
    return log_f32(x);
}

extern "C" double function_log(double x) {
    return log_of(x);
}

extern "C" void function_dropout_words(uint32_t words[4], const cgp_step_values *values,
                                       uint32_t id, int64_t sample, uint32_t group,
                                       uint32_t quad) {
    const dropout_rule rule = {values, id, 0, 1.0f, true};
    const rng_words out = dropout_words(dropout_mask_of(rule, sample), group, quad);
    for (int i = 0; i < 4; i++)
        words[i] = out.at[i];
}
