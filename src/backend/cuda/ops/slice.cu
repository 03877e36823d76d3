/* SPDX-License-Identifier: Apache-2.0 */
/* slice.cu -- y [R, C] = the C columns of x [R, in] that begin at column parts[0]. Backward either
 * overwrites dx, with zeros outside these columns, or adds to these columns and leaves the others
 * unchanged. */
#include "backend/cuda/ops/columns.cuh"

/* Write `from` [rows, width] to columns begin .. begin + width - 1 of `to` [rows, to_width], and
 * zeros to the other columns of `to`. */
template <class T>
static __global__ void place_columns(T *to, int64_t to_width, const T *from, int64_t width,
                                     int64_t begin, int64_t rows) {
    const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (row >= rows) return;
    FOR_COLUMN(c, to_width) {
        const bool covered = c >= begin && c - begin < width;
        store(to, row * to_width + c, covered ? load(from, row * width + c - begin) : 0.0f);
    }
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const cgp_op_parts *g = cgp_spec_parts(spec);
    const int64_t rows = spec->n * g->rows;
    return launch(copy_columns<T>, column_blocks(rows, g->out), column_threads(), stream,
                  (T *)args->y, g->out, (const T *)args->x[0] + g->parts[0], g->in, rows,
                  g->out, false);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const cgp_op_parts *g = cgp_spec_parts(spec);
    const int64_t rows = spec->n * g->rows;
    T *dx = (T *)args->dx[0];
    const T *dy = (const T *)args->dy;
    if (!dx) return cudaSuccess;
    if (adds(spec, 0))
        return launch(copy_columns<T>, column_blocks(rows, g->out), column_threads(), stream,
                      dx + g->parts[0], g->in, dy, g->out, rows, g->out, true);
    return launch(place_columns<T>, column_blocks(rows, g->in), column_threads(), stream, dx,
                  g->in, dy, g->out, g->parts[0], rows);
}

const cgp__cuda_op cgp__cuda_slice = {{BY_TYPE(forward), BY_TYPE(input)}, NULL};
