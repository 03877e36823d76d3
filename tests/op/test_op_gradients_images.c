/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_gradients_images.c -- the ref backend's backward is the derivative of its forward
 * (differences.h), This file tests ops over images, and some other ops with several dimensions. */
#include "differences.h"

static uint64_t seed;

/* Sizes of an image and its windows. Images and most windows are not square, so that a test fails
 * if an op swaps height and width. Padding lists top, bottom, left and right. */
typedef struct shape {
    int64_t height, width;
    int kernel[2], stride[2], padding[4];
} shape;

static const shape windows[] = {
    {4, 5, {1, 1}, {1, 1}, {0, 0, 0, 0}}, {5, 4, {3, 3}, {1, 1}, {1, 1, 1, 1}},
    {6, 9, {1, 7}, {1, 1}, {0, 0, 3, 3}}, {9, 6, {7, 1}, {1, 1}, {3, 3, 0, 0}},
    {7, 8, {3, 3}, {2, 2}, {1, 1, 1, 1}}, {8, 7, {3, 3}, {2, 2}, {0, 1, 0, 1}},
    {6, 5, {2, 2}, {2, 2}, {0, 0, 0, 0}}, {5, 7, {2, 3}, {3, 1}, {1, 0, 2, 0}},
    {3, 4, {3, 4}, {1, 1}, {0, 0, 0, 0}}, {9, 4, {2, 2}, {4, 3}, {0, 0, 0, 0}},
};

/* Shapes whose padding is negative and so crops pixels, and shapes with windows entirely outside
 * the image. Pools do not allow these shapes. */
static const shape crops[] = {
    {6, 5, {1, 1}, {2, 2}, {-1, 1, -1, 1}},
    {7, 7, {3, 3}, {1, 1}, {-2, 0, 0, -1}},
    {3, 4, {2, 3}, {1, 2}, {4, 3, -1, 5}},
    {2, 3, {1, 1}, {1, 1}, {-2, 3, 3, -3}}, /* windows outside the image */
};

static void check_shape(cgp_op_kind op, const shape *of, int64_t in, int64_t out, bool bias) {
    const cgp__attributes a = {
        .windows = {.size = out,
                    .bias = bias,
                    .kernel = {of->kernel[0], of->kernel[1]},
                    .stride = {of->stride[0], of->stride[1]},
                    .padding = {of->padding[0], of->padding[1], of->padding[2], of->padding[3]}}};
    check(&(op_case){.op = op,
                     .attributes = image_attributes(op, of->height, of->width, in, a),
                     .n = 2},
          &seed);
}

#define LENGTH(array) (int)(sizeof(array) / sizeof *(array))

TEST_CASE(conv2d_is_differentiated_in_every_shape) {
    for (int i = 0; i < LENGTH(windows) + LENGTH(crops); i++) {
        const shape *of = i < LENGTH(windows) ? &windows[i] : &crops[i - LENGTH(windows)];
        for (int64_t in = 1; in <= 3; in++) {
            for (int64_t out = 1; out <= 3; out += 2)
                check_shape(CGP_OP_CONV2D, of, in, out, (i + in) % 2);
        }
    }
}

/* The cases have depthwise and other groups. Their dilations have, or do not have, a common divisor
 * with the stride. */
TEST_CASE(grouped_and_dilated_convolutions_are_differentiated) {
    static const cgp_op_kind ops[] = {CGP_OP_CONV2D, CGP_OP_CONV_TRANSPOSE2D};
    static const struct {
        int64_t in, out, groups;
        int kernel[2], stride[2], dilation[2];
    } cases[] = {{3, 3, 3, {3, 2}, {1, 2}, {1, 1}}, {4, 6, 2, {2, 3}, {2, 1}, {1, 1}},
                 {2, 4, 2, {1, 1}, {1, 1}, {1, 1}}, {2, 3, 1, {2, 3}, {1, 1}, {3, 2}},
                 {2, 2, 2, {3, 2}, {2, 3}, {2, 2}}, {4, 4, 2, {2, 3}, {4, 2}, {3, 2}}};
    for (int op = 0; op < 2; op++) {
        for (int i = 0; i < LENGTH(cases); i++) {
            cgp__attributes a = {.windows = {.size = cases[i].out,
                                             .bias = i % 2,
                                             .groups = cases[i].groups,
                                             .padding = {1, 2, 0, 1}}};
            memcpy(a.windows.kernel, cases[i].kernel, sizeof a.windows.kernel);
            memcpy(a.windows.stride, cases[i].stride, sizeof a.windows.stride);
            memcpy(a.windows.dilation, cases[i].dilation, sizeof a.windows.dilation);
            check(&(op_case){.op = ops[op],
                             .attributes = image_attributes(ops[op], 6, 5, cases[i].in, a),
                             .n = 2},
                  &seed);
        }
    }
}

