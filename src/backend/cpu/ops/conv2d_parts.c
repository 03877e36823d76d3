/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_parts.c -- convolutions with groups or a dilation, divided into parts that have neither.
 *
 * A group is a separate convolution of the group's channels. A dilation of d divides the pixels
 * into classes modulo d, as in the algorithme a trous (Holschneider et al. 1989). Outputs a, a + L,
 * a + 2 L .. read pixels r, r + d, r + 2 d .., and among these pixels alone the convolution has no
 * dilation:
 *
 *     pixel a stride - top + u d + L k stride     L = d / gcd(stride, d)
 *           = r + d (m + u + k stride / gcd)      r = (a stride - top) mod d
 *
 * So a part has the stride `stride / gcd(stride, d)` and the padding -m. The pixels of a part are
 * gathered, the part is convolved by conv2d.c, and its result is scattered. Parts run one after the
 * other. */
#include "backend/cpu/ops/windows.h"

#include <string.h>

/* A class of pixels along one side. */
typedef struct side {
    /* First pixel, distance between pixels, and number of pixels of the class, in the image and in
     * the result. */
    int64_t pixel, pixel_step, pixels, output, output_step, outputs;
    int64_t stride, front;
} side;

static int64_t classes(int64_t stride, int64_t dilation, int64_t outputs) {
    return cgp__min(dilation / cgp__common_divisor(stride, dilation), outputs);
}

static side side_of(int64_t a, int64_t stride, int64_t dilation, int64_t front, int64_t pixels,
                    int64_t outputs) {
    const int64_t divisor = cgp__common_divisor(stride, dilation), first = a * stride - front;
    const int64_t r = (first % dilation + dilation) % dilation, step = dilation / divisor;
    return (side){.pixel = r,
                  .pixel_step = dilation,
                  .pixels = r < pixels ? cgp__ceil_div(pixels - r, dilation) : 0,
                  .output = a,
                  .output_step = step,
                  .outputs = cgp__ceil_div(outputs - a, step),
                  .stride = stride / divisor,
                  .front = (r - first) / dilation};
}

/* One part of a convolution. */
typedef struct part {
    cgp_kernel_spec spec;
    int64_t group;
    side down, across;
} part;

static part part_of(const cgp_kernel_spec *spec, int64_t group, int64_t a, int64_t b) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    part p = {
        .spec = *spec,
        .group = group,
        .down = side_of(a, g->stride_height, g->dilation_height, g->top, g->height, g->out_height),
        .across = side_of(b, g->stride_width, g->dilation_width, g->left, g->width, g->out_width)};
    cgp_op_windows *to = &p.spec.attributes.windows;
    to->in = g->in / g->groups;
    to->out = g->out / g->groups;
    to->rows = p.down.outputs * p.across.outputs;
    to->height = (int32_t)p.down.pixels;
    to->width = (int32_t)p.across.pixels;
    to->out_height = (int32_t)p.down.outputs;
    to->out_width = (int32_t)p.across.outputs;
    to->stride_height = (int32_t)p.down.stride;
    to->stride_width = (int32_t)p.across.stride;
    to->top = (int32_t)p.down.front;
    to->left = (int32_t)p.across.front;
    to->has_bias = false;
    to->dilation_height = to->dilation_width = 1;
    to->groups = 1;
    to->tile = 0;
    return p;
}

/* These functions return the number of parts of a group, and of the whole convolution. */
static int64_t parts_of_group(const cgp_op_windows *g) {
    return classes(g->stride_height, g->dilation_height, g->out_height) *
           classes(g->stride_width, g->dilation_width, g->out_width);
}

static int64_t parts_of(const cgp_op_windows *g) {
    return g->groups * parts_of_group(g);
}

/* Return part i; the parts of a group have consecutive numbers. */
static part part_at(const cgp_kernel_spec *spec, int64_t i) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t across = classes(g->stride_width, g->dilation_width, g->out_width);
    const int64_t per_group = parts_of_group(g);
    return part_of(spec, i / per_group, i % per_group / across, i % across);
}

/* --- gather and scatter --- */

