/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt.h -- GEMMs in bf16 and tf32 by NVIDIA's cuBLASLt.
 *
 *     c [m, n] = or += a [m, k] b [k, n] + bias [n]
 *
 * Matrices are row-major, and sums are f32. In bf16, `a`, `b` and bias are bf16, and c is bf16 or
 * f32. In tf32, all matrices and the bias are f32; the tensor cores round `a` and `b` to TF32,
 * which has 10 bits of fraction.
 *
 * The bits of a row of c must depend neither on the contents nor on the number of the other rows.
 * But libraries choose the split of k by the number of rows. So cuBLASLt gets no choice that
 * depends on this number: no reductions, a workspace of one size, and one algorithm for each n, k
 * and layout. cuBLASLt offers algorithms for ROWS rows. A device uses the first algorithm that
 * accepts every number of rows in the plan and passes this test on the device:
 *
 * - Two runs with all rows give the same bits. Runs with subsets of the rows, odd numbers of rows
 *   and single rows give these bits too, whether they overwrite c or add to c. Terms cancel, so any
 *   other order of additions would change the bits.
 * - Rows of c are close to plain sums, whether they are written or added to the previous c.
 *
 * If no algorithm passes, or there is no library, the plug-in's own kernels compute the GEMM:
 * gemm_mma.cuh in bf16, and gemm.cuh in tf32. The kernels of gemm.cuh compute in f32.
 *
 * In a weight's gradient, k is the number of rows. The guarantee for this gradient is weaker: equal
 * rows give equal bits at every position and in every run. This is enough, because cgpipe itself
 * adds micro-batches in order. An algorithm without reductions gives this guarantee if it is used
 * for all numbers of rows. The same test checks the guarantee.
 *
 * A device opens the library when it first needs a GEMM in bf16 or tf32, so the plug-in also loads
 * on machines without the library. The device chooses algorithms before the planned memory is
 * allocated (cgp__cuda_prepare()). */
#ifndef CGP_SRC_CUDA_GEMM_LT_H
#define CGP_SRC_CUDA_GEMM_LT_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp__cuda_gemm_problem {
    int64_t m, n, k;
    /* Matrix `a` is [m, k] or, if a_across is set, [k, m]. Its rows are `a_stride` elements apart.
     * Matrix `b` is [k, n] or, if b_along is set, [n, k]. The number of rows is m or, if a_across
     * is set, k. */
    bool a_across, b_along;
    int64_t a_stride;
    bool bias;
    /* Type of c. */
    cgp_dtype type;
    /* True: `a`, `b` and bias are f32; false: they are bf16. */
    bool tf32;
} cgp__cuda_gemm_problem;

/* Operands in device memory. All but the workspace are aligned to CGP__CUDA_LT_ALIGN bytes. */
typedef struct cgp__cuda_lt_operands {
    const void *a, *b, *bias;
    void *c;
    /* Add to c instead of overwriting it. */
    bool add;
    /* CGP__CUDA_LT_WORKSPACE bytes, aligned to CGP__CUDA_LT_WORKSPACE_ALIGN. Without this alignment
     * cuBLASLt computes nothing. */
    void *workspace;
} cgp__cuda_lt_operands;

enum {
    CGP__CUDA_LT_ALIGN = 16,
    CGP__CUDA_LT_WORKSPACE_ALIGN = 256,
    CGP__CUDA_LT_WORKSPACE = 1 << 16
};

/* A device's library handle and chosen algorithms. */
typedef struct cgp__cuda_lt cgp__cuda_lt;
/* The GEMM of a kernel. */
typedef struct cgp__cuda_lt_gemm cgp__cuda_lt_gemm;

/* Create the GEMM of a kernel. *out stays NULL if the plug-in's own kernels compute the GEMM. */
cgp_status cgp__cuda_lt_gemm_create(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                                    cgp__cuda_lt_gemm **out);
void cgp__cuda_lt_gemm_destroy(cgp__cuda_lt_gemm *gemm);
cudaError_t cgp__cuda_lt_gemm_run(cgp__cuda_lt_gemm *gemm, const cgp__cuda_lt_operands *operands,
                                  cudaStream_t stream);

void cgp__cuda_lt_destroy(cgp__cuda_lt *lt);

/* Get the version of the library; 0: there is no library. */
cgp_status cgp__cuda_lt_version(size_t *version);

/* Announce that kernels will be created for this GEMM with the rows of `samples` samples, and with
 * the rows of any smaller number of samples. The algorithm must accept all these numbers of
 * rows. */
cgp_status cgp__cuda_lt_announce(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                                 int64_t samples);
/* Choose the algorithm of a GEMM, unless it has already been chosen. */
cgp_status cgp__cuda_lt_prepare(cgp_device *device, const cgp__cuda_gemm_problem *problem);

/* --- LINEAR and pointwise CONV2D in bf16 and tf32 (ops/linear.cu) --- */

/* Get the GEMM problem of a kernel. Return false if the kernel is no GEMM. */
bool cgp__cuda_gemm_problem_of(const cgp_kernel_spec *spec, cgp__cuda_gemm_problem *out);
cudaError_t cgp__cuda_run_gemm(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                               cgp__cuda_lt_gemm *gemm, cudaStream_t stream);

/* Return the bytes of a kernel's prepacked parameters, which are weight and bias in bf16; 0: the
 * kernel has none. cgp__cuda_prepack() makes the prepacked parameters. */
int64_t cgp__cuda_prepacked_bytes(const cgp_kernel_spec *spec);
cudaError_t cgp__cuda_prepack(const cgp_kernel_spec *spec, const float *const *param, void *packed,
                              cudaStream_t stream);

/* Get the LINEAR that is equivalent to a pointwise CONV2D. Return false if the CONV2D is not
 * pointwise. */
bool cgp__cuda_pointwise(const cgp_kernel_spec *spec, cgp_kernel_spec *linear);

/* --- kernels of the algorithm test (gemm_lt.cu) --- */

/* Fill an operand [outer, k] or, if `across` is set, [k, outer]. The operand is f32 if `tf32` is
 * set, otherwise bf16. The second half of k repeats the first half. If `cancels` is set and
 * outer > 1, the second half has the opposite sign for even indices along `outer`. If one of the
 * two operands is filled with `cancels`, a sum consists of rounding errors only. */
cudaError_t cgp__cuda_lt_fill(void *to, bool tf32, int64_t outer, int64_t k, bool across,
                              bool cancels, uint32_t salt, cudaStream_t stream);
/* Set *failed to 1 if x and y differ in a byte. The number of bytes must be a multiple of 2. */
cudaError_t cgp__cuda_lt_compare(const void *x, const void *y, int64_t bytes, int32_t *failed,
                                 cudaStream_t stream);
/* Set *failed to 1 if a row of c is not close to the f32 sum. The sum starts from `previous`, the
 * old value of c; NULL: from 0. */
cudaError_t cgp__cuda_lt_check_row(const cgp__cuda_gemm_problem *problem,
                                   const cgp__cuda_lt_operands *operands, const void *previous,
                                   int64_t row, int32_t *failed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
