/* SPDX-License-Identifier: Apache-2.0 */
/* pad.c -- PAD: copies an image into a larger or smaller image. Pixels outside the source are
 * zeros. Backward is the same op with dy as its source. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct padding {
    const cgp_kernel *kernel;
    void *to;
    const void *from;
    int64_t to_height, to_width, from_height, from_width;
    /* Pixel (i, j) of `to` is pixel (i - top, j - left) of `from`, or zero if `from` has no such
     * pixel. */
    int64_t top, left;
    bool add;
} padding;

/* Write one row of `to`. */
static void pad_row(const padding *w, void *to, const void *from) {
    const int64_t channels = w->kernel->spec.attributes.in;
    const cgp_dtype type = w->kernel->spec.type;
    const int64_t begin = from && w->left > 0 ? cgp__min(w->left, w->to_width) : 0;
    const int64_t covered = from ? cgp__min(w->left + w->from_width, w->to_width) : 0;
    const int64_t end = covered > begin ? covered : begin;
    const size_t pixel = (size_t)channels * cgp_dtype_bytes(type);
    if (!w->add) {
        memset(to, 0, (size_t)begin * pixel);
        memset((char *)to + (size_t)end * pixel, 0, (size_t)(w->to_width - end) * pixel);
    }
    if (end == begin) return;
    w->kernel->device->kernels->copy_rows(type, cgp__cpu_at(type, to, begin * channels), 0,
                                          cgp__cpu_at(type, from, (begin - w->left) * channels), 0,
                                          1, (end - begin) * channels, w->add);
}

static void pad_range(const void *work, int64_t begin, int64_t end, int thread) {
    const padding *w = work;
    const int64_t channels = w->kernel->spec.attributes.in;
    const cgp_dtype type = w->kernel->spec.type;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const int64_t sample = row / w->to_height, i = row % w->to_height - w->top;
        const int64_t at = (sample * w->from_height + i) * w->from_width * channels;
        const bool covered = i >= 0 && i < w->from_height;
        pad_row(w, cgp__cpu_at(type, w->to, row * w->to_width * channels),
                covered ? cgp__cpu_at(type, w->from, at) : NULL);
    }
}

static void pad(const padding *w) {
    const cgp_kernel_spec *spec = &w->kernel->spec;
    cgp__cpu_parallel_for(w->kernel->device, spec->n * w->to_height,
                          cgp__cpu_block_rows(w->to_width * spec->attributes.in), pad_range, w);
}

static cgp_status pad_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(&kernel->spec);
    const padding w = {.kernel = kernel,
                       .to = args->y,
                       .from = args->x[0],
                       .to_height = g->out_height,
                       .to_width = g->out_width,
                       .from_height = g->height,
                       .from_width = g->width,
                       .top = g->top,
                       .left = g->left};
    pad(&w);
    return CGP_OK;
}

static cgp_status pad_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(&kernel->spec);
    const padding w = {.kernel = kernel,
                       .to = args->dx[0],
                       .from = args->dy,
                       .to_height = g->height,
                       .to_width = g->width,
                       .from_height = g->out_height,
                       .from_width = g->out_width,
                       .top = -g->top,
                       .left = -g->left,
                       .add = cgp__cpu_adds(kernel, 0)};
    if (w.to) pad(&w);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_pad[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {pad_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {pad_input, NULL},
};
