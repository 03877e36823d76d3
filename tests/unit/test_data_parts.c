/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_parts.c -- ranks may read only inputs or only targets. For every kind of data set, such
 * reads return the same bytes as reads of both. */
#define _GNU_SOURCE
#include "checkpoints.h"
#include "pictures.h"

#include <cgpipe/data.h>
#include <cgpipe/images.h>

#include <png.h>

enum { COUNT = 7 };

/* Memory for a read of both fields, and for reads of one field. */
typedef struct memory {
    size_t bytes[2];
    char *whole[2], *part[2];
} memory;

static memory make_memory(const cgp_data *data) {
    memory m;
    for (int k = 0; k < 2; k++) {
        const cgp_data_field *field = cgp_data_field_at(data, k);
        m.bytes[k] = COUNT * (size_t)cgp_shape_count(&field->shape) * cgp_dtype_bytes(field->dtype);
        m.whole[k] = malloc(m.bytes[k]);
        m.part[k] = malloc(m.bytes[k]);
    }
    return m;
}

static void release(memory *m) {
    for (int k = 0; k < 2; k++) {
        free(m->whole[k]);
        free(m->part[k]);
    }
}

/* Read the same samples with both fields at once and with one field at a time. Then destroy the
 * data set. */
static void check_parts(cgp_data *data) {
    memory m = make_memory(data);
    for (int split = 0; split < 2; split++) {
        for (int64_t first = 0; first < (split == 0 ? 40 : 1); first += 13) {
            assert_ok(cgp_data_read(data, (cgp_split)split, first, COUNT, m.whole[0], m.whole[1]));
            for (int fields = 0; fields < 4; fields++) { /* bits: 1 reads the input, 2 the target */
                const bool wanted[2] = {fields & 1, fields & 2};
                for (int k = 0; k < 2; k++)
                    memset(m.part[k], 0x55, m.bytes[k]);
                assert_ok(cgp_data_read(data, (cgp_split)split, first, COUNT,
                                        wanted[0] ? m.part[0] : NULL,
                                        wanted[1] ? m.part[1] : NULL));
                for (int k = 0; k < 2; k++) {
                    if (wanted[k]) assert_memory_equal(m.part[k], m.whole[k], m.bytes[k]);
                }
            }
        }
    }
    release(&m);
    cgp_data_destroy(data);
}

/* --- tokens and generated pictures of shapes --- */

TEST_CASE(tokens_in_parts_are_those_of_a_whole_read) {
    uint8_t bytes[4096];
    uint64_t random = test_seed();
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)test_random(&random);
    test_write_file(test_path_of("text"), bytes, sizeof bytes);
    test_write_file(test_path_of("more.bin"), bytes, 1234);
    const char *const paths[] = {test_path_of("text"), test_path_of("more.bin")};
    cgp_text_options text = cgp_text_options_default();
    cgp_token_options tokens = cgp_token_options_default();
    text.sequence = tokens.sequence = 17;
    cgp_data *data = NULL;
    assert_ok(cgp_data_text(&data, paths, 2, &text));
    check_parts(data);
    assert_ok(cgp_data_tokens(&data, paths, 2, &tokens));
    check_parts(data);
    assert_ok(cgp_data_random(&data, 100, 17, 3));
    check_parts(data);
}

TEST_CASE(shapes_in_parts_are_those_of_a_whole_read) {
    for (int masks = 0; masks < 2; masks++) {
        cgp_shapes_options options = cgp_shapes_options_default();
        cgp_data *data = NULL;
        options.masks = masks == 1;
        assert_ok(cgp_data_shapes(&data, &options));
        check_parts(data);
    }
}

/* --- images in files --- */

TEST_CASE(cifar_in_parts_is_that_of_a_whole_read) {
    static uint8_t records[8 * (2 + 3072)];
    for (size_t i = 0; i < sizeof records; i++)
        records[i] = (uint8_t)(i * i % 20);
    test_write_file(test_path_of("train.bin"), records, sizeof records);
    test_write_file(test_path_of("test.bin"), records, sizeof records);
    cgp_cifar_options options = cgp_cifar_options_default();
    cgp_data *data = NULL;
    options.classes = 100;
    assert_ok(cgp_data_cifar(&data, test_directory, &options));
    check_parts(data);
}

