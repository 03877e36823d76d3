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

/* Load rows [32, 8], by lane: out [2, 32, 4, 2], of ldmatrix() and of ldmatrix_transposed(). The
 * rows begin `shift` elements after a multiple of 16 bytes. */
cudaError_t mma_load(const uint16_t *rows, uint16_t *out, int shift, cudaStream_t stream);

typedef enum mma_omission { MMA_NOTHING, MMA_WAIT, MMA_BARRIER } mma_omission;

/* Copy x [64, 8] with cp.async, of each row `bytes` bytes; y is what the next thread has copied.
 * Something is omitted. */
cudaError_t mma_copy(const uint16_t *x, uint16_t *y, int bytes, mma_omission omitted,
                     cudaStream_t stream);
/* Copy x [2, 8] as two groups, and wait for all but one: y [2, 8]. */
cudaError_t mma_groups(const uint16_t *x, uint16_t *y, cudaStream_t stream);
/* Write a byte at an offset of `bytes` bytes of dynamic shared memory, in block `block` of three.
 * first[block]: the first word of the memory before that. */
cudaError_t mma_write(int64_t bytes, int64_t offset, int block, uint32_t *first,
                      cudaStream_t stream);
/* Launch with so many bytes, and without the attribute that allows more than 48 KiB. */
cudaError_t mma_launch(int64_t bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
