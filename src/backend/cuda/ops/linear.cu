/* SPDX-License-Identifier: Apache-2.0 */
/* linear.cu -- y [N, out] = x [N, in] W [in, out] + bias, N = n rows.
 *
 *     dx = dy W^T        dW = x^T dy        dbias = sum over rows of dy
 *
 * The weight is stored as W (transposed = 1) or as W^T: its rows lie across k or along it. Nothing is saved. y is overwritten; dx
 * overwritten or added to; dW and dbias are overwritten by the first micro-batch and added to by the others. dW is made in its
 * storage layout. */
#include "backend/cuda/gemm.cuh"

using namespace gemm;

static int64_t rows_of(const cgp_kernel_spec *spec) {
    return spec->n * spec->attributes.rows;
}

static bool all_fit(const cgp_kernel_spec *spec) {
    return fits(rows_of(spec)) && fits(spec->attributes.in) && fits(spec->attributes.out);
}

/* c [m, n] = a [m, k] times a weight: of n rows along k, or of k rows across. */
static cudaError_t times_weight(const matrix &a, const float *weight, bool along,
                                const output<plain_rows> &c, void *workspace,
                                cudaStream_t stream) {
    const int64_t k = a.columns, n = c.n;
    const cuts blocks = even_cuts(k);
    if (along)
        return run(along_k<matrix>{a}, along_k<matrix>{matrix_of(weight, n, k, k)}, c, blocks,
                   workspace, stream);
    return run(along_k<matrix>{a}, across_k<matrix>{matrix_of(weight, k, n, n)}, c, blocks,
               workspace, stream);
}

static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t rows = rows_of(spec);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    output<plain_rows> y = output_of((float *)args->y, rows, g->out);
    if (g->has_bias) y.bias = args->param[1];
    return times_weight(matrix_of((const float *)args->x[0], rows, g->in, g->in),
                        args->param[0], !g->transposed, y, args->workspace, stream);
}

static cudaError_t backward_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t rows = rows_of(spec);
    if (!args->dx[0]) return cudaSuccess;
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    output<plain_rows> dx = output_of((float *)args->dx[0], rows, g->in);
    dx.add = adds(spec, 0);
    return times_weight(matrix_of((const float *)args->dy, rows, g->out, g->out),
                        args->param[0], g->transposed, dx, args->workspace, stream);
}

static cudaError_t backward_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                   cudaStream_t stream) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t rows = rows_of(spec);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    const matrix x = matrix_of((const float *)args->x[0], rows, g->in, g->in);
    const matrix dy = matrix_of((const float *)args->dy, rows, g->out, g->out);
    const matrix &a = g->transposed ? x : dy, &b = g->transposed ? dy : x;
    output<plain_rows> dw = output_of(args->dparam[0], a.columns, b.columns);
    dw.add = !args->first;
    CGP__TRY_CUDA(run(across_k<matrix>{a}, across_k<matrix>{b}, dw, even_cuts(rows),
                      args->workspace, stream));
    if (!g->has_bias) return cudaSuccess;
    return cgp__cuda_sum_rows(args->dparam[1], dy.at, rows, g->out, !args->first,
                              args->workspace, stream);
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t rows = rows_of(spec);
    if (spec->direction == CGP_OP_FORWARD)
        return workspace_bytes(rows, g->out, even_cuts(g->in).count);
    if (spec->direction == CGP_OP_BACKWARD_INPUT)
        return workspace_bytes(rows, g->in, even_cuts(g->out).count);
    const int64_t bytes = workspace_bytes(g->in, g->out, even_cuts(rows).count);
    const int64_t sums = g->has_bias ? cgp__cuda_sum_rows_workspace(rows, g->out) : 0;
    return bytes > sums ? bytes : sums;
}

const cgp__cuda_op cgp__cuda_linear = {
    {forward, backward_input, backward_weight}, workspace, false};
