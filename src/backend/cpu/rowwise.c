/* SPDX-License-Identifier: Apache-2.0 */
/* rowwise.c -- LAYER_NORM, CROSS_ENTROPY and ARGMAX: operands handed to the vector loops. */
#include "backend/cpu/cpu.h"

#include <string.h>

#include "tensor/bf16.h"

/* --- LAYER_NORM: saves mean and rstd; dparam is made by the input half --- */

static cgp__cpu_norm norm_of(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    return (cgp__cpu_norm){.type = kernel->spec.type,
                           .rows = cgp__cpu_rows(kernel),
                           .width = kernel->spec.attributes.out,
                           .eps = kernel->spec.attributes.eps,
                           .x = args->x[0],
                           .weight = args->param[0],
                           .bias = args->param[1],
                           .y = args->y,
                           .mean = args->saved[0],
                           .rstd = args->saved[1]};
}

/* Its rows from `begin` on. */
static void norm_rows(cgp__cpu_norm *norm, int64_t begin, int64_t end) {
    const int64_t at = begin * norm->width;
    norm->rows = end - begin;
    norm->x = cgp__cpu_at(norm->type, norm->x, at);
    norm->mean += begin;
    norm->rstd += begin;
    if (norm->y) norm->y = cgp__cpu_at(norm->type, norm->y, at);
    if (norm->dy) norm->dy = cgp__cpu_at(norm->type, norm->dy, at);
    if (norm->dx) norm->dx = cgp__cpu_at(norm->type, norm->dx, at);
}

static void norm_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    cgp__cpu_norm norm = norm_of(call->kernel, call->args);
    (void)thread;
    norm_rows(&norm, begin, end);
    call->kernel->device->loops->layer_norm_forward(&norm);
}

static cgp_status norm_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out, norm_forward_part);
    return CGP_OK;
}

/* dweight and dbias are summed over blocks of 64 rows, and those sums added in order. The
 * workspace holds the whole sums, then those of the blocks: of one after the other, or of all
 * where threads share the rows. */
static int64_t norm_sums(const cgp__op_attributes *g) {
    return 2 * cgp__cpu_padded(g->out);
}

static bool norm_shares(const cgp__kernel_spec *spec, int threads) {
    const int64_t rows = spec->n * spec->attributes.rows;
    return rows * spec->attributes.out > CGP__CPU_SPLIT &&
           cgp__cpu_shares(threads, rows, CGP__CPU_BLOCK);
}

static int64_t norm_temporaries(const cgp__kernel_spec *spec, int threads) {
    const int64_t rows = spec->n * spec->attributes.rows;
    const int64_t blocks = (rows + CGP__CPU_BLOCK - 1) / CGP__CPU_BLOCK;
    const int64_t kept = norm_shares(spec, threads) ? blocks : 1;
    return (1 + kept) * norm_sums(&spec->attributes) * (int64_t)sizeof(float);
}

/* whole = sums of the first block, or += those of another */
static void add_block(const cgp__kernel *kernel, float *whole, const float *sums,
                      int64_t block) {
    const int64_t n = norm_sums(&kernel->spec.attributes);
    if (block == 0)
        memcpy(whole, sums, (size_t)n * sizeof *whole);
    else
        kernel->device->loops->add(CGP_F32, whole, whole, CGP_F32, sums, n);
}

static void norm_input_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel *kernel = call->kernel;
    const int64_t n = norm_sums(&kernel->spec.attributes);
    const bool shares = norm_shares(&kernel->spec, kernel->device->threads);
    float *whole = call->args->workspace;
    (void)thread;
    for (int64_t row = begin; row < end; row += CGP__CPU_BLOCK) {
        const int64_t left = end - row, block = row / CGP__CPU_BLOCK;
        cgp__cpu_norm norm = norm_of(kernel, call->args);
        norm.dy = call->args->dy;
        norm.dx = call->args->dx[0];
        norm.add = cgp__cpu_adds(kernel, 0);
        norm.sums = whole + n * (1 + (shares ? block : 0));
        norm_rows(&norm, row, row + (left < CGP__CPU_BLOCK ? left : CGP__CPU_BLOCK));
        kernel->device->loops->layer_norm_backward(&norm);
        if (!shares) add_block(kernel, whole, norm.sums, block);
    }
}

