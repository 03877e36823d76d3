/* SPDX-License-Identifier: Apache-2.0 */
/* fibers.h -- a CUDA thread block on one host thread. Each CUDA thread is a fiber, which yields
 * only at barriers.
 *
 *     NEW ──► running ──► DONE
 *              │  ▲
 *              ▼  │ all threads of the block, or of the warp, have arrived
 *             at a barrier
 *
 * When a CUDA thread ends, its fiber runs the next new thread, so a kernel without barriers
 * switches fibers once per block. A warp runs up to a barrier of the block before another warp
 * continues. Between two barriers, warps and threads run in a selectable order. A correct kernel
 * gives bit-identical results in all orders. Any host thread may call these functions; each host
 * thread runs its own blocks. */
#ifndef CGP_TESTS_FAKES_CUDA_FIBERS_H
#define CGP_TESTS_FAKES_CUDA_FIBERS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp__shim_index {
    unsigned x, y, z;
} cgp__shim_index;

enum { CGP__SHIM_WARP = 32, CGP__SHIM_MAX_BLOCK = 1024, CGP__SHIM_WORDS = 5 };

/* The order in which threads run between barriers, and in which blocks run. */
typedef enum cgp__shim_order {
    CGP__SHIM_ASCENDING,
    CGP__SHIM_DESCENDING,
    CGP__SHIM_SHUFFLED
} cgp__shim_order;

/* Run one thread of a kernel, with its packed arguments. */
typedef void cgp__shim_thread(const void *arguments);

/* Run all blocks of a grid, each with `shared` bytes of dynamic shared memory. Abort with a message
 * if threads wait for a barrier that others never reach. */
void cgp__shim_run_grid(dim3 grid, dim3 block, cgp__shim_order order, uint64_t seed,
                        cgp__shim_thread *thread, size_t shared, const void *arguments);

/* Return the order that CGP_CUDA_HOST_ORDER names: ascending, descending or shuffled. */
cgp__shim_order cgp__shim_environment_order(void);

/* --- called by a running CUDA thread --- */

extern __thread cgp__shim_index cgp__shim_threadIdx, cgp__shim_blockIdx, cgp__shim_blockDim,
    cgp__shim_gridDim;

void cgp__shim_sync_block(void);
/* Barrier of a warp. The mask must include all threads of the warp. */
void cgp__shim_sync_warp(unsigned mask);
unsigned cgp__shim_lane(void);
/* Return the value of lane `from`; if `from` >= 32, return the caller's value. */
uint64_t cgp__shim_shuffle(unsigned mask, uint64_t value, unsigned from);
/* Words that the lanes of a warp have exchanged. Each exchange of a host thread has a different
 * `number`. */
typedef uint64_t cgp__shim_words[CGP__SHIM_WORDS];
typedef struct cgp__shim_exchanged {
    const cgp__shim_words *of_lane;
    uint64_t number;
    int warp, lane;
} cgp__shim_exchanged;

/* Exchange words between all lanes of a full warp. The returned words are valid until the caller's
 * next barrier or exchange. */
cgp__shim_exchanged cgp__shim_exchange(const cgp__shim_words words);

/* Return the dynamic shared memory of the block. */
void *cgp__shim_dynamic_shared(void);
/* Check an address that operation `what` uses; abort with a message if it is invalid. The address
 * must be a multiple of 16. If it is near the dynamic shared memory, it must be inside that
 * memory. */
void cgp__shim_check_shared(const void *at, size_t bytes, const char *what);
/* Do what cp.async does: copy `size` bytes (4 or 16). The first `bytes` bytes are read from `from`;
 * the others become zeros. */
void cgp__shim_copy_async(void *to, const void *from, int size, int bytes);
void cgp__shim_copy_commit(void);
/* Wait until all groups of asynchronous copies except the latest `groups` groups are complete. */
void cgp__shim_copy_wait(int groups);

#ifdef __cplusplus
}
#endif
#endif
