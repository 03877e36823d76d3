/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.h -- small JPEG and PNG files for tests. The libraries that read such files also make
 * them. */
#ifndef CGP_TESTS_PICTURES_H
#define CGP_TESTS_PICTURES_H

#include "support.h"

enum { TEST_IMAGE_CAPACITY = 65536 };

/* The bytes of a file in memory. */
typedef struct test_image {
    uint8_t bytes[TEST_IMAGE_CAPACITY];
    size_t size;
} test_image;

/* The kind of a PNG; `colour` and `bits` as in libpng. Entry i of a palette is (i, 255 - i, i / 2),
 * and entry 0 is transparent. */
typedef struct test_png {
    int width, height, colour, bits;
    bool interlaced;
} test_png;

/* Encode rows in file layout: samples below 8 bits are packed, samples above 8 bits are
 * big-endian. */
void test_make_png(test_image *out, const test_png *kind, const uint8_t *rows);

/* The kind of a JPEG. One component is gray, three are RGB, and four are CMYK, inverted as Adobe
 * writes them. */
typedef struct test_jpeg {
    int width, height, components, quality;
    bool progressive;
} test_jpeg;

void test_make_jpeg(test_image *out, const test_jpeg *kind, const uint8_t *pixels);

#endif
