/* SPDX-License-Identifier: Apache-2.0 */
/* fibers.h -- a block of CUDA threads on one thread of the host: each a fiber, which gives way at
 *barriers only.
 *
 *     NEW ──► running ──► DONE
 *              │  ▲
 *              ▼  │ all of the block, or of the warp, have arrived
 *             at a barrier
 *
 * A fiber whose thread ends takes the next new one, so kernels without barriers switch once a
 * block. Threads between two barriers run in an order that can be chosen: correct kernels have the
 * same bits in all. Threads: any, each with blocks of its own. */
#ifndef CGP_SRC_CUDA_HOST_FIBERS_H
#define CGP_SRC_CUDA_HOST_FIBERS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp__shim_index {
    unsigned x, y, z;
} cgp__shim_index;

enum { CGP__SHIM_WARP = 32, CGP__SHIM_MAX_BLOCK = 1024 };

/* Of threads between barriers, and of blocks. */
typedef enum cgp__shim_order {
    CGP__SHIM_ASCENDING,
    CGP__SHIM_DESCENDING,
    CGP__SHIM_SHUFFLED
} cgp__shim_order;

/* One thread of a kernel, with its packed arguments. */
typedef void cgp__shim_thread(const void *arguments);

/* Run all blocks of a grid. Aborts with a message when threads wait for a barrier that others never
 * reach. */
void cgp__shim_run_grid(dim3 grid, dim3 block, cgp__shim_order order, uint64_t seed,
                        cgp__shim_thread *thread, const void *arguments);

/* CGP_CUDA_HOST_ORDER: ascending, descending or shuffled. */
cgp__shim_order cgp__shim_environment_order(void);

/* --- of a running CUDA thread --- */

extern __thread cgp__shim_index cgp__shim_threadIdx, cgp__shim_blockIdx, cgp__shim_blockDim,
    cgp__shim_gridDim;

void cgp__shim_sync_block(void);
/* Masks name all threads of the warp. */
void cgp__shim_sync_warp(unsigned mask);
unsigned cgp__shim_lane(void);
/* Return the value of another lane; from >= 32: the own one. */
uint64_t cgp__shim_shuffle(unsigned mask, uint64_t value, unsigned from);

#ifdef __cplusplus
}
#endif
#endif
