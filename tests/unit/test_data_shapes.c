/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_shapes.c -- tests properties of the data set of generated pictures. A linear model must
 * not suffice to classify the pictures. */
#include "support.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>

enum { SIZE = 32, PIXELS = SIZE * SIZE, VALUES = 3 * PIXELS, CLASSES = 10 };

static cgp_data *make(bool masks, uint64_t seed) {
    cgp_shapes_options options = cgp_shapes_options_default();
    cgp_data *data = NULL;
    options.masks = masks;
    options.seed = seed;
    options.validation = 2000;
    assert_ok(cgp_data_shapes(&data, &options));
    return data;
}

static float first[40][VALUES], second[40][VALUES], masks[40][PIXELS];
static int32_t labels[40];

TEST_CASE(a_picture_is_a_function_of_seed_split_and_position) {
    uint64_t random = test_seed();
    const uint64_t seed = test_random(&random);
    cgp_data *a = make(false, seed), *b = make(false, seed), *c = make(false, seed + 1);
    const int64_t far = (int64_t)(test_random(&random) >> 2);
    assert_ok(cgp_data_read(a, CGP_SPLIT_TRAIN, far, 40, first, labels));
    for (int i = 39; i >= 0; i--) /* read one sample at a time, the last first */
        assert_ok(cgp_data_read(b, CGP_SPLIT_TRAIN, far + i, 1, second[i], labels));
    assert_memory_equal(first, second, sizeof first);
    assert_ok(cgp_data_read(c, CGP_SPLIT_TRAIN, far, 40, second, labels));
    for (int i = 0; i < 40; i++)
        assert_memory_not_equal(first[i], second[i], sizeof first[i]);
    cgp_data_destroy(c);
    cgp_data_destroy(b);
    cgp_data_destroy(a);
}

TEST_CASE(training_and_validation_have_no_picture_in_common) {
    static int32_t others[40];
    cgp_data *data = make(false, 3);
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 40, first, labels));
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 40, second, others));
    /* training and validation pictures differ in their labels too, not only in noise */
    assert_memory_not_equal(labels, others, sizeof labels);
    for (int i = 0; i < 40; i++) {
        for (int j = 0; j < 40; j++)
            assert_memory_not_equal(first[i], second[j], sizeof first[i]);
    }
    cgp_data_destroy(data);
}

TEST_CASE(classes_are_named_and_equally_frequent) {
    cgp_data *data = make(false, 4);
    int counts[CLASSES] = {0};
    enum { N = 2000 };
    assert_int_equal(cgp_data_classes(data), CLASSES);
    for (int i = 0; i < N; i++) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, i, 1, first, labels));
        assert_in_range(labels[0], 0, CLASSES - 1);
        counts[labels[0]]++;
    }
    for (int k = 0; k < CLASSES; k++) { /* mean 200, deviation sqrt(2000 * 0.1 * 0.9) = 13.4 */
        assert_in_range(counts[k], 200 - 5 * 14, 200 + 5 * 14);
        for (int j = 0; j < k; j++)
            assert_string_not_equal(cgp_data_class_name(data, j), cgp_data_class_name(data, k));
    }
    assert_null(cgp_data_class_name(data, CLASSES));
    assert_null(cgp_data_class_name(data, -1));
    cgp_data_destroy(data);
}

/* Return the mean brightness (0 to 1) of the pixels in the mask, minus the mean brightness of the
 * other pixels. */
static double contrast(const float *pixels, const float *mask, double *area) {
    double sums[2] = {0}, counts[2] = {0};
    for (int i = 0; i < PIXELS; i++) {
        assert_true(mask[i] == 0 || mask[i] == 1);
        counts[mask[i] > 0] += 1;
        for (int k = 0; k < 3; k++)
            sums[mask[i] > 0] += (pixels[3 * i + k] + 1) / 6;
    }
    *area = counts[1] / PIXELS;
    return sums[1] / counts[1] - sums[0] / counts[0];
}

TEST_CASE(a_mask_is_where_the_shape_stands_out_from_its_background) {
    const uint64_t seed = test_seed();
    cgp_data *data = make(true, seed), *plain = make(false, seed);
    int lighter = 0;
    assert_int_equal(cgp_data_classes(data), 0);
    for (int at = 0; at < 400; at += 40) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, at, 40, first, masks));
        assert_ok(cgp_data_read(plain, CGP_SPLIT_TRAIN, at, 40, second, labels));
        assert_memory_equal(first, second, sizeof first); /* masks do not change the pictures */
        for (int i = 0; i < 40; i++) {
            double area = 0;
            const double c = contrast(first[i], masks[i], &area);
            lighter += c > 0;
            /* A shape's contrast is 0.35 to 0.55. Clutter, the background's gradient and
             * half-covered pixels reduce it. */
            assert_true(fabs(c) > 0.2 && fabs(c) < 0.65);
            assert_true(area > 0.02 && area < 0.6); /* the largest disc has pi * 0.42^2 = 0.55 */
        }
    }
    assert_in_range(lighter, 240, 350); /* 300 expected, deviation 8.7 */
    cgp_data_destroy(plain);
    cgp_data_destroy(data);
}

