/* SPDX-License-Identifier: Apache-2.0 */
/* linear.cu -- y [N, out] = x [N, in] W [in, out] + bias, where N = n * rows.
 *
 *     dx = dy W^T        dW = x^T dy        dbias = sum over rows of dy
 *
 * The weight is stored as W (transposed = 1), with rows across k, or as W^T, with rows along k.
 * Nothing is saved. The kernels overwrite y, and overwrite dx or add to it. The first micro-batch
 * overwrites dW and dbias; later micro-batches add to them. dW is computed in the layout in which
 * it is stored.
 *
 * In bf16, cuBLASLt computes the GEMMs if it can (gemm_lt.h). It uses prepacked weights (FBGEMM:
 * Khudia et al. 2021, arXiv:2101.05615), which are bf16 copies of weight and bias. Otherwise
 * gemm_mma.cuh computes the GEMMs from the copy of the weight. In tf32, cuBLASLt reads the f32
 * weights themselves; GEMMs that it cannot compute run as in f32. */
#include <initializer_list>

#include "backend/cuda/gemm_lt.h"
#include "backend/cuda/gemm_mma.cuh"

using namespace gemm;

static int64_t rows_of(const cgp_kernel_spec *spec) {
    return spec->n * spec->attributes.rows;
}

static bool all_fit(const cgp_kernel_spec *spec) {
    return fits(rows_of(spec)) && fits(spec->attributes.in) && fits(spec->attributes.out);
}

/* Compute c [m, n] as `a` [m, k] times a weight. The weight is stored as n rows along k or as k
 * rows across k. */
template <class T>
static cudaError_t times_weight(const matrix<T> &a, const T *weight, bool along,
                                const output<plain_rows, T> &c, void *workspace,
                                cudaStream_t stream) {
    const int64_t k = a.columns, n = c.n;
    const k_ranges ranges = k_ranges_for<T>(k);
    if (along)
        return run(along_k<matrix<T>>{a}, along_k<matrix<T>>{matrix_of(weight, n, k, k)}, c, ranges,
                   workspace, stream);
    return run(along_k<matrix<T>>{a}, across_k<matrix<T>>{matrix_of(weight, k, n, n)}, c, ranges,
               workspace, stream);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const int64_t rows = rows_of(spec);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    output<plain_rows, T> y = output_of((T *)args->y, rows, g->out);
    if (g->has_bias) y.bias = args->param[1];
    return times_weight(matrix_of((const T *)args->x[0], rows, g->in, g->in), weight_of<T>(args),
                        !g->transposed, y, args->workspace, stream);
}

template <class T>
static cudaError_t backward_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const int64_t rows = rows_of(spec);
    if (!args->dx[0]) return cudaSuccess;
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    output<plain_rows, T> dx = output_of((T *)args->dx[0], rows, g->in);
    dx.add = adds(spec, 0);
    return times_weight(matrix_of((const T *)args->dy, rows, g->out, g->out), weight_of<T>(args),
                        g->transposed, dx, args->workspace, stream);
}

template <class T>
static cudaError_t bias_gradient(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                 cudaStream_t stream) {
    if (!cgp_spec_linear(spec)->has_bias || !args->dparam[1]) return cudaSuccess;
    return cgp__cuda_sum_rows(args->dparam[1], (const T *)args->dy, rows_of(spec),
                              spec->attributes.out, !args->first, args->workspace, stream);
}

template <class T>
static cudaError_t backward_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                   cudaStream_t stream) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const int64_t rows = rows_of(spec);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    if (!args->dparam[0]) return bias_gradient<T>(spec, args, stream);
    const matrix<T> x = matrix_of((const T *)args->x[0], rows, g->in, g->in);
    const matrix<T> dy = matrix_of((const T *)args->dy, rows, g->out, g->out);
    const matrix<T> &a = g->transposed ? x : dy, &b = g->transposed ? dy : x;
    output<plain_rows, float> dw = output_of(args->dparam[0], a.columns, b.columns);
    dw.add = !args->first;
    CGP__TRY_CUDA_ERROR(run(across_k<matrix<T>>{a}, across_k<matrix<T>>{b}, dw,
                            k_ranges_of_rows<T>(rows), args->workspace, stream));
    return bias_gradient<T>(spec, args, stream);
}

