/* SPDX-License-Identifier: Apache-2.0 */
/* image_resize.c -- bilinear resizing with antialiasing (a triangle filter), columns, then rows.
 *
 *     scale     s = from / to
 *     width     f = max(s, 1)                          of the triangle: it grows if s > 1
 *     middle    c(o) = (o + 1/2) s                     of output pixel o, among the input pixels
 *     weight    w(o, i) = max(0, 1 - |i + 1/2 - c(o)| / f), divided by the sum over i
 *
 * Pixels outside of the box have no weight, so at the border of the box the weights of the pixels
 * inside grow. */
#include "data/image.h"

#include <math.h>
#include <stdlib.h>

/* The weights of the `n` output pixels along one axis. */
typedef struct axis {
    int64_t n, taps; /* taps: maximum number of input pixels per output pixel */
    struct range {
        int64_t first, count;
    } * from;       /* [n] range of input pixels of each output pixel */
    float *weights; /* [n, taps] */
} axis;

static void axis_release(axis *a) {
    free(a->weights);
    free(a->from);
}

static void weigh(axis *a, int64_t o, double middle, double width, int64_t from) {
    float *weights = a->weights + o * a->taps;
    const double low = floor(middle - width + 0.5), high = floor(middle + width + 0.5);
    const int64_t first = low > 0 ? (int64_t)low : 0;
    const int64_t end = high < (double)from ? (int64_t)high : from;
    double sum = 0;
    for (int64_t i = first; i < end; i++)
        sum += fmax(0, 1 - fabs((double)i + 0.5 - middle) / width);
    for (int64_t i = first; i < end; i++)
        weights[i - first] = (float)(fmax(0, 1 - fabs((double)i + 0.5 - middle) / width) / sum);
    a->from[o] = (struct range){first, end - first};
}

/* Make the weights of output pixels start .. start + n - 1 (of `to` output pixels), in reverse
 * order if `mirrored`. */
static cgp_status axis_make(axis *a, int64_t from, int64_t to, int64_t start, int64_t n,
                            bool mirrored) {
    const double scale = (double)from / (double)to, width = scale > 1 ? scale : 1;
    a->n = n;
    a->taps = cgp__min((int64_t)ceil(2 * width) + 1, from);
    a->from = cgp__calloc((size_t)n, sizeof *a->from);
    a->weights = cgp__calloc((size_t)(n * a->taps), sizeof *a->weights);
    if (!a->from || !a->weights)
        return cgp__no_memory("resizing", (size_t)(n * a->taps) * sizeof *a->weights);
    for (int64_t o = 0; o < n; o++) {
        const int64_t at = start + (mirrored ? n - 1 - o : o);
        weigh(a, o, ((double)at + 0.5) * scale, width, from);
    }
    return CGP_OK;
}

/* Resize one row of the box: [width, 3] bytes to [n, 3]. */
static void resize_row(const axis *a, const uint8_t *row, float *out) {
    for (int64_t o = 0; o < a->n; o++) {
        const float *weights = a->weights + o * a->taps;
        const uint8_t *pixel = row + a->from[o].first * CGP__IMAGE_CHANNELS;
        float red = 0, green = 0, blue = 0;
        for (int64_t i = 0; i < a->from[o].count; i++, pixel += CGP__IMAGE_CHANNELS) {
            red += weights[i] * pixel[0];
            green += weights[i] * pixel[1];
            blue += weights[i] * pixel[2];
        }
        *out++ = red;
        *out++ = green;
        *out++ = blue;
    }
}

/* Make row `o` of the result from the rows in `columns`. The first of these rows is row `start` of
 * the box. */
static void add_rows(const axis *a, int64_t o, const float *columns, int64_t start, int64_t length,
                     float *out) {
    const float *weights = a->weights + o * a->taps;
    const float *row = columns + (a->from[o].first - start) * length;
    for (int64_t x = 0; x < length; x++)
        out[x] = weights[0] * row[x];
    for (int64_t i = 1; i < a->from[o].count; i++) {
        row += length;
        for (int64_t x = 0; x < length; x++)
            out[x] += weights[i] * row[x];
    }
}

/* Resize along x, but only the rows that the window needs. Then resize along y. */
static cgp_status resize(const cgp__image *image, const cgp__crop *crop, const axis *across,
                         const axis *down, float *out) {
    const int64_t start = down->from[0].first, length = crop->size * CGP__IMAGE_CHANNELS;
    const struct range last = down->from[down->n - 1];
    const int64_t rows = last.first + last.count - start;
    float *columns = cgp__calloc((size_t)(rows * length), sizeof *columns);
    if (!columns) return cgp__no_memory("resizing", (size_t)(rows * length) * sizeof *columns);
    for (int64_t y = 0; y < rows; y++) {
        const int64_t at = (crop->y + start + y) * image->width + crop->x;
        resize_row(across, image->pixels + at * CGP__IMAGE_CHANNELS, columns + y * length);
    }
    for (int64_t o = 0; o < down->n; o++)
        add_rows(down, o, columns, start, length, out + o * length);
    free(columns);
    return CGP_OK;
}

cgp_status cgp__image_resize(const cgp__image *image, const cgp__crop *crop, float *out) {
    axis across = {0}, down = {0};
    cgp_status status =
        axis_make(&across, crop->width, crop->to_width, crop->left, crop->size, crop->mirrored);
    if (status == CGP_OK)
        status = axis_make(&down, crop->height, crop->to_height, crop->top, crop->size, false);
    if (status == CGP_OK) status = resize(image, crop, &across, &down, out);
    axis_release(&down);
    axis_release(&across);
    return status;
}
