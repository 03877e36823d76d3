/* SPDX-License-Identifier: Apache-2.0 */
/* silu.c -- y = x s, s = 1 / (1 + exp(-x)). Reference kernels.
 *
 *     dx = dy (s + x s (1 - s))
 *
 * backward_input needs x. */
#include "backend/ref/ref.h"

#include <math.h>

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static double silu(double x) {
    return x * sigmoid(x);
}

static double silu_slope(double x) {
    return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
}

static void silu_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map(spec, args, silu);
}

static void silu_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map_back(spec, args, args->x[0], silu_slope);
}

const cgp__ref_op cgp__ref_silu = {.run = {silu_forward, silu_input}};