/* --- cuBLASLt --- */

/* Get the LINEAR that a kernel computes. Return false if the kernel computes no LINEAR. */
static bool linear_of(const cgp_kernel_spec *spec, cgp_kernel_spec *linear) {
    if (spec->op == CGP_OP_CONV2D || spec->op == CGP_OP_CONV_TRANSPOSE2D)
        return cgp__cuda_pointwise(spec, linear);
    *linear = *spec;
    return spec->op == CGP_OP_LINEAR;
}

/* Return whether cuBLASLt computes GEMMs of this precision. */
static bool uses_library(const cgp_kernel_spec *spec) {
    return spec->type == CGP_BF16 || spec->tf32;
}

bool cgp__cuda_gemm_problem_of(const cgp_kernel_spec *spec, cgp__cuda_gemm_problem *out) {
    cgp_kernel_spec linear;
    const bool tf32 = spec->tf32;
    if (!uses_library(spec) || !linear_of(spec, &linear) || !all_fit(&linear)) return false;
    const cgp_op_linear *g = cgp_spec_linear(&linear);
    const int64_t rows = rows_of(&linear), in = g->in, outs = g->out;
    const bool forward = spec->direction == CGP_OP_FORWARD, transposed = g->transposed;
    if (spec->direction == CGP_OP_BACKWARD_WEIGHT) {
        const int64_t m = transposed ? in : outs, n = transposed ? outs : in;
        *out = {m, n, rows, true, false, m, false, CGP_F32, tf32};
        return true;
    }
    const int64_t k = forward ? in : outs, n = forward ? outs : in;
    const bool along = forward ? !transposed : transposed, bias = forward && g->has_bias;
    *out = {rows, n, k, false, along, k, bias, spec->type, tf32};
    return true;
}

/* Return the bytes of a bf16 copy of n elements. */
static int64_t copy_bytes(int64_t n) {
    return ceil_div(n * (int64_t)sizeof(bf16), 64) * 64;
}

/* Return the number of elements of the weight that GEMMs read. LINEAR and convolutions without
 * groups have such a weight; return 0 for another op. */
static int64_t weight_elements(const cgp_kernel_spec *spec) {
    const int64_t n = spec->attributes.in * spec->attributes.out;
    if (spec->op == CGP_OP_LINEAR) return n;
    if (spec->op != CGP_OP_CONV2D && spec->op != CGP_OP_CONV_TRANSPOSE2D) return 0;
    const cgp_op_windows *g = cgp_spec_windows(spec);
    return g->groups > 1 ? 0 : n * g->kernel_height * g->kernel_width;
}

/* Return whether the bias is prepacked. Only cuBLASLt needs a prepacked bias. */
static bool packs_bias(const cgp_kernel_spec *spec) {
    cgp_kernel_spec linear;
    return linear_of(spec, &linear) && cgp_spec_linear(&linear)->has_bias;
}

/* Forward and the gradient of the input use prepacked weights and biases. */
int64_t cgp__cuda_prepacked_bytes(const cgp_kernel_spec *spec) {
    const int64_t n = weight_elements(spec);
    if (n == 0 || spec->type != CGP_BF16 || spec->direction == CGP_OP_BACKWARD_WEIGHT) return 0;
    return copy_bytes(n) + (packs_bias(spec) ? copy_bytes(spec->attributes.out) : 0);
}

cudaError_t cgp__cuda_prepack(const cgp_kernel_spec *spec, const float *const *param, void *packed,
                              cudaStream_t stream) {
    const int64_t n = weight_elements(spec);
    char *bias = (char *)packed + copy_bytes(n);
    if (n == 0) return cudaErrorInvalidValue;
    CGP__TRY_CUDA_ERROR(cgp__cuda_convert(CGP_BF16, packed, CGP_F32, param[0], n, stream));
    if (!packs_bias(spec)) return cudaSuccess;
    return cgp__cuda_convert(CGP_BF16, bias, CGP_F32, param[1], spec->attributes.out, stream);
}

static bool is_aligned(std::initializer_list<const void *> all) {
    for (const void *at : all)
        if ((uintptr_t)at % CGP__CUDA_LT_ALIGN != 0) return false;
    return true;
}

