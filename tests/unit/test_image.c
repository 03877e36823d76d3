/* SPDX-License-Identifier: Apache-2.0 */
/* test_image.c -- decoded images are compared with known pixels, and resized images with the
 * formula of resizing. Crops have the documented properties. */
#include "pictures.h"

#include "data/image.h"

#include <png.h>

enum { W = 23, H = 17, CAPACITY = W * H * 8 };

#define PIXELS ((int64_t)1 << 20)

static test_image file;

static cgp_status decode(cgp__image *out) {
    const cgp__image_file in = {"x.img", file.bytes, file.size, PIXELS};
    return cgp__image_decode(out, &in);
}

static uint8_t byte_at(int x, int y, int k) {
    return (uint8_t)(x * 11 + y * 7 + k * 83);
}

/* --- PNG files: decoded exactly --- */

/* Write a sample of `bits` bits into a row, packed as in PNG. */
static void put_sample(uint8_t *row, int index, int bits, unsigned value) {
    if (bits == 16) {
        row[2 * index] = (uint8_t)(value >> 8);
        row[2 * index + 1] = (uint8_t)value;
    } else if (bits == 8) {
        row[index] = (uint8_t)value;
    } else {
        const int at = index * bits;
        row[at / 8] |= (uint8_t)(value << (8 - bits - at % 8));
    }
}

/* Convert a sample of `bits` bits to 8 bits. */
static int widened(unsigned value, int bits) {
    if (bits == 16) return (int)((value * 255 + 32895) >> 16);
    return (int)(value * 255 / ((1u << bits) - 1));
}

static void check_png(int colour, int bits, bool interlaced) {
    static uint8_t rows[CAPACITY];
    const int channels = colour == PNG_COLOR_TYPE_RGB          ? 3
                         : colour == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                         : colour == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                               : 1;
    const size_t row = ((size_t)(W * channels * bits) + 7) / 8;
    const unsigned max = bits == 16 ? 65535 : (1u << bits) - 1;
    memset(rows, 0, sizeof rows);
    for (int y = 0; y < H; y++)
        for (int i = 0; i < W * channels; i++)
            put_sample(rows + (size_t)y * row, i, bits,
                       (byte_at(i / channels, y, i % channels) * 257u) & max);
    test_make_png(&file, &(test_png){W, H, colour, bits, interlaced}, rows);
    cgp__image image = {0};
    assert_ok(decode(&image));
    assert_int_equal(image.width, W);
    assert_int_equal(image.height, H);
    for (int i = 0; i < W * H * 3; i++) {
        const int x = i / 3 % W, y = i / 3 / W, k = i % 3;
        const unsigned value = (byte_at(x, y, channels < 3 ? 0 : k) * 257u) & max;
        const int palette[3] = {(int)value, 255 - (int)value, (int)value / 2};
        const int expected = colour == PNG_COLOR_TYPE_PALETTE ? palette[k] : widened(value, bits);
        assert_int_equal(image.pixels[i], expected);
    }
    cgp__image_release(&image);
}

TEST_CASE(every_kind_of_png_becomes_rgb_of_8_bits) {
    static const struct {
        int colour, bits;
    } kinds[] = {
        {PNG_COLOR_TYPE_GRAY, 1},        {PNG_COLOR_TYPE_GRAY, 2},
        {PNG_COLOR_TYPE_GRAY, 4},        {PNG_COLOR_TYPE_GRAY, 8},
        {PNG_COLOR_TYPE_GRAY, 16},       {PNG_COLOR_TYPE_RGB, 8},
        {PNG_COLOR_TYPE_RGB, 16},        {PNG_COLOR_TYPE_PALETTE, 1},
        {PNG_COLOR_TYPE_PALETTE, 2},     {PNG_COLOR_TYPE_PALETTE, 4},
        {PNG_COLOR_TYPE_PALETTE, 8},     {PNG_COLOR_TYPE_GRAY_ALPHA, 8},
        {PNG_COLOR_TYPE_GRAY_ALPHA, 16}, {PNG_COLOR_TYPE_RGB_ALPHA, 8},
        {PNG_COLOR_TYPE_RGB_ALPHA, 16},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_png(kinds[i].colour, kinds[i].bits, false);
        check_png(kinds[i].colour, kinds[i].bits, true);
    }
}

/* --- JPEG files: a smooth picture, decoded within a tolerance --- */

