/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c -- y [N, out] = x [N, in] W [in, out] + bias, where N = n * rows.
 *
 *     dx = dy W^T        dW = x^T dy        dbias = sum over rows of dy
 *
 * The weight is stored as W (transposed = 1) or as W^T; strides describe the layout to the GEMM.
 * Nothing is saved. The kernels overwrite y, and overwrite dx or add to it. The first micro-batch
 * overwrites dW and dbias, and the others add to them. dW is computed in the layout in which it is
 * stored, so that its rows are written along memory. W, dW and the biases are f32; x, y and their
 * gradients have the spec's type. If AVX512_BF16 or AMX runs the GEMM in bf16 (tiles.h), W is
 * rounded to bf16 when it is packed. W is packed in each call, or once for many calls as prepacked
 * weights (FBGEMM, Khudia et al. 2021, arXiv:2101.05615). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/tiles.h"

/* Return operand b [k, n] of the GEMM: W or, in backward, W^T. */
static cgp__matrix weight_of(const cgp_kernel_spec *spec, const float *weight) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    if (spec->direction == CGP_OP_FORWARD)
        return g->transposed ? cgp__rows(CGP_F32, weight, g->out)
                             : cgp__columns(CGP_F32, weight, g->in);
    return g->transposed ? cgp__columns(CGP_F32, weight, g->out)
                         : cgp__rows(CGP_F32, weight, g->in);
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_linear *g = cgp_spec_linear(&kernel->spec);
    const cgp_dtype type = kernel->spec.type;
    const cgp__gemm gemm = {.m = cgp__cpu_rows(kernel),
                            .n = g->out,
                            .k = g->in,
                            .a = cgp__rows(type, args->x[0], g->in),
                            .b = weight_of(&kernel->spec, args->param[0]),
                            .packed_b = args->packed,
                            .bias = g->has_bias ? args->param[1] : NULL,
                            .type = type,
                            .c = args->y,
                            .stride = g->out,
                            .in_bf16 = type == CGP_BF16,
                            .prefetch = args->prefetch,
                            .n_prefetch = args->n_prefetch};
    cgp__gemm_run(kernel->device, false, &gemm, args->workspace);
    return CGP_OK;
}

static cgp_status backward_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_linear *g = cgp_spec_linear(&kernel->spec);
    const cgp_dtype type = kernel->spec.type;
    if (!args->dx[0]) return CGP_OK;
    const cgp__gemm gemm = {.m = cgp__cpu_rows(kernel),
                            .n = g->in,
                            .k = g->out,
                            .a = cgp__rows(type, args->dy, g->out),
                            .b = weight_of(&kernel->spec, args->param[0]),
                            .packed_b = args->packed,
                            .type = type,
                            .c = args->dx[0],
                            .stride = g->in,
                            .add = cgp__cpu_adds(kernel, 0),
                            .in_bf16 = type == CGP_BF16,
                            .prefetch = args->prefetch,
                            .n_prefetch = args->n_prefetch};
    cgp__gemm_run(kernel->device, false, &gemm, args->workspace);
    return CGP_OK;
}

static cgp_status backward_weight(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_linear *g = cgp_spec_linear(&kernel->spec);
    const cgp_dtype type = kernel->spec.type;
    const void *x = args->x[0], *dy = args->dy;
    const int64_t m = g->transposed ? g->in : g->out, n = g->transposed ? g->out : g->in;
    const cgp__gemm gemm = {.m = m,
                            .n = n,
                            .k = cgp__cpu_rows(kernel),
                            .a = cgp__columns(type, g->transposed ? x : dy, m),
                            .b = cgp__rows(type, g->transposed ? dy : x, n),
                            .type = CGP_F32,
                            .c = args->dparam[0],
                            .stride = n,
                            .add = !args->first,
                            .in_bf16 = type == CGP_BF16,
                            .prefetch = args->prefetch,
                            .n_prefetch = args->n_prefetch};
    if (args->dparam[0]) cgp__gemm_run(kernel->device, false, &gemm, args->workspace);
    if (g->has_bias && args->dparam[1])
        cgp__cpu_sum_rows(kernel->device, args->dparam[1], type, dy, cgp__cpu_rows(kernel), g->out,
                          !args->first);
    return CGP_OK;
}

static int64_t forward_workspace(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    return cgp__gemm_workspace(spec->n * g->rows, g->out, g->in, spec->type, spec->type == CGP_BF16,
                               threads);
}

static int64_t input_workspace(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    return cgp__gemm_workspace(spec->n * g->rows, g->in, g->out, spec->type, spec->type == CGP_BF16,
                               threads);
}

static int64_t weight_workspace(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    return cgp__gemm_workspace(g->transposed ? g->in : g->out, g->transposed ? g->out : g->in,
                               spec->n * g->rows, CGP_F32, spec->type == CGP_BF16, threads);
}

/* --- prepacked weights --- */

static int64_t packed_bytes(const cgp_kernel_spec *spec, int *layout) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const bool forward = spec->direction == CGP_OP_FORWARD;
    if (spec->direction == CGP_OP_BACKWARD_WEIGHT) return 0;
    /* The layout is derived from `transposed`, because strides do not distinguish the layouts if
     * the weight has only one row or column. */
    *layout = forward == g->transposed ? CGP__PREPACKED_ROWS : CGP__PREPACKED_COLUMNS;
    return forward ? cgp__tiles_packed_bytes(g->out, g->in)
                   : cgp__tiles_packed_bytes(g->in, g->out);
}

static void pack(cgp_device *device, const cgp_kernel_spec *spec, const float *weight,
                 uint16_t *to) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const bool forward = spec->direction == CGP_OP_FORWARD;
    cgp__tiles_pack(device, &(cgp__tile_packing){.tiles = device->tiles,
                                                 .b = weight_of(spec, weight),
                                                 .columns = forward ? g->out : g->in,
                                                 .k = forward ? g->in : g->out,
                                                 .to = to});
}

const cgp__cpu_prepack cgp__cpu_linear_prepack = {packed_bytes, pack};

const cgp__cpu_op cgp__cpu_linear[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, forward_workspace},
    [CGP_OP_BACKWARD_INPUT] = {backward_input, input_workspace},
    [CGP_OP_BACKWARD_WEIGHT] = {backward_weight, weight_workspace},
};
