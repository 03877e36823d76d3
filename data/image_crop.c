/* SPDX-License-Identifier: Apache-2.0 */
/* image_crop.c -- chooses the crop of an image for a sample.
 *
 *     training      a random box with 0.08 .. 1 of the area and a ratio of 3/4 .. 4/3, whose
 *                   logarithm is uniform; after ten boxes that do not fit, the largest box in
 *                   the middle
 *     validation    the middle, after the shorter side is resized to size 256 / 224
 *
 * Source: Szegedy et al. 2015, arXiv:1409.4842, section 6; He et al. 2016, arXiv:1512.03385. */
#include "data/image.h"
#include "data/source.h"

#include <math.h>

#define MIN_AREA 0.08
#define MIN_RATIO (3.0 / 4)
#define MAX_RATIO (4.0 / 3)

/* Counters of the random draws. Try i takes counters 2 i and 2 i + 1. */
enum { TRIES = 10, DRAW_X = 2 * TRIES, DRAW_Y, DRAW_MIRROR };

/* Return the crop in which a box of width x height, at (x, y), becomes the whole sample. */
static cgp__crop box(int64_t x, int64_t y, int64_t width, int64_t height, int64_t size) {
    return (cgp__crop){x, y, width, height, size, size, .size = size};
}

/* Return the largest box with an allowed ratio, in the middle of the image. */
static cgp__crop largest(int64_t width, int64_t height, int64_t size) {
    const double ratio = (double)width / (double)height;
    int64_t w = width, h = height;
    if (ratio < MIN_RATIO) h = llround((double)width / MIN_RATIO);
    if (ratio > MAX_RATIO) w = llround((double)height * MAX_RATIO);
    h = h < height ? h : height;
    w = w < width ? w : width;
    return box((width - w) / 2, (height - h) / 2, w, h, size);
}

static cgp__crop random_box(int64_t width, int64_t height, int64_t size, cgp__rng_key key) {
    for (uint64_t i = 0; i < TRIES; i++) {
        const double area =
            cgp__data_uniform(key, 2 * i, MIN_AREA, 1) * (double)width * (double)height;
        const double ratio = exp(cgp__data_uniform(key, 2 * i + 1, log(MIN_RATIO), log(MAX_RATIO)));
        const int64_t w = llround(sqrt(area * ratio)), h = llround(sqrt(area / ratio));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        return box((int64_t)cgp__rng_below(key, DRAW_X, (uint32_t)(width - w + 1)),
                   (int64_t)cgp__rng_below(key, DRAW_Y, (uint32_t)(height - h + 1)), w, h, size);
    }
    return largest(width, height, size);
}

cgp__crop cgp__crop_random(int64_t width, int64_t height, int64_t size, cgp__rng_key key) {
    cgp__crop crop = random_box(width, height, size, key);
    crop.mirrored = cgp__rng_below(key, DRAW_MIRROR, 2) == 1;
    return crop;
}

cgp__crop cgp__crop_middle(int64_t width, int64_t height, int64_t size) {
    const int64_t shorter = (size * 256 + 112) / 224;
    cgp__crop crop = box(0, 0, width, height, size);
    crop.to_width = width <= height ? shorter : shorter * width / height;
    crop.to_height = height <= width ? shorter : shorter * height / width;
    crop.left = (crop.to_width - size) / 2;
    crop.top = (crop.to_height - size) / 2;
    return crop;
}

void cgp__image_normalise(float *pixels, int64_t n) {
    static const float mean[CGP__IMAGE_CHANNELS] = {0.485f, 0.456f, 0.406f};
    static const float deviation[CGP__IMAGE_CHANNELS] = {0.229f, 0.224f, 0.225f};
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < CGP__IMAGE_CHANNELS; k++, pixels++)
            *pixels = (*pixels / 255 - mean[k]) / deviation[k];
    }
}
