/* SPDX-License-Identifier: Apache-2.0 */
/* transpose.cu -- to [a, j, b, i, c] = from [a, i, b, j, c]; axis `a` includes the samples. If c is
 * 1, square tiles go through shared memory (Ruetsch and Micikevicius 2009, "Optimizing Matrix
 * Transpose in CUDA"), so that both sides are accessed along rows. Otherwise threads copy along
 * contiguous runs. */
#include "backend/cuda/cuda.cuh"

/* Side of a square in elements, and number of rows that a thread block copies together. */
enum { SIDE = 32, ROWS = BLOCK / SIDE };

/* Dimensions of `from`. There is a line for each pair of indices along the axes `a` and `b`. */
struct sides {
    int64_t i, b, j, c, lines;
};

/* line_of_from() returns the offset of a line in `from`, and line_of_to() the offset of a line in
 * `to`. */
__device__ static inline int64_t line_of_from(const sides &s, int64_t line) {
    return (line / s.b * s.i * s.b + line % s.b) * s.j * s.c;
}

__device__ static inline int64_t line_of_to(const sides &s, int64_t line) {
    return (line / s.b * s.j * s.b + line % s.b) * s.i * s.c;
}

/* Grid-stride loop over the squares of all lines. */
template <class T>
static __global__ void turn_squares(T *to, const T *from, sides s, bool add) {
    __shared__ float square[SIDE][SIDE + 1];
    const int64_t down = (s.i + SIDE - 1) / SIDE, across = (s.j + SIDE - 1) / SIDE;
    for (int64_t at = blockIdx.x; at < s.lines * down * across; at += gridDim.x) {
        const int64_t line = at / (down * across);
        const int64_t i = at / across % down * SIDE, j = at % across * SIDE;
        const int64_t from_line = line_of_from(s, line), to_line = line_of_to(s, line);
        __syncthreads();
        for (int row = threadIdx.y; row < SIDE; row += ROWS)
            if (i + row < s.i && j + threadIdx.x < s.j)
                square[row][threadIdx.x] =
                    load(from, from_line + (i + row) * s.b * s.j + j + threadIdx.x);
        __syncthreads();
        for (int row = threadIdx.y; row < SIDE; row += ROWS)
            if (j + row < s.j && i + threadIdx.x < s.i)
                put(to, to_line + (j + row) * s.b * s.i + i + threadIdx.x, add,
                    square[threadIdx.x][row]);
    }
}

/* Grid-stride loop over rows [i, c] of `to`. */
template <class T> static __global__ void move_runs(T *to, const T *from, sides s, bool add) {
    for (int64_t at = blockIdx.x; at < s.lines * s.j; at += gridDim.x) {
        const int64_t line = at / s.j, j = at % s.j;
        const int64_t from_row = line_of_from(s, line) + j * s.c;
        const int64_t to_row = line_of_to(s, line) + j * s.b * s.i * s.c;
        for (int64_t e = threadIdx.x; e < s.i * s.c; e += blockDim.x)
            put(to, to_row + e, add,
                load(from, from_row + e / s.c * s.b * s.j * s.c + e % s.c));
    }
}

/* Return about as many thread blocks as run concurrently. Each handles several items, to save
 * divisions. */
static inline dim3 blocks_of(int64_t work) {
    return dim3((unsigned)(work < 1024 ? work : 1024));
}

template <class T>
static cudaError_t run(T *to, const T *from, const sides &s, bool add, cudaStream_t stream) {
    const int64_t squares = s.lines * ceil_div(s.i, SIDE) * ceil_div(s.j, SIDE);
    const int64_t warps = ceil_div(s.i * s.c, 32) * 32;
    if (s.c == 1)
        return launch(turn_squares<T>, blocks_of(squares), dim3(SIDE, ROWS), stream, to, from,
                      s, add);
    return launch(move_runs<T>, blocks_of(s.lines * s.j),
                  dim3((unsigned)(warps < BLOCK ? warps : (int64_t)BLOCK)), stream, to, from, s,
                  add);
}

static int64_t lines_of(const cgp_kernel_spec *spec) {
    const int64_t *parts = cgp_spec_parts(spec)->parts;
    return elements(spec) / (parts[0] * parts[2] * parts[3]);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t *parts = cgp_spec_parts(spec)->parts;
    const sides s = {parts[0], parts[1], parts[2], parts[3], lines_of(spec)};
    return run((T *)args->y, (const T *)args->x[0], s, false, stream);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const int64_t *parts = cgp_spec_parts(spec)->parts;
    const sides s = {parts[2], parts[1], parts[0], parts[3], lines_of(spec)};
    if (!args->dx[0]) return cudaSuccess;
    return run((T *)args->dx[0], (const T *)args->dy, s, adds(spec, 0), stream);
}

const cgp__cuda_op cgp__cuda_transpose = {{BY_TYPE(forward), BY_TYPE(input)}, NULL};
