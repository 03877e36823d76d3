/* SPDX-License-Identifier: Apache-2.0 */
/* missing.c -- what has no kernels yet: ops without directions, and functions that say so. Weak. */
#include "backend/cuda/cuda.h"

#define EMPTY(kind, name)                                                                      \
    __attribute__((weak)) const cgp__cuda_op cgp__cuda_##name = {{NULL}, NULL, false};
CGP_OPS(EMPTY)

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define WEAK __attribute__((weak))

WEAK cudaError_t cgp__cuda_convert(cgp_dtype to_type, void *to, cgp_dtype from_type,
                                   const void *from, int64_t n, cudaStream_t stream) {
    return cudaErrorNotSupported;
}
WEAK cudaError_t cgp__cuda_add_to(float *to, const float *from, int64_t n,
                                  cudaStream_t stream) {
    return cudaErrorNotSupported;
}
WEAK cudaError_t cgp__cuda_update(const cgp_update *update, cudaStream_t stream) {
    return cudaErrorNotSupported;
}
WEAK cudaError_t cgp__cuda_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream) {
    return cudaErrorNotSupported;
}
WEAK cudaError_t cgp__cuda_check_commit(const cgp_kernel_spec *spec,
                                        const cgp_kernel_args *args, int64_t *index,
                                        cudaStream_t stream) {
    return cudaErrorNotSupported;
}
WEAK cudaError_t cgp__cuda_sum_squares(const float *x, int64_t n, double *sum, double *partial,
                                       cudaStream_t stream) {
    return cudaErrorNotSupported;
}
WEAK cudaError_t cgp__cuda_find_nonfinite(const float *x, int64_t n, int64_t *index,
                                          int64_t *partial, cudaStream_t stream) {
    return cudaErrorNotSupported;
}
