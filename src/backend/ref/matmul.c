/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c -- y [M, N] = a [M, K] b [K, N] for each matrix; `a` and `b` may each be stored
 * transposed. Reference kernels.
 *
 *     da = dy b^T        db = a^T dy
 *
 * db is computed before da, because both may be gradients of the same value. The kernel overwrites
 * da and db or adds to them. */
#include "backend/ref/ref.h"

/* The sizes of the matrices, and their strides: the numbers of elements from one row, or one
 * column, to the next. */
typedef struct product {
    int64_t count, m, n, k;
    int64_t a_row, a_column, b_row, b_column;
} product;

static product product_of(const cgp_kernel_spec *spec) {
    const cgp_op_matmul *g = cgp_spec_matmul(spec);
    product p = {spec->n * g->heads, g->rows / g->heads, g->out, g->in, g->in, 1, g->out, 1};
    if (g->transposed[0]) {
        p.a_row = 1;
        p.a_column = p.m;
    }
    if (g->transposed[1]) {
        p.b_row = 1;
        p.b_column = p.k;
    }
    return p;
}

static void matmul_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const product p = product_of(spec);
    for (int64_t e = 0; e < p.count * p.m * p.n; e++) {
        const int64_t matrix = e / (p.m * p.n), i = e / p.n % p.m, j = e % p.n;
        const int64_t a = matrix * p.m * p.k + i * p.a_row;
        const int64_t b = matrix * p.k * p.n + j * p.b_column;
        double sum = 0.0;
        for (int64_t q = 0; q < p.k; q++)
            sum += (double)cgp__ref_load(spec->type, args->x[0], a + q * p.a_column) *
                   cgp__ref_load(spec->type, args->x[1], b + q * p.b_row);
        cgp__ref_write(spec->type, args->y, e, (float)sum);
    }
}

static void input_b(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const product p = product_of(spec);
    for (int64_t e = 0; args->dx[1] && e < p.count * p.k * p.n; e++) {
        const int64_t matrix = e / (p.k * p.n), q = e / p.n % p.k, j = e % p.n;
        const int64_t a = matrix * p.m * p.k + q * p.a_column;
        double sum = 0.0;
        for (int64_t i = 0; i < p.m; i++)
            sum += (double)cgp__ref_load(spec->type, args->x[0], a + i * p.a_row) *
                   cgp__ref_load(spec->type, args->dy, (matrix * p.m + i) * p.n + j);
        cgp__ref_store(spec->type, args->dx[1], matrix * p.k * p.n + q * p.b_row + j * p.b_column,
                       cgp__ref_adds(spec, 1), sum);
    }
}

static void input_a(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const product p = product_of(spec);
    for (int64_t e = 0; args->dx[0] && e < p.count * p.m * p.k; e++) {
        const int64_t matrix = e / (p.m * p.k), i = e / p.k % p.m, q = e % p.k;
        const int64_t b = matrix * p.k * p.n + q * p.b_row;
        double sum = 0.0;
        for (int64_t j = 0; j < p.n; j++)
            sum += (double)cgp__ref_load(spec->type, args->dy, (matrix * p.m + i) * p.n + j) *
                   cgp__ref_load(spec->type, args->x[1], b + j * p.b_column);
        cgp__ref_store(spec->type, args->dx[0], matrix * p.m * p.k + i * p.a_row + q * p.a_column,
                       cgp__ref_adds(spec, 0), sum);
    }
}

static void matmul_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    input_b(spec, args);
    input_a(spec, args);
}

const cgp__ref_op cgp__ref_matmul = {.run = {matmul_forward, matmul_input}};
