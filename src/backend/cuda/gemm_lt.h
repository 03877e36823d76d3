/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt.h -- GEMMs in bf16 by NVIDIA's cuBLASLt.
 *
 *     c [m, n] = or += a [m, k] b [k, n] + bias [n]      row-major; a, b and bias in bf16, sums in f32, c in bf16 or f32
 *
 * A row must have the same bits among any others, and libraries cut k by the number of rows. So
 * cuBLASLt gets no choice that depends on them: no reductions, a workspace of one size, and one
 * algorithm for each n, k and layouts, whatever its rows. Of the algorithms that it offers for ROWS
 * rows the first is taken that passes a test on the device: all rows twice, some of them, odd
 * numbers of them, and rows alone have the same bits, written and added to c, in sums whose terms
 * cancel, which show every other order of additions; and rows are near a plain sum, added to the
 * previous c or not. If none passes, or there is no library, the GEMM is that of gemm.cuh.
 *
 * In a weight's gradient k is the rows. It promises less: equal rows give equal bits in every place
 * and run, since micro-batches are added by cgpipe, in their order. One algorithm without
 * reductions, chosen whatever the rows, keeps it; the same test guards it.
 *
 * The library is opened when a device makes its first such kernel: the plug-in needs none to load.
 * */
#ifndef CGP_SRC_CUDA_GEMM_LT_H
#define CGP_SRC_CUDA_GEMM_LT_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp__cuda_gemm_problem {
    int64_t m, n, k;
    /* a is [m, k], or [k, m] if a_across, `a_stride` elements from row to row; b is [k, n], or [n,
     * k] if b_along. k is the number of rows if a_across, otherwise m. */
    bool a_across, b_along;
    int64_t a_stride;
    bool bias;
    /* Of c. */
    cgp_dtype type;
} cgp__cuda_gemm_problem;

/* Memory of the device; all but the workspace at multiples of CGP__CUDA_LT_ALIGN bytes. */
typedef struct cgp__cuda_lt_operands {
    const void *a, *b, *bias;
    void *c;
    /* c is added to. */
    bool add;
    /* CGP__CUDA_LT_WORKSPACE bytes, at a multiple of CGP__CUDA_LT_WORKSPACE_ALIGN: with others
     * cuBLASLt multiplies nothing. */
    void *workspace;
} cgp__cuda_lt_operands;

enum {
    CGP__CUDA_LT_ALIGN = 16,
    CGP__CUDA_LT_WORKSPACE_ALIGN = 256,
    CGP__CUDA_LT_WORKSPACE = 1 << 16
};

/* Of a device: the library, and what was chosen. */
typedef struct cgp__cuda_lt cgp__cuda_lt;
/* Of a kernel. */
typedef struct cgp__cuda_lt_gemm cgp__cuda_lt_gemm;

/* *out stays NULL where the GEMM is that of gemm.cuh. */
cgp_status cgp__cuda_lt_gemm_create(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                                    cgp__cuda_lt_gemm **out);
void cgp__cuda_lt_gemm_destroy(cgp__cuda_lt_gemm *gemm);
cudaError_t cgp__cuda_lt_gemm_run(cgp__cuda_lt_gemm *gemm, const cgp__cuda_lt_operands *operands,
                                  cudaStream_t stream);

void cgp__cuda_lt_destroy(cgp__cuda_lt *lt);

/* The version of the library; 0: there is none. */
size_t cgp__cuda_lt_version(void);

/* --- LINEAR and pointwise CONV2D in bf16 (ops/linear.cu) --- */

/* The GEMM problem of a kernel; false: it has none. */
bool cgp__cuda_gemm_problem_of(const cgp_kernel_spec *spec, cgp__cuda_gemm_problem *out);
cudaError_t cgp__cuda_run_gemm(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                               cgp__cuda_lt_gemm *gemm, cudaStream_t stream);

/* Bytes of its packed parameters, weight and bias in bf16; 0: none. Make them. */
int64_t cgp__cuda_packed(const cgp_kernel_spec *spec);
cudaError_t cgp__cuda_pack(const cgp_kernel_spec *spec, const float *const *param, void *packed,
                           cudaStream_t stream);

/* The LINEAR that a CONV2D is; false: it is none. */
bool cgp__cuda_pointwise(const cgp_kernel_spec *spec, cgp_kernel_spec *linear);

/* --- kernels of the test (gemm_lt.cu) --- */

/* Fill an operand of bf16, [outer, k] or, if across, [k, outer]. The second half of k repeats the
 * first. If `cancels` and outer > 1, it has the other sign for even indices along `outer`. A sum
 * cancels to its rounding errors where one of the two operands cancels. */
cudaError_t cgp__cuda_lt_fill(void *to, int64_t outer, int64_t k, bool across, bool cancels,
                              uint32_t salt, cudaStream_t stream);
/* *failed = 1 where bytes, a multiple of 2, differ. */
cudaError_t cgp__cuda_lt_compare(const void *x, const void *y, int64_t bytes, int32_t *failed,
                                 cudaStream_t stream);
/* *failed = 1 where a row of c is not near the sum in f32; the sum begins with c's `previous`
 * value, unless that is NULL. */
cudaError_t cgp__cuda_lt_check_row(const cgp__cuda_gemm_problem *problem,
                                   const cgp__cuda_lt_operands *operands, const void *previous,
                                   int64_t row, int32_t *failed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
