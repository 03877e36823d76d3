/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt_library.h -- declares what the files gemm_lt*.c share: the functions of cuBLASLt, and the
 * descriptors of a GEMM. */
#ifndef CGP_SRC_CUDA_GEMM_LT_LIBRARY_H
#define CGP_SRC_CUDA_GEMM_LT_LIBRARY_H

#include <cublasLt.h>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

#define CGP__CUDA_LT_CALLS(X)                                                                      \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(Matmul)                                                                                      \
    X(MatmulAlgoCheck)                                                                             \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)

/* The library's functions, without their prefix. */
typedef struct cgp__cuda_lt_calls {
#define CGP__CUDA_LT_FIELD(name) __typeof__(cublasLt##name) *name;
    CGP__CUDA_LT_CALLS(CGP__CUDA_LT_FIELD)
#undef CGP__CUDA_LT_FIELD
} cgp__cuda_lt_calls;

/* The algorithm chosen for a problem. If there is none, the plug-in's own kernels compute the
 * GEMM. */
typedef struct cgp__cuda_lt_choice {
    cgp__cuda_gemm_problem problem;
    bool is_there;
    cublasLtMatmulAlgo_t algorithm;
} cgp__cuda_lt_choice;

/* Numbers of rows that GEMMs of a problem will have: step, 2 * step, .. count * step. */
typedef struct cgp__cuda_lt_rows {
    cgp__cuda_gemm_problem problem;
    int64_t step, count;
} cgp__cuda_lt_rows;

struct cgp__cuda_lt {
    cgp__cuda_lt_calls calls;
    cublasLtHandle_t handle;
    cgp__cuda_lt_choice *choices;
    cgp__cuda_lt_rows *rows;
    int n_choices, n_rows;
};

struct cgp__cuda_lt_gemm {
    const cgp__cuda_lt *lt;
    cgp__cuda_gemm_problem problem;
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
};

/* Open the library for a device. If there is no library, device->lt stays NULL, and a warning names
 * the precision of `problem`, unless CGP_CUBLASLT=off. */
cgp_status cgp__cuda_lt_open(cgp_device *device, const cgp__cuda_gemm_problem *problem);

/* Return whether a status means that the library does not support a request. Such a status is no
 * failure. */
bool cgp__cuda_lt_refuses(cublasStatus_t status);
cudaError_t cgp__cuda_lt_error(cublasStatus_t status);

/* Create the descriptors of a problem, without an algorithm. Call cgp__cuda_lt_gemm_clear()
 * afterwards, even if this fails. */
cublasStatus_t cgp__cuda_lt_gemm_init(cgp__cuda_lt_gemm *gemm, const cgp__cuda_lt *lt,
                                      const cgp__cuda_gemm_problem *problem);
void cgp__cuda_lt_gemm_clear(cgp__cuda_lt_gemm *gemm);
/* Set the algorithm of a GEMM, if the algorithm supports this problem within the workspace. */
cublasStatus_t cgp__cuda_lt_gemm_set(cgp__cuda_lt_gemm *gemm,
                                     const cublasLtMatmulAlgo_t *algorithm);
cublasStatus_t cgp__cuda_lt_gemm_multiply(cgp__cuda_lt_gemm *gemm,
                                          const cgp__cuda_lt_operands *operands,
                                          cudaStream_t stream);

/* Return the algorithm of a GEMM for any number of rows; choose it on the first call. If the number
 * of rows was not announced, and the chosen algorithm does not accept it, choose again and warn. */
cgp_status cgp__cuda_lt_choose(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                               const cgp__cuda_lt_choice **out);

#endif
