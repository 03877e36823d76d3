/* SPDX-License-Identifier: Apache-2.0 */
/* images.c -- reads damaged JPEG, PNG, CIFAR and MNIST files. An image is decoded, or refused with
 * a message. Reading never crashes, hangs or leaks memory. The corpus has JPEG and PNG images. */
#include "fuzz.h"
#include "pictures.h"

#include <cgpipe/images.h>
#include <cgpipe/data.h>

#include <png.h>

#include "data/image.h"

#define PIXELS ((int64_t)1 << 16)

/* Decode an image. If decoding succeeds, make a sample from it and return true. */
static bool try_image(const uint8_t *bytes, size_t size) {
    static float out[16 * 16 * 3];
    const cgp__image_file in = {"x.img", bytes, size, PIXELS};
    cgp__image image = {0};
    const cgp_status status = cgp__image_decode(&image, &in);
    if (status != CGP_OK) {
        REQUIRE(status == CGP_EFORMAT && !image.pixels);
        REQUIRE(strncmp(cgp_message(), "x.img: ", 7) == 0);
        return false;
    }
    REQUIRE(image.width >= 1 && image.height >= 1 && image.width * image.height <= PIXELS);
    const cgp__crop crop = cgp__crop_random(image.width, image.height, 16, (cgp__rng_key){1, 2});
    REQUIRE(cgp__image_resize(&image, &crop, out) == CGP_OK);
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        REQUIRE(out[i] >= -0.001f && out[i] <= 255.001f);
    cgp__image_release(&image);
    return true;
}

/* --- images --- */

enum { SIDE = 24 };

static void start(test_image *out, uint64_t *random) {
    static const test_png pngs[] = {
        {SIDE, SIDE, PNG_COLOR_TYPE_RGB, 8, false},
        {SIDE, 7, PNG_COLOR_TYPE_RGB_ALPHA, 16, true},
        {SIDE, SIDE, PNG_COLOR_TYPE_PALETTE, 4, true},
        {9, SIDE, PNG_COLOR_TYPE_GRAY, 1, false},
        {SIDE, 5, PNG_COLOR_TYPE_GRAY_ALPHA, 8, false},
    };
    static const test_jpeg jpegs[] = {{SIDE, SIDE, 3, 80, false},
                                      {SIDE, 9, 3, 40, true},
                                      {SIDE, SIDE, 1, 90, false},
                                      {SIDE, 5, 4, 70, true}};
    uint8_t pixels[SIDE * SIDE * 8];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * i / 8 + fuzz_below(random, 8));
    if (fuzz_below(random, 2))
        test_make_png(out, &pngs[fuzz_below(random, 5)], pixels);
    else
        test_make_jpeg(out, &jpegs[fuzz_below(random, 4)], pixels);
}

/* Correct the checksum of the PNG chunk at `at`, so that the checksum does not reveal damage. */
static void repair_chunk(fuzz_input *in, size_t at, size_t length) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = at + 4; i < at + 8 + length; i++) {
        crc ^= in->bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    for (int k = 0; k < 4; k++)
        in->bytes[at + 8 + length + (size_t)k] = (uint8_t)(~crc >> (24 - 8 * k));
}

static void repair(fuzz_input *in) {
    for (size_t at = 8; at + 12 <= in->size;) {
        size_t length = 0;
        for (int k = 0; k < 4; k++)
            length = length << 8 | in->bytes[at + (size_t)k];
        if (length > in->size - at - 12) return;
        repair_chunk(in, at, length);
        at += 12 + length;
    }
}

static void mutate(fuzz_input *in, uint64_t *random) {
    const uint8_t noise[4] = {(uint8_t)test_random(random), 0xff, (uint8_t)fuzz_below(random, 256),
                              0};
    const size_t at = fuzz_below(random, in->size);
    switch (fuzz_below(random, 5)) {
    case 0:
        fuzz_flip_bit(in, at, random);
        break;
    case 1:
        in->bytes[fuzz_below(random, in->size < 200 ? in->size : 200)] =
            noise[fuzz_below(random, 4)];
        break;
    case 2:
        fuzz_replace(in, at, fuzz_below(random, 20), noise, fuzz_below(random, 5));
        break;
    case 3:
        in->size = at + 1;
        break;
    default: /* JPEG markers and zeros */
        fuzz_replace(in, at, 0, (uint8_t[64]){0x08, 0x06, 0xff, 0xc2, 0xff, 0xda},
                     1 + fuzz_below(random, 64));
    }
    if (in->bytes[0] == 0x89 && fuzz_below(random, 3)) repair(in);
}

static bool play(int times, uint64_t *random) {
    static test_image image;
    static fuzz_input in;
    start(&image, random);
    memcpy(in.bytes, image.bytes, in.size = image.size);
    for (; times > 0; times--)
        mutate(&in, random);
    return fuzz_take_exact(try_image, in.bytes, in.size);
}

static void bytes_at_random_after_a_good_beginning_never_crash(void **state) {
    (void)state;
    static const uint8_t beginnings[2][8] = {{0x89, 'P', 'N', 'G', 13, 10, 26, 10},
                                             {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0, 1}};
    uint64_t random = test_seed();
    for (int i = 0; i < 1000; i++) {
        fuzz_input in;
        fuzz_draw_bytes(&in, 400, &random);
        fuzz_replace(&in, 0, 0, beginnings[i % 2], 8);
        (void)fuzz_take_exact(try_image, in.bytes, in.size);
    }
}

/* --- files of arrays --- */

static void damaged_array_files_are_refused_or_give_labels_in_range(void **state) {
    (void)state;
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    static const uint8_t magics[] = {3, 1, 3, 1};
    static uint8_t bytes[16 + 3 * 784];
    static float picture[784];
    uint64_t random = test_seed();
    int accepted = 0;
    for (int round = 0; round < 300; round++) {
        const size_t victim = fuzz_below(&random, 5); /* 4: no file */
        for (size_t f = 0; f < 4; f++) {
            size_t size = f % 2 ? 8 + 3 : sizeof bytes;
            memset(bytes, 0, sizeof bytes);
            memcpy(
                bytes,
                (uint8_t[16]){0, 0, 8, magics[f], 0, 0, 0, 3, 0, 0, 0, f % 2 ? 2 : 28, 0, 0, 0, 28},
                16);
            if (f == victim) {
                bytes[fuzz_below(&random, 16)] = (uint8_t)test_random(&random);
                if (fuzz_below(&random, 2)) size = fuzz_below(&random, size + 1);
            }
            fuzz_write(names[f], bytes, size);
        }
        cgp_data *data = NULL;
        const cgp_status status = cgp_data_mnist(&data, fuzz_directory, NULL);
        assert_true(status == CGP_OK ||
                    (status == CGP_EFORMAT && strstr(cgp_message(), ": at byte ")));
        accepted += status == CGP_OK;
        for (int i = 0; status == CGP_OK && i < 3; i++) {
            int32_t label = -1;
            assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, i, 1, picture, &label));
            assert_in_range(label, 0, 9);
        }
        cgp_data_destroy(data);
    }
    assert_in_range(accepted, 30, 270);
}

const fuzz_reader fuzz_images = {
    .take = try_image,
    .play = play,
    .mutations = 3000,
    .accepted_in = 50,
    .refused_in = 50,
    .valid = 100,
    .tests = {cmocka_unit_test(bytes_at_random_after_a_good_beginning_never_crash),
              cmocka_unit_test(damaged_array_files_are_refused_or_give_labels_in_range)},
};
