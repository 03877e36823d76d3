/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.cu -- implicit-GEMM convolutions (cuDNN: Chetlur et al. 2014, arXiv:1410.0759): windows of
 * the image times weights W [KH, KW, in, out].
 *
 *     y [pixels, out]         = windows of x [pixels, KH KW in]    W [KH KW in, out]
 *     dx [pixels, in]         = windows of dy [pixels, KH KW out]  W flipped [KH KW out, in]
 *     dW [KH KW in, out]      = (windows of x)^T                   dy [pixels, out]
 *
 * With a stride of s, dx is computed by s x s GEMMs, one for each class (i mod s, j mod s) of
 * pixels. All pixels of a class use the same taps of the kernel and read dy without gaps, so no
 * GEMM multiplies zeros that the stride would insert. A pointwise convolution (1 x 1, stride 1) is
 * computed as a LINEAR.
 *
 * With a dilation, windows have gaps. Groups of channels are convolved directly (grouped.cuh).
 *
 * CONV_TRANSPOSE2D from x to y uses the kernels of the convolution from y to x. Forward computes
 * the input gradient of that convolution from x, then adds the bias. dx is that convolution applied
 * to dy. dW is the weight gradient of that convolution, with x and dy exchanged.
 *
 * In f32, k is split into ranges of at most 512, as in the cpu backend. A range is either several
 * whole segments (a segment is a row of a window) or one of the equal parts of a segment. For dW, a
 * range is either several whole rows of pixels or one of the equal parts of a row. In bf16, tensor
 * cores multiply; they read prepacked weights, which are bf16 copies (gemm_mma.cuh). */
#include "backend/convolution.h"
#include "backend/cuda/gemm_lt.h"
#include "backend/cuda/gemm_mma.cuh"
#include "backend/cuda/ops/grouped.cuh"
#include "backend/cuda/windows.cuh"

using namespace gemm;

/* DEPTH: maximum number of elements of a k range. RUN: maximum number of pixels of a part of an
 * output row. */
enum { DEPTH = 512, RUN = 256 };

/* --- LINEAR --- */

bool cgp__cuda_pointwise(const cgp_kernel_spec *spec, cgp_kernel_spec *linear) {
    *linear = cgp__pointwise_linear(spec);
    return cgp__is_pointwise(spec);
}

static cudaError_t run_pointwise(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                 cudaStream_t stream) {
    const cgp_kernel_spec linear = cgp__pointwise_linear(spec);
    return cgp__cuda_linear.run[spec->direction](&linear, args, stream);
}

/* --- k ranges --- */

/* Return the k ranges over the elements of a window. */
static k_ranges k_ranges_of_windows(const windows<bf16> &w) {
    return mma_k_ranges(w.length);
}

static k_ranges k_ranges_of_windows(const windows<float> &w) {
    const int64_t segment = segment_of(w), height = w.kernel_height;
    const int64_t fit = DEPTH / segment;
    if (fit == 0) return k_ranges_of(height * segment, segment, even_depth(segment));
    return k_ranges_of(height * segment, height * segment,
                       ceil_div(height, ceil_div(height, fit)) * segment);
}

/* Return the k ranges over the pixels. */
template <class T> static k_ranges k_ranges_of_pixels(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t pixels = spec->n * g->rows, parts = ceil_div(g->out_width, RUN);
    const int64_t run = ceil_div(g->out_width, parts);
    if (is_rounded<T>) return mma_k_ranges_of_rows(pixels);
    if (parts > 1) return k_ranges_of(pixels, g->out_width, run);
    return k_ranges_of(pixels, pixels, DEPTH / run * run);
}

/* --- forward and the weight's gradient --- */

/* Return whether an int can index all pixels and all elements of a window. */
static bool all_fit(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t taps = (int64_t)g->kernel_height * g->kernel_width;
    return fits(spec->n * g->rows) && fits(spec->n * g->height * g->width) && fits(taps * g->in) &&
           fits(taps * g->out);
}

template <class T> static windows<T> windows_of_x(const cgp_kernel_spec *spec, const T *x) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
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
    w.dilation_height = g->dilation_height;
    w.dilation_width = g->dilation_width;
    w.out_height = g->out_height;
    w.out_width = g->out_width;
    set_windows(&w);
    return w;
}

