/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cuh -- sums of rows, in the order of the cpu backend.
 *
 *     a row        16 lanes, lane l has the elements l, l + 16, l + 32 ... in order; then lanes l and l + 8, l + 4, l + 2, l + 1
 *     all rows     blocks of 64 rows in order, then the blocks in order
 */
#ifndef CGP_SRC_CUDA_ROWS_CUH
#define CGP_SRC_CUDA_ROWS_CUH

#include "backend/cuda/cuda.cuh"

enum {
    ROW_BLOCK = 64, /* rows in a partial sum of a parameter's gradient */
    LANES = 16      /* of a sum of a row */
};

/* The sum of a row, in all its lanes. */
__device__ static inline float sum_lanes(float sum) {
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}

#endif
