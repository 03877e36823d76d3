/* rowwise.c -- LAYER_NORM, CROSS_ENTROPY and ARGMAX: operands handed to the vector loops. */
#include "backend/cpu/cpu.h"

/* --- LAYER_NORM: saves mean and rstd; dparam is made by the input half --- */

static cgp__cpu_norm norm_of(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    return (cgp__cpu_norm){.rows = cgp__cpu_rows(kernel),
                           .width = kernel->spec.geometry.out,
                           .eps = kernel->spec.geometry.eps,
                           .x = args->x[0],
                           .weight = args->param[0],
                           .bias = args->param[1],
                           .y = args->y,
                           .mean = args->saved[0],
                           .rstd = args->saved[1]};
}

static cgp_status norm_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__cpu_norm norm = norm_of(kernel, args);
    kernel->device->loops->layer_norm_forward(&norm);
    return CGP_OK;
}

static cgp_status norm_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_norm norm = norm_of(kernel, args);
    norm.dy = args->dy;
    norm.dx = args->dx[0];
    norm.add = cgp__cpu_adds(kernel, 0);
    norm.dweight = args->dparam[0];
    norm.dbias = args->dparam[1];
    norm.first = args->first;
    norm.sums = args->workspace;
    kernel->device->loops->layer_norm_backward(&norm);
    return CGP_OK;
}

/* Partial and whole sums of dweight and dbias. */
static int64_t norm_temporaries(const cgp__kernel_spec *spec) {
    return 4 * cgp__cpu_padded(spec->geometry.out) * (int64_t)sizeof(float);
}

static cgp_status norm_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    (void)kernel;
    (void)args;
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_layer_norm[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {norm_forward, NULL, NULL},
    [CGP__BACKWARD_INPUT] = {norm_input, NULL, norm_temporaries},
    [CGP__BACKWARD_WEIGHT] = {norm_weight, NULL, NULL},
};

/* --- CROSS_ENTROPY: saves lse; dx may overwrite the logits --- */

static cgp__cpu_loss loss_of(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    return (cgp__cpu_loss){.rows = cgp__cpu_rows(kernel),
                           .classes = kernel->spec.geometry.in,
                           .ignore = kernel->spec.geometry.ignore,
                           .x = args->x[0],
                           .targets = args->x[1],
                           .lse = args->saved[0],
                           .loss = args->loss,
                           .dx = args->dx[0],
                           .scale = args->loss_scale,
                           .add = cgp__cpu_adds(kernel, 0)};
}

static cgp_status loss_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__cpu_loss loss = loss_of(kernel, args);
    kernel->device->loops->cross_entropy_forward(&loss);
    return CGP_OK;
}

static cgp_status loss_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__cpu_loss loss = loss_of(kernel, args);
    if (loss.dx) kernel->device->loops->cross_entropy_backward(&loss);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_cross_entropy[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {loss_forward, NULL, NULL},
    [CGP__BACKWARD_INPUT] = {loss_input, NULL, NULL},
};

/* --- ARGMAX --- */

static cgp_status argmax_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const int64_t rows = cgp__cpu_rows(kernel), width = kernel->spec.geometry.in;
    int32_t *y = args->y;
    for (int64_t row = 0; row < rows; row++) {
        const float *x = (const float *)args->x[0] + row * width;
        int64_t best = 0;
        for (int64_t c = 1; c < width; c++)
            best = x[c] > x[best] ? c : best;
        y[row] = (int32_t)best;
    }
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_argmax[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {argmax_forward, NULL, NULL},
};
