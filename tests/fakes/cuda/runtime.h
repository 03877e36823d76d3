/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h -- the fake CUDA runtime's own interface, beyond cuda_runtime_api.h: kernel
 * launches, and settings for tests. */
#ifndef CGP_TESTS_FAKES_CUDA_RUNTIME_H
#define CGP_TESTS_FAKES_CUDA_RUNTIME_H

#include "fibers.h"
#include "tensor_core_model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel, and the number of bytes of dynamic shared memory for a launch. */
typedef struct cgp__shim_kernel {
    const void *function;
    cgp__shim_thread *thread;
    size_t shared;
} cgp__shim_kernel;

/* Enqueue a grid of a kernel. The bytes of `arguments` are copied. */
cudaError_t cgp__shim_launch(cudaStream_t stream, dim3 grid, dim3 block,
                             const cgp__shim_kernel *kernel, const void *arguments, size_t bytes);

enum { CGP__SHIM_MAX_DEVICES = 64 };

/* Bytes of device memory that the driver uses for the context and, from the first launch on, for
 * kernels. */
enum { CGP__SHIM_CONTEXT_BYTES = 300 << 20, CGP__SHIM_KERNELS_BYTES = 12 << 20 };

/* Faults that an algorithm of the fake cuBLASLt can have. */
typedef enum cgp__shim_fault {
    CGP__SHIM_SPLITS_SMALL_M,     /* splits k in two for fewer than 16 rows */
    CGP__SHIM_ZERO_SINGLE_COLUMN, /* all sums are zero if n = 1 */
    CGP__SHIM_IGNORES_BETA,
    CGP__SHIM_REFUSES_ROWS, /* refuses `refused_rows` rows */
    CGP__SHIM_TRUNCATES,    /* truncates to TF32 in rows after the last full tile of 32 */
    CGP__SHIM_ROUNDS_TWICE  /* rounds a product before adding it, as Hopper does; allowed */
} cgp__shim_fault;

/* Kinds of sharing of device memory between processes. With BROKEN, writes to imported memory do
 * not reach the exporter. With UNORDERED, a stream does not wait for an imported event. */
typedef enum cgp__shim_sharing {
    CGP__SHIM_SHARES_NOTHING,
    CGP__SHIM_SHARES,
    CGP__SHIM_SHARES_BROKEN,
    CGP__SHIM_SHARES_UNORDERED
} cgp__shim_sharing;

/* Settings of the fake runtime. Initial values come from the environment variables named below,
 * with defaults in brackets. Tests change the settings between runs. */
typedef struct cgp__shim_settings {
    int devices; /* number of devices: CGP_CUDA_HOST_DEVICES [8] */
    /* The version of CUDA that the driver supports: CGP_CUDA_HOST_DRIVER [13000]. 0 means that
     * there is no driver. */
    int driver;
    /* Compute capability of each device, 10 major + minor: CGP_CUDA_HOST_CAPABILITIES=75,90 [90].
     * Devices after the end of the list have the last capability. */
    int capabilities[CGP__SHIM_MAX_DEVICES];
    int64_t memory;        /* bytes per device: CGP_CUDA_HOST_MEMORY [16 GiB] */
    int multiprocessors;   /* number per device: CGP_CUDA_HOST_MULTIPROCESSORS [132, an H100's] */
    cgp__shim_order order; /* CGP_CUDA_HOST_ORDER: ascending, descending or shuffled */
    /* CGP_CUDA_HOST_UUIDS [the process's ID]: processes with the same number have the same GPUs. */
    int64_t uuids;
    /* If `fail_call` is n > 0, the n-th runtime call from now on fails with `error`. In the same
     * way, `fail_work` selects a work item of a stream. 0 means no failure. */
    int fail_call, fail_work;
    cudaError_t error;
    /* Number of algorithms that cuBLASLt offers: CGP_CUDA_HOST_ALGORITHMS [2]. 0 means that there
     * is no library. The first `broken` algorithms have the fault `fault`. */
    int algorithms, broken;
    cgp__shim_fault fault;
    /* The number of rows that an algorithm with the fault REFUSES_ROWS refuses. If
     * CGP_CUDA_HOST_REFUSES gives this number, the first algorithm has that fault. */
    int64_t refused_rows;
    /* If true (CGP_CUDA_HOST_UNLISTED=1), the loader does not find cuBLASLt by the library's
     * name. */
    bool unlisted;
    /* If this is n > 0, the n-th node captured from now on is missing from the graph. 0 means that
     * no node is missing. */
    int drop_node;
    cgp__shim_sharing sharing; /* CGP_CUDA_HOST_IPC: off, on, broken or unordered */
    /* The model of tensor cores: CGP_CUDA_HOST_MMA_BLOCK [16], CGP_CUDA_HOST_MMA_EXTRA [2],
     * CGP_CUDA_HOST_MMA_NEAREST [0] */
    cgp__tensor_core tensor_core;
} cgp__shim_settings;

cgp__shim_settings *cgp__shim_get_settings(void);

/* Get or set the maximum delay before each work item, in ns: CGP_CUDA_HOST_DELAY [0]. Any thread
 * may call these functions. */
int64_t cgp__shim_get_delay(void);
void cgp__shim_set_delay(int64_t ns);

/* tensor_core.cu: the functions that mma() and ldmatrix() in backend/cuda/mma.cuh call. */
void cgp__shim_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);
void cgp__shim_ldmatrix(uint32_t to[4], const void *row, bool transposed);

/* Counts of objects (memory blocks, streams, events and graphs): how many exist, and how many have
 * been created in total. */
typedef struct cgp__shim_objects {
    int64_t alive, made;
} cgp__shim_objects;

cgp__shim_objects cgp__shim_get_objects(void);

/* Return whether device `device` has peer access to device `peer`. Without peer access, copies are
 * staged through the host, as in CUDA's driver. */
bool cgp__shim_peer_enabled(int device, int peer);

#ifdef __cplusplus
}
#endif
#endif
