/* SPDX-License-Identifier: Apache-2.0 */
/* function.h -- elementwise functions with up to two constants, a = `slope` and b = `second`.
 * Backward of FUNCTION reads x, and backward of FUNCTION_OF_Y reads y.
 *
 *  op               x[0]       x[1]       y          saved  param
 *  FUNCTION         [n,R,C]    -          [n,R,C]    -      -
 *  FUNCTION_OF_Y    [n,R,C]    -          [n,R,C]    -      -
 *
 *  FUNCTION_OF_Y    y                               dx / dy
 *  HARDTANH         min(max(x, a), b)               1 if a < y < b, else 0
 *  SQRT             sqrt(x)                         1 / (2 y)
 *  RSQRT            1 / sqrt(x)                     -y^3 / 2
 *  RECIPROCAL       1 / x                           -y^2
 *  EXP              exp(x)                          y
 *
 *  FUNCTION         y                               dx / dy
 *  CLAMP            min(max(x, a), b)               1 if a <= x <= b, else 0
 *  HARDSIGMOID      min(max(x + 3, 0), 6) / 6       1 / 6 if -3 < x < 3, else 0
 *  HARDSWISH        x min(max(x + 3, 0), 6) / 6     0 if x <= -3, x / 3 + 1 / 2 if x < 3, else 1
 *  ABS              |x|                             sign(x), 0 at 0
 *  LOG              log(x)                          1 / x
 *  ELU              a (exp(b x) - 1) if x <= 0,     a b exp(b x) if x <= 0,
 *                   else x                          else 1
 *  SOFTPLUS         x if a x > b,                   1 if a x > b,
 *                   else log(1 + exp(a x)) / a      else 1 / (1 + exp(-a x))
 *  MISH             x t, t = tanh(log(1 + exp(x)))  t + x (1 - t^2) / (1 + exp(-x))
 *  BCE_ONE          -max(log(x), -100)              -(1 - x) / max((1 - x) x, 1e-12)
 *  BCE_ZERO         -max(log(1 - x), -100)          x / max((1 - x) x, 1e-12)
 *
 * If x is NaN, y is NaN, and comparisons with x are false. An infinite limit of HARDTANH or CLAMP
 * is no limit: even an infinite y counts as inside it. In bf16, backward of HARDTANH rounds its
 * limits, because y is rounded. Results of EXP that are denormal become 0. */
#ifndef CGPIPE_EXT_OPS_FUNCTION_H
#define CGPIPE_EXT_OPS_FUNCTION_H

#include <cgpipe/ext/ops/common.h>

/** The functions in the order of cgp_function, X(NAME). */
#define CGP_FUNCTION_LIST(X)                                                                       \
    X(HARDTANH)                                                                                    \
    X(SQRT)                                                                                        \
    X(RSQRT)                                                                                       \
    X(RECIPROCAL)                                                                                  \
    X(EXP)                                                                                         \
    X(CLAMP)                                                                                       \
    X(HARDSIGMOID)                                                                                 \
    X(HARDSWISH)                                                                                   \
    X(ABS)                                                                                         \
    X(LOG)                                                                                         \
    X(ELU)                                                                                         \
    X(SOFTPLUS)                                                                                    \
    X(MISH)                                                                                        \
    X(BCE_ONE)                                                                                     \
    X(BCE_ZERO)

/** Return true for the functions of FUNCTION_OF_Y. */
static inline bool cgp_function_is_of_y(cgp_function function) {
    return function < CGP_FUNCTION_CLAMP;
}

typedef struct CGP_OP_STRUCT cgp_op_function {
    CGP_OP_COMMON
    /** The function, a cgp_function. */
    int32_t function;
    float second;
} cgp_op_function;

#endif
