/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.cu -- fake cuBLASLt for `cuda-host`: computes d = alpha op(a) op(b) + beta c + bias,
 * column-major. Each sum is a chain of FMAs over k in f32. Factors are bf16, or f32 rounded to
 * TF32.
 *
 * The test settings give the number of algorithms that the library offers, and the fault of the
 * first `broken` algorithms. If the caller allows reductions, all algorithms split k into two parts
 * when there are fewer than 16 columns. An algorithm overwrites the whole workspace that it
 * requests. */
#include <cublasLt.h>
#include <stdlib.h>

#include "backend/cuda/cuda.cuh"
#include "internal.h"

struct cublasLtContext {
    int device;
};

struct cgp__shim_operation {
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    const void *bias;
    bool tf32;
};

struct cgp__shim_layout {
    cudaDataType_t type;
    int64_t rows, columns, stride;
};

struct cgp__shim_preference {
    uint64_t workspace;
    uint32_t reductions, alignments[4];
};

enum { ALIGNED = 16, WORKSPACE_ALIGNED = 256, NEEDED = 4096, SMALL_M = 16 };

/* Index of the word in an algorithm's data that holds 1 + the algorithm's fault, or 0 if it has no
 * fault. */
enum { FAULT };

static bool has(const cublasLtMatmulAlgo_t *algorithm, cgp__shim_fault fault) {
    return algorithm->data[FAULT] == 1 + (uint64_t)fault;
}

