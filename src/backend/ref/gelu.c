/* SPDX-License-Identifier: Apache-2.0 */
/* gelu.c -- y = x Phi(x), where Phi is the normal distribution function: the exact erf form and the
 * tanh approximation. Reference kernels.
 *
 *     Phi(x) = (1 + erf(x / sqrt 2)) / 2          dx = dy (Phi(x) + x phi(x))
 *     phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
 *
 *     with tanh, u = sqrt(2 / pi) (x + 0.044715 x^3):
 *     Phi(x) = (1 + tanh u) / 2                   phi(x) = (1 - tanh^2 u) u' / 2
 *
 *
 * backward_input needs x. */
#include "backend/ref/ref.h"

#include <math.h>

static double distribution(double x) {
    return 0.5 * (1.0 + erf(x * 0.70710678118654752440));
}

static double density(double x) {
    return exp(-0.5 * x * x) * 0.39894228040143267794;
}

#define SQRT_TWO_OVER_PI 0.79788456080286535588
#define CUBIC 0.044715

static double tanh_distribution(double x) {
    return 0.5 * (1.0 + tanh(SQRT_TWO_OVER_PI * (x + CUBIC * x * x * x)));
}

/* Return phi(x) of the tanh approximation. Return 0 if 1 - tanh^2 u is 0, because u' may then be
 * infinite. */
static double tanh_density(double x) {
    const double t = tanh(SQRT_TWO_OVER_PI * (x + CUBIC * x * x * x));
    const double rest = 1.0 - t * t;
    return rest == 0.0 ? 0.0 : 0.5 * rest * SQRT_TWO_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
}

static double gelu(double x) {
    return x * distribution(x);
}

static double gelu_slope(double x) {
    return distribution(x) + x * density(x);
}

static double gelu_tanh(double x) {
    return x * tanh_distribution(x);
}

static double gelu_tanh_slope(double x) {
    return tanh_distribution(x) + x * tanh_density(x);
}

static void gelu_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map(spec, args, gelu);
}

static void gelu_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map_back(spec, args, args->x[0], gelu_slope);
}

static void gelu_tanh_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map(spec, args, gelu_tanh);
}

static void gelu_tanh_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map_back(spec, args, args->x[0], gelu_tanh_slope);
}

const cgp__ref_op cgp__ref_gelu = {.run = {gelu_forward, gelu_input}};
const cgp__ref_op cgp__ref_gelu_tanh = {.run = {gelu_tanh_forward, gelu_tanh_input}};
