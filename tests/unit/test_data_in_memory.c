/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_in_memory.c -- tests CIFAR and MNIST, read from files of a few images. Samples equal
 * the bytes of the files. If a file is invalid, the message states its name, the offset and the
 * value. */
#include "directory.h"

#include <cgpipe/images.h>
#include <cgpipe/data.h>

#include <unistd.h>

enum { N = 12, PLANE = 1024, RECORD = 1 + 3 * PLANE, DIGIT = 28 * 28 };

/* --- files --- */

static uint8_t byte_of(int image, int at) {
    return (uint8_t)(image * 37 + at * 11 + (at * at) % 251);
}

/* Write a file of `n` records, starting with image number `first`. With one label per record, the
 * label is the image number mod 10. With two labels per record, the labels are the image number mod
 * 20, and 99 minus the image number. */
static void write_records(const char *name, int first, int n, int labels) {
    uint8_t *bytes = malloc((size_t)n * (size_t)(labels + 3 * PLANE)), *to = bytes;
    for (int i = first; i < first + n; i++) {
        if (labels == 2) *to++ = (uint8_t)(i % 20);
        *to++ = (uint8_t)(labels == 2 ? 99 - i : i % 10);
        for (int at = 0; at < 3 * PLANE; at++)
            *to++ = byte_of(i, at);
    }
    test_write_file(test_path_of(name), bytes, (size_t)(to - bytes));
    free(bytes);
}

static void write_cifar10(void) {
    char name[32];
    for (int b = 1; b <= 5; b++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", b);
        write_records(name, 2 * (b - 1), b < 5 ? 2 : N - 8, 1);
    }
    write_records("test_batch.bin", 100, 3, 1);
}

static void put_word(uint8_t *to, uint32_t value) {
    for (int k = 0; k < 4; k++)
        to[k] = (uint8_t)(value >> (24 - 8 * k));
}

static void write_digits(const char *split, int n) {
    static uint8_t images[16 + N * DIGIT], labels[8 + N];
    char name[64];
    put_word(images, 0x803);
    put_word(images + 4, (uint32_t)n);
    put_word(images + 8, 28);
    put_word(images + 12, 28);
    put_word(labels, 0x801);
    put_word(labels + 4, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        labels[8 + i] = (uint8_t)(9 - i % 10);
        for (int at = 0; at < DIGIT; at++)
            images[16 + i * DIGIT + at] = byte_of(i, at);
    }
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", split);
    test_write_file(test_path_of(name), images, (size_t)(16 + n * DIGIT));
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
    test_write_file(test_path_of(name), labels, (size_t)(8 + n));
}

/* Change the byte at offset `at` to `value`; if `value` < 0, truncate the file at that offset. */
static void damage(const char *name, long at, int value) {
    const char *path = test_path_of(name);
    if (value < 0) {
        assert_int_equal(truncate(path, at), 0);
        return;
    }
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(value, file), value);
    assert_int_equal(fclose(file), 0);
}

/* --- pictures --- */

static cgp_data *open_cifar(int classes, bool augment) {
    cgp_cifar_options options = cgp_cifar_options_default();
    cgp_data *data = NULL;
    options.classes = classes;
    options.augment = augment;
    options.seed = 9;
    assert_ok(cgp_data_cifar(&data, test_directory, &options));
    return data;
}

/* The last picture that was read. Each value is v = (b - mean) / deviation, which is linear in the
 * byte b of the file. */
static float picture[3 * PLANE];

/* Return true if the picture is image `i`, up to a linear map per channel. */
static bool is_image(int i, int dx, int dy, bool mirrored) {
    for (int k = 0; k < 3; k++) {
        double slope = 0, low_b = 0, low_v = 0;
        bool have = false;
        for (int y = 0; y < 32; y++) {
            for (int x = 0; x < 32; x++) {
                const int sx = mirrored ? 31 - (x - dx) : x - dx, sy = y - dy;
                const bool in = sx >= 0 && sx < 32 && sy >= 0 && sy < 32;
                const double b = in ? byte_of(i, k * PLANE + sy * 32 + sx) : 0;
                const double v = picture[(y * 32 + x) * 3 + k];
                if (x == 0 && y == 0) {
                    low_b = b;
                    low_v = v;
                } else if (!have && b != low_b) {
                    slope = (v - low_v) / (b - low_b);
                    have = true;
                }
                if (fabs(low_v + slope * (b - low_b) - v) > 1e-4) return false;
            }
        }
        if (slope <= 0) return false;
    }
    return true;
}

TEST_CASE(cifar_gives_every_image_once_a_pass_with_its_label) {
    write_cifar10();
    cgp_data *data = open_cifar(10, false);
    int32_t label = -1;
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), N);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_VALIDATION), 3);
    assert_int_equal(cgp_data_classes(data), 10);
    assert_int_equal(cgp_data_vocab_size(data), 0);
    for (int pass = 0; pass < 3; pass++) {
        int seen[N] = {0};
        for (int p = 0; p < N; p++) {
            int found = -1;
            assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, pass * N + p, 1, picture, &label));
            for (int i = 0; i < N; i++)
                if (is_image(i, 0, 0, false)) found = i;
            assert_in_range(found, 0, N - 1);
            assert_int_equal(label, found % 10);
            seen[found]++;
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], 1);
    }
    for (int p = 0; p < 3; p++) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, p, 1, picture, &label));
        assert_true(is_image(100 + p, 0, 0, false));
        assert_int_equal(label, p);
    }
    assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 3, 1, picture, &label), CGP_EINVAL);
    cgp_data_destroy(data);
}

