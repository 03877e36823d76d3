/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt.c -- describes GEMMs to cuBLASLt, and runs them.
 *
 * The library's matrices are column-major: it reads a row-major matrix [rows, columns] as a matrix
 * [columns, rows]. So the library computes c^T = b^T a^T, and `b` is the first operand. The library
 * transposes an operand that is stored transposed (b_along, a_across). */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

#ifndef CGP_CUDA_NO_CUBLASLT

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/gemm_lt_library.h"

/* --- results --- */

bool cgp__cuda_lt_refuses(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

cudaError_t cgp__cuda_lt_error(cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return cudaSuccess;
    if (status == CUBLAS_STATUS_ALLOC_FAILED) return cudaErrorMemoryAllocation;
    if (status == CUBLAS_STATUS_EXECUTION_FAILED) return cudaErrorLaunchFailure;
    if (cgp__cuda_lt_refuses(status)) return cudaErrorNotSupported;
    return cudaErrorUnknown;
}

/* --- a GEMM --- */

#define LT_TRY(call)                                                                               \
    do {                                                                                           \
        const cublasStatus_t status_ = (call);                                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS) return status_;                                      \
    } while (0)

static cublasStatus_t set_operation(const cgp__cuda_lt_gemm *g) {
    const cgp__cuda_lt_calls *calls = &g->lt->calls;
    const int32_t of_b = g->problem.b_along ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t of_a = g->problem.a_across ? CUBLAS_OP_T : CUBLAS_OP_N;
    const void *aligned = (const void *)(uintptr_t)CGP__CUDA_LT_ALIGN;
    const uint32_t epilogue = g->problem.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    LT_TRY(calls->MatmulDescSetAttribute(g->operation, CUBLASLT_MATMUL_DESC_TRANSA, &of_b,
                                         sizeof of_b));
    LT_TRY(calls->MatmulDescSetAttribute(g->operation, CUBLASLT_MATMUL_DESC_TRANSB, &of_a,
                                         sizeof of_a));
    if (g->problem.bias) /* a placeholder: the heuristic uses only the alignment of this address */
        LT_TRY(calls->MatmulDescSetAttribute(g->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                             &aligned, sizeof aligned));
    return calls->MatmulDescSetAttribute(g->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof epilogue);
}

cublasStatus_t cgp__cuda_lt_gemm_init(cgp__cuda_lt_gemm *g, const cgp__cuda_lt *lt,
                                      const cgp__cuda_gemm_problem *p) {
    const cgp__cuda_lt_calls *calls = &lt->calls;
    const uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    const uint64_t b_rows = p->b_along ? k : n;
    const cudaDataType_t type = p->tf32 ? CUDA_R_32F : CUDA_R_16BF;
    *g = (cgp__cuda_lt_gemm){.lt = lt, .problem = *p};
    LT_TRY(calls->MatmulDescCreate(
        &g->operation, p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_TRY(set_operation(g));
    LT_TRY(calls->MatrixLayoutCreate(&g->a, type, p->a_across ? m : k, p->a_across ? k : m,
                                     p->a_stride));
    LT_TRY(calls->MatrixLayoutCreate(&g->b, type, b_rows, p->b_along ? n : k, (int64_t)b_rows));
    return calls->MatrixLayoutCreate(&g->c, p->type == CGP_BF16 ? CUDA_R_16BF : CUDA_R_32F, n, m,
                                     p->n);
}

void cgp__cuda_lt_gemm_clear(cgp__cuda_lt_gemm *g) {
    const cgp__cuda_lt_calls *calls = &g->lt->calls;
    if (g->c) (void)calls->MatrixLayoutDestroy(g->c);
    if (g->b) (void)calls->MatrixLayoutDestroy(g->b);
    if (g->a) (void)calls->MatrixLayoutDestroy(g->a);
    if (g->operation) (void)calls->MatmulDescDestroy(g->operation);
}

cublasStatus_t cgp__cuda_lt_gemm_set(cgp__cuda_lt_gemm *g, const cublasLtMatmulAlgo_t *algorithm) {
    cublasLtMatmulHeuristicResult_t result;
    memset(&result, 0, sizeof result);
    g->algorithm = *algorithm;
    LT_TRY(g->lt->calls.MatmulAlgoCheck(g->lt->handle, g->operation, g->b, g->a, g->c, g->c,
                                        &g->algorithm, &result));
    return result.workspaceSize <= CGP__CUDA_LT_WORKSPACE ? CUBLAS_STATUS_SUCCESS
                                                          : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cgp__cuda_lt_gemm_multiply(cgp__cuda_lt_gemm *g, const cgp__cuda_lt_operands *o,
                                          cudaStream_t stream) {
    const cgp__cuda_lt_calls *calls = &g->lt->calls;
    const float one = 1.0f, before = o->add ? 1.0f : 0.0f;
    if (g->problem.bias)
        LT_TRY(calls->MatmulDescSetAttribute(g->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                             &o->bias, sizeof o->bias));
    cgp__cuda_count_library();
    return calls->Matmul(g->lt->handle, g->operation, &one, o->b, g->b, o->a, g->a, &before, o->c,
                         g->c, o->c, g->c, &g->algorithm, o->workspace, CGP__CUDA_LT_WORKSPACE,
                         stream);
}

/* --- kernels --- */

cgp_status cgp__cuda_lt_gemm_create(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                                    cgp__cuda_lt_gemm **out) {
    const cgp__cuda_lt_choice *choice = NULL;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    CGP__TRY_STATUS(cgp__cuda_lt_open(device, problem));
    if (!device->lt) return CGP_OK;
    CGP__TRY_STATUS(cgp__cuda_lt_choose(device, problem, &choice));
    if (!choice->is_there) return CGP_OK;
    cgp__cuda_lt_gemm *gemm = malloc(sizeof *gemm);
    if (!gemm) return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": kernel: out of memory");
    cublasStatus_t status = cgp__cuda_lt_gemm_init(gemm, device->lt, problem);
    if (status == CUBLAS_STATUS_SUCCESS) status = cgp__cuda_lt_gemm_set(gemm, &choice->algorithm);
    if (status == CUBLAS_STATUS_SUCCESS) {
        *out = gemm;
        return CGP_OK;
    }
    cgp__cuda_lt_gemm_destroy(gemm);
    return cgp__cuda_check(device, cgp__cuda_lt_error(status), "cuBLASLt, for a GEMM");
}

void cgp__cuda_lt_gemm_destroy(cgp__cuda_lt_gemm *gemm) {
    if (gemm) cgp__cuda_lt_gemm_clear(gemm);
    free(gemm);
}

cudaError_t cgp__cuda_lt_gemm_run(cgp__cuda_lt_gemm *gemm, const cgp__cuda_lt_operands *operands,
                                  cudaStream_t stream) {
    return cgp__cuda_lt_error(cgp__cuda_lt_gemm_multiply(gemm, operands, stream));
}

#endif