/* The cases have windows that overlap or leave gaps, and padding that adds pixels. */
TEST_CASE(transposed_convolutions_are_differentiated_in_every_shape) {
    static const shape more[] = {{3, 4, {2, 3}, {3, 4}, {0, 0, 0, 0}},
                                 {2, 3, {1, 1}, {2, 3}, {-1, 0, 0, -2}}};
    for (int i = 0; i < LENGTH(windows) + LENGTH(more); i++) {
        const shape *of = i < LENGTH(windows) ? &windows[i] : &more[i - LENGTH(windows)];
        for (int64_t in = 1; in <= 3; in++) {
            for (int64_t out = 1; out <= 3; out += 2)
                check_shape(CGP_OP_CONV_TRANSPOSE2D, of, in, out, (i + in) % 2);
        }
    }
    const cgp__attributes a = {.windows = {.size = 2,
                                           .bias = true,
                                           .kernel = {2, 3},
                                           .stride = {3, 2},
                                           .padding = {0, 1, 1, 0},
                                           .output_padding = {2, 1}}};
    check(&(op_case){.op = CGP_OP_CONV_TRANSPOSE2D,
                     .attributes = image_attributes(CGP_OP_CONV_TRANSPOSE2D, 3, 4, 3, a),
                     .n = 2},
          &seed);
}

TEST_CASE(pools_are_differentiated_in_every_shape) {
    for (int i = 0; i < LENGTH(windows); i++) {
        for (int64_t channels = 1; channels <= 3; channels++) {
            check_shape(CGP_OP_MAX_POOL, &windows[i], channels, 0, false);
            check_shape(CGP_OP_AVERAGE_POOL, &windows[i], channels, 0, false);
        }
    }
    const cgp__attributes global = {.windows = {.global = true}};
    check(&(op_case){.op = CGP_OP_AVERAGE_POOL,
                     .attributes = image_attributes(CGP_OP_AVERAGE_POOL, 5, 6, 3, global),
                     .n = 2},
          &seed);
}

TEST_CASE(mean_is_differentiated_over_every_dim) {
    static const int64_t dims[][3] = {{1, 1, 1}, {4, 1, 3}, {2, 5, 17}, {7, 3, 1}};
    for (int i = 0; i < LENGTH(dims); i++) {
        for (int dim = 0; dim < 3; dim++)
            check(&(op_case){.op = CGP_OP_MEAN,
                             .attributes = mean_attributes(3, dims[i], dim),
                             .n = 2},
                  &seed);
    }
}

TEST_CASE(upsampling_is_differentiated) {
    for (int scale = 1; scale <= 3; scale++) {
        for (int64_t channels = 1; channels <= 3; channels++)
            check_shape(CGP_OP_UPSAMPLE, &(shape){3, 4, .stride = {scale, 4 - scale}}, channels, 0,
                        false);
    }
}

TEST_CASE(padding_is_differentiated_when_it_crops_too) {
    for (int i = 0; i < 81; i++) {
        const shape of = {3, 4, .padding = {i % 3 - 1, i / 3 % 3 - 1, i / 9 % 3 - 1, i / 27 - 1}};
        check_shape(CGP_OP_PAD, &of, 2, 0, false);
    }
    check_shape(CGP_OP_PAD, &(shape){3, 4, .padding = {-3, 3, 5, -4}}, 2, 0, false);
}

static const int64_t widths[] = {1, 2, 3, 17, 33};
static const int64_t lengths[] = {1, 2, 5, 130};

