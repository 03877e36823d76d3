/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.c -- LAYER_NORM normalises rows to mean 0 and variance 1, and RMS_NORM to mean square
 * 1. Forward saves the mean (LAYER_NORM) and rstd; BACKWARD_INPUT also computes dparam. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/operands.h"

#include <string.h>

static bool is_centred(const cgp_kernel_spec *spec) {
    return spec->op == CGP_OP_LAYER_NORM;
}

static cgp__cpu_norm norm_of(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const bool centred = is_centred(&kernel->spec);
    return (cgp__cpu_norm){.type = kernel->spec.type,
                           .rows = cgp__cpu_rows(kernel),
                           .width = kernel->spec.attributes.out,
                           .eps = cgp_spec_norm(&kernel->spec)->eps,
                           .x = args->x[0],
                           .weight = args->param[0],
                           .bias = args->param[1],
                           .y = args->y,
                           .mean = centred ? args->saved[0] : NULL,
                           .rstd = args->saved[centred ? 1 : 0]};
}

/* Restrict a norm to rows begin .. end - 1. */
static void norm_rows(cgp__cpu_norm *norm, int64_t begin, int64_t end) {
    const int64_t at = begin * norm->width;
    norm->rows = end - begin;
    norm->x = cgp__cpu_at(norm->type, norm->x, at);
    if (norm->mean) norm->mean += begin;
    norm->rstd += begin;
    if (norm->y) norm->y = cgp__cpu_at(norm->type, norm->y, at);
    if (norm->dy) norm->dy = cgp__cpu_at(norm->type, norm->dy, at);
    if (norm->dx) norm->dx = cgp__cpu_at(norm->type, norm->dx, at);
}

static void norm_forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    cgp__cpu_norm norm = norm_of(call->kernel, call->args);
    (void)thread;
    norm_rows(&norm, begin, end);
    call->kernel->device->kernels->layer_norm_forward(&norm);
}

static cgp_status norm_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out, norm_forward_range);
    return CGP_OK;
}

/* dweight and dbias are summed over blocks of 64 rows, and the sums of blocks are added in order.
 * The workspace holds the total sums, followed by the sums of one block or, if rows run in
 * parallel, of all blocks. */
static int64_t norm_sums(const cgp_kernel_spec *spec) {
    return (is_centred(spec) ? 2 : 1) * cgp__cpu_padded(spec->attributes.out);
}

static bool norm_is_parallel(const cgp_kernel_spec *spec, int threads) {
    const int64_t rows = spec->n * spec->attributes.rows;
    return rows * spec->attributes.out > CGP__CPU_SPLIT &&
           cgp__cpu_is_parallel(threads, rows, CGP__CPU_BLOCK);
}

static int64_t norm_workspace(const cgp_kernel_spec *spec, int threads) {
    const int64_t rows = spec->n * spec->attributes.rows;
    const int64_t blocks = (rows + CGP__CPU_BLOCK - 1) / CGP__CPU_BLOCK;
    const int64_t kept = norm_is_parallel(spec, threads) ? blocks : 1;
    return (1 + kept) * norm_sums(spec) * (int64_t)sizeof(float);
}

/* Copy the sums of block 0 to `whole`, or add the sums of a later block. */
static void add_block(const cgp_kernel *kernel, float *whole, const float *sums, int64_t block) {
    const int64_t n = norm_sums(&kernel->spec);
    if (block == 0)
        memcpy(whole, sums, (size_t)n * sizeof *whole);
    else
        kernel->device->kernels->add(CGP_F32, whole, whole, CGP_F32, sums, n);
}

static void norm_input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel *kernel = call->kernel;
    const int64_t n = norm_sums(&kernel->spec);
    const bool parallel = norm_is_parallel(&kernel->spec, kernel->device->threads);
    float *whole = call->args->workspace;
    (void)thread;
    for (int64_t row = begin; row < end; row += CGP__CPU_BLOCK) {
        const int64_t left = end - row, block = row / CGP__CPU_BLOCK;
        cgp__cpu_norm norm = norm_of(kernel, call->args);
        norm.dy = call->args->dy;
        norm.dx = call->args->dx[0];
        norm.add = cgp__cpu_adds(kernel, 0);
        norm.sums = whole + n * (1 + (parallel ? block : 0));
        norm_rows(&norm, row, row + (left < CGP__CPU_BLOCK ? left : CGP__CPU_BLOCK));
        kernel->device->kernels->layer_norm_backward(&norm);
        if (!parallel) add_block(kernel, whole, norm.sums, block);
    }
}

static void finish(const cgp_kernel *kernel, float *dparam, const float *whole, bool first) {
    const int64_t width = kernel->spec.attributes.out;
    if (dparam && first)
        memcpy(dparam, whole, (size_t)width * sizeof *dparam);
    else if (dparam)
        kernel->device->kernels->add(CGP_F32, dparam, dparam, CGP_F32, whole, width);
}

static cgp_status norm_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const int64_t rows = cgp__cpu_rows(kernel), n = norm_sums(&kernel->spec);
    const cgp__cpu_call call = {kernel, args};
    float *whole = args->workspace;
    if (norm_is_parallel(&kernel->spec, kernel->device->threads)) {
        cgp__cpu_parallel_for(kernel->device, rows, CGP__CPU_BLOCK, norm_input_range, &call);
        for (int64_t block = 0; block * CGP__CPU_BLOCK < rows; block++)
            add_block(kernel, whole, whole + n * (1 + block), block);
    } else {
        norm_input_range(&call, 0, rows, 0);
    }
    finish(kernel, args->dparam[0], whole, args->first);
    if (is_centred(&kernel->spec)) finish(kernel, args->dparam[1], whole + n / 2, args->first);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_layer_norm[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {norm_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {norm_input, norm_workspace},
};

const cgp__cpu_op cgp__cpu_rms_norm[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {norm_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {norm_input, norm_workspace},
};
