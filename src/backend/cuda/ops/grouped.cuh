/* SPDX-License-Identifier: Apache-2.0 */
/* grouped.cuh -- direct convolution with groups of channels, for CONV2D and CONV_TRANSPOSE2D. A
 * thread computes one element of y or dx. Neighbouring threads have neighbouring channels, so they
 * read neighbouring elements of x and of the weight.
 *
 * A thread also computes one element of dW for RANGE output pixels. A second kernel adds these
 * partial sums in the order of the pixels. */
#ifndef CGP_SRC_CUDA_GROUPED_CUH
#define CGP_SRC_CUDA_GROUPED_CUH

#include "backend/cuda/cuda.cuh"

namespace grouped {

/* Number of output pixels in a partial sum of dW. */
enum { RANGE = 512 };

/* One side of the windows. */
struct side {
    int pixels, windows, kernel, stride, dilation, front;

    /* Return the pixel at tap u of window i. */
    __device__ int pixel(int i, int u) const {
        return i * stride + u * dilation - front;
    }

    /* Return the window that has pixel p at its tap u; -1: there is none. */
    __device__ int window(int p, int u) const {
        const int from = p + front - u * dilation, i = from / stride;
        return from >= 0 && i * stride == from && i < windows ? i : -1;
    }
};

struct sizes {
    side down, across;
    int64_t n;
    /* `in` and `out`: numbers of channels of x and of y. `group_in` and `group_out`: numbers of
     * channels of one group in x and in y. */
    int in, out, group_in, group_out;
};

static inline sizes sizes_of(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    return {
        {g->height, g->out_height, g->kernel_height, g->stride_height, g->dilation_height, g->top},
        {g->width, g->out_width, g->kernel_width, g->stride_width, g->dilation_width, g->left},
        spec->n,
        (int)g->in,
        (int)g->out,
        (int)(g->in / g->groups),
        (int)(g->out / g->groups)};
}

/* A convolution of x with a bias (NULL: no bias). The result overwrites `to` or is added to it. */
template <class T> struct operands {
    const T *x;
    const float *weight, *bias;
    T *to;
    bool add;
};

template <class T> static __global__ void forward(sizes s, operands<T> p, int64_t count) {
    FOR_EACH(e, count) {
        const int o = (int)(e % s.out), j = (int)(e / s.out % s.across.windows);
        const int64_t line = e / s.out / s.across.windows;
        const int i = (int)(line % s.down.windows), first = o / s.group_out * s.group_in;
        const T *image =
            p.x + line / s.down.windows * s.down.pixels * s.across.pixels * s.in + first;
        float sum = p.bias ? p.bias[o] : 0.0f;
        for (int u = 0; u < s.down.kernel; u++) {
            const int h = s.down.pixel(i, u);
            for (int v = 0; h >= 0 && h < s.down.pixels && v < s.across.kernel; v++) {
                const int w = s.across.pixel(j, v);
                if (w < 0 || w >= s.across.pixels) continue;
                const T *pixel = image + ((int64_t)h * s.across.pixels + w) * s.in;
                const float *weight =
                    p.weight + (int64_t)(u * s.across.kernel + v) * s.group_in * s.out + o;
                for (int c = 0; c < s.group_in; c++)
                    sum = fmaf(load(pixel, c), weight[(int64_t)c * s.out], sum);
            }
        }
        put(p.to, e, p.add, sum);
    }
}

/* Convolve y's gradient, or the x of CONV_TRANSPOSE2D, back to the image. */
template <class T> static __global__ void backward(sizes s, operands<T> p, int64_t count) {
    FOR_EACH(e, count) {
        const int c = (int)(e % s.in), w = (int)(e / s.in % s.across.pixels);
        const int64_t line = e / s.in / s.across.pixels;
        const int h = (int)(line % s.down.pixels), first = c / s.group_in * s.group_out;
        const T *image =
            p.x + line / s.down.pixels * s.down.windows * s.across.windows * s.out + first;
        float sum = p.bias ? p.bias[c] : 0.0f;
        for (int u = 0; u < s.down.kernel; u++) {
            const int i = s.down.window(h, u);
            for (int v = 0; i >= 0 && v < s.across.kernel; v++) {
                const int j = s.across.window(w, v);
                if (j < 0) continue;
                const T *pixel = image + ((int64_t)i * s.across.windows + j) * s.out;
                const int tap = u * s.across.kernel + v;
                const float *weight =
                    p.weight + ((int64_t)tap * s.group_in + c % s.group_in) * s.out + first;
                for (int o = 0; o < s.group_out; o++)
                    sum = fmaf(load(pixel, o), weight[o], sum);
            }
        }
        put(p.to, e, p.add, sum);
    }
}

/* Return the number of elements of the weight. */
static inline int64_t weight_elements(const sizes &s) {
    return (int64_t)s.down.kernel * s.across.kernel * s.group_in * s.out;
}

static inline int64_t ranges_of(const sizes &s) {
    return ceil_div(s.n * s.down.windows * s.across.windows, RANGE);
}

/* Compute partial sums [ranges, elements of the weight]. */
template <class T>
static __global__ void partial_sums(sizes s, float *sums, const T *x, const T *dy, int64_t elements,
                                    int64_t count) {
    FOR_EACH(e, count) {
        const int64_t element = e % elements, begin = e / elements * RANGE;
        const int64_t pixels = s.n * s.down.windows * s.across.windows;
        const int o = (int)(element % s.out), c = (int)(element / s.out % s.group_in);
        const int tap = (int)(element / s.out / s.group_in);
        const int u = tap / s.across.kernel, v = tap % s.across.kernel;
        const int channel = o / s.group_out * s.group_in + c;
        const int64_t end = begin + RANGE < pixels ? begin + RANGE : pixels;
        float sum = 0.0f;
        for (int64_t q = begin; q < end; q++) {
            const int64_t line = q / s.across.windows;
            const int h = s.down.pixel((int)(line % s.down.windows), u);
            const int w = s.across.pixel((int)(q % s.across.windows), v);
            if (h < 0 || h >= s.down.pixels || w < 0 || w >= s.across.pixels) continue;
            const int64_t row = line / s.down.windows * s.down.pixels + h;
            sum = fmaf(load(x, (row * s.across.pixels + w) * s.in + channel),
                       load(dy, q * s.out + o), sum);
        }
        sums[e] = sum;
    }
}

static __global__ void add_sums(float *dw, const float *sums, int64_t elements, int64_t ranges,
                                bool add) {
    FOR_EACH(e, elements) {
        float sum = sums[e];
        for (int64_t r = 1; r < ranges; r++)
            sum += sums[r * elements + e];
        put(dw, e, add, sum);
    }
}

static inline int64_t workspace_bytes(const cgp_kernel_spec *spec) {
    const sizes s = sizes_of(spec);
    if (spec->direction != CGP_OP_BACKWARD_WEIGHT) return 0;
    return ranges_of(s) * weight_elements(s) * (int64_t)sizeof(float);
}

/* --- launches --- */

template <class T>
static cudaError_t convolve(const cgp_kernel_spec *spec, const operands<T> &p,
                            cudaStream_t stream) {
    const sizes s = sizes_of(spec);
    const int64_t count = s.n * s.down.windows * s.across.windows * s.out;
    return launch(forward<T>, blocks_for(count), dim3(BLOCK), stream, s, p, count);
}

template <class T>
static cudaError_t convolve_transposed(const cgp_kernel_spec *spec, const operands<T> &p,
                                       cudaStream_t stream) {
    const sizes s = sizes_of(spec);
    const int64_t count = s.n * s.down.pixels * s.across.pixels * s.in;
    return launch(backward<T>, blocks_for(count), dim3(BLOCK), stream, s, p, count);
}

template <class T>
static cudaError_t convolve_weight(const cgp_kernel_spec *spec, const T *x, const T *dy, float *dw,
                                   bool add, void *workspace, cudaStream_t stream) {
    const sizes s = sizes_of(spec);
    const int64_t elements = weight_elements(s), ranges = ranges_of(s);
    float *const sums = (float *)workspace;
    CGP__TRY_CUDA_ERROR(launch(partial_sums<T>, blocks_for(ranges * elements), dim3(BLOCK), stream,
                               s, sums, x, dy, elements, ranges * elements));
    return launch(add_sums, blocks_for(elements), dim3(BLOCK), stream, dw, (const float *)sums,
                  elements, ranges, add);
}

} // namespace grouped

#endif
