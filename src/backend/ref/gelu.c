/* SPDX-License-Identifier: Apache-2.0 */
/* gelu.c -- y = x Phi(x), Phi the normal distribution, reference kernels: the erf form, and the one with tanh.
 *
 *     Phi(x) = (1 + erf(x / sqrt 2)) / 2          dx = dy (Phi(x) + x phi(x))
 *     phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
 *
 *     with tanh, u = sqrt(2 / pi) (x + 0.044715 x^3):
 *     Phi(x) = (1 + tanh u) / 2                   phi(x) = (1 - tanh^2 u) u' / 2
 *
 * backward_input needs x. y may be x, and dx may be dy unless it is added to. */
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

/* Phi's derivative. Where 1 - tanh^2 is 0, u' may be infinite. */
static double tanh_density(double x) {
    const double t = tanh(SQRT_TWO_OVER_PI * (x + CUBIC * x * x * x));
    const double rest = 1.0 - t * t;
    return rest == 0.0 ? 0.0 : 0.5 * rest * SQRT_TWO_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
}

typedef double of_x(double x);

static void forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args, of_x *phi) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++) {
        const double x = cgp__ref_load(spec->type, args->x[0], i);
        cgp__ref_write(spec->type, args->y, i, (float)(x * phi(x)));
    }
}

static void input(const cgp__kernel_spec *spec, const cgp__kernel_args *args, of_x *phi,
                  of_x *slope_of_phi) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->dx[0] && i < count; i++) {
        const double x = cgp__ref_load(spec->type, args->x[0], i);
        const double slope = phi(x) + x * slope_of_phi(x);
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       cgp__ref_load(spec->type, args->dy, i) * slope);
    }
}

void cgp__ref_gelu_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    forward(spec, args, distribution);
}

void cgp__ref_gelu_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    input(spec, args, distribution, density);
}

void cgp__ref_gelu_tanh_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    forward(spec, args, tanh_distribution);
}

void cgp__ref_gelu_tanh_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    input(spec, args, tanh_distribution, tanh_density);
}
