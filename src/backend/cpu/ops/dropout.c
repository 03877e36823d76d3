/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c -- DROPOUT and DROPOUT2D: y = x mask, dx = dy mask. Outside training, both ops copy x
 * to y, or do nothing if x and y share memory.
 *
 * The mask is recomputed, not saved; cgpipe/ext/ops/common.h defines the rule. */
#include "backend/cpu/operands.h"
#include "backend/cpu/ops/elementwise.h"

bool cgp__cpu_mask_of(cgp__cpu_mask *out, const cgp_kernel *kernel, const cgp_kernel_args *args,
                      int64_t sample) {
    const float p = kernel->spec.attributes.p;
    if (!args->training || p == 0.0f) return false;
    *out = (cgp__cpu_mask){.key = kernel->key,
                           .threshold = cgp__dropout_threshold(p),
                           .sample = (uint64_t)(args->values->sample + sample),
                           .scale = (float)(1.0 / (1.0 - (double)p))};
    return true;
}

/* --- DROPOUT: the mask counts elements within a sample, so blocks do not cross samples --- */

typedef struct dropout {
    cgp__cpu_call call;
    void *to;
    const void *from;
    bool add;
} dropout;

/* Run items begin .. end - 1. An item is a block of elements of one sample. */
static void dropout_range(const void *work, int64_t begin, int64_t end, int thread) {
    const dropout *d = work;
    const int64_t size = cgp__cpu_sample_size(d->call.kernel);
    const cgp_dtype type = d->call.kernel->spec.type;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const cgp__cpu_sample_block block = cgp__cpu_sample_block_of(i, size);
        cgp__cpu_mask mask;
        (void)cgp__cpu_mask_of(&mask, d->call.kernel, d->call.args, block.sample);
        d->call.kernel->device->kernels->dropout(
            type, cgp__cpu_at(type, d->to, block.sample * size),
            cgp__cpu_at(type, d->from, block.sample * size), block.begin, block.end, &mask, d->add);
    }
}

static void run_dropout(const cgp_kernel *kernel, const cgp_kernel_args *args, void *to,
                        const void *from, bool add) {
    const int64_t size = cgp__cpu_sample_size(kernel);
    const dropout work = {{kernel, args}, to, from, add};
    cgp__cpu_mask mask;
    if (cgp__cpu_mask_of(&mask, kernel, args, 0))
        cgp__cpu_parallel_for(kernel->device, kernel->spec.n * cgp__cpu_sample_blocks(size),
                              cgp__cpu_block_rows(size), dropout_range, &work);
    else
        cgp__cpu_pass(kernel->device, kernel->spec.type, to, from, cgp__cpu_size(kernel), add);
}

static cgp_status dropout_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    run_dropout(kernel, args, args->y, args->x[0], false);
    return CGP_OK;
}

static cgp_status dropout_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0]) run_dropout(kernel, args, args->dx[0], args->dy, cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_dropout[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {dropout_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {dropout_input, NULL},
};

/* --- DROPOUT2D: one factor per channel of a sample, computed before the rows --- */

static int64_t dropout2d_workspace(const cgp_kernel_spec *spec, int threads) {
    (void)threads;
    return spec->n * cgp__cpu_padded(spec->attributes.out) * (int64_t)sizeof(float);
}

static float *factors_of(const dropout *d, int64_t sample) {
    return (float *)d->call.args->workspace +
           sample * cgp__cpu_padded(d->call.kernel->spec.attributes.out);
}

static void dropout2d_range(const void *work, int64_t begin, int64_t end, int thread) {
    const dropout *d = work;
    const cgp_kernel_spec *spec = &d->call.kernel->spec;
    const int64_t rows = spec->attributes.rows, width = spec->attributes.out;
    (void)thread;
    for (int64_t row = begin, n; row < end; row += n) {
        const int64_t sample = row / rows, left = (sample + 1) * rows - row;
        n = left < end - row ? left : end - row;
        d->call.kernel->device->kernels->dropout_channels(
            spec->type, cgp__cpu_at(spec->type, d->to, row * width),
            cgp__cpu_at(spec->type, d->from, row * width), n, width, factors_of(d, sample), d->add);
    }
}

static void run_dropout2d(const cgp_kernel *kernel, const cgp_kernel_args *args, void *to,
                          const void *from, bool add) {
    const int64_t width = kernel->spec.attributes.out;
    const dropout work = {{kernel, args}, to, from, add};
    cgp__cpu_mask mask;
    if (!cgp__cpu_mask_of(&mask, kernel, args, 0)) {
        cgp__cpu_pass(kernel->device, kernel->spec.type, to, from, cgp__cpu_size(kernel), add);
        return;
    }
    for (int64_t sample = 0; sample < kernel->spec.n; sample++) {
        float *factors = factors_of(&work, sample);
        for (int64_t c = 0; c < width; c++)
            factors[c] = 1.0f;
        (void)cgp__cpu_mask_of(&mask, kernel, args, sample);
        kernel->device->kernels->dropout(CGP_F32, factors, factors, 0, width, &mask, false);
    }
    cgp__cpu_parallel_for(kernel->device, cgp__cpu_rows(kernel), cgp__cpu_block_rows(width),
                          dropout2d_range, &work);
}

static cgp_status dropout2d_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    run_dropout2d(kernel, args, args->y, args->x[0], false);
    return CGP_OK;
}

static cgp_status dropout2d_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0]) run_dropout2d(kernel, args, args->dx[0], args->dy, cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_dropout2d[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {dropout2d_forward, dropout2d_workspace},
    [CGP_OP_BACKWARD_INPUT] = {dropout2d_input, dropout2d_workspace},
};
