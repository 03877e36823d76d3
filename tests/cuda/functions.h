/* SPDX-License-Identifier: Apache-2.0 */
/* functions.h -- device functions of math.cuh and rng.cuh, for tests. */
#ifndef CGP_TESTS_CUDA_FUNCTIONS_H
#define CGP_TESTS_CUDA_FUNCTIONS_H

#include <stdint.h>

#include <cgpipe/ext/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

float function_exp(float x);
float function_erf(float x);
float function_tanh(float x);
float function_log_one_plus(float x);
float function_exp_any(float x);
float function_exp_minus_one(float x);
float function_log_f32(float x);
double function_log(double x);

/* Compute the random words that decide which of four elements an op's dropout keeps. */
void function_dropout_words(uint32_t words[4], const cgp_step_values *values, uint32_t id,
                            int64_t sample, uint32_t group, uint32_t quad);

#ifdef __cplusplus
}
#endif
#endif
