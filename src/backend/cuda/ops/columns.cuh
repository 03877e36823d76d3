/* SPDX-License-Identifier: Apache-2.0 */
/* columns.cuh -- copies or adds columns of one matrix to columns of another. */
#ifndef CGP_SRC_CUDA_COLUMNS_CUH
#define CGP_SRC_CUDA_COLUMNS_CUH

#include "backend/cuda/cuda.cuh"

enum { COLUMNS = 32, ROWS = BLOCK / COLUMNS, REPEAT = 4 };

/* Grid-stride loop over the columns of a row. */
#define FOR_COLUMN(c, width)                                                                   \
    for (int64_t c = (int64_t)blockIdx.y * COLUMNS + threadIdx.x; c < (width);                 \
         c += (int64_t)gridDim.y * COLUMNS)

/* Copy or add columns; rows are `to_stride` and `from_stride` elements apart. */
template <class T>
static __global__ void copy_columns(T *to, int64_t to_stride, const T *from,
                                    int64_t from_stride, int64_t rows, int64_t width,
                                    bool add) {
    const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (row >= rows) return;
    FOR_COLUMN(c, width) put(to, row * to_stride + c, add, load(from, row * from_stride + c));
}

/* Return the grid for thread blocks of COLUMNS x ROWS. */
static inline dim3 column_blocks(int64_t rows, int64_t width) {
    const int64_t across = ceil_div(width, COLUMNS * REPEAT);
    return dim3((unsigned)ceil_div(rows, ROWS), (unsigned)(across < 65535 ? across : 65535));
}

static inline dim3 column_threads(void) {
    return dim3(COLUMNS, ROWS);
}

#endif