/* Make two classes of eight pictures. */
static void make_folder(void) {
    static test_image file;
    uint8_t pixels[20 * 20 * 3];
    char name[64];
    for (int i = 0; i < 16; i++) {
        if (i % 8 == 0) assert_int_equal(mkdir(test_path_of(i == 0 ? "a" : "b"), 0700), 0);
        for (size_t k = 0; k < sizeof pixels; k++)
            pixels[k] = (uint8_t)(k * (size_t)(i + 3) % 251);
        test_make_png(&file, &(test_png){20, 20, PNG_COLOR_TYPE_RGB, 8, false}, pixels);
        snprintf(name, sizeof name, "%s/%d.png", i < 8 ? "a" : "b", i);
        test_write_file(test_path_of(name), file.bytes, file.size);
    }
}

static cgp_data *open_folder(int workers, bool strict) {
    cgp_image_folder_options options = cgp_image_folder_options_default();
    cgp_data *data = NULL;
    options.size = 16;
    options.validation_fraction = 0.5;
    options.workers = workers;
    options.strict = strict;
    assert_ok(cgp_data_image_folder(&data, test_directory, &options));
    return data;
}

/* A sample whose image is broken gets the label of the replacement image, which often has another
 * class in this test. */
TEST_CASE(a_folder_in_parts_is_that_of_a_whole_read) {
    make_folder();
    for (int broken = 0; broken < 2; broken++) {
        for (int workers = 0; workers < 3; workers += 2)
            check_parts(open_folder(workers, broken == 0));
        test_write_file(test_path_of("a/3.png"), "broken", 6);
        test_write_file(test_path_of("a/2.png"), "", 0);
        test_write_file(test_path_of("b/12.png"), "broken", 6);
    }
}

/* With option `strict` no image is replaced, so reading labels needs only the files' names. */
TEST_CASE(labels_of_a_strict_folder_are_read_without_its_images) {
    int32_t labels[COUNT], again[COUNT];
    static float pixels[COUNT][16 * 16 * 3];
    make_folder();
    cgp_data *data = open_folder(2, true);
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 5, COUNT, pixels, labels));
    cgp_data_destroy(data);
    for (int i = 0; i < 16; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%d.png", i < 8 ? "a" : "b", i);
        test_write_file(test_path_of(name), "broken", 6);
    }
    for (int workers = 0; workers < 3; workers += 2) {
        data = open_folder(workers, true);
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 5, COUNT, NULL, again));
        assert_memory_equal(again, labels, sizeof labels);
        assert_status(cgp_data_read(data, CGP_SPLIT_TRAIN, 5, COUNT, pixels, again), CGP_EFORMAT);
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 5, COUNT, NULL, again));
        cgp_data_destroy(data);
    }
}

/* --- custom --- */

static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position, void *input,
                       void *target) {
    (void)context, (void)split;
    for (int k = 0; k < 3; k++)
        ((float *)input)[k] = (float)(position * 3 + k);
    *(int32_t *)target = (int32_t)index;
    return CGP_OK;
}

TEST_CASE(a_custom_set_in_parts_is_that_of_a_whole_read) {
    for (int threads = 0; threads < 3; threads += 2) {
        cgp_data_source source = cgp_data_source_default();
        cgp_data *data = NULL;
        source.input = (cgp_data_field){CGP_F32, cgp_shape_make(1, (int64_t[]){3})};
        source.target = (cgp_data_field){CGP_I32, cgp_shape_make(1, (int64_t[]){1})};
        source.training = source.validation = 23;
        source.threads = threads;
        source.fill = fill;
        assert_ok(cgp_data_create(&data, &source));
        check_parts(data);
    }
}

static int make_all(void **state) {
    cgp_log_set_level(CGP_LOG_ERROR); /* broken images are expected here */
    return test_make_directory(state);
}

TEST_GROUP(.set_up = make_all, .tear_down = remove_tree_after, .before = empty_tree_before);
