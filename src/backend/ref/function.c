/* SPDX-License-Identifier: Apache-2.0 */
/* function.c -- the functions of FUNCTION and FUNCTION_OF_Y, and their derivatives
 * (cgpipe/ext/ops/function.h). Reference kernels. The output y may alias x. The gradient dx may
 * alias dy unless the kernel adds to dx. */
#include "backend/ref/ref.h"

#include <math.h>

static double within(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

static double at_most(double x, double limit) {
    return x > limit ? limit : x;
}

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static double softplus(double x) {
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

/* Return y. In SOFTPLUS, the product that is compared with the threshold is rounded to f32, as in
 * other backends. */
static double value_of(cgp_function function, double x, double a, double b) {
    if (isnan(x)) return x;
    switch (function) {
    case CGP_FUNCTION_HARDTANH:
    case CGP_FUNCTION_CLAMP:
        return within(x, a, b);
    case CGP_FUNCTION_SQRT:
        return sqrt(x);
    case CGP_FUNCTION_RSQRT:
        return 1.0 / sqrt(x);
    case CGP_FUNCTION_RECIPROCAL:
        return 1.0 / x;
    case CGP_FUNCTION_EXP:
        return exp(x);
    case CGP_FUNCTION_HARDSIGMOID:
        return within(x + 3.0, 0.0, 6.0) / 6.0;
    case CGP_FUNCTION_HARDSWISH:
        return x * within(x + 3.0, 0.0, 6.0) / 6.0;
    case CGP_FUNCTION_ABS:
        return fabs(x);
    case CGP_FUNCTION_LOG:
        return log(x);
    case CGP_FUNCTION_ELU:
        return x <= 0.0 ? a * expm1(b * x) : x;
    case CGP_FUNCTION_SOFTPLUS:
        return (float)(a * x) > (float)b ? x : softplus(a * x) / a;
    case CGP_FUNCTION_BCE_ONE:
        return at_most(-log(x), 100.0);
    case CGP_FUNCTION_BCE_ZERO:
        return at_most(-log1p(-x), 100.0);
    default:
        return x * tanh(softplus(x));
    }
}

static double mish_slope(double x) {
    const double t = tanh(softplus(x));
    return t + x * (1.0 - t * t) * sigmoid(x);
}

/* Return dx. For the functions of FUNCTION_OF_Y, `x` holds y. */
static double gradient_of(cgp_function function, double x, double dy, double a, double b) {
    switch (function) {
    case CGP_FUNCTION_HARDTANH:
        return x <= a || x >= b || isnan(x) ? 0.0 : dy;
    case CGP_FUNCTION_CLAMP:
        return x >= a && x <= b ? dy : 0.0;
    case CGP_FUNCTION_SQRT:
        return dy / (2.0 * x);
    case CGP_FUNCTION_RSQRT:
        return -0.5 * dy * (x * x * x);
    case CGP_FUNCTION_RECIPROCAL:
        return -dy * (x * x);
    case CGP_FUNCTION_EXP:
        return dy * x;
    case CGP_FUNCTION_HARDSIGMOID:
        return x > -3.0 && x < 3.0 ? dy / 6.0 : 0.0;
    case CGP_FUNCTION_HARDSWISH:
        return x <= -3.0 ? 0.0 : x < 3.0 ? dy * (x / 3.0 + 0.5) : dy;
    case CGP_FUNCTION_ABS:
        return x > 0.0 ? dy : x < 0.0 ? -dy : 0.0;
    case CGP_FUNCTION_LOG:
        return dy / x;
    case CGP_FUNCTION_ELU:
        return x <= 0.0 ? dy * a * b * exp(b * x) : dy;
    case CGP_FUNCTION_SOFTPLUS:
        return (float)(a * x) > (float)b ? dy : dy * sigmoid(a * x);
    case CGP_FUNCTION_BCE_ONE:
        return -dy * (1.0 - x) / fmax((1.0 - x) * x, 1e-12);
    case CGP_FUNCTION_BCE_ZERO:
        return dy * x / fmax((1.0 - x) * x, 1e-12);
    default:
        return dy * mish_slope(x);
    }
}

/* Return a limit of HARDTANH, rounded to the type of y. For an infinite limit, return NaN.
 * Comparisons with NaN are false, so no y reaches such a limit. Constants of other functions are
 * returned unchanged. */
static float reached(const cgp_kernel_spec *spec, float limit) {
    if (cgp_spec_function(spec)->function != CGP_FUNCTION_HARDTANH) return limit;
    if (isinf(limit)) return NAN;
    return spec->type == CGP_BF16 ? cgp__bf16_to_float(cgp__bf16_from_float(limit)) : limit;
}

static void function_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_function *f = cgp_spec_function(spec);
    for (int64_t i = 0; i < cgp__ref_elements(spec); i++) {
        const double x = cgp__ref_load(spec->type, args->x[0], i);
        cgp__ref_write(spec->type, args->y, i,
                       (float)value_of((cgp_function)f->function, x, f->slope, f->second));
    }
}

static void function_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_function *f = cgp_spec_function(spec);
    const void *operand = spec->op == CGP_OP_FUNCTION_OF_Y ? args->y : args->x[0];
    const double a = reached(spec, f->slope), b = reached(spec, f->second);
    for (int64_t i = 0; args->dx[0] && i < cgp__ref_elements(spec); i++) {
        const double x = cgp__ref_load(spec->type, operand, i);
        const double dy = cgp__ref_load(spec->type, args->dy, i);
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       gradient_of((cgp_function)f->function, x, dy, a, b));
    }
}

const cgp__ref_op cgp__ref_function = {.run = {function_forward, function_input}};
const cgp__ref_op cgp__ref_function_of_y = {.run = {function_forward, function_input}};
