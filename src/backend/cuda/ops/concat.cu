/* SPDX-License-Identifier: Apache-2.0 */
/* concat.cu -- concatenates inputs as columns of y, with one launch for each input. Gradients are
 * written from the last input to the first, because two inputs may be the same value. */
#include "backend/cuda/ops/columns.cuh"

template <class T>
static cudaError_t run(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                       cudaStream_t stream) {
    const cgp_op_parts *g = cgp_spec_parts(spec);
    const bool back = spec->direction == CGP_OP_BACKWARD_INPUT;
    const int64_t rows = spec->n * g->rows;
    const dim3 block = column_threads();
    int64_t column = g->out;
    for (int k = CGP_OP_MAX_INPUTS - 1; k >= 0; k--) {
        const int64_t width = g->parts[k];
        const dim3 grid = column_blocks(rows, width);
        column -= width;
        if (width == 0 || (back && !args->dx[k])) continue;
        CGP__TRY_CUDA_ERROR(
            back ? launch(copy_columns<T>, grid, block, stream, (T *)args->dx[k], width,
                          (const T *)args->dy + column, g->out, rows, width, adds(spec, k))
                 : launch(copy_columns<T>, grid, block, stream, (T *)args->y + column, g->out,
                          (const T *)args->x[k], width, rows, width, false));
    }
    return cudaSuccess;
}

const cgp__cuda_op cgp__cuda_concat = {{BY_TYPE(run), BY_TYPE(run)}, NULL};
