/* SPDX-License-Identifier: Apache-2.0 */
/* conv_transpose2d.c -- transposed convolution, which is the input gradient of the CONV2D that
 * maps y to x:
 *
 *     y  = CONV2D's dx, computed from x, + bias     dx    = CONV2D's y, computed from dy
 *     dW = CONV2D's dW, with x and dy exchanged     dbias = sum over pixels of dy
 *
 * Sums are added in the same order as in CONV2D. A pointwise transposed convolution is a LINEAR
 * with weight [out, in]. */
#include "backend/cpu/ops/conv2d.h"

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(&kernel->spec);
    if (cgp__is_pointwise(&kernel->spec)) return cgp__cpu_run_pointwise(kernel, args);
    const cgp_kernel_spec spec = cgp__conv2d_of(&kernel->spec, CGP_OP_BACKWARD_INPUT);
    const cgp__cpu_convolution conv = {.spec = &spec,
                                       .x = args->x[0],
                                       .weight = args->param[0],
                                       .bias = g->has_bias ? args->param[1] : NULL,
                                       .to = args->y};
    cgp__cpu_convolve_transposed(kernel->device, &conv, args->workspace);
    return CGP_OK;
}

static cgp_status backward_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (!args->dx[0]) return CGP_OK;
    if (cgp__is_pointwise(&kernel->spec)) return cgp__cpu_run_pointwise(kernel, args);
    const cgp_kernel_spec spec = cgp__conv2d_of(&kernel->spec, CGP_OP_FORWARD);
    const cgp__cpu_convolution conv = {.spec = &spec,
                                       .x = args->dy,
                                       .weight = args->param[0],
                                       .to = args->dx[0],
                                       .add = cgp__cpu_adds(kernel, 0)};
    cgp__cpu_convolve(kernel->device, &conv, args->workspace);
    return CGP_OK;
}

static cgp_status backward_weight(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(&kernel->spec);
    if (cgp__is_pointwise(&kernel->spec)) return cgp__cpu_run_pointwise(kernel, args);
    const cgp_kernel_spec spec = cgp__conv2d_of(&kernel->spec, CGP_OP_BACKWARD_WEIGHT);
    if (args->dparam[0])
        cgp__cpu_convolve_weight(kernel->device, &spec, args->dy, args->x[0], args->dparam[0],
                                 !args->first, args->workspace);
    if (g->has_bias && args->dparam[1])
        cgp__cpu_sum_rows(kernel->device, args->dparam[1], spec.type, args->dy,
                          cgp__cpu_rows(kernel), g->out, !args->first);
    return CGP_OK;
}

/* Return the workspace size, in bytes, of the CONV2D direction that runs. */
static int64_t workspace(const cgp_kernel_spec *spec, int threads) {
    static const cgp_op_direction directions[CGP_OP_DIRECTIONS] = {
        [CGP_OP_FORWARD] = CGP_OP_BACKWARD_INPUT,
        [CGP_OP_BACKWARD_INPUT] = CGP_OP_FORWARD,
        [CGP_OP_BACKWARD_WEIGHT] = CGP_OP_BACKWARD_WEIGHT};
    const cgp_op_direction direction = directions[spec->direction];
    if (cgp__is_pointwise(spec)) return cgp__cpu_pointwise_workspace(spec, threads);
    const cgp_kernel_spec conv = cgp__conv2d_of(spec, direction);
    return cgp__cpu_conv2d[direction].workspace(&conv, threads);
}

const cgp__cpu_op cgp__cpu_conv_transpose2d[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, workspace},
    [CGP_OP_BACKWARD_INPUT] = {backward_input, workspace},
    [CGP_OP_BACKWARD_WEIGHT] = {backward_weight, workspace},
};
