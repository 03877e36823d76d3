/* SPDX-License-Identifier: Apache-2.0 */
/* concat.cu -- inputs are columns of y. A launch for each; gradients go from the last input to the first: two may be one value. */
#include "backend/cuda/cuda.cuh"

enum { COLUMNS = 32, ROWS = BLOCK / COLUMNS, REPEAT = 4 };

/* Columns of rows that lie `to_stride` and `from_stride` elements apart. */
template <class T>
static __global__ void copy_columns(T *to, int64_t to_stride, const T *from,
                                    int64_t from_stride, int64_t rows, int64_t width,
                                    bool add) {
    const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (row >= rows) return;
    for (int64_t c = (int64_t)blockIdx.y * COLUMNS + threadIdx.x; c < width;
         c += (int64_t)gridDim.y * COLUMNS)
        put(to, row * to_stride + c, add, load(from, row * from_stride + c));
}

template <class T>
static cudaError_t run(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                       cudaStream_t stream) {
    const cgp_op_attributes *g = &spec->attributes;
    const bool back = spec->direction == CGP_OP_BACKWARD_INPUT;
    const int64_t rows = spec->n * g->rows;
    const dim3 block(COLUMNS, ROWS);
    int64_t column = g->out;
    for (int k = CGP_OP_MAX_INPUTS - 1; k >= 0; k--) {
        const int64_t width = g->parts[k];
        const dim3 grid((unsigned)ceil_div(rows, ROWS),
                        (unsigned)ceil_div(width, COLUMNS * REPEAT));
        column -= width;
        if (width == 0 || (back && !args->dx[k])) continue;
        CGP__TRY_CUDA(back ? launch(copy_columns<T>, grid, block, stream, (T *)args->dx[k],
                                    width, (const T *)args->dy + column, g->out, rows, width,
                                    adds(spec, k))
                           : launch(copy_columns<T>, grid, block, stream, (T *)args->y + column,
                                    g->out, (const T *)args->x[k], width, rows, width, false));
    }
    return cudaSuccess;
}

const cgp__cuda_op cgp__cuda_concat = {{BY_TYPE(run), BY_TYPE(run)}, NULL};