TEST_CASE(every_kind_of_jpeg_becomes_rgb) {
    static uint8_t pixels[W * H * 4];
    for (int kind = 0; kind < 6; kind++) {
        const int components = kind / 2 == 0 ? 1 : kind / 2 == 1 ? 3 : 4;
        for (int i = 0; i < W * H * components; i++) {
            const int x = i / components % W, y = i / components / W, k = i % components;
            /* CMYK values are inverted, as Adobe writes them: 255 means no ink. */
            pixels[i] = k == 3 ? 255 : (uint8_t)(30 + 4 * x + 3 * y + 25 * k);
        }
        test_make_jpeg(&file, &(test_jpeg){W, H, components, 100, kind % 2}, pixels);
        cgp__image image = {0};
        assert_ok(decode(&image));
        assert_int_equal(image.width, W);
        assert_int_equal(image.height, H);
        for (int i = 0; i < W * H * 3; i++) {
            const int x = i / 3 % W, y = i / 3 / W, k = components == 1 ? 0 : i % 3;
            assert_true(abs(image.pixels[i] - (30 + 4 * x + 3 * y + 25 * k)) <= 4);
        }
        cgp__image_release(&image);
    }
}

/* --- damage --- */

static void refused(const char *expected) {
    cgp__image image = {0};
    assert_status(decode(&image), CGP_EFORMAT);
    assert_null(image.pixels);
    assert_message(expected);
}

TEST_CASE(other_files_are_refused_by_their_first_bytes) {
    file.size = 0;
    refused("x.img: is empty, expected a JPEG or PNG");
    memcpy(file.bytes, "GIF89a", 6);
    file.size = 6;
    refused("x.img: at byte 0: expected a JPEG or PNG, got the bytes 47 49 46 38");
    file.size = 2;
    refused("got the bytes 47 49 00 00");
}

/* Check that an image is refused if it is truncated at any byte. */
static void check_cuts(const char *expected) {
    const size_t whole = file.size;
    for (file.size = 8; file.size < whole; file.size++)
        refused(expected);
}

TEST_CASE(an_image_that_is_cut_short_is_refused) {
    static uint8_t pixels[W * H * 4];
    uint64_t random = test_seed();
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)test_random(&random);
    for (int kind = 0; kind < 2; kind++) {
        test_make_png(&file, &(test_png){W, H, PNG_COLOR_TYPE_RGB, 8, kind == 1}, pixels);
        check_cuts(": expected a whole PNG, got: ");
        test_make_jpeg(&file, &(test_jpeg){W, H, 3, 60, kind == 1}, pixels);
        check_cuts(": expected a whole JPEG, got: ");
    }
}

TEST_CASE(too_many_pixels_are_refused_by_the_header) {
    static uint8_t pixels[W * H * 4];
    const cgp__image_file in = {"x.img", file.bytes, 0, W * H - 1};
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0)
            test_make_png(&file, &(test_png){W, H, PNG_COLOR_TYPE_RGB, 8, false}, pixels);
        else
            test_make_jpeg(&file, &(test_jpeg){W, H, 3, 90, false}, pixels);
        cgp__image_file cut_file = in;
        cgp__image image = {0};
        cut_file.size = file.size;
        assert_status(cgp__image_decode(&image, &cut_file), CGP_EFORMAT);
        assert_message("x.img: expected at most 390 pixels, got 23 x 17");
    }
}

/* --- resizing --- */

/* Compute one value of the resized image from the formula: a weighted sum over the whole source
 * box. */
static double formula(const cgp__image *image, const cgp__crop *c, int x, int y, int k) {
    const double sx = (double)c->width / (double)c->to_width,
                 sy = (double)c->height / (double)c->to_height;
    const double fx = fmax(sx, 1), fy = fmax(sy, 1);
    const double across = (double)(c->mirrored ? c->size - 1 - x : x) + (double)c->left;
    const double mx = (across + 0.5) * sx, my = (y + (double)c->top + 0.5) * sy;
    double sum = 0, weights = 0;
    for (int64_t j = 0; j < c->height; j++) {
        for (int64_t i = 0; i < c->width; i++) {
            const double w = fmax(0, 1 - fabs((double)i + 0.5 - mx) / fx) *
                             fmax(0, 1 - fabs((double)j + 0.5 - my) / fy);
            const int64_t at = ((c->y + j) * image->width + c->x + i) * 3 + k;
            sum += w * image->pixels[at];
            weights += w;
        }
    }
    return sum / weights;
}

