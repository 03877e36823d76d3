/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_image_folder.c -- tests image folders. Classes are sorted by name, and every image is
 * read once per pass. The samples are bit-identical for any number of workers, and broken files are
 * replaced. */
#define _GNU_SOURCE
#include "checkpoints.h"
#include "pictures.h"

#include <cgpipe/images.h>
#include <cgpipe/data.h>

#include <png.h>

enum { SIZE = 16, VALUES = SIZE * SIZE * 3, COUNT = 24 };

static test_image file;

/* --- directories --- */

/* Write a picture of 32 x 32 pixels. The picture has one colour, which identifies it, so cropping
 * does not change it. */
static void write_image(const char *name, uint8_t red, uint8_t green) {
    uint8_t pixels[32 * 32 * 3];
    for (int i = 0; i < 32 * 32; i++) {
        pixels[3 * i] = red;
        pixels[3 * i + 1] = green;
        pixels[3 * i + 2] = 100;
    }
    const char *end = strrchr(name, '.');
    if (strcmp(end, ".png") == 0 || strcmp(end, ".PNG") == 0)
        test_make_png(&file, &(test_png){32, 32, PNG_COLOR_TYPE_RGB, 8, false}, pixels);
    else
        test_make_jpeg(&file, &(test_jpeg){32, 32, 3, 95, false}, pixels);
    test_write_file(test_path_of(name), file.bytes, file.size);
}

static void make_directory(const char *name) {
    assert_int_equal(mkdir(test_path_of(name), 0700), 0);
}

/* Make three classes of eight images with red = 80 x class, green = 30 x number. */
static void make_classes(const char *root) {
    static const char *const classes[] = {"Ant", "bee", "cat"};
    char name[64];
    make_directory(root);
    for (int k = 2; k >= 0; k--) {
        snprintf(name, sizeof name, "%s/%s", root, classes[k]);
        make_directory(name);
        for (int i = 7; i >= 0; i--) {
            static const char *const ends[] = {"png", "jpg", "PNG", "jpeg"};
            snprintf(name, sizeof name, "%s/%s/%d.%s", root, classes[k], i, ends[i % 4]);
            write_image(name, (uint8_t)(80 * k), (uint8_t)(30 * i));
        }
    }
}

/* --- samples --- */

static float picture[COUNT][VALUES];
static int32_t labels[COUNT];

static cgp_image_folder_options small(void) {
    cgp_image_folder_options options = cgp_image_folder_options_default();
    options.size = SIZE;
    options.validation_fraction = 0.25;
    options.seed = 11;
    return options;
}

static cgp_data *open_directory(const char *root, const cgp_image_folder_options *options) {
    cgp_data *data = NULL;
    assert_ok(cgp_data_image_folder(&data, test_path_of(root), options));
    return data;
}

/* Return the byte of the image file from which a pixel's value was computed. */
static int byte_of(const float *pixels, int channel) {
    static const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
    return (int)lroundf((pixels[channel] * deviation[channel] + mean[channel]) * 255);
}

/* Check all pixels of a sample; return which image it is, as 8 x class + number. */
static int image_of(int sample) {
    const int red = byte_of(picture[sample], 0), green = byte_of(picture[sample], 1);
    for (int i = 0; i < SIZE * SIZE; i++) {
        assert_true(abs(byte_of(picture[sample] + 3 * i, 0) - red) <= 2);
        assert_true(abs(byte_of(picture[sample] + 3 * i, 2) - 100) <= 4); /* JPEG rounds */
    }
    return 8 * ((red + 10) / 80) + (green + 10) / 30;
}

/* --- properties --- */

