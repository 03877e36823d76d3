/* SPDX-License-Identifier: Apache-2.0 */
/* sigmoid.c -- SIGMOID: y = 1 / (1 + exp(-x)), dx = dy y (1 - y). TANH: y = tanh(x), dx = dy (1 -
 * y) (1 + y). Reference kernels; backward_input needs y. */
#include "backend/ref/ref.h"

#include <math.h>

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static double sigmoid_slope(double y) {
    return y * (1.0 - y);
}

static double tanh_slope(double y) {
    return (1.0 - y) * (1.0 + y);
}

static void sigmoid_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map(spec, args, sigmoid);
}

static void sigmoid_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map_back(spec, args, args->y, sigmoid_slope);
}

static void tanh_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map(spec, args, tanh);
}

static void tanh_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_map_back(spec, args, args->y, tanh_slope);
}

const cgp__ref_op cgp__ref_sigmoid = {.run = {sigmoid_forward, sigmoid_input}};
const cgp__ref_op cgp__ref_tanh = {.run = {tanh_forward, tanh_input}};
