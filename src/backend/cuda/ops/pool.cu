/* SPDX-License-Identifier: Apache-2.0 */
/* pool.cu -- MAX_POOL, AVERAGE_POOL, and MEAN, which is an average pool. A thread computes one
 * element of y or dx from all of its inputs. Nothing is saved.
 *
 *     mean      y = sum over columns of (sum over rows of x) / pixels of the window
 *     back      dx = sum over columns j of
 *                    (sum over rows i of dy(i, j) / rows of window i) / columns of window j
 *     maximum   y = the first maximum in row order; a NaN is larger than any number
 *     back      dx = sum, in row order, of dy(i, j) over windows whose maximum is this pixel
 *
 * Results, and the order in which sums are added, are the same as in `cpu`. Backward of MAX_POOL
 * stores the argmax of all windows in its workspace. */
#include "backend/cuda/ops/images.cuh"

/* --- the mean --- */

template <class T> static __global__ void average_forward(T *y, const T *x, image_windows g) {
    const int i = (int)(blockIdx.x % g.down.windows), width = g.across.pixels * g.channels;
    const span rows = pixels_of(g.down, i);
    const int64_t image = row_at(blockIdx.x / g.down.windows, g.down.pixels, 0, width);
    const int elements = g.across.windows * g.channels;
    FOR_ROW(e, elements) {
        const span columns = pixels_of(g.across, e / g.channels);
        const float sum =
            window_sum(x, image + e % g.channels, width, g.channels, rows, columns);
        store(y, (int64_t)blockIdx.x * elements + e,
              sum / (float)(length(rows) * length(columns)));
    }
}

template <class T>
static __global__ void average_input(T *dx, const T *dy, image_windows g, bool add) {
    const int h = (int)(blockIdx.x % g.down.pixels), width = g.across.windows * g.channels;
    const span rows = windows_of(g.down, h);
    const int64_t image = row_at(blockIdx.x / g.down.pixels, g.down.windows, 0, width);
    const int elements = g.across.pixels * g.channels;
    FOR_ROW(e, elements) {
        const span columns = windows_of(g.across, e / g.channels);
        float sum = 0.0f;
        for (int j = columns.begin; j < columns.end; j++) {
            const int64_t column = image + j * g.channels + e % g.channels;
            float down = 0.0f;
            for (int i = rows.begin; i < rows.end; i++)
                down += load(dy, column + (int64_t)i * width) *
                        (1.0f / (float)length(pixels_of(g.down, i)));
            sum += down * (1.0f / (float)length(pixels_of(g.across, j)));
        }
        put(dx, (int64_t)blockIdx.x * elements + e, add, sum);
    }
}

/* --- the maximum --- */

__device__ static inline bool exceeds(float value, float top) {
    return value > top || (value != value && top == top);
}

/* Compute y of each window, or its argmax as an index in the window. Outputs that are NULL are not
 * computed. */
template <class T>
static __global__ void max_forward(T *y, int32_t *argmax, const T *x, image_windows g) {
    const int i = (int)(blockIdx.x % g.down.windows), width = g.across.pixels * g.channels;
    const span rows = pixels_of(g.down, i);
    const int64_t image = row_at(blockIdx.x / g.down.windows, g.down.pixels, 0, width);
    const int elements = g.across.windows * g.channels;
    FOR_ROW(e, elements) {
        const int j = e / g.channels;
        const span columns = pixels_of(g.across, j);
        int row = rows.begin, column = columns.begin;
        float top =
            load(x, image + (int64_t)row * width + column * g.channels + e % g.channels);
        for (int h = rows.begin; h < rows.end; h++) {
            for (int w = columns.begin; w < columns.end; w++) {
                const float value =
                    load(x, image + (int64_t)h * width + w * g.channels + e % g.channels);
                if (!exceeds(value, top)) continue;
                top = value;
                row = h;
                column = w;
            }
        }
        const int64_t at = (int64_t)blockIdx.x * elements + e;
        const int u = row + g.down.front - i * g.down.stride;
        const int v = column + g.across.front - j * g.across.stride;
        if (y) store(y, at, top);
        if (argmax) argmax[at] = u * g.across.kernel + v;
    }
}

template <class T>
static __global__ void max_input(T *dx, const T *dy, const int32_t *argmax, image_windows g,
                                 bool add) {
    const int h = (int)(blockIdx.x % g.down.pixels), width = g.across.windows * g.channels;
    const span rows = windows_of(g.down, h);
    const int64_t image = row_at(blockIdx.x / g.down.pixels, g.down.windows, 0, width);
    const int elements = g.across.pixels * g.channels;
    FOR_ROW(e, elements) {
        const int w = e / g.channels;
        const span columns = windows_of(g.across, w);
        float sum = 0.0f;
        for (int i = rows.begin; i < rows.end; i++) {
            const int u = h + g.down.front - i * g.down.stride;
            for (int j = columns.begin; j < columns.end; j++) {
                const int v = w + g.across.front - j * g.across.stride;
                const int64_t at = image + (int64_t)i * width + j * g.channels + e % g.channels;
                if (argmax[at] == u * g.across.kernel + v) sum += load(dy, at);
            }
        }
        put(dx, (int64_t)blockIdx.x * elements + e, add, sum);
    }
}

/* --- launches --- */

template <class T>
static cudaError_t average_forward_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                      cudaStream_t stream) {
    const image_windows g = image_windows_of(spec);
    return launch(average_forward<T>, window_blocks(spec->n, g), window_threads(g), stream,
                  (T *)args->y, (const T *)args->x[0], g);
}

template <class T>
static cudaError_t average_input_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                    cudaStream_t stream) {
    const image_windows g = image_windows_of(spec);
    if (!args->dx[0]) return cudaSuccess;
    return launch(average_input<T>, pixel_blocks(spec->n, g), pixel_threads(g), stream,
                  (T *)args->dx[0], (const T *)args->dy, g, adds(spec, 0));
}

template <class T>
static cudaError_t max_forward_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream) {
    const image_windows g = image_windows_of(spec);
    return launch(max_forward<T>, window_blocks(spec->n, g), window_threads(g), stream,
                  (T *)args->y, (int32_t *)NULL, (const T *)args->x[0], g);
}

template <class T>
static cudaError_t max_input_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                cudaStream_t stream) {
    const image_windows g = image_windows_of(spec);
    int32_t *argmax = (int32_t *)args->workspace;
    if (!args->dx[0]) return cudaSuccess;
    CGP__TRY_CUDA_ERROR(launch(max_forward<T>, window_blocks(spec->n, g), window_threads(g),
                               stream, (T *)NULL, argmax, (const T *)args->x[0], g));
    return launch(max_input<T>, pixel_blocks(spec->n, g), pixel_threads(g), stream,
                  (T *)args->dx[0], (const T *)args->dy, (const int32_t *)argmax, g,
                  adds(spec, 0));
}

static int64_t max_workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_BACKWARD_INPUT) return 0;
    return elements(spec) * (int64_t)sizeof(int32_t);
}

const cgp__cuda_op cgp__cuda_average_pool = {
    {BY_TYPE(average_forward_of), BY_TYPE(average_input_of)}, NULL};

const cgp__cuda_op cgp__cuda_mean = {{BY_TYPE(average_forward_of), BY_TYPE(average_input_of)},
                                     NULL};

const cgp__cuda_op cgp__cuda_max_pool = {{BY_TYPE(max_forward_of), BY_TYPE(max_input_of)},
                                         max_workspace};