/* Return whether the library can read and write the operands of a LINEAR. Prepacked parameters are
 * always aligned. */
static bool fit_library(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const void *weight = spec->tf32 ? args->param[0] : NULL;
    const void *bias = spec->tf32 ? args->param[1] : NULL;
    switch (spec->direction) {
    case CGP_OP_FORWARD:
        return is_aligned({args->x[0], weight, bias, args->y});
    case CGP_OP_BACKWARD_INPUT:
        return is_aligned({args->dy, weight, args->dx[0]});
    default:
        return is_aligned({args->x[0], args->dy, args->dparam[0]});
    }
}

/* Align the workspace for the library. */
static void *library_workspace(const cgp_kernel_args *args) {
    const uintptr_t align = CGP__CUDA_LT_WORKSPACE_ALIGN;
    return (void *)(((uintptr_t)args->workspace + align - 1) / align * align);
}

static cudaError_t gemm_of_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cgp__cuda_lt_gemm *gemm, cudaStream_t stream) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const bool forward = spec->direction == CGP_OP_FORWARD;
    const char *packed = (const char *)args->packed;
    const void *weight = spec->tf32 ? (const void *)args->param[0] : packed;
    const void *bias =
        spec->tf32 ? (const void *)args->param[1] : packed + copy_bytes(g->in * g->out);
    const cgp__cuda_lt_operands o = {forward ? args->x[0] : args->dy,
                                     weight,
                                     forward && g->has_bias ? bias : NULL,
                                     forward ? args->y : args->dx[0],
                                     !forward && adds(spec, 0),
                                     library_workspace(args)};
    return cgp__cuda_lt_gemm_run(gemm, &o, stream);
}

static cudaError_t gemm_of_rows(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                cgp__cuda_lt_gemm *gemm, cudaStream_t stream) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const void *a = g->transposed ? args->x[0] : args->dy;
    const void *b = g->transposed ? args->dy : args->x[0];
    const cgp__cuda_lt_operands o = {
        a, b, NULL, args->dparam[0], !args->first, library_workspace(args)};
    if (args->dparam[0]) CGP__TRY_CUDA_ERROR(cgp__cuda_lt_gemm_run(gemm, &o, stream));
    return by_type<bias_gradient<float>, bias_gradient<bf16>>(spec, args, stream);
}

/* Run the GEMM of a kernel. Plans align operands to 64 bytes, but other callers may not. Without
 * this alignment, the plug-in's own kernels compute the GEMM. */
cudaError_t cgp__cuda_run_gemm(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                               cgp__cuda_lt_gemm *gemm, cudaStream_t stream) {
    cgp_kernel_spec linear;
    const bool of_rows = spec->direction == CGP_OP_BACKWARD_WEIGHT;
    if (spec->direction == CGP_OP_BACKWARD_INPUT && !args->dx[0]) return cudaSuccess;
    if (!linear_of(spec, &linear)) return cudaErrorInvalidValue;
    if (!fit_library(&linear, args))
        return cgp__cuda_linear.run[spec->direction](&linear, args, stream);
    return of_rows ? gemm_of_rows(&linear, args, gemm, stream)
                   : gemm_of_weight(&linear, args, gemm, stream);
}

/* --- workspace --- */

static int64_t own_workspace(const cgp_kernel_spec *spec) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const int64_t rows = rows_of(spec);
    if (spec->direction == CGP_OP_FORWARD)
        return workspace_bytes(rows, g->out, mma_k_ranges(g->in).count, spec->type);
    if (spec->direction == CGP_OP_BACKWARD_INPUT)
        return workspace_bytes(rows, g->in, mma_k_ranges(g->out).count, spec->type);
    return g->has_bias ? cgp__cuda_sum_rows_workspace(rows, g->out) : 0;
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    const int64_t own = own_workspace(spec);
    const int64_t library =
        uses_library(spec) ? CGP__CUDA_LT_WORKSPACE + CGP__CUDA_LT_WORKSPACE_ALIGN : 0;
    return own > library ? own : library;
}

const cgp__cuda_op cgp__cuda_linear = {
    {BY_TYPE(forward), BY_TYPE(backward_input), BY_TYPE(backward_weight)}, workspace};