TEST_CASE(training_values_have_mean_0_and_variance_1_in_each_channel) {
    write_cifar10();
    cgp_data *data = open_cifar(10, false);
    double sums[3] = {0}, squares[3] = {0};
    int32_t label = 0;
    for (int p = 0; p < N; p++) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, p, 1, picture, &label));
        for (int i = 0; i < 3 * PLANE; i++) {
            sums[i % 3] += picture[i];
            squares[i % 3] += (double)picture[i] * picture[i];
        }
    }
    for (int k = 0; k < 3; k++) {
        assert_true(fabs(sums[k] / (N * PLANE)) < 1e-5);
        assert_true(fabs(squares[k] / (N * PLANE) - 1) < 1e-5);
    }
    cgp_data_destroy(data);
}

TEST_CASE(augmented_images_are_shifted_by_up_to_4_and_half_of_them_mirrored) {
    write_cifar10();
    cgp_data *data = open_cifar(10, true), *plain = open_cifar(10, false);
    int mirrors = 0, moved = 0;
    int32_t label = 0, same = 0;
    char hex[2][65];
    for (int p = 0; p < 60; p++) {
        int found = 0;
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, p, 1, picture, &label));
        for (int i = 0; i < N; i++) {
            if (i % 10 != label) continue;
            for (int at = 0; at < 81 * 2; at++) {
                const int dx = at / 2 % 9 - 4, dy = at / 18 - 4;
                if (!is_image(i, dx, dy, at % 2)) continue;
                found++;
                mirrors += at % 2;
                moved += dx != 0 || dy != 0;
            }
        }
        assert_int_equal(found, 1);
        assert_ok(cgp_data_read(plain, CGP_SPLIT_TRAIN, p, 1, picture, &same));
        assert_int_equal(label, same); /* augmentation does not change the order */
    }
    assert_in_range(mirrors, 10, 50); /* 30 expected, deviation 3.9 */
    assert_in_range(moved, 50, 60);
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 1, 1, picture, &label));
    assert_true(is_image(101, 0, 0, false));
    assert_ok(cgp_data_identity(data, hex[0]));
    assert_ok(cgp_data_identity(plain, hex[1]));
    assert_string_not_equal(hex[0], hex[1]);
    cgp_data_destroy(plain);
    cgp_data_destroy(data);
}

TEST_CASE(cifar_100_has_fine_and_coarse_labels) {
    write_records("train.bin", 0, 4, 2);
    write_records("test.bin", 7, 1, 2);
    for (int classes = 20; classes <= 100; classes += 80) {
        cgp_data *data = open_cifar(classes, false);
        int32_t label = -1;
        assert_int_equal(cgp_data_classes(data), classes);
        assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 1, picture, &label));
        assert_true(is_image(7, 0, 0, false));
        assert_int_equal(label, classes == 20 ? 7 : 92);
        cgp_data_destroy(data);
    }
}

static void cifar_refused(const char *expected) {
    cgp_data *data = NULL;
    const cgp_status status = cgp_data_cifar(&data, test_directory, NULL);
    assert_true(status == CGP_EFORMAT || status == CGP_EIO);
    assert_null(data);
    assert_message(expected);
}

TEST_CASE(invalid_cifar_files_are_refused) {
    cifar_refused("data_batch_1.bin: no such file");
    write_cifar10();
    damage("data_batch_3.bin", RECORD, 10);
    cifar_refused("data_batch_3.bin: at byte 3073: expected a label below 10, got 10");
    damage("data_batch_3.bin", 2 * RECORD - 1, -1);
    cifar_refused("data_batch_3.bin: at byte 3073: expected whole records of 3073 bytes, at "
                  "least one, got a file of 6145 bytes");
    damage("data_batch_3.bin", 0, -1);
    cifar_refused("data_batch_3.bin: at byte 0: expected whole records");
    assert_int_equal(unlink(test_path_of("data_batch_3.bin")), 0);
    cifar_refused("data_batch_3.bin: no such file");
    cgp_cifar_options options = cgp_cifar_options_default();
    cgp_data *data = NULL;
    options.classes = 11;
    assert_status(cgp_data_cifar(&data, test_directory, &options), CGP_EINVAL);
    assert_message("cifar: classes are 10, 20 or 100, got 11");
}

/* --- MNIST --- */

static cgp_data *open_digits(int64_t size, int64_t channels) {
    cgp_mnist_options options = cgp_mnist_options_default();
    cgp_data *data = NULL;
    options.size = size;
    options.channels = channels;
    assert_ok(cgp_data_mnist(&data, test_directory, &options));
    return data;
}