TEST_CASE(classes_are_the_sorted_names_and_each_image_comes_once_a_pass) {
    make_classes("set");
    test_write_file(test_path_of("set/notes.txt"), "no class", 8);
    test_write_file(test_path_of("set/bee/notes.txt"), "no image", 8);
    make_directory("set/.hidden");
    const cgp_image_folder_options options = small();
    cgp_data *data = open_directory("set", &options);
    assert_int_equal(cgp_data_classes(data), 3);
    assert_string_equal(cgp_data_class_name(data, 0), "Ant");
    assert_string_equal(cgp_data_class_name(data, 1), "bee");
    assert_string_equal(cgp_data_class_name(data, 2), "cat");
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), 18);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_VALIDATION), 6);
    for (int pass = 0; pass < 3; pass++) {
        int seen[COUNT] = {0};
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, pass * 18, 18, picture, labels));
        for (int i = 0; i < 18; i++) {
            const int image = image_of(i);
            assert_int_equal(labels[i], image / 8);
            seen[image]++;
        }
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(seen[i], i % 8 < 6); /* the other two images are validation */
    }
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 6, picture, labels));
    for (int i = 0; i < 6; i++)
        assert_int_equal(image_of(i), 8 * (i / 2) + 6 + i % 2);
    cgp_data_destroy(data);
}

/* Samples are read in random order, and the other split is read in between. The samples equal the
 * samples that are read without workers. */
TEST_CASE(any_number_of_workers_gives_the_same_bits_in_any_order_of_reading) {
    static float expected[COUNT][VALUES];
    static int32_t expected_labels[COUNT];
    uint64_t random = test_seed();
    cgp_data *all[4];
    static const int workers[] = {0, 1, 2, 5};
    make_classes("set");
    for (int i = 0; i < 4; i++) {
        cgp_image_folder_options options = small();
        options.workers = workers[i];
        all[i] = open_directory("set", &options);
    }
    int64_t first = 0;
    for (int round = 0; round < 60; round++) {
        const cgp_split split =
            test_between(&random, 0, 3) ? CGP_SPLIT_TRAIN : CGP_SPLIT_VALIDATION;
        const int count = test_between(&random, 0, split == CGP_SPLIT_TRAIN ? COUNT : 6);
        if (test_between(&random, 0, 3) == 0) first = test_between(&random, 0, 100);
        const int64_t at = split == CGP_SPLIT_TRAIN ? first : test_between(&random, 0, 6 - count);
        assert_ok(cgp_data_read(all[0], split, at, count, expected, expected_labels));
        for (int i = 1; i < 4; i++) {
            assert_ok(cgp_data_read(all[i], split, at, count, picture, labels));
            assert_memory_equal(picture, expected, (size_t)count * sizeof picture[0]);
            assert_memory_equal(labels, expected_labels, (size_t)count * sizeof labels[0]);
        }
        if (split == CGP_SPLIT_TRAIN) first += count;
    }
    for (int i = 0; i < 4; i++)
        cgp_data_destroy(all[i]);
}

TEST_CASE(crops_depend_on_seed_and_pass_but_for_plain) {
    static float again[VALUES];
    uint8_t pixels[32 * 32 * 3];
    cgp_image_folder_options options = small();
    options.validation_fraction = 0;
    make_directory("set");
    make_directory("set/one");
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 7 % 251);
    test_make_png(&file, &(test_png){32, 32, PNG_COLOR_TYPE_RGB, 8, false}, pixels);
    test_write_file(test_path_of("set/one/only.png"), file.bytes, file.size);
    for (int plain = 0; plain < 2; plain++) {
        options.plain = plain == 1;
        cgp_data *data = open_directory("set", &options);
        int same = 0;
        assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), 1);
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, picture, labels));
        for (int pass = 1; pass < 10; pass++) {
            assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, pass, 1, again, labels));
            same += memcmp(picture, again, sizeof again) == 0;
        }
        assert_int_equal(same, plain ? 9 : 0);
        cgp_data_destroy(data);
    }
}

TEST_CASE(with_drop_last_passes_end_after_whole_batches) {
    make_classes("set");
    cgp_image_folder_options options = small();
    options.drop_last = 5;
    cgp_data *data = open_directory("set", &options);
    int left_out[COUNT] = {0};
    /* a pass has 15 of the 18 images */
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), 15);
    for (int pass = 0; pass < 12; pass++) {
        int seen[COUNT] = {0};
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, pass * 15, 15, picture, labels));
        for (int i = 0; i < 15; i++)
            assert_int_equal(seen[image_of(i)]++, 0);
        for (int i = 0; i < COUNT; i++)
            left_out[i] += i % 8 < 6 && !seen[i];
    }
    int ever = 0;
    for (int i = 0; i < COUNT; i++)
        ever += left_out[i] > 0;
    assert_true(ever > 6); /* passes leave out different images */
    cgp_data_destroy(data);
    options.drop_last = 19;
    data = NULL;
    assert_status(cgp_data_image_folder(&data, test_path_of("set"), &options), CGP_EINVAL);
    assert_message("set: has 18 training images, expected at least drop_last, 19");
}

