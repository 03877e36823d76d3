/* SPDX-License-Identifier: Apache-2.0 */
/* pad.cu -- copies an image into a larger or smaller image. Pixels outside the source are zeros.
 * Backward is the reverse copy, from dy to dx. */
#include "backend/cuda/ops/images.cuh"

/* Set `to` (i, j) to `from` (i - top, j - left), or to zero outside `from`. If `add` is set, add
 * the value instead. */
struct padding {
    int to_height, to_width, from_height, from_width, channels, top, left;
};

template <class T> static __global__ void pad_rows(T *to, const T *from, padding p, bool add) {
    const int i = (int)(blockIdx.x % p.to_height) - p.top, width = p.from_width * p.channels;
    const int64_t row = row_at(blockIdx.x / p.to_height, p.from_height, i, width);
    const int elements = p.to_width * p.channels, left = p.left * p.channels;
    FOR_ROW(e, elements) {
        const bool covered = i >= 0 && i < p.from_height && e >= left && e - left < width;
        put(to, (int64_t)blockIdx.x * elements + e, add,
            covered ? load(from, row + e - left) : 0.0f);
    }
}

template <class T>
static cudaError_t pad(const cgp_kernel_spec *spec, void *to, const void *from, padding p,
                       bool add, cudaStream_t stream) {
    const int64_t elements = (int64_t)p.to_width * p.channels;
    return launch(pad_rows<T>, row_blocks(spec->n, p.to_height, elements),
                  row_threads(elements), stream, (T *)to, (const T *)from, p, add);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const padding p = {g->out_height, g->out_width, g->height, g->width,
                       (int)g->in,    g->top,       g->left};
    return pad<T>(spec, args->y, args->x[0], p, false, stream);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const padding p = {g->height,  g->width, g->out_height, g->out_width,
                       (int)g->in, -g->top,  -g->left};
    if (!args->dx[0]) return cudaSuccess;
    return pad<T>(spec, args->dx[0], args->dy, p, adds(spec, 0), stream);
}

const cgp__cuda_op cgp__cuda_pad = {{BY_TYPE(forward), BY_TYPE(input)}, NULL};
