/* SPDX-License-Identifier: Apache-2.0 */
/* upsample.cu -- each pixel becomes a block of equal pixels. The dx of a pixel is the sum of dy
 * over the pixel's block: first over rows, then over columns, as in the cpu backend. */
#include "backend/cuda/ops/images.cuh"

template <class T> static __global__ void upsample_forward(T *y, const T *x, image_windows g) {
    const int i = (int)(blockIdx.x % g.down.windows);
    const int64_t from = row_at(blockIdx.x / g.down.windows, g.down.pixels, i / g.down.stride,
                                g.across.pixels * g.channels);
    const int elements = g.across.windows * g.channels;
    FOR_ROW(e, elements) {
        const int w = e / g.channels / g.across.stride;
        y[(int64_t)blockIdx.x * elements + e] = x[from + w * g.channels + e % g.channels];
    }
}

template <class T>
static __global__ void upsample_input(T *dx, const T *dy, image_windows g, bool add) {
    const int h = (int)(blockIdx.x % g.down.pixels), width = g.across.windows * g.channels;
    const int64_t image = row_at(blockIdx.x / g.down.pixels, g.down.windows, 0, width);
    const span rows = {h * g.down.stride, (h + 1) * g.down.stride};
    const int elements = g.across.pixels * g.channels;
    FOR_ROW(e, elements) {
        const int w = e / g.channels;
        const span columns = {w * g.across.stride, (w + 1) * g.across.stride};
        put(dx, (int64_t)blockIdx.x * elements + e, add,
            window_sum(dy, image + e % g.channels, width, g.channels, rows, columns));
    }
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const image_windows g = image_windows_of(spec);
    return launch(upsample_forward<T>, window_blocks(spec->n, g), window_threads(g), stream,
                  (T *)args->y, (const T *)args->x[0], g);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const image_windows g = image_windows_of(spec);
    if (!args->dx[0]) return cudaSuccess;
    return launch(upsample_input<T>, pixel_blocks(spec->n, g), pixel_threads(g), stream,
                  (T *)args->dx[0], (const T *)args->dy, g, adds(spec, 0));
}

const cgp__cuda_op cgp__cuda_upsample = {{BY_TYPE(forward), BY_TYPE(input)}, NULL};