static cublasStatus_t status_of(cudaError_t error) {
    if (error == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
    return error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED
                                              : CUBLAS_STATUS_INTERNAL_ERROR;
}

#define ENTER()                                                                                \
    do {                                                                                       \
        const cudaError_t error_ = cgp__shim_enter();                                          \
        if (error_ != cudaSuccess) return status_of(error_);                                   \
    } while (0)

/* --- descriptors --- */

template <class Handle, class Object>
static cublasStatus_t create(Handle *out, const Object &object) {
    ENTER();
    *out = (Object *)malloc(sizeof object);
    if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
    **out = object;
    return CUBLAS_STATUS_SUCCESS;
}

template <class Handle> static cublasStatus_t destroy(Handle object) {
    free(object);
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> static cublasStatus_t set(T *to, const void *value, size_t bytes) {
    if (bytes != sizeof *to) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    return create(handle, cublasLtContext{cgp__shim_current_device()});
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return destroy(handle);
}

/* Return the library's version number. It depends on the number of algorithms, so that tests can
 * imitate different versions. */
size_t cublasLtGetVersion(void) {
    return 130000 + (size_t)cgp__shim_get_settings()->algorithms;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if ((compute != CUBLAS_COMPUTE_32F && !tf32) || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return create(operation, cgp__shim_operation{CUBLAS_OP_N, CUBLAS_OP_N,
                                                 CUBLASLT_EPILOGUE_DEFAULT, NULL, tf32});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
    return destroy(operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    ENTER();
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&operation->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&operation->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&operation->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&operation->bias, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
    if (stride < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    return create(layout, cgp__shim_layout{type, (int64_t)rows, (int64_t)columns, stride});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    return create(preference, cgp__shim_preference{
                                  0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return destroy(preference);
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *value, size_t bytes) {
    ENTER();
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(
            &preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
            value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* --- algorithms --- */

/* Return true if the matrices' sizes match, and their types are the types of a GEMM in bf16 or
 * TF32. */
static bool is_gemm(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
    const bool ta = op->transpose_a == CUBLAS_OP_T, tb = op->transpose_b == CUBLAS_OP_T;
    const int64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
    const int64_t n = tb ? b->rows : b->columns, k_b = tb ? b->columns : b->rows;
    const bool biased = op->epilogue == CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t factor = op->tf32 ? CUDA_R_32F : CUDA_R_16BF;
    return k == k_b && c->rows == m && c->columns == n && d->rows == m && d->columns == n &&
           a->type == factor && b->type == factor && c->type == d->type &&
           !(op->tf32 && d->type != CUDA_R_32F) && !(biased && d->type != factor);
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference, int wanted,
                               cublasLtMatmulHeuristicResult_t *results, int *count) {
    const cgp__shim_settings *s = cgp__shim_get_settings();
    ENTER();
    if (!is_gemm(operation, a, b, c, d)) return CUBLAS_STATUS_INVALID_VALUE;
    *count = 0;
    for (int i = 0; i < 4; i++)
        if (preference->alignments[i] < ALIGNED) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference->workspace < NEEDED) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (; *count < wanted && *count < s->algorithms; ++*count) {
        cublasLtMatmulHeuristicResult_t result = {};
        if (*count < s->broken)
            result.algo.data[FAULT] = 1 + (uint64_t)s->fault;
        else if (preference->reductions != CUBLASLT_REDUCTION_SCHEME_NONE)
            result.algo.data[FAULT] = 1 + (uint64_t)CGP__SHIM_SPLITS_SMALL_M;
        result.workspaceSize = NEEDED;
        results[*count] = result;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result) {
    ENTER();
    if (!is_gemm(operation, a, b, c, d)) return CUBLAS_STATUS_INVALID_VALUE;
    const int64_t k = operation->transpose_a == CUBLAS_OP_T ? a->rows : a->columns;
    const int64_t refused = cgp__shim_get_settings()->refused_rows;
    if (has(algorithm, CGP__SHIM_REFUSES_ROWS) && (d->columns == refused || k == refused))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = NEEDED;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- the GEMM --- */

struct matmul {
    cgp__shim_operation operation;
    cgp__shim_layout a, b, d;
    const void *at_a, *at_b;
    void *c;
    float alpha, beta;
    bool splits_k, truncates, rounds_twice;
    unsigned char *workspace;
    int64_t m, n, k;
};

enum { AT_ONCE = 64, TILE = 32 };

/* Return element `i` as tensor cores read it. */
static float factor(const bf16 *at, int64_t i, bool) {
    return load(at, i);
}

/* Return element `i`, converted to TF32: rounded to nearest with ties away from zero
 * (cvt.rna.tf32.f32), or truncated. */
static float factor(const float *at, int64_t i, bool truncates) {
    uint32_t bits;
    memcpy(&bits, at + i, sizeof bits);
    if (bits << 1 < 0xff000000u) /* finite */
        bits = (truncates ? bits : bits + 0x1000u) & ~0x1fffu;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Set `sums` [count] to chains of FMAs over k from `begin` to `end`. The sums belong to one column
 * of d and to `count` rows, starting at `row`. */
template <class T>
static void chains(const matmul &p, int64_t row, int64_t column, int count, int64_t begin,
                   int64_t end, float *sums) {
    const bool ta = p.operation.transpose_a == CUBLAS_OP_T;
    const bool tb = p.operation.transpose_b == CUBLAS_OP_T;
    for (int i = 0; i < count; i++)
        sums[i] = 0.0f;
    const bool truncates = p.truncates && column >= p.n / TILE * TILE;
    for (int64_t q = begin; q < end; q++) {
        const float b =
            factor((const T *)p.at_b, tb ? q * p.b.stride + column : column * p.b.stride + q,
                   truncates);
        const T *a = (const T *)p.at_a + (ta ? row * p.a.stride + q : q * p.a.stride + row);
        for (int i = 0; !ta && i < count; i++)
            sums[i] = fmaf(factor(a, i, truncates), b, sums[i]);
        for (int i = 0; ta && i < count; i++)
            sums[i] = fmaf(factor(a, i * p.a.stride, truncates), b, sums[i]);
    }
}

template <class T> static void end(const matmul &p, int64_t row, int64_t column, float sum) {
    const int64_t at = column * p.d.stride + row;
    float x = p.alpha * sum;
    if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS)
        x = x + load((const T *)p.operation.bias, row);
    if (p.rounds_twice) {
        T product;
        store(&product, 0, x);
        x = load(&product, 0);
    }
    if (p.beta != 0.0f) x = fmaf(p.beta, load((const T *)p.c, at), x);
    store((T *)p.c, at, x);
}

/* A thread block computes one column of d from factors of type T. */
template <class T> static void multiply(matmul p) {
    const int64_t column = blockIdx.x;
    const int64_t middle = p.splits_k && p.n < SMALL_M ? p.k / 2 : p.k;
    for (int64_t i = column; i < NEEDED; i += p.n)
        p.workspace[i] = 0xff;
    for (int64_t row = 0; row < p.m; row += AT_ONCE) {
        float sums[AT_ONCE], others[AT_ONCE];
        const int count = p.m - row < AT_ONCE ? (int)(p.m - row) : (int)AT_ONCE;
        chains<T>(p, row, column, count, 0, middle, sums);
        chains<T>(p, row, column, count, middle, p.k, others);
        for (int i = 0; i < count; i++) {
            const float sum = middle < p.k ? sums[i] + others[i] : sums[i];
            if (p.d.type == CUDA_R_16BF)
                end<bf16>(p, row + i, column, sum);
            else
                end<float>(p, row + i, column, sum);
        }
    }
}

static bool is_aligned(const void *at, uintptr_t align) {
    return (uintptr_t)at % align == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t of_a,
                              const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t of_c, void *d,
                              cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t bytes, cudaStream_t stream) {
    ENTER();
    if (handle->device != cgp__shim_current_device() || c != d || bytes < NEEDED ||
        !is_gemm(operation, of_a, of_b, of_c, of_d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(a, ALIGNED) || !is_aligned(b, ALIGNED) || !is_aligned(d, ALIGNED) ||
        !is_aligned(operation->bias, ALIGNED) || !is_aligned(workspace, WORKSPACE_ALIGNED))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    matmul p = {};
    p.operation = *operation;
    p.a = *of_a;
    p.b = *of_b;
    p.d = *of_d;
    p.at_a = a;
    p.at_b = b;
    p.c = d;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    p.splits_k = has(algorithm, CGP__SHIM_SPLITS_SMALL_M);
    p.truncates = has(algorithm, CGP__SHIM_TRUNCATES);
    p.rounds_twice = has(algorithm, CGP__SHIM_ROUNDS_TWICE);
    p.workspace = (unsigned char *)workspace;
    p.m = of_d->rows;
    p.n = of_d->columns;
    p.k = operation->transpose_a == CUBLAS_OP_T ? of_a->rows : of_a->columns;
    if (has(algorithm, CGP__SHIM_ZERO_SINGLE_COLUMN) && p.m == 1) p.alpha = 0.0f;
    if (has(algorithm, CGP__SHIM_IGNORES_BETA)) p.beta = 0.0f;
    const cudaError_t error =
        cgp__shim_launch_kernel(p.operation.tf32 ? multiply<float> : multiply<bf16>,
                                dim3((unsigned)p.n), dim3(1), 0, stream, p);
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