/* A convolution of x, plus bias (NULL: no bias). The result overwrites `to` or is added to it. */
template <class T> struct convolution {
    const T *x, *weight;
    /* `param`: the weight in f32, for convolutions with groups. `bias`: NULL if there is no
     * bias. */
    const float *param, *bias;
    T *to;
    bool add;
    void *workspace;
};

/* Convolve x [H, W, in] to [OH, OW, out]. */
template <class T>
static cudaError_t convolve(const cgp_kernel_spec *spec, const convolution<T> &conv,
                            cudaStream_t stream) {
    const int64_t out = spec->attributes.out;
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    if (cgp_spec_windows(spec)->groups > 1)
        return grouped::convolve<T>(spec, {conv.x, conv.param, conv.bias, conv.to, conv.add},
                                    stream);
    const windows<T> x = windows_of_x(spec, conv.x);
    output<plain_rows, T> y = output_of(conv.to, x.count, out);
    y.bias = conv.bias;
    y.add = conv.add;
    return run(along_k<windows<T>>{x},
               across_k<matrix<T>>{matrix_of(conv.weight, x.length, out, out)}, y,
               k_ranges_of_windows(x), conv.workspace, stream);
}

static const float *bias_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    return cgp_spec_windows(spec)->has_bias ? args->param[1] : NULL;
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    if (cgp__is_pointwise(spec)) return run_pointwise(spec, args, stream);
    return convolve<T>(spec,
                       {(const T *)args->x[0], weight_of<T>(args), args->param[0],
                        bias_of(spec, args), (T *)args->y, false, args->workspace},
                       stream);
}

template <class T>
static cudaError_t convolve_weight(const cgp_kernel_spec *spec, const T *image, const T *dy,
                                   const cgp_kernel_args *args, cudaStream_t stream) {
    const int64_t out = spec->attributes.out;
    if (!args->dparam[0]) return cudaSuccess;
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    if (cgp_spec_windows(spec)->groups > 1)
        return grouped::convolve_weight(spec, image, dy, args->dparam[0], !args->first,
                                        args->workspace, stream);
    const windows<T> x = windows_of_x(spec, image);
    output<plain_rows, float> dw = output_of(args->dparam[0], x.length, out);
    dw.add = !args->first;
    return run(across_k<windows<T>>{x}, across_k<matrix<T>>{matrix_of(dy, x.count, out, out)}, dw,
               k_ranges_of_pixels<T>(spec), args->workspace, stream);
}

template <class T>
static cudaError_t bias_gradient(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                 cudaStream_t stream) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    if (!g->has_bias || !args->dparam[1]) return cudaSuccess;
    return cgp__cuda_sum_rows(args->dparam[1], (const T *)args->dy, spec->n * g->rows, g->out,
                              !args->first, args->workspace, stream);
}

template <class T>
static cudaError_t backward_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                   cudaStream_t stream) {
    if (cgp__is_pointwise(spec)) return run_pointwise(spec, args, stream);
    CGP__TRY_CUDA_ERROR(
        convolve_weight(spec, (const T *)args->x[0], (const T *)args->dy, args, stream));
    return bias_gradient<T>(spec, args, stream);
}

/* --- the input's gradient --- */

template <class T>
static windows<T> windows_of_dy(const cgp_kernel_spec *spec, const cgp__pixel_class &vertical,
                                const cgp__pixel_class &horizontal, const T *dy) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
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
    w.dilation_height = (int)vertical.dilation;
    w.dilation_width = (int)horizontal.dilation;
    w.out_height = (int)vertical.pixels;
    w.out_width = (int)horizontal.pixels;
    set_windows(&w);
    return w;
}

template <class T>
static taps<T> taps_of(const cgp_kernel_spec *spec, const cgp__pixel_class &vertical,
                       const cgp__pixel_class &horizontal, const T *weight) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t tap = g->in * g->out, row = g->kernel_width * tap;
    const int64_t segment = horizontal.taps * g->out;
    return {weight + vertical.tap * row + horizontal.tap * tap,
            g->out,
            -horizontal.step * tap,
            -vertical.step * row,
            (int)g->in,
            (int)(vertical.taps * segment),
            divisor_of(segment),
            divisor_of(g->out),
            are_vectors(weight, g->out)};
}

