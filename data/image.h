/* SPDX-License-Identifier: Apache-2.0 */
/* image.h -- decodes, crops and resizes one image. */
#ifndef CGP_SRC_DATA_IMAGE_H
#define CGP_SRC_DATA_IMAGE_H

#include "base/base.h"

enum { CGP__IMAGE_CHANNELS = 3 };

typedef struct cgp__image {
    int64_t width, height;
    uint8_t *pixels; /* [height, width, 3] red, green, blue; owned */
} cgp__image;

/* An image file in memory, and the largest number of pixels that its image may have. */
typedef struct cgp__image_file {
    const char *path; /* the file's path, for messages */
    const uint8_t *bytes;
    size_t size;
    int64_t max_pixels;
} cgp__image_file;

/* --- image.c --- */

/* Decode a JPEG or PNG. Return CGP_EFORMAT for damaged data or another format, or CGP_ENOMEM. After
 * a failure there is nothing to release. */
cgp_status cgp__image_decode(cgp__image *out, const cgp__image_file *file);

/* Allocate the pixels, unless there are too many. Decoders call this function after they have read
 * the header. */
cgp_status cgp__image_make(cgp__image *image, const cgp__image_file *file, int64_t width,
                           int64_t height);

/* Free the pixels. Accepts an image without pixels. */
void cgp__image_release(cgp__image *image);

/* Report damage: "x.jpg: at byte 12: expected a whole JPEG, got: <reason> (damaged)". */
cgp_status cgp__image_damaged(const cgp__image_file *file, size_t at, const char *format,
                              const char *reason);

/* --- image_jpeg.c, image_png.c: *out must be released in any case --- */

cgp_status cgp__image_decode_jpeg(cgp__image *out, const cgp__image_file *file);
cgp_status cgp__image_decode_png(cgp__image *out, const cgp__image_file *file);

/* --- image_resize.c --- */

/* How a sample is cut from an image. A box of the image is resized to `to_width` x `to_height`. The
 * sample is a window of size x size pixels in the resized box, with its corner at (left, top). The
 * sample may be mirrored. */
typedef struct cgp__crop {
    int64_t x, y, width, height; /* the box; pixels outside of it have no weight */
    int64_t to_width, to_height;
    int64_t left, top, size;
    bool mirrored;
} cgp__crop;

/* Write the window of a crop, [size, size, 3] with values in 0..255, to `out`. Return CGP_ENOMEM if
 * memory is short. */
cgp_status cgp__image_resize(const cgp__image *image, const cgp__crop *crop, float *out);

/* --- image_crop.c --- */

/* Return a random crop, for training. */
cgp__crop cgp__crop_random(int64_t width, int64_t height, int64_t size, cgp__rng_key key);

/* Return the center crop, for validation. */
cgp__crop cgp__crop_middle(int64_t width, int64_t height, int64_t size);

/* Compute (v / 255 - mean) / deviation with ImageNet's values, for n pixels. */
void cgp__image_normalise(float *pixels, int64_t n);

#endif