/* The pixels of a part in a tensor [n, rows, columns, channels]. */
typedef struct pixels {
    cgp_device *device;
    cgp_dtype type;
    void *whole, *part;
    bool scatter;
    /* Index of the first element in the whole tensor, and distances in elements between images,
     * rows and pixels. */
    int64_t first, image, row, pixel;
    /* Rows, columns and channels of the part. */
    int64_t height, width, channels;
} pixels;

static pixels pixels_of_image(cgp_device *device, const cgp_kernel_spec *spec, const part *p,
                              const void *whole, void *to) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t line = g->width * g->in, in = g->in / g->groups;
    return (pixels){.device = device,
                    .type = spec->type,
                    .whole = cgp__cpu_at(spec->type, whole, 0),
                    .part = to,
                    .first = p->down.pixel * line + p->across.pixel * g->in + p->group * in,
                    .image = g->height * line,
                    .row = p->down.pixel_step * line,
                    .pixel = p->across.pixel_step * g->in,
                    .height = p->down.pixels,
                    .width = p->across.pixels,
                    .channels = in};
}

static pixels pixels_of_output(cgp_device *device, const cgp_kernel_spec *spec, const part *p,
                               const void *whole, void *to) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t line = g->out_width * g->out, out = g->out / g->groups;
    return (pixels){.device = device,
                    .type = spec->type,
                    .whole = cgp__cpu_at(spec->type, whole, 0),
                    .part = to,
                    .first = p->down.output * line + p->across.output * g->out + p->group * out,
                    .image = g->out_height * line,
                    .row = p->down.output_step * line,
                    .pixel = p->across.output_step * g->out,
                    .height = p->down.outputs,
                    .width = p->across.outputs,
                    .channels = out};
}

static void copy_range(const void *work, int64_t begin, int64_t end, int thread) {
    const pixels *p = work;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        void *whole = cgp__cpu_at(p->type, p->whole,
                                  p->first + r / p->height * p->image + r % p->height * p->row);
        void *at = cgp__cpu_at(p->type, p->part, r * p->width * p->channels);
        if (p->scatter)
            p->device->kernels->copy_rows(p->type, whole, p->pixel, at, p->channels, p->width,
                                          p->channels, false);
        else
            p->device->kernels->copy_rows(p->type, at, p->channels, whole, p->pixel, p->width,
                                          p->channels, false);
    }
}

static void copy_pixels(const pixels *p, int64_t n) {
    cgp__cpu_parallel_for(p->device, n * p->height, cgp__cpu_block_rows(p->width * p->channels),
                          copy_range, p);
}

/* --- memory --- */

/* The buffers of a part in the workspace. */
typedef struct buffers {
    void *image, *output;
    float *weight;
    void *workspace;
} buffers;

static int64_t image_bytes(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    return cgp__align_up(spec->n * cgp__ceil_div(g->height, g->dilation_height) *
                         cgp__ceil_div(g->width, g->dilation_width) * (g->in / g->groups) *
                         (int64_t)cgp_dtype_bytes(spec->type));
}

/* Return the bytes of the output of a group's first part; no other part has a larger output. */
static int64_t output_bytes(const cgp_kernel_spec *spec) {
    const part p = part_at(spec, 0);
    const cgp_op_windows *of = &p.spec.attributes.windows;
    return cgp__align_up(spec->n * of->rows * of->out * (int64_t)cgp_dtype_bytes(spec->type));
}

/* Return the number of elements of a group's weight. */
static int64_t weight_elements(const cgp_op_windows *g) {
    return (int64_t)g->kernel_height * g->kernel_width * (g->in / g->groups) * (g->out / g->groups);
}

static int64_t weight_bytes(const cgp_op_windows *g) {
    return g->groups > 1 ? cgp__align_up(weight_elements(g) * (int64_t)sizeof(float)) : 0;
}

static buffers buffers_of(const cgp_kernel_spec *spec, void *workspace) {
    buffers b = {.image = workspace};
    b.output = (char *)b.image + image_bytes(spec);
    b.weight = (float *)(void *)((char *)b.output + output_bytes(spec));
    b.workspace = (char *)b.weight + weight_bytes(cgp_spec_windows(spec));
    return b;
}

/* Return the address of a group's weight. If there are several groups, first copy the group's
 * columns to the buffer `to`, where they are contiguous. */