template <class T>
static output<pixel_rows, T>
pixels_of_dx(const cgp_kernel_spec *spec, const cgp__pixel_class &vertical,
             const cgp__pixel_class &horizontal, const convolution<T> &conv) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t line = g->width * g->in;
    return {conv.to + vertical.first * line + horizontal.first * g->in,
            {g->height * line, g->stride_height * line, g->stride_width * g->in,
             divisor_of(vertical.pixels), divisor_of(horizontal.pixels)},
            (int)(spec->n * vertical.pixels * horizontal.pixels),
            (int)g->in,
            conv.bias,
            conv.add,
            false,
            NULL};
}

/* Set the pixels that no window covers to the bias, or to 0. */
template <class T> __global__ static void fill_pixels(output<pixel_rows, T> dx) {
    FOR_EACH(i, (int64_t)dx.m * dx.n) {
        const int channel = (int)(i % dx.n);
        store(dx.at, dx.rows((int)(i / dx.n)) + channel, dx.bias ? dx.bias[channel] : 0.0f);
    }
}

template <class T>
static cudaError_t run_class(const cgp_kernel_spec *spec, const convolution<T> &conv,
                             const cgp__pixel_class &vertical, const cgp__pixel_class &horizontal,
                             cudaStream_t stream) {
    const bool has_pixels = vertical.pixels > 0 && horizontal.pixels > 0;
    const bool has_taps = vertical.taps > 0 && horizontal.taps > 0;
    if (!has_pixels || (!has_taps && conv.add)) return cudaSuccess;
    const output<pixel_rows, T> dx = pixels_of_dx(spec, vertical, horizontal, conv);
    if (!has_taps)
        return launch(fill_pixels<T>, blocks_for((int64_t)dx.m * dx.n), dim3(BLOCK), stream, dx);
    const windows<T> dy = windows_of_dy(spec, vertical, horizontal, conv.x);
    return run(along_k<windows<T>>{dy},
               along_k<taps<T>>{taps_of(spec, vertical, horizontal, conv.weight)}, dx,
               k_ranges_of_windows(dy), conv.workspace, stream);
}

static cgp__pixel_class side_down(const cgp_op_windows *g, int64_t c) {
    return cgp__pixel_class_of(c, g->stride_height, g->dilation_height, g->height, g->kernel_height,
                               g->top);
}

static cgp__pixel_class side_across(const cgp_op_windows *g, int64_t c) {
    return cgp__pixel_class_of(c, g->stride_width, g->dilation_width, g->width, g->kernel_width,
                               g->left);
}

/* Convolve x [OH, OW, out] back to [H, W, in]. */
template <class T>
static cudaError_t convolve_transposed(const cgp_kernel_spec *spec, const convolution<T> &conv,
                                       cudaStream_t stream) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    if (!all_fit(spec)) return cudaErrorInvalidValue;
    if (g->groups > 1)
        return grouped::convolve_transposed<T>(
            spec, {conv.x, conv.param, conv.bias, conv.to, conv.add}, stream);
    for (int64_t i = 0; i < g->stride_height; i++)
        for (int64_t j = 0; j < g->stride_width; j++)
            CGP__TRY_CUDA_ERROR(
                run_class<T>(spec, conv, side_down(g, i), side_across(g, j), stream));
    return cudaSuccess;
}

template <class T>
static cudaError_t backward_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    if (cgp__is_pointwise(spec)) return run_pointwise(spec, args, stream);
    return convolve_transposed<T>(spec,
                                  {(const T *)args->dy, weight_of<T>(args), args->param[0], NULL,
                                   (T *)args->dx[0], adds(spec, 0), args->workspace},
                                  stream);
}

/* --- workspace --- */

static int64_t weight_workspace(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t bytes = g->groups > 1 ? grouped::workspace_bytes(spec) : 0;
    const int64_t sums = g->has_bias ? cgp__cuda_sum_rows_workspace(spec->n * g->rows, g->out) : 0;
    return bytes > sums ? bytes : sums;
}

