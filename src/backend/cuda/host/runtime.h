/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h -- the stand-in runtime beside cuda_runtime_api.h: how kernels are launched, and what
 * tests set. */
#ifndef CGP_SRC_CUDA_HOST_RUNTIME_H
#define CGP_SRC_CUDA_HOST_RUNTIME_H

#include "backend/cuda/host/fibers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue a grid; `arguments` are copied. */
cudaError_t cgp__shim_launch(cudaStream_t stream, dim3 grid, dim3 block, cgp__shim_thread *thread,
                             const void *arguments, size_t bytes);

/* Bytes of a device that its driver takes: for the context; for kernels, when the first one is
 * launched. */
enum { CGP__SHIM_CONTEXT_BYTES = 300 << 20, CGP__SHIM_KERNELS_BYTES = 12 << 20 };

/* Read from the environment when first needed; changed by tests between their runs. */
/* Faults that an algorithm of the fake cuBLASLt can have. */
typedef enum cgp__shim_fault {
    CGP__SHIM_SPLITS_FEW_ROWS,    /* k is cut in two where there are fewer than 16 rows */
    CGP__SHIM_ZERO_SINGLE_COLUMN, /* sums are zero where a weight has a side of 1 */
    CGP__SHIM_IGNORES_BETA,
    CGP__SHIM_REFUSES_63_ROWS,
    CGP__SHIM_ROUNDS_TWICE /* the product is rounded before it is added, as Hopper's kernels do; it is allowed */
} cgp__shim_fault;

typedef struct cgp__shim_settings {
    int devices;           /* CGP_CUDA_HOST_DEVICES; 8 */
    int64_t memory;        /* bytes of each: CGP_CUDA_HOST_MEMORY; 16 GiB */
    cgp__shim_order order; /* CGP_CUDA_HOST_ORDER: ascending, descending or shuffled */
    int64_t delay_ns; /* CGP_CUDA_HOST_DELAY: at most, before each piece of a stream's work; 0 */
    /* Call n of the runtime from now on, piece n of the streams' work fails with `error`; 0: none.
     * */
    int fail_call, fail_work;
    cudaError_t error;
    /* How many algorithms cuBLASLt offers: CGP_CUDA_HOST_ALGORITHMS, 2; 0: there is no library. The
     * first `broken` have the fault. */
    int algorithms, broken;
    cgp__shim_fault fault;
    /* Captured node n from now on is missing from its graph; 0: none. */
    int drop_node;
} cgp__shim_settings;

cgp__shim_settings *cgp__shim_get_settings(void);

/* Blocks of memory, streams, events and graphs: those that are there, and all that were ever made.
 * */
typedef struct cgp__shim_objects {
    int64_t alive, made;
} cgp__shim_objects;

cgp__shim_objects cgp__shim_get_objects(void);

/* A device has been let into a peer's memory. Copies between others go by way of the host, as
 * CUDA's driver does it. */
bool cgp__shim_peer_enabled(int device, int peer);

#ifdef __cplusplus
}
#endif
#endif
