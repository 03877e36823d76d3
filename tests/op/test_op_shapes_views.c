/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_shapes_views.c -- tests the shape rules of ops that only move elements, and of products
 * of values. The tests check the resulting shapes, and the messages for refused shapes. Shapes do
 * not include the number of samples, N. */
#include "shapes.h"

#define IMAGE F32(6, 7, 3)

/* --- RESHAPE --- */

#define TO(...)                                                                                    \
    (cgp__attributes) {                                                                            \
        .parts = {                                                                                 \
            .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                     \
            .dims = {__VA_ARGS__}                                                                  \
        }                                                                                          \
    }

TEST_CASE(reshape_keeps_the_elements) {
    const cgp_op_attributes all = {.parts = {.rows = 1, .in = 126, .out = 126}};
    inferred out = infer(CGP_OP_RESHAPE, TO(-1), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[126]");
    assert_attributes(&out, all);
    out = infer(CGP_OP_RESHAPE, TO(2, -1, 9), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[2, 7, 9]");
    assert_attributes(&out, all);
    out = infer(CGP_OP_RESHAPE, TO(3, 7, 6), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[3, 7, 6]");
    out = infer(CGP_OP_RESHAPE, TO(126, -1, 1), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[126, 1, 1]");
}

TEST_CASE(reshape_refuses) {
    const cgp_op_kind op = CGP_OP_RESHAPE;
    const int64_t large = (int64_t)1 << 32;
    refuse(op, TO(126), I32(6, 7, 3), F32(1), "expects f32 input, got i32");
    refuse(op, TO(125), IMAGE, F32(1), "expects dims of the 126 elements of [6, 7, 3], got [125]");
    refuse(op, TO(5, -1), IMAGE, F32(1),
           "expects dims of the 126 elements of [6, 7, 3], got [5, -1]");
    refuse(op, TO(252, -1), IMAGE, F32(1),
           "expects dims of the 126 elements of [6, 7, 3], got [252, -1]");
    refuse(op, TO(-1, 7, -1), IMAGE, F32(1),
           "expects dims >= 1, and at most one of -1, got [-1, 7, -1]");
    refuse(op, TO(126, 0), IMAGE, F32(1), "expects dims >= 1, and at most one of -1, got [126, 0]");
    refuse(op, TO(-126, -1), IMAGE, F32(1),
           "expects dims >= 1, and at most one of -1, got [-126, -1]");
    refuse(op, TO(large, large, -1), IMAGE, F32(1),
           "expects dims of at most 2^40 elements, got [4294967296, 4294967296, -1]");
    refuse(op, none, IMAGE, F32(1), "expects 1 to 5 dims, got 0");
    refuse(op, TO(6, 7, 3, 1, 1, 1), IMAGE, F32(1), "expects 1 to 5 dims, got 6");
    refuse(op, (cgp__attributes){.parts = {.rank = -1}}, IMAGE, F32(1),
           "expects 1 to 5 dims, got -1");
}

/* --- TRANSPOSE --- */

static inferred transposed(cgp_op_type x, int dim0, int dim1) {
    return infer(CGP_OP_TRANSPOSE, (cgp__attributes){.parts = {.dim = {dim0, dim1}}}, x, F32(1));
}

TEST_CASE(transpose_exchanges_two_dims) {
    inferred out = transposed(F32(2, 3, 4, 5, 6), 1, 3);
    assert_type(&out.shapes.output, "[2, 5, 4, 3, 6]");
    const cgp_op_attributes middle = {
        .parts = {.rows = 120, .in = 6, .out = 6, .parts = {3, 4, 5, 6}}};
    assert_attributes(&out, middle);
    out = transposed(F32(2, 3, 4, 5, 6), -2, -4);
    assert_type(&out.shapes.output, "[2, 5, 4, 3, 6]");
    assert_attributes(&out, middle);
    out = transposed(F32(2, 3, 4), 0, -1);
    assert_type(&out.shapes.output, "[4, 3, 2]");
    assert_attributes(
        &out, (cgp_op_attributes){.parts = {.rows = 12, .in = 2, .out = 2, .parts = {2, 3, 4, 1}}});
    out = transposed(F32(2, 3, 4), 1, -2);
    assert_type(&out.shapes.output, "[2, 3, 4]");
    assert_attributes(
        &out, (cgp_op_attributes){.parts = {.rows = 6, .in = 4, .out = 4, .parts = {3, 1, 1, 4}}});
}

TEST_CASE(transpose_refuses) {
    const cgp_op_kind op = CGP_OP_TRANSPOSE;
    refuse(op, (cgp__attributes){.parts = {.dim = {0, 3}}}, IMAGE, F32(1),
           "expects a dim from -3 to 2 of [6, 7, 3], got 3");
    refuse(op, (cgp__attributes){.parts = {.dim = {-4, 0}}}, IMAGE, F32(1),
           "expects a dim from -3 to 2 of [6, 7, 3], got -4");
    refuse(op, (cgp__attributes){.parts = {.dim = {INT32_MIN, INT32_MAX}}}, IMAGE, F32(1),
           "expects a dim from -3 to 2 of [6, 7, 3], got -2147483648");
    refuse(op, none, I32(6, 7), F32(1), "expects f32 input, got i32");
}

/* --- SLICE --- */

static cgp__attributes part(int dim, int64_t begin, int64_t end) {
    return (cgp__attributes){.parts = {.dim = {dim}, .begin = begin, .end = end}};
}

TEST_CASE(slice_takes_a_part_of_a_dim) {
    inferred out = infer(CGP_OP_SLICE, part(1, 2, 6), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[6, 4, 3]");
    assert_attributes(&out,
                      (cgp_op_attributes){.parts = {.rows = 6, .in = 21, .out = 12, .parts = {6}}});
    out = infer(CGP_OP_SLICE, part(-1, 0, 1), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[6, 7, 1]");
    assert_attributes(&out, (cgp_op_attributes){.parts = {.rows = 42, .in = 3, .out = 1}});
    out = infer(CGP_OP_SLICE, part(-3, 5, 6), IMAGE, F32(1));
    assert_type(&out.shapes.output, "[1, 7, 3]");
    assert_attributes(
        &out, (cgp_op_attributes){.parts = {.rows = 1, .in = 126, .out = 21, .parts = {105}}});
}

TEST_CASE(slice_refuses) {
    const cgp_op_kind op = CGP_OP_SLICE;
    refuse(op, part(1, 3, 3), IMAGE, F32(1), "expects 0 <= begin < end <= 7, got 3 and 3");
    refuse(op, part(1, -1, 3), IMAGE, F32(1), "expects 0 <= begin < end <= 7, got -1 and 3");
    refuse(op, part(1, 2, 8), IMAGE, F32(1), "expects 0 <= begin < end <= 7, got 2 and 8");
    refuse(op, part(1, INT64_MIN, INT64_MAX), IMAGE, F32(1),
           "expects 0 <= begin < end <= 7, got -9223372036854775808 and 9223372036854775807");
    refuse(op, part(3, 0, 1), IMAGE, F32(1), "expects a dim from -3 to 2 of [6, 7, 3], got 3");
    refuse(op, part(0, 0, 1), I32(6), F32(1), "expects f32 input, got i32");
}

/* --- MATMUL --- */

static cgp__attributes transposing(bool a, bool b) {
    return (cgp__attributes){.matmul = {.transpose = {a, b}}};
}

TEST_CASE(matmul_multiplies_the_last_two_dims) {
    static const cgp_op_attributes of = {.matmul = {.rows = 30, .in = 4, .out = 7, .heads = 6}};
    for (int t = 0; t < 4; t++) {
        const cgp_op_type a = t & 1 ? F32(2, 3, 4, 5) : F32(2, 3, 5, 4);
        const cgp_op_type b = t & 2 ? F32(2, 3, 7, 4) : F32(2, 3, 4, 7);
        const inferred out = infer(CGP_OP_MATMUL, transposing(t & 1, t & 2), a, b);
        cgp_op_attributes expected = of;
        expected.matmul.transposed[0] = t & 1;
        expected.matmul.transposed[1] = t >> 1;
        assert_type(&out.shapes.output, "[2, 3, 5, 7]");
        assert_attributes(&out, expected);
        assert_int_equal(out.shapes.n_parameters + out.shapes.n_saved, 0);
    }
    const inferred out = infer(CGP_OP_MATMUL, none, F32(5, 4), F32(4, 1));
    assert_type(&out.shapes.output, "[5, 1]");
    assert_attributes(&out,
                      (cgp_op_attributes){.matmul = {.rows = 5, .in = 4, .out = 1, .heads = 1}});
}

TEST_CASE(matmul_refuses) {
    const cgp_op_kind op = CGP_OP_MATMUL;
    refuse(op, none, F32(4), F32(4, 5), "expects input of 2 to 5 dims, got [4]");
    refuse(op, none, F32(5, 4), I32(4, 5), "expects f32 input, got i32");
    refuse(op, none, F32(2, 5, 4), F32(3, 4, 5),
           "expects inputs that differ in their last two dimensions only, got [2, 5, 4] and [3, "
           "4, 5]");
    refuse(op, none, F32(2, 5, 4), F32(4, 5),
           "expects inputs that differ in their last two dimensions only, got [2, 5, 4] and [4, "
           "5]");
    refuse(op, none, F32(5, 4), F32(5, 4),
           "expects as many columns of a as rows of b, got 4 of [5, 4] and 5 of [5, 4]");
    refuse(op, transposing(true, true), F32(5, 4), F32(5, 4),
           "expects as many columns of a as rows of b, got 5 of [5, 4] transposed and 4 of [5, 4] "
           "transposed");
    refuse(op, none, F32(8, 1 << 20, 1), F32(8, 1, 1 << 20),
           "expects output of at most 2^40 elements, got 8388608 x 1048576");
}

TEST_CASE(matmul_costs_its_products) {
    const cgp_op_type a = F32(6, 5, 4), b = F32(6, 4, 7);
    const double each = 2.0 * 6 * 5 * 4 * 7;
    assert_true(flops_of(CGP_OP_MATMUL, CGP_OP_FORWARD, none, a, b) == each);
    assert_true(flops_of(CGP_OP_MATMUL, CGP_OP_BACKWARD_INPUT, none, a, b) == 2 * each);
    assert_true(flops_of(CGP_OP_MATMUL, CGP_OP_BACKWARD_WEIGHT, none, a, b) == 0);
}
