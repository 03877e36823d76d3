/* gelu.c -- y = x Phi(x), Phi the normal distribution (the erf form), reference kernels.
 *
 *     Phi(x) = (1 + erf(x / sqrt 2)) / 2          dx = dy (Phi(x) + x phi(x))
 *     phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
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

void cgp__ref_gelu_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++) {
        const double x = cgp__ref_load(spec->type, args->x[0], i);
        cgp__ref_write(spec->type, args->y, i, (float)(x * distribution(x)));
    }
}

void cgp__ref_gelu_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->dx[0] && i < count; i++) {
        const double x = cgp__ref_load(spec->type, args->x[0], i);
        const double slope = distribution(x) + x * density(x);
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       cgp__ref_load(spec->type, args->dy, i) * slope);
    }
}
