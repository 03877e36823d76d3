/* SPDX-License-Identifier: Apache-2.0 */
/* mma.cu -- see mma.h. */
#include "mma.h"

#include "backend/cuda/mma.cuh"

enum { ROW = 8, COPIERS = 64 };

__global__ void load_rows(const bf16 *rows, bf16 *out, int shift) {
    DYNAMIC_SHARED(bf16, shared);
    const int lane = (int)threadIdx.x;
    for (int i = 0; i < ROW; i++)
        shared[shift + lane * ROW + i] = rows[lane * ROW + i];
    __syncwarp();
    uint32_t x[2][4];
    ldmatrix(x[0], shared + shift + lane * ROW);
    ldmatrix_transposed(x[1], shared + shift + lane * ROW);
    for (int i = 0; i < 2; i++)
        memcpy(out + (i * 32 + lane) * 8, x[i], sizeof x[i]);
}

cudaError_t mma_load(const uint16_t *rows, uint16_t *out, int shift, cudaStream_t stream) {
    return launch_shared(load_rows, dim3(1), dim3(32), 33 * ROW * (int64_t)sizeof(bf16), stream,
                         rows, out, shift);
}

__global__ void copy_rows(const bf16 *x, bf16 *y, int bytes, int omitted) {
    DYNAMIC_SHARED(bf16, shared);
    const int i = (int)threadIdx.x, next = (i + 1) % COPIERS;
    copy_async(shared + i * ROW, x + i * ROW, bytes);
    commit_copies();
    if (omitted != MMA_WAIT) wait_for_copies<0>();
    if (omitted != MMA_BARRIER) __syncthreads();
    for (int k = 0; k < ROW; k++)
        y[i * ROW + k] = shared[next * ROW + k];
}

cudaError_t mma_copy(const uint16_t *x, uint16_t *y, int bytes, mma_omission omitted,
                     cudaStream_t stream) {
    return launch_shared(copy_rows, dim3(1), dim3(COPIERS),
                         COPIERS * ROW * (int64_t)sizeof(bf16), stream, x, y, bytes,
                         (int)omitted);
}

__global__ void copy_groups(const bf16 *x, bf16 *y) {
    DYNAMIC_SHARED(bf16, shared);
    for (int i = 0; i < 2 * ROW; i++)
        shared[i] = 0;
    for (int i = 0; i < 2; i++) {
        copy_async(shared + i * ROW, x + i * ROW, 16);
        commit_copies();
    }
    wait_for_copies<1>();
    for (int i = 0; i < 2 * ROW; i++)
        y[i] = shared[i];
    wait_for_copies<0>();
}

cudaError_t mma_groups(const uint16_t *x, uint16_t *y, cudaStream_t stream) {
    return launch_shared(copy_groups, dim3(1), dim3(1), 2 * ROW * (int64_t)sizeof(bf16), stream,
                         x, y);
}

__global__ void write_byte(int64_t offset, int block, uint32_t *first) {
    DYNAMIC_SHARED(unsigned char, shared);
    memcpy(&first[blockIdx.x], shared, sizeof *first);
    if ((int)blockIdx.x == block) shared[offset] = 0;
}

cudaError_t mma_write(int64_t bytes, int64_t offset, int block, uint32_t *first,
                      cudaStream_t stream) {
    return launch_shared(write_byte, dim3(3), dim3(1), bytes, stream, offset, block, first);
}

__global__ void unused() {
}

cudaError_t mma_launch(int64_t bytes, cudaStream_t stream) {
    return cgp__shim_launch_kernel(unused, dim3(1), dim3(1), bytes, stream);
}
