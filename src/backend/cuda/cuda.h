/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h -- interface between the device code (C) and the ops (CUDA C++) of the `cuda` backend,
 * which is a plug-in.
 *
 * The same sources make two plug-ins. nvcc builds `cuda`, for NVIDIA GPUs. The host compiler builds
 * `cuda-host`, which runs the kernels and a fake runtime (tests/fakes/cuda) on the host's cores.
 * `cuda-host` is slow and meant for tests. Its results are bit-identical to a GPU's results, except
 * for the sums that tensor cores compute, which `cuda-host` only models.
 *
 * All other results are fixed sequences of IEEE operations: FP contraction is off, fmaf() is called
 * where an FMA is meant, and math functions come from math.cuh. No result is accumulated by
 * atomics. A row's result depends only on that row. */
#ifndef CGP_SRC_CUDA_H
#define CGP_SRC_CUDA_H

#include <cgpipe/ext/plugin.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions that the library passes to the plug-in. */
extern const cgp_host *cgp__cuda_host;

/* Count a kernel, copy or clear that this thread enqueues (cuda.cuh). */
void cgp__cuda_count_launch(void);
/* Count a library call, which enqueues one or more kernels, copies or clears. */
void cgp__cuda_count_library(void);

/* Number of semaphores of serial split-K that a device has (gemm_operands.cuh). */
enum { CGP__CUDA_SEMAPHORES = 4096 };

/* The resources of a device that the kernels of one queue use. The queue is COMPUTE or the
 * branch. */
typedef struct cgp__cuda_resources {
    /* Number of SMs. Tile shapes and grids depend on it, but results are bit-identical for any
     * number. */
    int multiprocessors;
    /* CGP__CUDA_SEMAPHORES counters in device memory. They are 0 between two launches. */
    int *semaphores;
} cgp__cuda_resources;

/* Return the resources of the device on which this thread enqueues work. */
const cgp__cuda_resources *cgp__cuda_current(void);

/* A function that enqueues an op on a stream, and returns the error of the first failed launch. The
 * function reads *args before it returns. The device memory to which *args points is read later,
 * when the kernels run. A dx[k] that is NULL is not computed. */
typedef cudaError_t cgp__cuda_run(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream);

/* An op's kernels, one for each direction; NULL: the op has no kernel for the direction. As in
 * `ref`, POSITION, ADD and RESHAPE have BACKWARD_INPUT for a dx that does not share dy's memory.
 * Norms compute their weight gradients in BACKWARD_INPUT. */
typedef struct cgp__cuda_op {
    cgp__cuda_run *run[CGP_OP_DIRECTIONS];
    /* Return the workspace in bytes; fewer samples never need more. NULL: no workspace. */
    int64_t (*workspace)(const cgp_kernel_spec *spec);
} cgp__cuda_op;

#define CGP__CUDA_OP(kind, name, family) extern const cgp__cuda_op cgp__cuda_##name;
CGP_OPS(CGP__CUDA_OP)
#undef CGP__CUDA_OP

/* The other functions of the backend, as described in ext/backend.h. They enqueue their work on a
 * stream. */
cudaError_t cgp__cuda_convert(cgp_dtype to_type, void *to, cgp_dtype from_type, const void *from,
                              int64_t n, cudaStream_t stream);
cudaError_t cgp__cuda_add_to(float *to, const float *from, int64_t n, cudaStream_t stream);
cudaError_t cgp__cuda_update(const cgp_update *updates, int n, cudaStream_t stream);
cudaError_t cgp__cuda_merge(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int n,
                            cudaStream_t stream);
cudaError_t cgp__cuda_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                             cudaStream_t stream);
cudaError_t cgp__cuda_check_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                   int64_t *index, cudaStream_t stream);
/* `partial` has CGP__CUDA_PARTIALS doubles in device memory. */
cudaError_t cgp__cuda_sum_squares(const float *x, int64_t n, double *sum, double *partial,
                                  cudaStream_t stream);
/* `partial` has CGP__CUDA_PARTIALS indices in device memory. */
cudaError_t cgp__cuda_find_nonfinite(const float *x, int64_t n, int64_t *index, int64_t *partial,
                                     cudaStream_t stream);

enum { CGP__CUDA_PARTIALS = 1024 };

#ifdef __cplusplus
}
#endif
#endif
