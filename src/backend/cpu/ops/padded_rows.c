/* SPDX-License-Identifier: Apache-2.0 */
/* padded_rows.c -- copies the input rows of a block of output pixels, padded with zeros, and lists
 * the offsets of the windows in this copy. The list is the indirection buffer of indirect
 * convolution (Dukhan 2019, arXiv:1907.02129). */
#include "backend/cpu/ops/windows.h"

#include <string.h>

void cgp__output_positions_set(cgp__output_positions *g) {
    g->parts = cgp__ceil_div(g->out_width, CGP__WINDOW_PIXELS);
    g->run = cgp__ceil_div(g->out_width, g->parts);
    g->step_height = cgp__min(g->stride_height, g->kernel_height);
    g->step_width = cgp__min(g->stride_width, g->kernel_width);
    g->padded_width = (g->run - 1) * g->step_width + g->kernel_width;
    g->segment = g->kernel_width * g->channels;
}

int64_t cgp__padded_rows_elements(const cgp__output_positions *g, int64_t runs) {
    const int64_t images = cgp__min((runs - 2 + g->out_height) / g->out_height + 1, runs);
    const int64_t rows = (runs - images) * g->step_height + images * g->kernel_height;
    return rows * g->padded_width * g->channels;
}

/* --- padded rows --- */

/* Copy `n` pixels of row i of an image, starting at pixel j; pixels outside the image are zeros. */
static void copy_pixels(cgp_device *device, const cgp__output_positions *g, cgp_dtype type,
                        void *to, int64_t image, int64_t i, int64_t j, int64_t n) {
    const int64_t channels = g->channels;
    const bool inside = i >= 0 && i < g->height;
    const int64_t begin = cgp__min(cgp__max(-j, 0), n);
    const int64_t end = inside ? cgp__max(cgp__min(g->width - j, n), begin) : begin;
    memset(to, 0, (size_t)(begin * channels) * cgp_dtype_bytes(type));
    if (end > begin)
        device->kernels->convert(
            type, cgp__cpu_at(type, to, begin * channels), g->type,
            cgp__cpu_at(g->type, g->image,
                        ((image * g->height + i) * g->width + j + begin) * channels),
            (end - begin) * channels);
    memset(cgp__cpu_at(type, to, end * channels), 0,
           (size_t)((n - end) * channels) * cgp_dtype_bytes(type));
}

/* Copy one padded row: row i of an image, for the windows of a run. */
static void copy_row(cgp_device *device, const cgp__output_positions *g, cgp_dtype type, void *to,
                     int64_t image, int64_t i, int64_t first, int64_t pixels) {
    const int64_t j = first * g->stride_width - g->left;
    if (g->step_width == g->stride_width) {
        copy_pixels(device, g, type, to, image, i, j,
                    (pixels - 1) * g->step_width + g->kernel_width);
        return;
    }
    for (int64_t p = 0; p < pixels; p++)
        copy_pixels(device, g, type, cgp__cpu_at(type, to, p * g->segment), image, i,
                    j + p * g->stride_width, g->kernel_width);
}

/* Arguments of copy_range(). */
typedef struct padding_work {
    cgp_device *device;
    const cgp__output_positions *g;
    int64_t first;
    cgp_dtype type;
    void *padded;
    const int64_t *windows;
} padding_work;

static int64_t image_row(const cgp__output_positions *g, int64_t run) {
    return run / g->parts % g->out_height;
}

/* Return the number of padded rows of a run that no earlier run of the block has copied. */
static int64_t fresh_rows(const cgp__output_positions *g, int64_t first, int64_t run) {
    return run == first || image_row(g, run) == 0 ? g->kernel_height : g->step_height;
}

int64_t cgp__output_pixels_before(const cgp__output_positions *g, int64_t run) {
    return run / g->parts * g->out_width + run % g->parts * g->run;
}

