/* linear.c -- y [N, out] = x [N, in] W [in, out] + bias, N = n rows; products by oneDNN.
 *
 *     dx = dy W^T        dW = x^T dy        dbias = sum over rows of dy
 *
 * W is held as it is or transposed (in_out says which); both are strides to oneDNN. Nothing is
 * saved. The bias is oneDNN's to add where it can. y is overwritten; dx overwritten or added
 * to; dW and dbias are overwritten by the first micro-batch and added to by the others: two
 * primitives, one of them with a sum post-op. dW is computed in the layout it is held in, so
 * that its rows are written as rows. */
#include "backend/cpu/cpu.h"

enum { OVERWRITE, ADD }; /* the products of BACKWARD_WEIGHT */

static cgp__matrix rows_of(int64_t width) {
    return (cgp__matrix){width, 1};
}

static cgp__matrix columns_of(int64_t width) {
    return (cgp__matrix){1, width};
}

static void forward_products(const cgp__kernel_spec *spec, cgp__product *out) {
    const cgp__geometry *g = &spec->geometry;
    *out = (cgp__product){.m = spec->n * g->rows,
                          .n = g->out,
                          .k = g->in,
                          .a = rows_of(g->in),
                          .b = g->in_out ? rows_of(g->out) : columns_of(g->in),
                          .c = rows_of(g->out)};
    out->bias = g->has_bias && !cgp__product_copies(out);
}

static void input_products(const cgp__kernel_spec *spec, cgp__product *out) {
    const cgp__geometry *g = &spec->geometry;
    *out = (cgp__product){.m = spec->n * g->rows,
                          .n = g->in,
                          .k = g->out,
                          .a = rows_of(g->out),
                          .b = g->in_out ? columns_of(g->out) : rows_of(g->in),
                          .c = rows_of(g->in),
                          .add = spec->add & 1u};
}

static void weight_products(const cgp__kernel_spec *spec, cgp__product *out) {
    const cgp__geometry *g = &spec->geometry;
    const int64_t m = g->in_out ? g->in : g->out, n = g->in_out ? g->out : g->in;
    for (int i = OVERWRITE; i <= ADD; i++)
        out[i] = (cgp__product){.m = m,
                                .n = n,
                                .k = spec->n * g->rows,
                                .a = columns_of(m),
                                .b = rows_of(n),
                                .c = rows_of(n),
                                .add = i == ADD};
}

static void add_bias(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *w = work;
    const int64_t width = w->kernel->spec.geometry.out;
    float *y = w->args->y;
    (void)thread;
    w->kernel->device->loops->add_bias(y + begin * width, w->args->param[1], end - begin,
                                       width);
}

static cgp_status forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__geometry *g = &kernel->spec.geometry;
    CGP_TRY(cgp__cpu_multiply(kernel, 0, args, args->x[0], args->param[0], args->param[1],
                              args->y));
    if (g->has_bias && !kernel->matmuls[0].bias)
        cgp__cpu_share_rows(kernel, args, g->out, add_bias);
    return CGP_OK;
}

static cgp_status backward_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (!args->dx[0]) return CGP_OK;
    return cgp__cpu_multiply(kernel, 0, args, args->dy, args->param[0], NULL, args->dx[0]);
}

static cgp_status backward_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__geometry *g = &kernel->spec.geometry;
    const float *x = args->x[0], *dy = args->dy;
    CGP_TRY(cgp__cpu_multiply(kernel, args->first ? OVERWRITE : ADD, args, g->in_out ? x : dy,
                              g->in_out ? dy : x, NULL, args->dparam[0]));
    if (g->has_bias)
        cgp__cpu_sum_rows(kernel->device, args->dparam[1], dy, cgp__cpu_rows(kernel), g->out,
                          !args->first);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_linear[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {forward, forward_products, NULL},
    [CGP__BACKWARD_INPUT] = {backward_input, input_products, NULL},
    [CGP__BACKWARD_WEIGHT] = {backward_weight, weight_products, NULL},
};
