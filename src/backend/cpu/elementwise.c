/* elementwise.c -- ADD, POSITION, GELU, DROPOUT, EMBEDDING: operands handed to the loops.
 *
 * None saves anything. Where the gradient of an input is dy itself (ADD, POSITION, DROPOUT
 * outside training) and shares its memory, nothing is done. */
#include "backend/cpu/cpu.h"

#include <string.h>

static int64_t sample_size(const cgp__kernel *kernel) {
    return kernel->spec.geometry.rows * kernel->spec.geometry.out;
}

static int64_t size_of(const cgp__kernel *kernel) {
    return kernel->spec.n * sample_size(kernel);
}

/* to = or += from; `to` may be NULL, or `from` */
static void pass(const cgp__kernel *kernel, float *to, const float *from, int64_t n, bool add) {
    if (!to) return;
    if (add)
        kernel->device->loops->add(to, to, from, n);
    else if (to != from)
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* --- ADD: y = x[0] + x[1] --- */

static cgp_status add_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    kernel->device->loops->add(args->y, args->x[0], args->x[1], size_of(kernel));
    return CGP_OK;
}

/* From the last input to the first: gradients of a value with two uses are added in that order,
 * and both may be one value. */
static cgp_status add_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    for (int k = CGP__MAX_INPUTS - 1; k >= 0; k--)
        pass(kernel, args->dx[k], args->dy, size_of(kernel), cgp__cpu_adds(kernel, k));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_add[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {add_forward, NULL, NULL},
    [CGP__BACKWARD_INPUT] = {add_input, NULL, NULL},
};

/* --- POSITION: y = x + weight [R, C], the same for every sample --- */

static cgp_status position_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const int64_t size = sample_size(kernel);
    const float *x = args->x[0];
    float *y = args->y;
    for (int64_t s = 0; s < kernel->spec.n; s++)
        kernel->device->loops->add(y + s * size, x + s * size, args->param[0], size);
    return CGP_OK;
}

static cgp_status position_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    pass(kernel, args->dx[0], args->dy, size_of(kernel), cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

/* A sample is one row of the sum. */
static cgp_status position_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    kernel->device->loops->sum_rows(args->dparam[0], args->dy, kernel->spec.n,
                                    sample_size(kernel), !args->first);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_position[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {position_forward, NULL, NULL},
    [CGP__BACKWARD_INPUT] = {position_input, NULL, NULL},
    [CGP__BACKWARD_WEIGHT] = {position_weight, NULL, NULL},
};

/* --- GELU --- */

static cgp_status gelu_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    kernel->device->loops->gelu_forward(args->y, args->x[0], size_of(kernel));
    return CGP_OK;
}

static cgp_status gelu_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0])
        kernel->device->loops->gelu_backward(args->dx[0], args->x[0], args->dy, size_of(kernel),
                                             cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_gelu[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {gelu_forward, NULL, NULL},
    [CGP__BACKWARD_INPUT] = {gelu_input, NULL, NULL},
};

/* --- DROPOUT: elements are numbered within a sample --- */

static void drop(const cgp__kernel *kernel, const cgp__kernel_args *args, float *to,
                 const float *from, bool add) {
    const int64_t size = sample_size(kernel);
    for (int64_t s = 0; s < kernel->spec.n; s++) {
        cgp__cpu_mask mask;
        if (cgp__cpu_mask_of(&mask, kernel, args, s))
            kernel->device->loops->dropout(to + s * size, from + s * size, size, &mask, add);
        else
            pass(kernel, to + s * size, from + s * size, size, add);
    }
}

static cgp_status dropout_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    drop(kernel, args, args->y, args->x[0], false);
    return CGP_OK;
}

static cgp_status dropout_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) drop(kernel, args, args->dx[0], args->dy, cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_dropout[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {dropout_forward, NULL, NULL},
    [CGP__BACKWARD_INPUT] = {dropout_input, NULL, NULL},
};

/* --- EMBEDDING: y [N, C] = weight[ids]; dweight[ids] += dy, in the order of rows --- */

static cgp_status embedding_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const int64_t rows = cgp__cpu_rows(kernel), width = kernel->spec.geometry.out;
    const int32_t *ids = args->x[0];
    float *y = args->y;
    for (int64_t row = 0; row < rows; row++)
        memcpy(y + row * width, args->param[0] + ids[row] * width, (size_t)width * sizeof *y);
    return CGP_OK;
}

static cgp_status embedding_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__geometry *g = &kernel->spec.geometry;
    const int64_t rows = cgp__cpu_rows(kernel), width = g->out;
    const int32_t *ids = args->x[0];
    float *dweight = args->dparam[0];
    if (args->first) memset(dweight, 0, (size_t)(g->in * width) * sizeof *dweight);
    for (int64_t row = 0; row < rows; row++) {
        float *to = dweight + ids[row] * width;
        kernel->device->loops->add(to, to, args->dy + row * width, width);
    }
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_embedding[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {embedding_forward, NULL, NULL},
    [CGP__BACKWARD_WEIGHT] = {embedding_weight, NULL, NULL},
};