static void finish(const cgp__kernel *kernel, float *dparam, const float *whole, bool first) {
    const int64_t width = kernel->spec.attributes.out;
    if (dparam && first)
        memcpy(dparam, whole, (size_t)width * sizeof *dparam);
    else if (dparam)
        kernel->device->loops->add(CGP_F32, dparam, dparam, CGP_F32, whole, width);
}

static cgp_status norm_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const int64_t rows = cgp__cpu_rows(kernel), n = norm_sums(&kernel->spec.attributes);
    const cgp__cpu_call call = {kernel, args};
    float *whole = args->workspace;
    if (norm_shares(&kernel->spec, kernel->device->threads)) {
        cgp__cpu_parallel_for(kernel->device, rows, CGP__CPU_BLOCK, norm_input_part, &call);
        for (int64_t block = 0; block * CGP__CPU_BLOCK < rows; block++)
            add_block(kernel, whole, whole + n * (1 + block), block);
    } else {
        norm_input_part(&call, 0, rows, 0);
    }
    finish(kernel, args->dparam[0], whole, args->first);
    finish(kernel, args->dparam[1], whole + n / 2, args->first);
    return CGP_OK;
}

static cgp_status norm_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    (void)kernel;
    (void)args;
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_layer_norm[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {norm_forward, NULL},
    [CGP__BACKWARD_INPUT] = {norm_input, norm_temporaries},
    [CGP__BACKWARD_WEIGHT] = {norm_weight, NULL},
};

/* --- CROSS_ENTROPY: saves lse; dx may overwrite the logits --- */

/* Rows begin .. end - 1. */
static cgp__cpu_loss loss_of(const cgp__cpu_call *call, int64_t begin, int64_t end) {
    const cgp__kernel_args *args = call->args;
    const int64_t classes = call->kernel->spec.attributes.in;
    const cgp_dtype type = call->kernel->spec.type;
    void *dx = args->dx[0];
    return (cgp__cpu_loss){.type = type,
                           .rows = end - begin,
                           .classes = classes,
                           .ignore = call->kernel->spec.attributes.ignore,
                           .x = cgp__cpu_at(type, args->x[0], begin * classes),
                           .targets = (const int32_t *)args->x[1] + begin,
                           .lse = args->saved[0] + begin,
                           .dx = dx ? cgp__cpu_at(type, dx, begin * classes) : NULL,
                           .scale = args->loss_scale,
                           .add = cgp__cpu_adds(call->kernel, 0)};
}

/* One number for each row, added up afterwards. */
static int64_t loss_temporaries(const cgp__kernel_spec *spec, int threads) {
    (void)threads;
    return spec->n * spec->attributes.rows * (int64_t)sizeof(double);
}

static void loss_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    cgp__cpu_loss loss = loss_of(call, begin, end);
    (void)thread;
    loss.losses = (double *)call->args->workspace + begin;
    call->kernel->device->loops->cross_entropy_forward(&loss);
}

static void loss_input_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__cpu_loss loss = loss_of(call, begin, end);
    (void)thread;
    call->kernel->device->loops->cross_entropy_backward(&loss);
}

static cgp_status loss_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const double *losses = args->workspace;
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.in, loss_forward_part);
    *args->loss = 0.0;
    for (int64_t row = 0; row < cgp__cpu_rows(kernel); row++)
        *args->loss += losses[row];
    return CGP_OK;
}

static cgp_status loss_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0])
        cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.in, loss_input_part);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_cross_entropy[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {loss_forward, loss_temporaries},
    [CGP__BACKWARD_INPUT] = {loss_input, NULL},
};

/* --- ARGMAX --- */

static inline float scalar(cgp_dtype type, const void *x, int64_t i) {
    return type == CGP_BF16 ? cgp__bf16_to_float(((const uint16_t *)x)[i])
                            : ((const float *)x)[i];
}

static inline int64_t largest(cgp_dtype type, const void *x, int64_t width) {
    int64_t best = 0;
    for (int64_t c = 1; c < width; c++)
        best = scalar(type, x, c) > scalar(type, x, best) ? c : best;
    return best;
}

static void argmax_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t width = call->kernel->spec.attributes.in;
    const cgp_dtype type = call->kernel->spec.type;
    int32_t *y = call->args->y;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const void *x = cgp__cpu_at(type, call->args->x[0], row * width);
        y[row] = (int32_t)(type == CGP_BF16 ? largest(CGP_BF16, x, width)
                                            : largest(CGP_F32, x, width));
    }
}

static cgp_status argmax_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.in, argmax_part);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_argmax[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {argmax_forward, NULL},
};