TEST_CASE(a_validation_directory_has_separate_images_and_the_same_classes) {
    make_classes("set");
    make_classes("other");
    cgp_image_folder_options options = small();
    char path[128];
    snprintf(path, sizeof path, "%s", test_path_of("other"));
    options.validation_directory = path;
    cgp_data *data = open_directory("set", &options);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), COUNT);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_VALIDATION), COUNT);
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, COUNT, picture, labels));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(image_of(i), i);
    cgp_data_destroy(data);
    data = NULL;
    assert_int_equal(rename(test_path_of("other/bee"), test_path_of("other/bees")), 0);
    assert_status(cgp_data_image_folder(&data, test_path_of("set"), &options), CGP_EINVAL);
    assert_message("other: class 1: expected the classes of ");
    assert_message("there it is \"bee\", got \"bees\"");
    assert_int_equal(rename(test_path_of("other/bees"), test_path_of("other/bee")), 0);
    make_directory("other/dog");
    assert_status(cgp_data_image_folder(&data, test_path_of("set"), &options), CGP_EINVAL);
    assert_message("class 3: expected the classes of ");
    assert_message("there it is none, got \"dog\"");
    assert_null(data);
}

/* --- broken files --- */

/* Damage three images of class bee: one file is truncated, one is empty, and one has another
 * format. */
static void break_bees(void) {
    assert_int_equal(truncate(test_path_of("set/bee/1.jpg"), 200), 0);
    test_write_file(test_path_of("set/bee/2.PNG"), "", 0);
    test_write_file(test_path_of("set/bee/7.jpeg"), "RIFF of WEBP", 12);
}

TEST_CASE(the_next_good_image_takes_the_place_of_a_broken_one) {
    make_classes("set");
    break_bees();
    for (int workers = 0; workers < 4; workers += 3) {
        cgp_image_folder_options options = small();
        options.workers = workers;
        cgp_data *data = open_directory("set", &options);
        for (int pass = 0; pass < 2; pass++) {
            int seen[COUNT] = {0};
            assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, pass * 18, 18, picture, labels));
            for (int i = 0; i < 18; i++) {
                const int image = image_of(i);
                assert_int_equal(labels[i], image / 8);
                seen[image]++;
            }
            for (int i = 0; i < COUNT; i++) /* image 11 also replaces images 9 and 10 */
                assert_int_equal(seen[i], i % 8 > 5 || i == 9 || i == 10 ? 0 : i == 11 ? 3 : 1);
        }
        assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 6, picture, labels));
        static const int expected[] = {6, 7, 14, 22, 22, 23}; /* 15 is broken and replaced by 22 */
        for (int i = 0; i < 6; i++) {
            assert_int_equal(image_of(i), expected[i]);
            assert_int_equal(labels[i], expected[i] / 8);
        }
        cgp_data_destroy(data);
    }
}

TEST_CASE(a_broken_image_is_refused_where_that_is_asked_for_and_others_can_still_be_read) {
    make_classes("set");
    break_bees();
    for (int workers = 0; workers < 4; workers += 3) {
        cgp_image_folder_options options = small();
        options.strict = true;
        options.workers = workers;
        cgp_data *data = open_directory("set", &options);
        for (int again = 0; again < 2; again++) {
            assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 6, picture, labels),
                          CGP_EFORMAT);
            assert_message("set/bee/7.jpeg: at byte 0: expected a JPEG or PNG, got the bytes");
            assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 4, 2, picture, labels));
            assert_int_equal(image_of(1), 23);
        }
        cgp_data_destroy(data);
    }
}