static void check_each(cgp_op_kind op, cgp_op_attributes (*attributes)(int64_t, int64_t)) {
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            op_case c = {.op = op, .attributes = attributes(rows, width), .n = 1, .sample = 3};
            check(&c, &seed);
            c.n = 3;
            check(&c, &seed);
            c.evaluate = op != CGP_OP_BATCH_NORM; /* BATCH_NORM has a gradient only in training */
            check(&c, &seed);
        }
    }
}

static cgp_op_attributes relu(int64_t rows, int64_t width) {
    return relu_attributes(rows, width, 0.0);
}

static cgp_op_attributes leaky_relu(int64_t rows, int64_t width) {
    return relu_attributes(rows, width, 0.2);
}

static cgp_op_attributes dropout2d(int64_t rows, int64_t width) {
    return dropout_attributes(rows, width, 0.4);
}

static cgp_op_attributes flat(int64_t rows, int64_t width) {
    return plain_attributes(1, rows * width);
}

TEST_CASE(relu_is_differentiated_with_a_slope_and_without) {
    check_each(CGP_OP_RELU, relu);
    check_each(CGP_OP_RELU, leaky_relu);
}

TEST_CASE(dropout2d_and_reshape_are_differentiated) {
    check_each(CGP_OP_DROPOUT2D, dropout2d);
    check_each(CGP_OP_RESHAPE, flat);
}

static cgp_op_attributes smooth(int64_t rows, int64_t width) {
    return element_loss_attributes(rows, width, 0.75);
}

TEST_CASE(losses_of_elements_are_differentiated) {
    check_each(CGP_OP_BCE_WITH_LOGITS, plain_attributes);
    check_each(CGP_OP_MSE, plain_attributes);
    check_each(CGP_OP_SMOOTH_L1, smooth);
    check_each(CGP_OP_SMOOTH_L1, plain_attributes); /* with beta 0 this is L1 */
    check_each(CGP_OP_WEIGHTED_MEAN, plain_attributes);
}

/* Return the attributes of a channel norm that has one group, groups of 11 channels, or one group
 * per channel. */
static cgp_op_attributes groups(int64_t rows, int64_t width) {
    return group_norm_attributes(rows, width, width % 11 == 0 ? width / 11 : width > 2 ? 1 : width);
}

/* In training, mean and variance depend on x, so they contribute to dx. In BATCH_NORM they depend
 * on x of all samples. */
TEST_CASE(channel_norms_are_differentiated) {
    check_each(CGP_OP_BATCH_NORM, norm_attributes);
    check_each(CGP_OP_INSTANCE_NORM, norm_attributes);
    check_each(CGP_OP_GROUP_NORM, groups);
}

TEST_CASE(concat_is_differentiated) {
    static const int64_t parts[][CGP_OP_MAX_INPUTS] = {
        {1, 1}, {5, 2}, {1, 16, 3}, {2, 1, 1, 7}, {17, 33, 5, 1}};
    for (int i = 0; i < LENGTH(parts); i++) {
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = CGP_OP_CONCAT,
                             .attributes = concat_attributes(rows, parts[i]),
                             .n = 2},
                  &seed);
        }
    }
}

TEST_CASE(transposing_is_differentiated) {
    static const int64_t sides[][5] = {
        {1, 3, 1, 4, 1}, {2, 5, 3, 2, 1}, {2, 3, 2, 4, 5}, {1, 1, 2, 7, 3}, {3, 17, 1, 33, 1}};
    for (int i = 0; i < LENGTH(sides); i++) {
        const int64_t *s = sides[i];
        check(&(op_case){.op = CGP_OP_TRANSPOSE,
                         .attributes = transpose_attributes(s[0], s[1], s[2], s[3], s[4]),
                         .n = 2},
              &seed);
    }
}

TEST_CASE(slicing_is_differentiated) {
    static const int64_t columns[][3] = {{1, 0, 1}, {9, 2, 3}, {9, 0, 9}, {40, 33, 7}};
    for (int i = 0; i < LENGTH(columns); i++) {
        const int64_t *c = columns[i];
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = CGP_OP_SLICE,
                             .attributes = slice_attributes(rows, c[0], c[1], c[2]),
                             .n = 2},
                  &seed);
        }
    }
}

int main(void) {
    seed = test_seed();
    return test_run();
}
