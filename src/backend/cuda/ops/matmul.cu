/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.cu -- batched matrix product y [M, N] = a [M, K] b [K, N]; `a` and `b` may each be stored
 * transposed.
 *
 *     da = dy b^T        db = a^T dy        or the transpose, if `a` or `b` is stored transposed
 *
 * A launch computes up to MOST matrices; blockIdx.z is the number of the matrix. If there are only
 * a few small matrices with a deep k, each gets a separate launch, which can use serial split-K.
 * The order of additions is the same in both cases. db is computed before da, because both may be
 * gradients of the same value. */
#include "backend/cuda/gemm_mma.cuh"

using namespace gemm;

namespace {

template <class T> using results = output<batched_rows, T>;

/* Maximum number of matrices of a launch, which is enough to fill any device. */
enum { MOST = 4096 };

/* --- launches --- */

template <class A, class B, class T>
cudaError_t run_all(A a, B b, results<T> c, const k_ranges &k, int64_t count, void *workspace,
                    cudaStream_t stream) {
    const int64_t sms = cgp__cuda_current()->multiprocessors;
    const bool apart = k.count > 1 && count * tiles_of<medium>(c.m, c.n) < sms;
    const int64_t at_a_time = apart ? 1 : MOST;
    for (int64_t done = 0; done < count; done += at_a_time) {
        const int64_t left = count - done, now = left < at_a_time ? left : at_a_time;
        CGP__TRY_CUDA_ERROR(apart ? run(a, b, c, k, workspace, stream)
                                  : run_batch(a, b, c, k, now, stream));
        a.rows.at += now * a.rows.step;
        b.rows.at += now * b.rows.step;
        c.at += now * c.rows.step;
    }
    return cudaSuccess;
}

/* --- y, da, db --- */

/* An operand [rows, columns] of the GEMM; `transposed`: its transpose is stored. */
template <class T> struct operand {
    const T *at;
    int64_t rows, columns;
    bool transposed;
};

template <class T> operand<T> turned(const operand<T> &x) {
    return {x.at, x.columns, x.rows, !x.transposed};
}

template <class T> batched<T> matrices_of(const operand<T> &x) {
    const int64_t rows = x.transposed ? x.columns : x.rows;
    const int64_t columns = x.transposed ? x.rows : x.columns;
    return {{matrix_of(x.at, rows, columns, columns)}, rows * columns};
}

/* A batch of products, one for each matrix. A product sets c to `a` times `b`, or adds the product
 * to c. */
template <class T> struct product {
    operand<T> a, b;
    T *c;
    bool add;
};

enum result { Y, DA, DB };

/* The gradient of a transposed operand is computed as its transpose. */
template <class T>
product<T> product_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, result of) {
    const cgp_op_matmul *g = cgp_spec_matmul(spec);
    const int64_t m = g->rows / g->heads;
    const operand<T> a = {(const T *)args->x[0], m, g->in, g->transposed[0] != 0};
    const operand<T> b = {(const T *)args->x[1], g->in, g->out, g->transposed[1] != 0};
    const operand<T> dy = {(const T *)args->dy, m, g->out, false};
    if (of == Y) return {a, b, (T *)args->y, false};
    product<T> p = of == DA ? product<T>{dy, turned(b), (T *)args->dx[0], adds(spec, 0)}
                            : product<T>{turned(a), dy, (T *)args->dx[1], adds(spec, 1)};
    if (of == DA ? a.transposed : b.transposed) {
        const operand<T> first = p.a;
        p.a = turned(p.b);
        p.b = turned(first);
    }
    return p;
}

template <class T>
cudaError_t multiply(const cgp_kernel_spec *spec, const cgp_kernel_args *args, result of,
                     cudaStream_t stream) {
    const product<T> p = product_of<T>(spec, args, of);
    const int64_t m = p.a.rows, n = p.b.columns, k = p.a.columns;
    const int64_t count = spec->n * cgp_spec_matmul(spec)->heads;
    if (!p.c) return cudaSuccess;
    if (!fits(m) || !fits(n) || !fits(k)) return cudaErrorInvalidValue;
    const results<T> c = {p.c, {n, m * n}, (int)m, (int)n, NULL, p.add, false, NULL};
    const batched<T> a = matrices_of(p.a), b = matrices_of(p.b);
    const along_k<batched<T>> a_along = {a}, b_along = {b};
    const across_k<batched<T>> a_across = {a}, b_across = {b};
    const k_ranges ranges = k_ranges_for<T>(k);
    void *workspace = args->workspace;
    if (p.a.transposed)
        return p.b.transposed
                   ? run_all(a_across, b_along, c, ranges, count, workspace, stream)
                   : run_all(a_across, b_across, c, ranges, count, workspace, stream);
    return p.b.transposed ? run_all(a_along, b_along, c, ranges, count, workspace, stream)
                          : run_all(a_along, b_across, c, ranges, count, workspace, stream);
}

template <class T>
cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                    cudaStream_t stream) {
    return multiply<T>(spec, args, Y, stream);
}

template <class T>
cudaError_t backward_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    CGP__TRY_CUDA_ERROR(multiply<T>(spec, args, DB, stream));
    return multiply<T>(spec, args, DA, stream);
}

int64_t bytes_of(const cgp_kernel_spec *spec, result of) {
    static const cgp_kernel_args no_args = {};
    const product<float> p = product_of<float>(spec, &no_args, of);
    return workspace_bytes(p.a.rows, p.b.columns, mma_k_ranges(p.a.columns).count, spec->type);
}

int64_t workspace(const cgp_kernel_spec *spec) {
    if (spec->direction == CGP_OP_FORWARD) return bytes_of(spec, Y);
    const int64_t da = bytes_of(spec, DA), db = bytes_of(spec, DB);
    return da > db ? da : db;
}

} // namespace

const cgp__cuda_op cgp__cuda_matmul = {{BY_TYPE(forward), BY_TYPE(backward_input)}, workspace};