/* Fill the table of windows; return the number of windows. */
static int64_t set_windows(const cgp__output_positions *g, int64_t first, int64_t count,
                           int64_t *windows) {
    const int64_t row = g->padded_width * g->channels;
    int64_t pixel = 0, rows = 0;
    for (int64_t r = first; r < first + count; r++) {
        const int64_t pixels = cgp__min(g->run, g->out_width - r % g->parts * g->run);
        rows += fresh_rows(g, first, r);
        for (int64_t p = 0; p < pixels; p++)
            windows[pixel++] = (rows - g->kernel_height) * row + p * g->step_width * g->channels;
    }
    return pixel;
}

/* Copy items begin .. end - 1. An item is a run, counted from the first run of the block. */
static void copy_range(const void *work, int64_t begin, int64_t end, int thread) {
    const padding_work *w = work;
    const cgp__output_positions *g = w->g;
    const int64_t row = g->padded_width * g->channels;
    (void)thread;
    for (int64_t r = w->first + begin; r < w->first + end; r++) {
        const int64_t part = r % g->parts * g->run, image = r / g->parts / g->out_height;
        const int64_t window =
            cgp__output_pixels_before(g, r) - cgp__output_pixels_before(g, w->first);
        for (int64_t u = g->kernel_height - fresh_rows(g, w->first, r); u < g->kernel_height; u++)
            copy_row(w->device, g, w->type,
                     cgp__cpu_at(w->type, w->padded, w->windows[window] + u * row), image,
                     image_row(g, r) * g->stride_height + u - g->top, part,
                     cgp__min(g->run, g->out_width - part));
    }
}

int64_t cgp__padded_rows_copy(cgp_device *device, bool alone, const cgp__output_positions *g,
                              int64_t first, int64_t count, cgp_dtype type, void *padded,
                              int64_t *windows) {
    const padding_work w = {device, g, first, type, padded, windows};
    const int64_t pixels = set_windows(g, first, count, windows);
    if (alone)
        copy_range(&w, 0, count, 0);
    else
        cgp__cpu_parallel_for(device, count,
                              cgp__cpu_block_rows(g->step_height * g->padded_width * g->channels),
                              copy_range, &w);
    return pixels;
}

cgp__cpu_prefetch cgp__input_rows_prefetch(const cgp__output_positions *g, int64_t first,
                                           int64_t count) {
    const int64_t lines = g->n * g->out_height;
    const int64_t begin = first / g->parts, last = (first + count - 1) / g->parts;
    if (begin >= lines) return (cgp__cpu_prefetch){0};
    const int64_t end = cgp__min(last, lines - 1);
    const int64_t from = begin / g->out_height * g->height +
                         cgp__max(begin % g->out_height * g->stride_height - g->top, 0);
    const int64_t to =
        end / g->out_height * g->height +
        cgp__min(end % g->out_height * g->stride_height - g->top + g->kernel_height, g->height);
    const int64_t bytes = g->width * g->channels * (int64_t)cgp_dtype_bytes(g->type);
    if (to <= from) return (cgp__cpu_prefetch){0};
    return (cgp__cpu_prefetch){(const char *)g->image + from * bytes, 1, (to - from) * bytes, 0};
}

cgp__output_positions cgp__output_positions_of(const cgp_kernel_spec *spec, const void *image) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    cgp__output_positions g = {.type = spec->type,
                               .image = image,
                               .n = spec->n,
                               .height = s->height,
                               .width = s->width,
                               .channels = s->in,
                               .out_height = s->out_height,
                               .out_width = s->out_width,
                               .kernel_height = s->kernel_height,
                               .kernel_width = s->kernel_width,
                               .stride_height = s->stride_height,
                               .stride_width = s->stride_width,
                               .top = s->top,
                               .left = s->left};
    cgp__output_positions_set(&g);
    return g;
}

void cgp__window_pixels(const cgp__window_gemm *p, int64_t first, int64_t count, int64_t *at) {
    const cgp__output_positions *g = &p->positions;
    for (int64_t r = first; r < first + count; r++) {
        const int64_t line = r / g->parts, begin = r % g->parts * g->run;
        const int64_t end = cgp__min(begin + g->run, g->out_width);
        const int64_t row = line / g->out_height * p->to.image + line % g->out_height * p->to.row;
        for (int64_t j = begin; j < end; j++)
            *at++ = row + j * p->to.pixel;
    }
}
