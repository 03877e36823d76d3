/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.cu -- convolutions as implicit GEMMs of windows and weights, W [KH, KW, in, out].
 *
 *     y [pixels, out]         = windows of x [pixels, KH KW in]    W [KH KW in, out]
 *     dx [pixels, in]         = windows of dy [pixels, KH KW out]  W flipped [KH KW out, in]
 *     dW [KH KW in, out]      = (windows of x)^T                   dy [pixels, out]
 *
 * dx with a stride of s is s x s GEMMs, one for each class of pixels (i mod s, j mod s): the pixels of a class have the same
 * taps of the kernel, and dy without gaps, so no GEMM multiplies zeros that the stride would put there. A pointwise convolution
 * (1 x 1, stride 1) is LINEAR.
 *
 * Blocks of k are those of the cpu backend: whole segments of windows, or equal parts of one, at most 512; for dW, whole rows of
 * pixels, or equal parts of one. */
#include "backend/cuda/gemm_lt.h"
#include "backend/cuda/windows.cuh"

using namespace gemm;

/* Depth of a block of k; of an output row's parts where they are k. */
enum { DEPTH = 512, RUN = 256 };

/* --- LINEAR --- */

static bool is_pointwise(const cgp_op_attributes *g) {
    return g->kernel_height == 1 && g->kernel_width == 1 && g->stride_height == 1 &&
           g->stride_width == 1 && g->top == 0 && g->left == 0 && g->out_height == g->height &&
           g->out_width == g->width;
}

bool cgp__cuda_pointwise(const cgp_kernel_spec *spec, cgp_kernel_spec *linear) {
    *linear = *spec;
    linear->attributes.transposed = true;
    return is_pointwise(&spec->attributes);
}

static cudaError_t run_pointwise(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                 cudaStream_t stream) {
    cgp_kernel_spec linear;
    cgp__cuda_pointwise(spec, &linear);
    return cgp__cuda_linear.run[spec->direction](&linear, args, stream);
}

/* --- blocks of k --- */

/* Windows are k. */
template <class T> static cuts cuts_of_windows(const windows<T> &w) {
    const int64_t segment = segment_of(w), height = w.kernel_height;
    const int64_t fit = DEPTH / segment;
    if (fit == 0) return cuts_of(height * segment, segment, part_of(segment));
    return cuts_of(height * segment, height * segment,
                   ceil_div(height, ceil_div(height, fit)) * segment);
}

/* Pixels are k. */
static cuts cuts_of_pixels(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t pixels = spec->n * g->rows, parts = ceil_div(g->out_width, RUN);
    const int64_t run = ceil_div(g->out_width, parts);
    if (parts > 1) return cuts_of(pixels, g->out_width, run);
    return cuts_of(pixels, pixels, DEPTH / run * run);
}

/* --- forward and the weight's gradient --- */

/* Pixels, and elements of a window. */
static bool all_fit(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t taps = (int64_t)g->kernel_height * g->kernel_width;
    return fits(spec->n * g->rows) && fits(spec->n * g->height * g->width) &&
           fits(taps * g->in) && fits(taps * g->out);
}

template <class T> static windows<T> windows_of_x(const cgp_kernel_spec *spec, const T *x) {
    const cgp_op_attributes *g = &spec->attributes;
    windows<T> w = {};
    w.image = x;
    w.n = (int)spec->n;
    w.height = g->height;
    w.width = g->width;
    w.channels = (int)g->in;
    w.kernel_height = g->kernel_height;
    w.kernel_width = g->kernel_width;
    w.stride_height = g->stride_height;
    w.stride_width = g->stride_width;
    w.top = g->top;
    w.left = g->left;
    w.grid_height = g->out_height;
    w.grid_width = g->out_width;
    set_windows(&w);
    return w;
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const cgp_op_attributes *g = &spec->attributes;
    if (is_pointwise(g)) return run_pointwise(spec, args, stream);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    const windows<T> x = windows_of_x(spec, (const T *)args->x[0]);
    output<plain_rows, T> y = output_of((T *)args->y, x.count, g->out);
    if (g->has_bias) y.bias = args->param[1];
    return run(along_k<windows<T>>{x},
               across_k<matrix<float>>{matrix_of(args->param[0], x.length, g->out, g->out)}, y,
               cuts_of_windows(x), args->workspace, stream);
}