TEST_CASE(resizing_is_a_triangle_as_wide_as_the_reduction) {
    enum { SIDE = 40, MOST = 24 };
    static uint8_t pixels[SIDE * SIDE * 3];
    static float out[MOST * MOST * 3];
    uint64_t random = test_seed();
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)test_random(&random);
    for (int round = 0; round < 100; round++) {
        const cgp__image image = {test_between(&random, 1, SIDE), test_between(&random, 1, SIDE),
                                  pixels};
        cgp__crop c = {.size = test_between(&random, 1, MOST), .mirrored = round % 2};
        c.x = test_between(&random, 0, (int)image.width - 1);
        c.y = test_between(&random, 0, (int)image.height - 1);
        c.width = test_between(&random, 1, (int)(image.width - c.x));
        c.height = test_between(&random, 1, (int)(image.height - c.y));
        c.to_width = c.size + test_between(&random, 0, 9);
        c.to_height = c.size + test_between(&random, 0, 9);
        c.left = test_between(&random, 0, (int)(c.to_width - c.size));
        c.top = test_between(&random, 0, (int)(c.to_height - c.size));
        assert_ok(cgp__image_resize(&image, &c, out));
        for (int i = 0; i < c.size * c.size * 3; i++) {
            const int x = i / 3 % (int)c.size, y = i / 3 / (int)c.size;
            /* The error of an f32 sum of at most 80 weighted bytes is at most 80 x 255 x 2^-24 =
             * 0.0012. */
            assert_true(fabs(out[i] - formula(&image, &c, x, y, i % 3)) < 2e-3);
        }
    }
}

TEST_CASE(an_image_of_the_right_size_is_unchanged) {
    static uint8_t pixels[8 * 8 * 3];
    static float out[8 * 8 * 3];
    for (int i = 0; i < 8 * 8 * 3; i++)
        pixels[i] = byte_at(i / 3 % 8, i / 24, i % 3);
    const cgp__image image = {8, 8, pixels};
    const cgp__crop whole = {.width = 8, .height = 8, .to_width = 8, .to_height = 8, .size = 8};
    assert_ok(cgp__image_resize(&image, &whole, out));
    for (int i = 0; i < 8 * 8 * 3; i++)
        assert_true(out[i] == pixels[i]);
}

/* --- crops --- */

static void assert_inside(const cgp__crop *c, int64_t width, int64_t height, int64_t size) {
    assert_true(c->x >= 0 && c->y >= 0 && c->width >= 1 && c->height >= 1);
    assert_true(c->x + c->width <= width && c->y + c->height <= height);
    assert_true(c->size == size && c->left >= 0 && c->top >= 0);
    assert_true(c->left + size <= c->to_width && c->top + size <= c->to_height);
}

TEST_CASE(a_random_crop_is_inside_and_of_the_area_and_ratio_allowed) {
    uint64_t random = test_seed();
    double min = 1, max = 0, areas = 0;
    int mirrored = 0;
    enum { N = 4000 };
    for (int i = 0; i < N; i++) {
        const int64_t w = test_between(&random, 200, 400), h = test_between(&random, 200, 400);
        const cgp__rng_key key = cgp__rng_derive(7, CGP__RNG_DATA, (uint64_t)i, 1);
        const cgp__crop c = cgp__crop_random(w, h, 224, key);
        const double area = (double)(c.width * c.height) / (double)(w * h);
        const double width = (double)c.width, height = (double)c.height; /* rounded to pixels */
        assert_inside(&c, w, h, 224);
        assert_true((width + 0.5) * (height + 0.5) >= 0.08 * (double)(w * h));
        assert_true((width + 0.5) / (height - 0.5) >= 3.0 / 4);
        assert_true((width - 0.5) / (height + 0.5) <= 4.0 / 3);
        min = fmin(min, area);
        max = fmax(max, area);
        areas += area / N;
        mirrored += c.mirrored;
    }
    assert_true(min < 0.1 && max > 0.9);
    assert_true(areas > 0.42 && areas < 0.56); /* 0.54 on average, less because some
    crops do not fit */
    assert_in_range(mirrored, N / 2 - 160, N / 2 + 160);
}

TEST_CASE(images_of_any_shape_have_crops) {
    static const int64_t sides[] = {1, 2, 3, 7, 100, 100000};
    for (int i = 0; i < 36; i++) {
        const int64_t w = sides[i / 6], h = sides[i % 6];
        const cgp__crop random = cgp__crop_random(w, h, 8, (cgp__rng_key){1, 2});
        const cgp__crop middle = cgp__crop_middle(w, h, 8);
        assert_inside(&random, w, h, 8);
        assert_inside(&middle, w, h, 8);
    }
}

/* Test the evaluation crop of ImageNet: an image of 500 x 375 is resized to 341 x 256 and cropped
 * to 224 x 224. */
TEST_CASE(evaluation_crops_the_middle_of_the_resized_image) {
    const cgp__crop c = cgp__crop_middle(500, 375, 224), up = cgp__crop_middle(375, 500, 224);
    assert_true(c.to_width == 341 && c.to_height == 256 && c.left == 58 && c.top == 16);
    assert_true(up.to_width == 256 && up.to_height == 341 && up.left == 16 && up.top == 58);
    assert_true(c.width == 500 && c.height == 375 && !c.mirrored);
    assert_int_equal(cgp__crop_middle(500, 375, 64).to_height, 73); /* 64 x 256 / 224 = 73.1 */
}
