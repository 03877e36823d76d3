/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c -- batched matrix product y [M, N] = a [M, K] b [K, N], one GEMM per matrix; `a` and `b`
 * may each be stored transposed.
 *
 *     da = dy b^T        db = a^T dy        or their transposes, to write along rows
 *
 * If there are many matrices, each thread computes whole matrices and has its own workspace. If
 * there are few, all threads share each GEMM. Either way, an element is summed in the GEMM's order
 * over blocks of k (gemm.h). db is computed before da, because both may be gradients of the same
 * value. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/gemm.h"

/* The least work, in vector-by-scalar FMAs, for which it pays to wake another thread. */
#define MIN_PARALLEL_WORK 2000000

/* An operand or a result of the product, of size [rows, columns]. If `transposed` is set, its
 * transpose is stored. */
typedef struct operand {
    const void *at;
    int64_t rows, columns;
    bool transposed;
} operand;

static operand turned(operand x) {
    return (operand){x.at, x.columns, x.rows, !x.transposed};
}

static cgp__matrix matrix_of(cgp_dtype type, operand x, int64_t index) {
    const void *at = cgp__cpu_at(type, x.at, index * x.rows * x.columns);
    return x.transposed ? cgp__columns(type, at, x.rows) : cgp__rows(type, at, x.columns);
}

/* A batch of `count` products. Each sets c to a b, or adds a b to c. */
typedef struct batch {
    cgp_device *device;
    int64_t count;
    operand a, b;
    cgp_dtype type;
    void *c;
    bool add;
    /* Thread 0's workspace of `bytes` bytes; the workspaces of the other threads follow. */
    char *workspace;
    int64_t bytes;
} batch;

/* Return the product that computes y, da or db. If the result is stored transposed, the product
 * computes its transpose. */
static batch batch_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int result) {
    const cgp_op_matmul *g = cgp_spec_matmul(spec);
    const int64_t m = g->rows / g->heads;
    const operand a = {args->x[0], m, g->in, g->transposed[0]};
    const operand b = {args->x[1], g->in, g->out, g->transposed[1]};
    const operand dy = {args->dy, m, g->out, false};
    batch w = {.count = spec->n * g->heads, .a = a, .b = b, .type = spec->type, .c = args->y};
    bool lies_transposed = false;
    if (result == 1) {
        w.a = dy;
        w.b = turned(b);
        w.c = args->dx[0];
        lies_transposed = a.transposed;
    } else if (result == 2) {
        w.a = turned(a);
        w.b = dy;
        w.c = args->dx[1];
        lies_transposed = b.transposed;
    }
    w.add = result > 0 && (spec->add >> (result - 1) & 1u);
    if (!lies_transposed) return w;
    const operand first = w.a;
    w.a = turned(w.b);
    w.b = turned(first);
    return w;
}

static void run_one(const batch *w, int64_t index, bool alone, void *workspace) {
    const int64_t m = w->a.rows, n = w->b.columns;
    const cgp__gemm gemm = {.m = m,
                            .n = n,
                            .k = w->a.columns,
                            .a = matrix_of(w->type, w->a, index),
                            .b = matrix_of(w->type, w->b, index),
                            .type = w->type,
                            .c = cgp__cpu_at(w->type, w->c, index * m * n),
                            .stride = n,
                            .add = w->add,
                            .in_bf16 = w->type == CGP_BF16};
    cgp__gemm_run(w->device, alone, &gemm, workspace);
}

static void matrices_range(const void *work, int64_t begin, int64_t end, int thread) {
    const batch *w = work;
    for (int64_t index = begin; index < end; index++)
        run_one(w, index, true, w->workspace + thread * w->bytes);
}

static int64_t bytes_of(const batch *w, int threads) {
    return cgp__gemm_workspace(w->a.rows, w->b.columns, w->a.columns, w->type, w->type == CGP_BF16,
                               threads);
}

static void run(const cgp_kernel *kernel, const cgp_kernel_args *args, int result) {
    batch w = batch_of(&kernel->spec, args, result);
    const double work = (double)w.a.rows * (double)w.a.columns * (double)(w.b.columns + 15) / 16;
    if (!w.c) return;
    w.device = kernel->device;
    w.workspace = args->workspace;
    w.bytes = bytes_of(&w, 1);
    if (w.count >= 2 * kernel->device->threads) {
        const int64_t block = work < MIN_PARALLEL_WORK ? (int64_t)(MIN_PARALLEL_WORK / work) : 1;
        cgp__cpu_parallel_for(kernel->device, w.count, block, matrices_range, &w);
        return;
    }
    for (int64_t index = 0; index < w.count; index++)
        run_one(&w, index, false, args->workspace);
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    run(kernel, args, 0);
    return CGP_OK;
}

static cgp_status backward_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    run(kernel, args, 2);
    run(kernel, args, 1);
    return CGP_OK;
}

/* Return a workspace size in bytes that is enough for all ways to divide the threads, and for any
 * number of matrices. */
static int64_t workspace(const cgp_kernel_spec *spec, int threads) {
    static const cgp_kernel_args no_args = {0};
    const bool back = spec->direction == CGP_OP_BACKWARD_INPUT;
    int64_t bytes = 0;
    for (int result = back; result <= 2 * back; result++) {
        const batch w = batch_of(spec, &no_args, result);
        bytes = cgp__max(bytes, cgp__max(threads * bytes_of(&w, 1), bytes_of(&w, threads)));
    }
    return bytes;
}

const cgp__cpu_op cgp__cpu_matmul[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, workspace},
    [CGP_OP_BACKWARD_INPUT] = {backward_input, workspace},
};