TEST_CASE(pictures_have_any_size_and_values_within_1) {
    const int64_t sizes[] = {16, 33, 192};
    for (int s = 0; s < 3; s++) {
        cgp_shapes_options options = cgp_shapes_options_default();
        cgp_data *data = NULL;
        char text[64];
        options.size = sizes[s];
        options.masks = true;
        assert_ok(cgp_data_shapes(&data, &options));
        const size_t n = (size_t)(sizes[s] * sizes[s]);
        float *pixels = malloc(n * 3 * sizeof *pixels), *mask = malloc(n * sizeof *mask);
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 5, 1, pixels, mask));
        for (size_t i = 0; i < 3 * n; i++)
            assert_true(pixels[i] >= -1 && pixels[i] <= 1);
        snprintf(text, sizeof text, "[%d, %d, 1]", (int)sizes[s], (int)sizes[s]);
        char shape[64];
        assert_string_equal(cgp_shape_text(&cgp_data_field_at(data, 1)->shape, shape, sizeof shape),
                            text);
        assert_null(cgp_data_field_at(data, 2));
        free(mask);
        free(pixels);
        cgp_data_destroy(data);
    }
}

TEST_CASE(bad_options_are_refused) {
    cgp_shapes_options options = cgp_shapes_options_default();
    cgp_data *data = NULL;
    options.size = 15;
    assert_status(cgp_data_shapes(&data, &options), CGP_EINVAL);
    assert_message("shapes: size is between 16 and 1024 pixels, got 15");
    options.size = 32;
    options.validation = -1;
    assert_status(cgp_data_shapes(&data, &options), CGP_EINVAL);
    assert_message("shapes: validation is at least 0 samples, got -1");
    options.struct_size = 3;
    assert_status(cgp_data_shapes(&data, &options), CGP_EINVAL);
    assert_message("expected struct_size");
    assert_null(data);
}

/* --- a linear softmax on the pixels --- */

enum { BATCH = 64, STEPS = 150, TESTS = 1024 };

static void make_linear(cgp_model **model, cgp_plan **plan, cgp_pipeline **pipeline) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "linear"));
    const cgp_value x = cgp_model_input(m, "images", CGP_F32, 1, (int64_t[]){VALUES});
    const cgp_value y = cgp_model_input(m, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(m, "head");
    const cgp_value logits =
        cgp_linear(m, x, "head", (cgp_linear_options){.out = CLASSES, .bias = true});
    cgp_model_output(m, logits);
    cgp_model_loss_cross_entropy(m, logits, y, -100, 1);
    assert_ok(cgp_model_finish(m));
    cgp_plan_options options = cgp_plan_options_default();
    options.batch = BATCH;
    options.optim = cgp_optim_adamw(1e-3, 0);
    assert_ok(cgp_plan_create(plan, m, &options));
    assert_ok(cgp_pipeline_create(pipeline, *plan, 1));
    *model = m;
}

TEST_CASE(a_linear_model_is_better_than_chance_and_wrong_more_often_than_right) {
    static float pixels[BATCH][VALUES], logits[BATCH][CLASSES];
    static int32_t right[BATCH];
    const cgp_tensor x = {CGP_F32, cgp_shape_make(2, (int64_t[]){BATCH, VALUES}), pixels};
    const cgp_tensor y = {CGP_I32, cgp_shape_make(2, (int64_t[]){BATCH, 1}), right};
    const cgp_tensor out = {CGP_F32, cgp_shape_make(2, (int64_t[]){BATCH, CLASSES}), logits};
    const cgp_tensor *const inputs[] = {&x, &y};
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_topk train = {0}, test = {0};
    cgp_data *data = make(false, 5);
    make_linear(&model, &plan, &pipeline);
    for (int i = 0; i < STEPS; i++) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, i * BATCH, BATCH, pixels, right));
        assert_ok(cgp_pipeline_step(pipeline, inputs, 2, NULL));
        assert_ok(cgp_optim_step(pipeline));
    }
    for (int at = 0; at < TESTS; at += BATCH) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, at, BATCH, pixels, right));
        assert_ok(cgp_pipeline_predict(pipeline, inputs, 2, (const cgp_tensor *[]){&out}, 1));
        cgp_topk_add(&train, logits[0], right, BATCH, CLASSES);
        assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, at, BATCH, pixels, right));
        assert_ok(cgp_pipeline_predict(pipeline, inputs, 2, (const cgp_tensor *[]){&out}, 1));
        cgp_topk_add(&test, logits[0], right, BATCH, CLASSES);
    }
    print_message("linear: %.1f %% of what it was trained on, %.1f %% of validation\n",
                  100.0 * (double)train.top1 / TESTS, 100.0 * (double)test.top1 / TESTS);
    assert_in_range(test.samples, TESTS, TESTS);
    assert_true(test.top1 < TESTS / 2);
    /* Require that the number of right answers exceeds the expected number for random guesses by
     * four standard deviations. One deviation is sqrt(1024 x 0.1 x 0.9) = 9.6. */
    assert_true(test.top1 > TESTS / 10 + 4 * 10);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    cgp_data_destroy(data);
}