TEST_CASE(a_directory_without_a_good_image_is_refused) {
    make_directory("set");
    make_directory("set/a");
    test_write_file(test_path_of("set/a/1.png"), "", 0);
    test_write_file(test_path_of("set/a/2.png"), "xxxx", 4);
    cgp_image_folder_options options = small();
    options.validation_fraction = 0;
    cgp_data *data = open_directory("set", &options);
    assert_status(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, picture, labels), CGP_EFORMAT);
    assert_message("set: expected an image that can be read, got 2 broken ones");
    cgp_data_destroy(data);
}

TEST_CASE(a_file_that_disappears_is_an_error) {
    make_classes("set");
    const cgp_image_folder_options options = small();
    cgp_data *data = open_directory("set", &options);
    char hex[65];
    assert_int_equal(unlink(test_path_of("set/cat/7.jpeg")), 0);
    assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 5, 1, picture, labels), CGP_EIO);
    assert_message("set/cat/7.jpeg: no such file");
    assert_status(cgp_data_identity(data, hex), CGP_EIO);
    cgp_data_destroy(data);
}

/* --- refusals --- */

static void refused(const char *root, const cgp_image_folder_options *options, cgp_status expected,
                    const char *message) {
    cgp_data *data = NULL;
    assert_status(cgp_data_image_folder(&data, test_path_of(root), options), expected);
    assert_null(data);
    assert_message(message);
}

TEST_CASE(directories_without_classes_of_images_are_refused) {
    cgp_image_folder_options options = small();
    refused("set", &options, CGP_EIO, "set: no such file");
    make_directory("set");
    refused("set", &options, CGP_EINVAL,
            "set: expected directories of images, one a class, got none");
    make_directory("set/a");
    refused("set", &options, CGP_EINVAL, "set/a: ");
    test_write_file(test_path_of("set/a/notes.txt"), "x", 1);
    refused("set", &options, CGP_EINVAL, "set/a: expected images of a class, names in .jpg");
    write_image("set/a/1.png", 1, 1);
    refused("set", &options, CGP_EINVAL,
            "set/a: a validation fraction of 0.25 leaves none of its 1 images for training");
    options.validation_fraction = 1;
    refused("set", &options, CGP_EINVAL, "validation_fraction is at least 0 and below 1, got 1");
    options = small();
    options.size = 7;
    refused("set", &options, CGP_EINVAL, "size is between 8 and 1024 pixels, got 7");
    options = small();
    options.workers = 257;
    refused("set", &options, CGP_EINVAL, "workers are between 0 and 256, got 257");
    options = small();
    options.drop_last = -1;
    refused("set", &options, CGP_EINVAL, "drop_last is at least 0, got -1");
}

TEST_CASE(the_identity_covers_names_sizes_and_options) {
    char hex[5][65];
    cgp_image_folder_options options = small();
    make_classes("set");
    make_classes("copy");
    cgp_data *data[5] = {open_directory("set", &options), open_directory("copy", &options)};
    options.seed = 12;
    data[2] = open_directory("set", &options);
    options = small();
    options.plain = true;
    data[3] = open_directory("set", &options);
    options = small();
    assert_int_equal(rename(test_path_of("copy/bee/3.jpeg"), test_path_of("copy/bee/3b.jpeg")), 0);
    data[4] = open_directory("copy", &options);
    assert_int_equal(rename(test_path_of("copy/bee/3b.jpeg"), test_path_of("copy/bee/3.jpeg")), 0);
    for (int i = 0; i < 4; i++)
        assert_ok(cgp_data_identity(data[i], hex[i]));
    assert_int_equal(rename(test_path_of("copy/bee/3.jpeg"), test_path_of("copy/bee/3b.jpeg")), 0);
    assert_ok(cgp_data_identity(data[4], hex[4]));
    assert_string_equal(hex[0], hex[1]);
    for (int i = 2; i < 5; i++)
        assert_string_not_equal(hex[0], hex[i]);
    for (int i = 0; i < 5; i++)
        cgp_data_destroy(data[i]);
}

/* --- set-up of the test group --- */

static int make_all(void **state) {
    cgp_log_set_level(CGP_LOG_ERROR); /* broken images are expected here */
    return test_make_directory(state);
}

TEST_GROUP(.set_up = make_all, .tear_down = remove_tree_after, .before = empty_tree_before);