static const float *weight_of(cgp_device *device, const cgp_op_windows *g, int64_t group,
                              const float *weight, float *to) {
    const int64_t out = g->out / g->groups;
    if (g->groups == 1) return weight;
    device->kernels->copy_rows(CGP_F32, to, out, weight + group * out, g->out,
                               weight_elements(g) / out, out, false);
    return to;
}

/* --- the three directions --- */

bool cgp__has_parts(const cgp_op_windows *g) {
    return g->groups > 1 || g->dilation_height > 1 || g->dilation_width > 1;
}

/* Set all pixels to the bias or zeros, because some pixels may belong to no part. */
static void fill(cgp_device *device, const cgp__cpu_convolution *conv) {
    const cgp_op_windows *g = cgp_spec_windows(conv->spec);
    const cgp_dtype type = conv->spec->type;
    for (int64_t pixel = 0; pixel < conv->spec->n * g->height * g->width; pixel++) {
        void *at = cgp__cpu_at(type, conv->to, pixel * g->in);
        if (conv->bias)
            device->kernels->convert(type, at, CGP_F32, conv->bias, g->in);
        else
            memset(at, 0, (size_t)g->in * cgp_dtype_bytes(type));
    }
}

/* Convolve the image to the output or, if `transposed` is set, the output to the image. */
static void convolve(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace,
                     bool transposed) {
    const cgp_op_windows *g = cgp_spec_windows(conv->spec);
    const buffers b = buffers_of(conv->spec, workspace);
    for (int64_t i = 0; i < parts_of(g); i++) {
        const part p = part_at(conv->spec, i);
        const pixels image =
            pixels_of_image(device, conv->spec, &p, transposed ? conv->to : conv->x, b.image);
        const pixels output =
            pixels_of_output(device, conv->spec, &p, transposed ? conv->x : conv->to, b.output);
        pixels to = transposed ? image : output;
        const cgp__cpu_convolution own = {
            .spec = &p.spec,
            .x = transposed ? b.output : b.image,
            .weight = weight_of(device, g, p.group, conv->weight, b.weight),
            .bias = conv->bias ? conv->bias + p.group * to.channels : NULL,
            .to = transposed ? b.image : b.output,
            .add = conv->add};
        copy_pixels(transposed ? &output : &image, conv->spec->n);
        if (conv->add) copy_pixels(&to, conv->spec->n);
        if (transposed)
            cgp__cpu_convolve_transposed(device, &own, b.workspace);
        else
            cgp__cpu_convolve(device, &own, b.workspace);
        to.scatter = true;
        copy_pixels(&to, conv->spec->n);
    }
}

void cgp__convolve_parts(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace) {
    convolve(device, conv, workspace, false);
}

void cgp__convolve_parts_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                    void *workspace) {
    const cgp_op_windows *g = cgp_spec_windows(conv->spec);
    if (!conv->add && (g->dilation_height > 1 || g->dilation_width > 1)) fill(device, conv);
    convolve(device, conv, workspace, true);
}

void cgp__convolve_parts_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                                const void *dy, float *dw, bool add, void *workspace) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t out = g->out / g->groups;
    const buffers b = buffers_of(spec, workspace);
    const bool apart = g->groups > 1;
    for (int64_t i = 0; i < parts_of(g); i++) {
        const part p = part_at(spec, i);
        const int64_t of_group = i % parts_of_group(g);
        const pixels image = pixels_of_image(device, spec, &p, x, b.image);
        const pixels output = pixels_of_output(device, spec, &p, dy, b.output);
        copy_pixels(&image, spec->n);
        copy_pixels(&output, spec->n);
        cgp__cpu_convolve_weight(device, &p.spec, b.image, b.output, apart ? b.weight : dw,
                                 of_group > 0 || (add && !apart), b.workspace);
        if (apart && of_group == parts_of_group(g) - 1)
            device->kernels->copy_rows(CGP_F32, dw + p.group * out, g->out, b.weight, out,
                                       weight_elements(g) / out, out, add);
    }
}

int64_t cgp__convolve_parts_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    int64_t most = 0;
    for (int64_t i = 0; i < parts_of_group(g); i++) {
        const part p = part_at(spec, i);
        most = cgp__max(most, cgp__cpu_convolve_bytes(&p.spec, threads));
    }
    return image_bytes(spec) + output_bytes(spec) + weight_bytes(g) + most;
}
