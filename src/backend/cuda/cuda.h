/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h -- the `cuda` backend, a plug-in: what its device (C) and its ops (CUDA C++) share.
 *
 * The same sources make two plug-ins. nvcc makes `cuda`, for NVIDIA's GPUs. The host's compiler
 * makes `cuda-host`, which runs kernels and runtime on the host's cores (host/): slow, for tests,
 * with the bits of a GPU.
 *
 * Every result is a written-down chain of IEEE operations: contraction is off, fmaf() is called
 * where an FMA is meant, functions are those of math.cuh, and no atomic adds to a result. A result
 * of a row depends on that row alone. */
#ifndef CGP_SRC_CUDA_H
#define CGP_SRC_CUDA_H

#include <cgpipe/ext/plugin.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of the library. */
extern const cgp_host *cgp__cuda_host;

/* Count a kernel, copy or clearing that this thread enqueues (cuda.cuh). */
void cgp__cuda_count_launch(void);
/* Count a call of a library that enqueues one or more. */
void cgp__cuda_count_library(void);

/* Enqueue an op's run on a stream; returns the first launch's error. Reads of *args what is not in
 * memory of the device. A dx[k] that is NULL is not made. */
typedef cudaError_t cgp__cuda_run(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream);

/* The kernels of an op; NULL: it has no such direction. As in `ref`, POSITION, ADD and RESHAPE have
 * BACKWARD_INPUT for a dx that is not dy; norms make their weight gradients in BACKWARD_INPUT. */
typedef struct cgp__cuda_op {
    cgp__cuda_run *run[CGP_OP_DIRECTIONS];
    /* Bytes; fewer samples never need more. NULL: none. */
    int64_t (*workspace)(const cgp_kernel_spec *spec);
} cgp__cuda_op;

#define CGP__CUDA_OP(kind, name) extern const cgp__cuda_op cgp__cuda_##name;
CGP_OPS(CGP__CUDA_OP)
#undef CGP__CUDA_OP

/* A backend's other functions; as in ext/backend.h, enqueued on a stream. */
cudaError_t cgp__cuda_convert(cgp_dtype to_type, void *to, cgp_dtype from_type, const void *from,
                              int64_t n, cudaStream_t stream);
cudaError_t cgp__cuda_add_to(float *to, const float *from, int64_t n, cudaStream_t stream);
cudaError_t cgp__cuda_update(const cgp_update *update, cudaStream_t stream);
cudaError_t cgp__cuda_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                             cudaStream_t stream);
cudaError_t cgp__cuda_check_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                   int64_t *index, cudaStream_t stream);
/* `partial`: CGP__CUDA_PARTIALS doubles in memory of the device. */
cudaError_t cgp__cuda_sum_squares(const float *x, int64_t n, double *sum, double *partial,
                                  cudaStream_t stream);
/* `partial`: CGP__CUDA_PARTIALS indices. */
cudaError_t cgp__cuda_find_nonfinite(const float *x, int64_t n, int64_t *index, int64_t *partial,
                                     cudaStream_t stream);

enum { CGP__CUDA_PARTIALS = 1024 };

#ifdef __cplusplus
}
#endif
#endif