template <class T>
static cudaError_t backward_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                   cudaStream_t stream) {
    const cgp_op_attributes *g = &spec->attributes;
    if (is_pointwise(g)) return run_pointwise(spec, args, stream);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    const windows<T> x = windows_of_x(spec, (const T *)args->x[0]);
    const T *dy = (const T *)args->dy;
    output<plain_rows, float> dw = output_of(args->dparam[0], x.length, g->out);
    dw.add = !args->first;
    CGP__TRY_CUDA(run(across_k<windows<T>>{x},
                      across_k<matrix<T>>{matrix_of(dy, x.count, g->out, g->out)}, dw,
                      cuts_of_pixels(spec), args->workspace, stream));
    if (!g->has_bias) return cudaSuccess;
    return cgp__cuda_sum_rows(args->dparam[1], dy, x.count, g->out, !args->first,
                              args->workspace, stream);
}

/* --- the input's gradient --- */

/* One side of the GEMM for pixels first + stride i of dx. */
struct side {
    /* Of the class. */
    int64_t first, pixels;
    /* Their last tap, in the order of dy, and the number of taps. */
    int64_t tap, taps;
    int64_t padding;
};

/* Pixel i = c + s j is tap u of output (i + padding - u) / s, where that is whole: u = u0 + s t. As t falls the outputs
 * rise, from j + (c + padding - u0) / s - (taps - 1) on. */
static side side_of(int64_t c, int64_t stride, int64_t size, int64_t kernel, int64_t padding) {
    const int64_t first_tap = ((c + padding) % stride + stride) % stride;
    side s = {};
    s.first = c;
    s.pixels = size > c ? ceil_div(size - c, stride) : 0;
    s.taps = kernel > first_tap ? ceil_div(kernel - first_tap, stride) : 0;
    s.tap = first_tap + (s.taps - 1) * stride;
    s.padding = s.taps - 1 - (c + padding - first_tap) / stride;
    return s;
}

template <class T>
static windows<T> windows_of_dy(const cgp_kernel_spec *spec, const side &vertical,
                                const side &horizontal, const T *dy) {
    const cgp_op_attributes *g = &spec->attributes;
    windows<T> w = {};
    w.image = dy;
    w.n = (int)spec->n;
    w.height = g->out_height;
    w.width = g->out_width;
    w.channels = (int)g->out;
    w.kernel_height = (int)vertical.taps;
    w.kernel_width = (int)horizontal.taps;
    w.stride_height = w.stride_width = 1;
    w.top = (int)vertical.padding;
    w.left = (int)horizontal.padding;
    w.grid_height = (int)vertical.pixels;
    w.grid_width = (int)horizontal.pixels;
    set_windows(&w);
    return w;
}

static taps taps_of(const cgp_kernel_spec *spec, const side &vertical, const side &horizontal,
                    const float *weight) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t tap = g->in * g->out, row = g->kernel_width * tap;
    const int64_t segment = horizontal.taps * g->out;
    return {weight + vertical.tap * row + horizontal.tap * tap,
            g->out,
            -g->stride_width * tap,
            -g->stride_height * row,
            (int)g->in,
            (int)(vertical.taps * segment),
            divisor_of(segment),
            divisor_of(g->out),
            g->out % 4 == 0 && is_aligned(weight)};
}

template <class T>
static output<pixel_rows, T> pixels_of_dx(const cgp_kernel_spec *spec, const side &vertical,
                                          const side &horizontal, T *dx) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t line = g->width * g->in;
    return {dx + vertical.first * line + horizontal.first * g->in,
            {g->height * line, g->stride_height * line, g->stride_width * g->in,
             divisor_of(vertical.pixels), divisor_of(horizontal.pixels)},
            (int)(spec->n * vertical.pixels * horizontal.pixels),
            (int)g->in,
            NULL,
            adds(spec, 0),
            false};
}