/* Return the maximum workspace, in bytes, over the classes of pixels. */
static int64_t input_workspace(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    int64_t most = 0;
    for (int64_t i = 0; i < g->stride_height; i++) {
        for (int64_t j = 0; j < g->stride_width; j++) {
            const cgp__pixel_class down = side_down(g, i), across = side_across(g, j);
            if (down.pixels * across.pixels * down.taps * across.taps == 0) continue;
            const windows<bf16> dy = windows_of_dy<bf16>(spec, down, across, NULL);
            const int64_t bytes =
                workspace_bytes(dy.count, g->in, k_ranges_of_windows(dy).count, spec->type);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    cgp_kernel_spec linear;
    if (cgp__cuda_pointwise(spec, &linear)) return cgp__cuda_linear.workspace(&linear);
    if (spec->direction == CGP_OP_BACKWARD_WEIGHT) return weight_workspace(spec);
    if (cgp_spec_windows(spec)->groups > 1) return 0;
    if (spec->direction == CGP_OP_BACKWARD_INPUT) return input_workspace(spec);
    const windows<bf16> x = windows_of_x<bf16>(spec, NULL);
    return workspace_bytes(x.count, spec->attributes.out, k_ranges_of_windows(x).count, spec->type);
}

const cgp__cuda_op cgp__cuda_conv2d = {
    {BY_TYPE(forward), BY_TYPE(backward_input), BY_TYPE(backward_weight)}, workspace};

/* --- CONV_TRANSPOSE2D --- */

template <class T>
static cudaError_t transposed_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                      cudaStream_t stream) {
    if (cgp__is_pointwise(spec)) return run_pointwise(spec, args, stream);
    const cgp_kernel_spec conv = cgp__conv2d_of(spec, CGP_OP_BACKWARD_INPUT);
    return convolve_transposed<T>(&conv,
                                  {(const T *)args->x[0], weight_of<T>(args), args->param[0],
                                   bias_of(spec, args), (T *)args->y, false, args->workspace},
                                  stream);
}

template <class T>
static cudaError_t transposed_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                    cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    if (cgp__is_pointwise(spec)) return run_pointwise(spec, args, stream);
    const cgp_kernel_spec conv = cgp__conv2d_of(spec, CGP_OP_FORWARD);
    return convolve<T>(&conv,
                       {(const T *)args->dy, weight_of<T>(args), args->param[0], NULL,
                        (T *)args->dx[0], adds(spec, 0), args->workspace},
                       stream);
}

template <class T>
static cudaError_t transposed_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                     cudaStream_t stream) {
    if (cgp__is_pointwise(spec)) return run_pointwise(spec, args, stream);
    const cgp_kernel_spec conv = cgp__conv2d_of(spec, CGP_OP_BACKWARD_WEIGHT);
    CGP__TRY_CUDA_ERROR(
        convolve_weight(&conv, (const T *)args->dy, (const T *)args->x[0], args, stream));
    return bias_gradient<T>(spec, args, stream);
}

static int64_t transposed_workspace(const cgp_kernel_spec *spec) {
    static const cgp_op_direction directions[CGP_OP_DIRECTIONS] = {
        CGP_OP_BACKWARD_INPUT, CGP_OP_FORWARD, CGP_OP_BACKWARD_WEIGHT};
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const cgp_kernel_spec conv = cgp__conv2d_of(spec, directions[spec->direction]);
    cgp_kernel_spec linear;
    if (cgp__cuda_pointwise(spec, &linear)) return cgp__cuda_linear.workspace(&linear);
    const int64_t bytes = workspace(&conv);
    const int64_t sums = spec->direction == CGP_OP_BACKWARD_WEIGHT && g->has_bias
                             ? cgp__cuda_sum_rows_workspace(spec->n * g->rows, g->out)
                             : 0;
    return bytes > sums ? bytes : sums;
}

const cgp__cuda_op cgp__cuda_conv_transpose2d = {
    {BY_TYPE(transposed_forward), BY_TYPE(transposed_input), BY_TYPE(transposed_weight)},
    transposed_workspace};
