/* linear.c -- y [N, out] = x [N, in] W [in, out] + bias, N = n rows.
 *
 *     dx = dy W^T        dW = x^T dy        dbias = sum over rows of dy
 *
 * W is held as it is or transposed (in_out says which): strides to a product. Nothing is saved.
 * y is overwritten; dx overwritten or added to; dW and dbias are overwritten by the first
 * micro-batch and added to by the others. dW is computed in the layout it is held in, so that
 * its rows are written as rows. */
#include "backend/cpu/cpu.h"

static cgp__matrix rows_of(int64_t width) {
    return (cgp__matrix){width, 1};
}

static cgp__matrix columns_of(int64_t width) {
    return (cgp__matrix){1, width};
}

static cgp_status forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__geometry *g = &kernel->spec.geometry;
    const cgp__product product = {.m = cgp__cpu_rows(kernel),
                                  .n = g->out,
                                  .k = g->in,
                                  .a = args->x[0],
                                  .a_layout = rows_of(g->in),
                                  .b = args->param[0],
                                  .b_layout = g->in_out ? rows_of(g->out) : columns_of(g->in),
                                  .bias = g->has_bias ? args->param[1] : NULL,
                                  .c = args->y,
                                  .stride = g->out};
    cgp__product_run(kernel->device, false, &product, args->workspace);
    return CGP_OK;
}

static cgp_status backward_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__geometry *g = &kernel->spec.geometry;
    if (!args->dx[0]) return CGP_OK;
    const cgp__product product = {.m = cgp__cpu_rows(kernel),
                                  .n = g->in,
                                  .k = g->out,
                                  .a = args->dy,
                                  .a_layout = rows_of(g->out),
                                  .b = args->param[0],
                                  .b_layout = g->in_out ? columns_of(g->out) : rows_of(g->in),
                                  .c = args->dx[0],
                                  .stride = g->in,
                                  .add = cgp__cpu_adds(kernel, 0)};
    cgp__product_run(kernel->device, false, &product, args->workspace);
    return CGP_OK;
}

static cgp_status backward_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__geometry *g = &kernel->spec.geometry;
    const float *x = args->x[0], *dy = args->dy;
    const int64_t m = g->in_out ? g->in : g->out, n = g->in_out ? g->out : g->in;
    const cgp__product product = {.m = m,
                                  .n = n,
                                  .k = cgp__cpu_rows(kernel),
                                  .a = g->in_out ? x : dy,
                                  .a_layout = columns_of(m),
                                  .b = g->in_out ? dy : x,
                                  .b_layout = rows_of(n),
                                  .c = args->dparam[0],
                                  .stride = n,
                                  .add = !args->first};
    cgp__product_run(kernel->device, false, &product, args->workspace);
    if (g->has_bias)
        cgp__cpu_sum_rows(kernel->device, args->dparam[1], dy, cgp__cpu_rows(kernel), g->out,
                          !args->first);
    return CGP_OK;
}

static int64_t forward_bytes(const cgp__kernel_spec *spec, int threads) {
    return cgp__product_bytes(spec->n * spec->geometry.rows, spec->geometry.in, threads);
}

static int64_t input_bytes(const cgp__kernel_spec *spec, int threads) {
    return cgp__product_bytes(spec->n * spec->geometry.rows, spec->geometry.out, threads);
}

static int64_t weight_bytes(const cgp__kernel_spec *spec, int threads) {
    const cgp__geometry *g = &spec->geometry;
    return cgp__product_bytes(g->in_out ? g->in : g->out, spec->n * g->rows, threads);
}

const cgp__cpu_op cgp__cpu_linear[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {forward, forward_bytes},
    [CGP__BACKWARD_INPUT] = {backward_input, input_bytes},
    [CGP__BACKWARD_WEIGHT] = {backward_weight, weight_bytes},
};
