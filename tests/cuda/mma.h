/* SPDX-License-Identifier: Apache-2.0 */
/* mma.h -- kernels that use dynamic shared memory, ldmatrix and cp.async, for tests. */
#ifndef CGP_TESTS_CUDA_MMA_H
#define CGP_TESTS_CUDA_MMA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Load `rows` [32, 8] with ldmatrix() and with ldmatrix_transposed(). `out` [2, 32, 4, 2] gets what
 * each of 32 lanes has loaded, for both functions. The rows begin `shift` elements after a multiple
 * of 16 bytes. */
cudaError_t mma_load(const uint16_t *rows, uint16_t *out, int shift, cudaStream_t stream);

typedef enum mma_omission { MMA_NOTHING, MMA_WAIT, MMA_BARRIER } mma_omission;

/* Copy x [64, 8] with cp.async: each of 64 threads copies `bytes` bytes of one row. y gets the row
 * that the next thread has copied. `omitted` says whether the wait or the barrier is left out. */
cudaError_t mma_copy(const uint16_t *x, uint16_t *y, int bytes, mma_omission omitted,
                     cudaStream_t stream);
/* Copy x [2, 8] as two asynchronous groups, and wait until at most one group is pending. y [2, 8]
 * gets what has arrived. */
cudaError_t mma_groups(const uint16_t *x, uint16_t *y, cudaStream_t stream);
/* Launch three blocks with `bytes` bytes of dynamic shared memory. Block number `block` writes a
 * byte at `offset`. Before that write, the first word of block i's memory is stored in
 * `first[i]`. */
cudaError_t mma_write(int64_t bytes, int64_t offset, int block, uint32_t *first,
                      cudaStream_t stream);
/* Launch a kernel with `bytes` bytes of dynamic shared memory, without the attribute that allows
 * more than 48 KiB. */
cudaError_t mma_launch(int64_t bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
