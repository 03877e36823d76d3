/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_shapes_images.c -- tests the shape rules of ops over images, and the messages for refused
 * inputs. Shapes do not include the number of samples, N. */
#include "shapes.h"
#include "sizes.h"

#include <limits.h>

#include "backend/running_stats.h"

#define IMAGE F32(6, 7, 3)

static cgp__attributes window(int high, int wide, int down, int across) {
    return (cgp__attributes){
        .windows = {.size = 8, .kernel = {high, wide}, .stride = {down, across}}};
}

static cgp__attributes padded(cgp__attributes a, int top, int bottom, int left, int right) {
    const int padding[] = {top, bottom, left, right};
    memcpy(a.windows.padding, padding, sizeof padding);
    return a;
}

/* On each side of an image, out = floor((side + padding before + padding after - kernel) / stride)
 * + 1. */
TEST_CASE(windows_are_counted_on_each_side) {
    static const struct {
        int kernel[2], stride[2], padding[4];
        const char *output;
    } cases[] = {
        {{1, 1}, {1, 1}, {0, 0, 0, 0}, "[6, 7, 8]"},  {{3, 3}, {1, 1}, {0, 0, 0, 0}, "[4, 5, 8]"},
        {{3, 3}, {1, 1}, {1, 1, 1, 1}, "[6, 7, 8]"},  {{3, 3}, {2, 2}, {1, 1, 1, 1}, "[3, 4, 8]"},
        {{2, 2}, {2, 2}, {0, 0, 0, 0}, "[3, 3, 8]"},  {{1, 7}, {1, 1}, {0, 0, 3, 3}, "[6, 7, 8]"},
        {{7, 1}, {1, 1}, {3, 3, 0, 0}, "[6, 7, 8]"},  {{6, 7}, {1, 1}, {0, 0, 0, 0}, "[1, 1, 8]"},
        {{2, 3}, {3, 4}, {1, 0, 0, 2}, "[2, 2, 8]"},  {{1, 1}, {2, 2}, {-1, 1, -1, 1}, "[3, 4, 8]"},
        {{3, 3}, {1, 1}, {9, 9, 0, 0}, "[22, 5, 8]"}, {{1, 1}, {1, 1}, {-5, 0, 0, -6}, "[1, 1, 8]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cgp__attributes a =
            window(cases[i].kernel[0], cases[i].kernel[1], cases[i].stride[0], cases[i].stride[1]);
        memcpy(a.windows.padding, cases[i].padding, sizeof a.windows.padding);
        const inferred out = infer(CGP_OP_CONV2D, a, IMAGE, F32(1));
        assert_type(&out.shapes.output, cases[i].output);
    }
}

TEST_CASE(conv2d_has_a_weight_for_each_element_of_a_window) {
    cgp__attributes a = padded(window(2, 3, 3, 4), 1, 0, -2, 5);
    a.bias = true;
    inferred out = infer(CGP_OP_CONV2D, a, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[2, 2, 8]");
    assert_attributes(&out, (cgp_op_attributes){.windows = {.rows = 4,
                                                            .in = 3,
                                                            .out = 8,
                                                            .height = 6,
                                                            .width = 7,
                                                            .out_height = 2,
                                                            .out_width = 2,
                                                            .kernel_height = 2,
                                                            .kernel_width = 3,
                                                            .stride_height = 3,
                                                            .stride_width = 4,
                                                            .top = 1,
                                                            .left = -2,
                                                            .has_bias = 1,
                                                            .dilation_height = 1,
                                                            .dilation_width = 1,
                                                            .groups = 1}});
    assert_int_equal(out.shapes.n_parameters, 2);
    assert_param(&out, 0, "weight", "[2, 3, 3, 8]");
    assert_param(&out, 1, "bias", "[8]");
    assert_true(out.shapes.parameters[0].decays && !out.shapes.parameters[1].decays);
    a.bias = false;
    assert_int_equal(infer(CGP_OP_CONV2D, a, IMAGE, F32(1)).shapes.n_parameters, 1);
}

TEST_CASE(a_group_has_the_weight_of_its_channels) {
    cgp__attributes a = window(2, 3, 1, 1);
    a.windows.size = 6;
    a.windows.groups = 3;
    a.windows.dilation[0] = 4;
    a.windows.dilation[1] = 2;
    inferred out = infer(CGP_OP_CONV2D, a, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[2, 3, 6]");
    assert_param(&out, 0, "weight", "[2, 3, 1, 6]");
    out = infer(CGP_OP_CONV_TRANSPOSE2D, a, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[10, 11, 6]");
    assert_param(&out, 0, "weight", "[2, 3, 2, 3]");
    a.windows.groups = 2;
    refuse(CGP_OP_CONV2D, a, IMAGE, F32(1),
           "expects groups that divide the 3 channels and the 6 outputs, got 2");
    a.windows.groups = -1;
    refuse(CGP_OP_CONV_TRANSPOSE2D, a, IMAGE, F32(1),
           "expects groups that divide the 3 channels and the 6 outputs, got -1");
    a.windows.dilation[1] = -1;
    refuse(CGP_OP_CONV2D, a, IMAGE, F32(1), "expects a dilation from 0 to 32768, got -1");
}

TEST_CASE(conv2d_refuses) {
    const cgp_op_kind op = CGP_OP_CONV2D;
    const cgp__attributes a = window(3, 3, 1, 1);
    refuse(op, a, I32(6, 7, 3), F32(1), "expects f32 image, got i32");
    refuse(op, a, F32(7, 3), F32(1), "expects image of 3 dims, got [7, 3]");
    refuse(op, a, F32(6, 0, 3), F32(1), "expects image of sizes >= 1, got [6, 0, 3]");
    refuse(op, a, F32((1 << 20) + 1, 1, 1), F32(1),
           "expects an image of at most 2^20 x 2^20 pixels, got [1048577, 1, 1]");
    refuse(op, window(0, 3, 1, 1), IMAGE, F32(1), "expects a kernel from 1 to 32768, got 0");
    refuse(op, window(3, 40000, 1, 1), IMAGE, F32(1),
           "expects a kernel from 1 to 32768, got 40000");
    refuse(op, window(3, 3, 1, 0), IMAGE, F32(1), "expects a stride from 1 to 32768, got 0");
    refuse(op, padded(a, 0, 0, 0, 40000), IMAGE, F32(1),
           "expects padding from -32768 to 32768, got 40000");
    refuse(op, padded(a, 0, INT_MIN, 0, 0), IMAGE, F32(1),
           "expects padding from -32768 to 32768, got -2147483648");
    refuse(op, window(7, 7, 1, 1), IMAGE, F32(1),
           "expects an image, padding included, of at least the kernel's 7 x 7 pixels, got 6 x "
           "7");
    refuse(op, padded(a, 0, 0, -2, -3), IMAGE, F32(1),
           "expects an image, padding included, of at least the kernel's 3 x 3 pixels, got 6 x "
           "2");
    cgp__attributes none_out = a, wide = a;
    none_out.size = 0;
    wide.size = (int64_t)1 << 37;
    refuse(op, none_out, IMAGE, F32(1), "expects out >= 1, got 0");
    refuse(op, wide, IMAGE, F32(1),
           "expects weight of at most 2^40 elements, got 137438953472 x 27");
    wide.windows.kernel[0] = wide.windows.kernel[1] = 1;
    refuse(op, wide, IMAGE, F32(1),
           "expects output of at most 2^40 elements, got 42 x 137438953472");
    refuse(op, padded(window(1, 1, 1, 1), 32768, 0, 0, 0), F32(1 << 20, 1, 1), F32(1),
           "expects an output of at most 2^20 x 2^20 pixels, got 1081344 x 1");
}

/* --- CONV_TRANSPOSE2D --- */

/* A CONV2D with the same windows maps the output of CONV_TRANSPOSE2D to an image with the sides of
 * the input. */
TEST_CASE(a_transposed_convolution_undoes_the_sides) {
    static const struct {
        int kernel[2], stride[2], padding[4], more[2];
        const char *output;
    } cases[] = {
        {{1, 1}, {1, 1}, {0, 0, 0, 0}, {0, 0}, "[6, 7, 8]"},
        {{3, 3}, {1, 1}, {1, 1, 1, 1}, {0, 0}, "[6, 7, 8]"},
        {{2, 2}, {2, 2}, {0, 0, 0, 0}, {0, 0}, "[12, 14, 8]"},
        {{3, 3}, {2, 2}, {1, 1, 1, 1}, {0, 0}, "[11, 13, 8]"},
        {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, "[12, 14, 8]"},
        {{1, 2}, {3, 4}, {0, 0, 0, 0}, {2, 3}, "[18, 29, 8]"},
        {{1, 1}, {1, 1}, {-5, 0, 0, 6}, {0, 0}, "[11, 1, 8]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cgp__attributes a =
            window(cases[i].kernel[0], cases[i].kernel[1], cases[i].stride[0], cases[i].stride[1]);
        memcpy(a.windows.padding, cases[i].padding, sizeof a.windows.padding);
        memcpy(a.windows.output_padding, cases[i].more, sizeof a.windows.output_padding);
        inferred out = infer(CGP_OP_CONV_TRANSPOSE2D, a, IMAGE, F32(1));
        assert_type(&out.shapes.output, cases[i].output);
        a.size = 3;
        out = infer(CGP_OP_CONV2D, a, out.shapes.output, F32(1));
        assert_type(&out.shapes.output, "[6, 7, 3]");
    }
}

TEST_CASE(a_transposed_convolution_has_the_weight_of_a_convolution) {
    cgp__attributes a = padded(window(2, 3, 3, 4), 1, 0, -2, 5);
    a.bias = true;
    a.init[0] = (cgp_init){CGP_INIT_KAIMING_NORMAL, 1};
    inferred out = infer(CGP_OP_CONV_TRANSPOSE2D, a, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[16, 24, 8]");
    assert_attributes(&out, (cgp_op_attributes){.windows = {.rows = 384,
                                                            .in = 3,
                                                            .out = 8,
                                                            .height = 6,
                                                            .width = 7,
                                                            .out_height = 16,
                                                            .out_width = 24,
                                                            .kernel_height = 2,
                                                            .kernel_width = 3,
                                                            .stride_height = 3,
                                                            .stride_width = 4,
                                                            .top = 1,
                                                            .left = -2,
                                                            .has_bias = 1,
                                                            .dilation_height = 1,
                                                            .dilation_width = 1,
                                                            .groups = 1}});
    assert_int_equal(out.shapes.n_parameters, 2);
    assert_param(&out, 0, "weight", "[2, 3, 8, 3]");
    assert_param(&out, 1, "bias", "[8]");
    assert_true(out.shapes.parameters[0].decays && !out.shapes.parameters[1].decays);
    assert_true(fabs(out.shapes.parameters[0].init.scale - sqrt(1.0 / 48)) < 1e-12);
    a.bias = false;
    for (int direction = 0; direction < CGP_OP_DIRECTIONS; direction++)
        assert_true(flops_of(CGP_OP_CONV_TRANSPOSE2D, (cgp_op_direction)direction, a, IMAGE,
                             F32(1)) == 2.0 * 42 * 3 * 6 * 8);
}

TEST_CASE(a_transposed_convolution_refuses) {
    const cgp_op_kind op = CGP_OP_CONV_TRANSPOSE2D;
    cgp__attributes a = window(3, 3, 2, 2);
    refuse(op, a, F32(6, 7), F32(1), "expects image of 3 dims, got [6, 7]");
    refuse(op, window(3, 0, 1, 1), IMAGE, F32(1), "expects a kernel from 1 to 32768, got 0");
    refuse(op, window(3, 3, 1, 0), IMAGE, F32(1), "expects a stride from 1 to 32768, got 0");
    refuse(op, padded(a, 0, 32769, 0, 0), IMAGE, F32(1),
           "expects padding from -32768 to 32768, got 32769");
    refuse(op, padded(a, 6, 7, 0, 0), IMAGE, F32(1),
           "expects padding that leaves a pixel, got an output of 0 x 15");
    a.windows.output_padding[1] = 2;
    refuse(op, a, IMAGE, F32(1),
           "expects output padding (less than the stride) from 0 to 1, got 2");
    a.windows.output_padding[1] = -1;
    refuse(op, a, IMAGE, F32(1),
           "expects output padding (less than the stride) from 0 to 1, got -1");
    a = window(3, 3, 1, 1);
    a.size = 0;
    refuse(op, a, IMAGE, F32(1), "expects out >= 1, got 0");
    a.size = (int64_t)1 << 37;
    refuse(op, a, IMAGE, F32(1), "expects weight of at most 2^40 elements, got 137438953472 x 27");
    refuse(op, window(1, 1, 32768, 1), F32(34, 1, 1), F32(1),
           "expects an output of at most 2^20 x 2^20 pixels, got 1081345 x 1");
}

TEST_CASE(pools_keep_the_channels) {
    static const cgp_op_kind pools[] = {CGP_OP_MAX_POOL, CGP_OP_AVERAGE_POOL};
    for (int i = 0; i < 2; i++) {
        const inferred out = infer(pools[i], padded(window(3, 2, 2, 1), 1, 2, 0, 1), IMAGE, F32(1));
        assert_type(&out.shapes.output, "[4, 7, 3]");
        assert_attributes(&out, (cgp_op_attributes){.windows = {.rows = 28,
                                                                .in = 3,
                                                                .out = 3,
                                                                .height = 6,
                                                                .width = 7,
                                                                .out_height = 4,
                                                                .out_width = 7,
                                                                .kernel_height = 3,
                                                                .kernel_width = 2,
                                                                .stride_height = 2,
                                                                .stride_width = 1,
                                                                .top = 1}});
        assert_int_equal(out.shapes.n_parameters + out.shapes.n_saved, 0);
        refuse(pools[i], padded(window(3, 2, 1, 1), 0, 0, 0, 2), IMAGE, F32(1),
               "expects padding (less than the kernel) from 0 to 1, got 2");
        refuse(pools[i], padded(window(3, 2, 1, 1), -1, 0, 0, 0), IMAGE, F32(1),
               "expects padding (less than the kernel) from 0 to 2, got -1");
        refuse(pools[i], window(3, 0, 1, 1), IMAGE, F32(1),
               "expects a kernel from 1 to 32768, got 0");
    }
}

TEST_CASE(a_global_pool_leaves_channels_alone) {
    const cgp__attributes global = {.windows = {.global = true}};
    const inferred out = infer(CGP_OP_AVERAGE_POOL, global, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[3]");
    assert_int_equal(out.sizes.windows.kernel_height, 6);
    assert_int_equal(out.sizes.windows.kernel_width, 7);
    assert_int_equal(out.sizes.rows, 1);
    refuse(CGP_OP_AVERAGE_POOL, global, F32(3), F32(1), "expects image of 3 dims, got [3]");
    refuse(CGP_OP_AVERAGE_POOL, global, F32(40000, 4, 3), F32(1),
           "expects a kernel from 1 to 32768, got 40000");
}

TEST_CASE(upsampling_multiplies_the_sides) {
    const inferred out =
        infer(CGP_OP_UPSAMPLE, (cgp__attributes){.windows = {.stride = {2, 3}}}, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[12, 21, 3]");
    assert_attributes(&out, (cgp_op_attributes){.windows = {.rows = 252,
                                                            .in = 3,
                                                            .out = 3,
                                                            .height = 6,
                                                            .width = 7,
                                                            .out_height = 12,
                                                            .out_width = 21,
                                                            .stride_height = 2,
                                                            .stride_width = 3}});
    refuse(CGP_OP_UPSAMPLE, none, IMAGE, F32(1), "expects a scale from 1 to 1024, got 0");
    refuse(CGP_OP_UPSAMPLE, (cgp__attributes){.windows = {.stride = {2, 1025}}}, IMAGE, F32(1),
           "expects a scale from 1 to 1024, got 1025");
    refuse(CGP_OP_UPSAMPLE, (cgp__attributes){.windows = {.stride = {1024, 2}}}, F32(2000, 7, 3),
           F32(1), "expects an output of at most 2^20 x 2^20 pixels, got 2048000 x 14");
    refuse(CGP_OP_UPSAMPLE, none, F32(6, 7), F32(1), "expects image of 3 dims, got [6, 7]");
}

TEST_CASE(padding_widens_and_crops) {
    const inferred out = infer(CGP_OP_PAD, padded(window(1, 1, 1, 1), 1, -2, -3, 4), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[5, 8, 3]");
    assert_int_equal(out.sizes.windows.top, 1);
    assert_int_equal(out.sizes.windows.left, -3);
    assert_int_equal(out.sizes.windows.stride_height * out.sizes.windows.stride_width, 1);
    refuse(CGP_OP_PAD, padded(window(1, 1, 1, 1), -3, -3, 0, 0), IMAGE, F32(1),
           "expects an image, padding included, of at least the kernel's 1 x 1 pixels, got 0 x "
           "7");
    refuse(CGP_OP_PAD, padded(window(1, 1, 1, 1), 0, 0, 0, 0), I32(6, 7, 3), F32(1),
           "expects f32 image, got i32");
}

TEST_CASE(concat_adds_the_widths) {
    const cgp_op_type inputs[] = {F32(2, 5, 3), F32(2, 5, 1), F32(2, 5, 7), F32(2, 5, 4)};
    for (int n = 2; n <= 4; n++) {
        static const char *const outputs[] = {"[2, 5, 4]", "[2, 5, 11]", "[2, 5, 15]"};
        cgp_op_attributes expected = {.parts = {.rows = 10}};
        inferred out;
        cgp_op_node node = {
            .op = &cgp__op_concat.op,
            .attributes = &(cgp__attributes){.parts = {.kind = CGP_OP_CONCAT, .n_inputs = n}}};
        memcpy(node.inputs, inputs, sizeof node.inputs);
        assert_ok(cgp__op_infer(CGP_OP_CONCAT, &node, &out.sizes));
        out.kind = CGP_OP_CONCAT;
        out.shapes = node.shapes;
        assert_type(&out.shapes.output, outputs[n - 2]);
        for (int k = 0; k < n; k++) {
            expected.parts.parts[k] = inputs[k].shape.dims[2];
            expected.in = expected.out += expected.parts.parts[k];
        }
        assert_attributes(&out, expected);
    }
    const cgp__attributes two = {.n_inputs = 2};
    refuse(CGP_OP_CONCAT, two, F32(2, 5, 3), F32(5, 2, 3),
           "expects inputs that differ in the last dimension only, got [2, 5, 3] and [5, 2, 3]");
    refuse(CGP_OP_CONCAT, two, F32(2, 5, 3), F32(10, 3),
           "expects inputs that differ in the last dimension only, got [2, 5, 3] and [10, 3]");
    refuse(CGP_OP_CONCAT, two, F32(2, 3), I32(2, 3), "expects f32 input, got i32");
    refuse(CGP_OP_CONCAT, two, F32(4, (int64_t)1 << 38), F32(4, 1),
           "expects output of at most 2^40 elements, got 4 x 274877906945");
}

TEST_CASE(relu_wants_a_slope_from_0_to_1) {
    const cgp_op_kind op = CGP_OP_RELU;
    const inferred out = infer(op, (cgp__attributes){.slope = 0.25}, F32(2, 3), F32(1));
    assert_type(&out.shapes.output, "[2, 3]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 2, .in = 3, .out = 3, .slope = 0.25f});
    refuse(op, (cgp__attributes){.slope = -0.5}, F32(3), F32(1),
           "expects a slope from 0 to 1, got -0.5");
    refuse(op, (cgp__attributes){.slope = 1.5}, F32(3), F32(1),
           "expects a slope from 0 to 1, got 1.5");
    refuse(op, (cgp__attributes){.slope = (double)NAN}, F32(3), F32(1),
           "expects a slope from 0 to 1, got nan");
}

TEST_CASE(dropout2d_wants_an_image) {
    const cgp_op_kind op = CGP_OP_DROPOUT2D;
    const inferred out = infer(op, (cgp__attributes){.p = 0.5}, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[6, 7, 3]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 42, .in = 3, .out = 3, .p = 0.5f});
    refuse(op, none, F32(7, 3), F32(1), "expects image of 3 dims, got [7, 3]");
    refuse(op, (cgp__attributes){.p = 1.0}, IMAGE, F32(1), "expects 0 <= p < 1, got 1");
}

TEST_CASE(bce_wants_targets_of_the_logits_shape) {
    const inferred out = infer(CGP_OP_BCE_WITH_LOGITS, none, IMAGE, IMAGE);
    assert_attributes(&out, (cgp_op_attributes){.rows = 42, .in = 3, .out = 3});
    assert_int_equal(out.shapes.n_saved, 0);
    refuse(CGP_OP_BCE_WITH_LOGITS, none, F32(2, 3), F32(3, 2),
           "expects logits and targets of one shape, got [2, 3] and [3, 2]");
    refuse(CGP_OP_BCE_WITH_LOGITS, none, F32(2, 3), I32(2, 3), "expects f32 targets, got i32");
}

static cgp__attributes beta(double value) {
    return (cgp__attributes){.element_loss = {.beta = value}};
}

TEST_CASE(mse_and_smooth_l1_want_targets_of_one_shape) {
    static const cgp_op_kind kinds[] = {CGP_OP_MSE, CGP_OP_SMOOTH_L1};
    for (int i = 0; i < 2; i++) {
        const inferred out = infer(kinds[i], beta(0.5 * i), IMAGE, IMAGE);
        assert_attributes(&out, element_loss_attributes(42, 3, 0.5 * i));
        assert_int_equal(out.shapes.n_saved, 0);
        refuse(kinds[i], none, F32(2, 3), F32(3, 2),
               "expects input and targets of one shape, got [2, 3] and [3, 2]");
        refuse(kinds[i], none, F32(2, 3), I32(2, 3), "expects f32 targets, got i32");
        refuse(kinds[i], none, I32(2, 3), F32(2, 3), "expects f32 input, got i32");
        const cgp_op_node node = {.inputs = {F32(2, 3), F32(2, 3)}};
        assert_int_equal(cgp__op_find(kinds[i])->op.count(&node, NULL, 4), 24);
    }
    refuse(CGP_OP_SMOOTH_L1, beta(-1), F32(2), F32(2),
           "expects beta >= 0 and finite as f32, got -1");
    refuse(CGP_OP_SMOOTH_L1, beta(1e39), F32(2), F32(2),
           "expects beta >= 0 and finite as f32, got 1e+39");
}

TEST_CASE(a_weighted_mean_takes_factors_and_weights) {
    const cgp_op_kind op = CGP_OP_WEIGHTED_MEAN;
    const cgp_op_type of[] = {F32(2, 3), F32(2, 3), F32(4)}, ids[] = {F32(3), F32(3), I32(3)};
    cgp__attributes a = {.kind = op, .n_inputs = 2};
    cgp_op_shapes shapes = {0};
    refuse(op, a, F32(2, 3), F32(3, 2),
           "expects input and factors of one shape, got [2, 3] and [3, 2]");
    refuse(op, a, F32(2, 3), I32(2, 3), "expects f32 factors, got i32");
    a.n_inputs = 3;
    const cgp_op_node node = {
        .op = &cgp__op_weighted_mean.op, .attributes = &a, .inputs = {of[0], of[1], of[2]}};
    assert_ok(node.op->infer(&a, of, &shapes));
    assert_int_equal(node.op->infer(&a, ids, &shapes), CGP_EINVAL);
    assert_string_equal(cgp_message(), "expects f32 weights, got i32");
    assert_int_equal(node.op->count(&node, NULL, 4), 24);
    const float weights[8] = {1, 0, 2, 0.5f, 0.25f, 0, 0, 3};
    assert_true(cgp__op_weighted_mean.sum_weights(&node, NULL, weights, 2) == 6.75);
}

TEST_CASE(cross_entropy_takes_weights_and_label_smoothing) {
    const cgp_op_kind op = CGP_OP_CROSS_ENTROPY;
    const cgp_op_type of[] = {F32(4, 3), I32(4), F32(4)}, other[] = {F32(4, 3), I32(4), F32(3)};
    cgp__attributes a = {.cross_entropy = {.kind = op, .n_inputs = 3, .ignore = 2}};
    cgp_op_node node = {.op = &cgp__op_cross_entropy.op, .attributes = &a};
    cgp_op_attributes sizes;
    a.cross_entropy.smoothing = 0.25;
    memcpy(node.inputs, of, sizeof of);
    assert_ok(cgp__op_infer(op, &node, &sizes));
    assert_true(sizes.cross_entropy.weighted == 1 && sizes.cross_entropy.smoothing == 0.25);
    const float weights[] = {1, 0.5f, 8, 0.25f};
    assert_true(cgp__op_cross_entropy.sum_weights(&node, (int32_t[]){0, 1, 2, 0}, weights, 1) ==
                1.75);
    assert_true(cgp__op_cross_entropy.sum_weights(&node, NULL, weights, 1) == 9.75);
    memcpy(node.inputs, other, sizeof other);
    assert_status(cgp__op_infer(op, &node, &sizes), CGP_EINVAL);
    assert_message("expects targets and weights of one shape, got [4] and [3]");
    a.cross_entropy.smoothing = 1;
    memcpy(node.inputs, of, sizeof of);
    assert_status(cgp__op_infer(op, &node, &sizes), CGP_EINVAL);
    assert_message("expects 0 <= smoothing < 1, got 1");
}

TEST_CASE(batch_norm_has_state_and_saves_one_of_each_channel) {
    const cgp_op_kind op = CGP_OP_BATCH_NORM;
    const cgp__attributes a = {.norm = {.eps = 1e-5, .momentum = 0.1}};
    inferred out = infer(op, a, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[6, 7, 3]");
    assert_attributes(
        &out,
        (cgp_op_attributes){
            .norm = {
                .rows = 42, .in = 3, .out = 3, .eps = 1e-5f, .momentum = 0.1f, .slope = 1.0f}});
    assert_int_equal(out.shapes.n_saved, 2);
    for (int k = 0; k < 2; k++) {
        assert_type(&out.shapes.saved[k], "[3]");
        assert_true(out.shapes.saved[k].whole);
    }
    assert_int_equal(out.shapes.n_parameters, 2);
    assert_param(&out, 0, "weight", "[3]");
    assert_param(&out, 1, "bias", "[3]");
    static const char *const states[] = {"running_mean", "running_var", "num_batches_tracked"};
    assert_int_equal(out.shapes.n_state, 3);
    for (int k = 0; k < 3; k++) {
        assert_string_equal(out.shapes.state[k].suffix, states[k]);
        assert_shape(&out.shapes.state[k].shape, k < 2 ? "[3]" : "[1]");
        assert_int_equal(out.shapes.state[k].dtype, k < 2 ? CGP_F32 : CGP_I32);
        assert_true(out.shapes.state[k].begin == (k == 1 ? 1.0f : 0.0f));
    }
    assert_int_equal(out.shapes.accumulator_bytes, cgp__running_stats_bytes(3));
    out = infer(op, a, F32(5), F32(1));
    assert_type(&out.shapes.output, "[5]");
}

TEST_CASE(norms_refuse) {
    refuse(CGP_OP_BATCH_NORM, none, IMAGE, F32(1), "expects eps > 0 and finite as f32, got 0");
    static const struct {
        double momentum;
        const char *text;
    } bad[] = {{1.5, "1.5"}, {-0.5, "-0.5"}, {(double)NAN, "nan"}, {-2.0, "-2"}};
    for (int i = 0; i < 4; i++) {
        char message[128];
        snprintf(message, sizeof message,
                 "expects a momentum from 0 to 1 (or -1, a cumulative average), got %s",
                 bad[i].text);
        refuse(CGP_OP_BATCH_NORM,
               (cgp__attributes){.norm = {.eps = 1, .momentum = bad[i].momentum}}, IMAGE, F32(1),
               message);
    }
    refuse(CGP_OP_INSTANCE_NORM, (cgp__attributes){.norm = {.eps = 1e60}}, IMAGE, F32(1),
           "expects eps > 0 and finite as f32, got 1e+60");
    refuse(CGP_OP_INSTANCE_NORM, (cgp__attributes){.norm = {.eps = 1}}, F32(7, 3), F32(1),
           "expects image of 3 dims, got [7, 3]");
    refuse(CGP_OP_GROUP_NORM, (cgp__attributes){.norm = {.eps = 1, .groups = 2}}, IMAGE, F32(1),
           "expects groups that divide C = 3, got 2");
    refuse(CGP_OP_GROUP_NORM, (cgp__attributes){.norm = {.eps = 1, .groups = 6}}, IMAGE, F32(1),
           "expects groups that divide C = 3, got 6");
    refuse(CGP_OP_GROUP_NORM, (cgp__attributes){.norm = {.eps = 1}}, IMAGE, F32(1),
           "expects groups that divide C = 3, got 0");
    refuse(CGP_OP_GROUP_NORM, (cgp__attributes){.norm = {.eps = 1, .groups = -3}}, IMAGE, F32(1),
           "expects groups that divide C = 3, got -3");
    refuse(CGP_OP_GROUP_NORM, (cgp__attributes){.norm = {.groups = 3}}, IMAGE, F32(1),
           "expects eps > 0 and finite as f32, got 0");
    refuse(CGP_OP_GROUP_NORM, (cgp__attributes){.norm = {.eps = 1, .groups = 3}}, I32(2, 3), F32(1),
           "expects f32 input, got i32");
}

TEST_CASE(mean_removes_a_dim) {
    const cgp_op_kind op = CGP_OP_MEAN;
    inferred out = infer(op, (cgp__attributes){.windows = {.dim = {1}}}, F32(2, 3, 4, 5), F32(1));
    assert_type(&out.shapes.output, "[2, 4, 5]");
    assert_attributes(&out, (cgp_op_attributes){.windows = {.rows = 2,
                                                            .in = 20,
                                                            .out = 20,
                                                            .height = 6,
                                                            .width = 1,
                                                            .out_height = 2,
                                                            .out_width = 1,
                                                            .kernel_height = 3,
                                                            .kernel_width = 1,
                                                            .stride_height = 3,
                                                            .stride_width = 1}});
    out = infer(op, (cgp__attributes){.windows = {.dim = {3}}}, F32(2, 3, 4, 5), F32(1));
    assert_type(&out.shapes.output, "[2, 3, 4]");
    assert_attributes(&out, (cgp_op_attributes){.windows = {.rows = 24,
                                                            .in = 1,
                                                            .out = 1,
                                                            .height = 24,
                                                            .width = 5,
                                                            .out_height = 24,
                                                            .out_width = 1,
                                                            .kernel_height = 1,
                                                            .kernel_width = 5,
                                                            .stride_height = 1,
                                                            .stride_width = 5}});
    out = infer(op, none, F32(7), F32(1));
    assert_type(&out.shapes.output, "[1]");
    out = infer(op, none, F32(6, 4), F32(1));
    assert_type(&out.shapes.output, "[4]");
    refuse(op, (cgp__attributes){.windows = {.dim = {2}}}, F32(2, 3), F32(1),
           "expects a dim from -2 to 1 of [2, 3], got 2");
    refuse(op, (cgp__attributes){.windows = {.dim = {-3}}}, F32(2, 3), F32(1),
           "expects a dim from -2 to 1 of [2, 3], got -3");
    out = infer(op, (cgp__attributes){.windows = {.dim = {-2}}}, F32(6, 4), F32(1));
    assert_type(&out.shapes.output, "[4]");
    refuse(op, (cgp__attributes){.windows = {.dim = {1}}}, F32(1 << 16, 1 << 15, 2), F32(1),
           "expects at most 2^31 - 1 elements in the dims up to 1, got 2147483648");
    refuse(op, none, I32(2, 3), F32(1), "expects f32 input, got i32");
    assert_true(flops_of(op, CGP_OP_FORWARD, none, F32(6, 4), F32(1)) == 24.0);
}

TEST_CASE(group_norm_saves_one_of_each_group_of_a_sample) {
    const cgp__attributes a = {.norm = {.eps = 1e-5, .groups = 2}};
    inferred out = infer(CGP_OP_GROUP_NORM, a, F32(6, 7, 8), F32(1));
    assert_type(&out.shapes.output, "[6, 7, 8]");
    assert_attributes(
        &out,
        (cgp_op_attributes){
            .norm = {.rows = 42, .in = 8, .out = 8, .groups = 2, .eps = 1e-5f, .slope = 1.0f}});
    assert_int_equal(out.shapes.n_state, 0);
    assert_int_equal(out.shapes.n_saved, 2);
    for (int k = 0; k < 2; k++) {
        assert_type(&out.shapes.saved[k], "[2]");
        assert_false(out.shapes.saved[k].whole);
    }
    assert_int_equal(out.shapes.n_parameters, 2);
    assert_param(&out, 0, "weight", "[8]");
    assert_param(&out, 1, "bias", "[8]");
    out = infer(CGP_OP_GROUP_NORM, a, F32(8), F32(1));
    assert_type(&out.shapes.output, "[8]");
}

TEST_CASE(instance_norm_saves_one_of_each_channel_of_a_sample) {
    const inferred out =
        infer(CGP_OP_INSTANCE_NORM, (cgp__attributes){.norm = {.eps = 1e-5}}, IMAGE, F32(1));
    assert_type(&out.shapes.output, "[6, 7, 3]");
    assert_int_equal(out.shapes.n_parameters + out.shapes.n_state, 0);
    assert_int_equal(out.shapes.n_saved, 2);
    for (int k = 0; k < 2; k++) {
        assert_type(&out.shapes.saved[k], "[3]");
        assert_false(out.shapes.saved[k].whole);
    }
}

/* For each output, a convolution has one multiply-add per element of the window. A multiply-add
 * counts as 2 operations. */
TEST_CASE(convolutions_dominate_the_cost) {
    const cgp__attributes a = padded(window(3, 5, 1, 1), 1, 1, 2, 2);
    for (int direction = 0; direction < CGP_OP_DIRECTIONS; direction++)
        assert_true(flops_of(CGP_OP_CONV2D, (cgp_op_direction)direction, a, IMAGE, F32(1)) ==
                    2.0 * 42 * 3 * 15 * 8);
    for (int kind = CGP_OP_BCE_WITH_LOGITS; kind < CGP_OP_KINDS; kind++) {
        if (kind != CGP_OP_CONV2D)
            assert_true(cgp__op_find((cgp_op_kind)kind)->flops[CGP_OP_BACKWARD_WEIGHT] == 0.0);
    }
    assert_true(flops_of(CGP_OP_MAX_POOL, CGP_OP_BACKWARD_WEIGHT, window(3, 5, 1, 1), IMAGE,
                         F32(1)) == 0.0);
}