/* Pixels outside all windows. */
template <class T> __global__ static void clear_pixels(output<pixel_rows, T> dx) {
    FOR_EACH(i, (int64_t)dx.m * dx.n) {
        store(dx.at, dx.rows((int)(i / dx.n)) + i % dx.n, 0.0f);
    }
}

template <class T>
static cudaError_t run_class(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                             const side &vertical, const side &horizontal,
                             cudaStream_t stream) {
    const bool has_pixels = vertical.pixels > 0 && horizontal.pixels > 0;
    const bool has_taps = vertical.taps > 0 && horizontal.taps > 0;
    if (!has_pixels || (!has_taps && adds(spec, 0))) return cudaSuccess;
    const output<pixel_rows, T> dx = pixels_of_dx(spec, vertical, horizontal, (T *)args->dx[0]);
    if (!has_taps)
        return launch(clear_pixels<T>, blocks_for((int64_t)dx.m * dx.n), dim3(BLOCK), stream,
                      dx);
    const windows<T> dy = windows_of_dy(spec, vertical, horizontal, (const T *)args->dy);
    return run(along_k<windows<T>>{dy},
               along_k<taps>{taps_of(spec, vertical, horizontal, args->param[0])}, dx,
               cuts_of_windows(dy), args->workspace, stream);
}

static side side_down(const cgp_op_attributes *g, int64_t c) {
    return side_of(c, g->stride_height, g->height, g->kernel_height, g->top);
}

static side side_across(const cgp_op_attributes *g, int64_t c) {
    return side_of(c, g->stride_width, g->width, g->kernel_width, g->left);
}

template <class T>
static cudaError_t backward_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream) {
    const cgp_op_attributes *g = &spec->attributes;
    if (!args->dx[0]) return cudaSuccess;
    if (is_pointwise(g)) return run_pointwise(spec, args, stream);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    for (int64_t i = 0; i < g->stride_height; i++)
        for (int64_t j = 0; j < g->stride_width; j++)
            CGP__TRY_CUDA(run_class<T>(spec, args, side_down(g, i), side_across(g, j), stream));
    return cudaSuccess;
}

/* --- workspace --- */

static int64_t weight_workspace(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    const windows<float> x = windows_of_x<float>(spec, NULL);
    const int64_t bytes = workspace_bytes(x.length, g->out, cuts_of_pixels(spec).count);
    const int64_t sums = g->has_bias ? cgp__cuda_sum_rows_workspace(x.count, g->out) : 0;
    return bytes > sums ? bytes : sums;
}

/* The largest of the classes. */
static int64_t input_workspace(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    int64_t most = 0;
    for (int64_t i = 0; i < g->stride_height; i++) {
        for (int64_t j = 0; j < g->stride_width; j++) {
            const side down = side_down(g, i), across = side_across(g, j);
            if (down.pixels * across.pixels * down.taps * across.taps == 0) continue;
            const windows<float> dy = windows_of_dy<float>(spec, down, across, NULL);
            const int64_t bytes = workspace_bytes(dy.count, g->in, cuts_of_windows(dy).count);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    cgp_kernel_spec linear;
    if (cgp__cuda_pointwise(spec, &linear)) return cgp__cuda_linear.workspace(&linear);
    if (spec->direction == CGP_OP_BACKWARD_WEIGHT) return weight_workspace(spec);
    if (spec->direction == CGP_OP_BACKWARD_INPUT) return input_workspace(spec);
    const windows<float> x = windows_of_x<float>(spec, NULL);
    return workspace_bytes(x.count, spec->attributes.out, cuts_of_windows(x).count);
}

const cgp__cuda_op cgp__cuda_conv2d = {
    {BY_TYPE(forward), BY_TYPE(backward_input), BY_TYPE(backward_weight)}, workspace};