TEST_CASE(mnist_stands_in_the_middle_of_a_larger_field_in_one_or_three_channels) {
    static float small[DIGIT], large[36 * 36 * 3];
    int32_t label = -1, same = -1;
    write_digits("train", N);
    write_digits("t10k", 3);
    cgp_data *plain = open_digits(28, 1), *wide = open_digits(36, 3);
    assert_int_equal(cgp_data_samples(plain, CGP_SPLIT_TRAIN), N);
    assert_int_equal(cgp_data_samples(plain, CGP_SPLIT_VALIDATION), 3);
    for (int p = 0; p < 3; p++) {
        assert_ok(cgp_data_read(plain, CGP_SPLIT_VALIDATION, p, 1, small, &label));
        assert_ok(cgp_data_read(wide, CGP_SPLIT_VALIDATION, p, 1, large, &same));
        assert_int_equal(label, 9 - p);
        assert_int_equal(same, label);
        const float one = small[1] - small[0];
        const float a = one / (float)(byte_of(p, 1) - byte_of(p, 0)),
                    black = small[0] - a * byte_of(p, 0);
        for (int i = 0; i < 36 * 36 * 3; i++) {
            const int y = i / 3 / 36 - 4, x = i / 3 % 36 - 4;
            const bool in = y >= 0 && y < 28 && x >= 0 && x < 28;
            const float expected = in ? small[y * 28 + x] : black;
            assert_true(fabsf(large[i] - expected) < 1e-4f);
            if (in) assert_true(fabsf(black + a * byte_of(p, y * 28 + x) - expected) < 1e-4f);
        }
    }
    cgp_data_destroy(wide);
    cgp_data_destroy(plain);
}

static void mnist_refused(const char *expected) {
    cgp_data *data = NULL;
    const cgp_status status = cgp_data_mnist(&data, test_directory, NULL);
    assert_true(status == CGP_EFORMAT || status == CGP_EIO);
    assert_null(data);
    assert_message(expected);
}

TEST_CASE(invalid_mnist_files_are_refused) {
    static const struct {
        const char *name;
        long at;
        int value;
        const char *expected;
    } cases[] = {
        {"train-images-idx3-ubyte", 3, 1, "ubyte: at byte 0: expected the magic 2051, got 2049"},
        {"train-labels-idx1-ubyte", 3, 3, "ubyte: at byte 0: expected the magic 2049, got 2051"},
        {"t10k-images-idx3-ubyte", 11, 27, "ubyte: at byte 8: expected rows: 28, got 27"},
        {"t10k-images-idx3-ubyte", 15, 29, "ubyte: at byte 12: expected columns: 28, got 29"},
        {"t10k-images-idx3-ubyte", 7, 0, "ubyte: at byte 4: expected at least 1, got 0"},
        {"t10k-images-idx3-ubyte", 7, 4, "got 4, which needs 3152 (a file cut short, or damaged)"},
        {"t10k-images-idx3-ubyte", 4, 255, "got 4278190083, which needs"},
        {"t10k-images-idx3-ubyte", 15, -1,
         "ubyte: at byte 15: expected a header, in bytes: 16, got 15"},
        {"t10k-labels-idx1-ubyte", 0, -1,
         "ubyte: at byte 0: expected a header, in bytes: 8, got 0"},
        {"train-labels-idx1-ubyte", 10, 10, "ubyte: at byte 10: expected a label below 10, got 10"},
    };
    mnist_refused("train-images-idx3-ubyte: no such file");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_digits("train", N);
        write_digits("t10k", 3);
        damage(cases[i].name, cases[i].at, cases[i].value);
        mnist_refused(cases[i].expected);
    }
    write_digits("train", N);
    write_digits("t10k", 3);
    damage("t10k-labels-idx1-ubyte", 7, 2);
    damage("t10k-labels-idx1-ubyte", 10, -1);
    mnist_refused("labels-idx1-ubyte: at byte 4: expected labels, as many as images: 3, got 2");
}

TEST_CASE(gzipped_files_are_refused) {
    static const uint8_t zipped[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0};
    write_digits("t10k", 3);
    test_write_file(test_path_of("train-images-idx3-ubyte.gz"), zipped, sizeof zipped);
    mnist_refused("train-images-idx3-ubyte: is there gzipped only (gunzip -k ");
    test_write_file(test_path_of("train-images-idx3-ubyte"), zipped, sizeof zipped);
    mnist_refused("at byte 0: expected the magic 2051, got a gzipped file (gunzip it)");
}

TEST_CASE(the_identity_covers_contents_and_options) {
    char hex[4][65];
    write_digits("train", N);
    write_digits("t10k", 3);
    cgp_data *data[4] = {open_digits(28, 1), open_digits(28, 1), open_digits(32, 1)};
    damage("train-images-idx3-ubyte", 100, 77);
    data[3] = open_digits(28, 1);
    for (int i = 0; i < 4; i++) {
        assert_ok(cgp_data_identity(data[i], hex[i]));
        cgp_data_destroy(data[i]);
    }
    assert_string_equal(hex[0], hex[1]);
    assert_string_not_equal(hex[0], hex[2]);
    assert_string_not_equal(hex[0], hex[3]);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory,
           .before = test_empty_before);
