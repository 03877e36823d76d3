/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_shapes.c -- tests the shape rule of each op, the messages for refused inputs, and the
 * range of integers that an op accepts. Shapes do not include the number of samples, N. */
#include "shapes.h"

TEST_CASE(every_kind_has_its_table) {
    for (int kind = 0; kind < CGP_OP_KINDS; kind++)
        assert_non_null(cgp__op_find((cgp_op_kind)kind)->op.infer);
    assert_null(cgp__op_find(CGP_OP_CUSTOM)->op.infer);
}

TEST_CASE(embedding_appends_the_width) {
    const cgp__attributes of = {.size = 50, .width = 8};
    inferred out = infer(CGP_OP_EMBEDDING, of, I32(4, 6), F32(1));
    assert_type(&out.shapes.output, "[4, 6, 8]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 24, .in = 50, .out = 8});
    assert_int_equal(out.shapes.n_parameters, 1);
    assert_param(&out, 0, "weight", "[50, 8]");
    assert_int_equal(out.shapes.n_saved, 0);
    out = infer(CGP_OP_EMBEDDING, of, SCALAR(CGP_I32), F32(1));
    assert_type(&out.shapes.output, "[8]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 1, .in = 50, .out = 8});
}

TEST_CASE(embedding_refuses) {
    const cgp_op_kind op = CGP_OP_EMBEDDING;
    const cgp__attributes of = {.size = 50, .width = 8};
    refuse(op, of, F32(4), F32(1), "expects i32 ids, got f32");
    refuse(op, of, I32(1, 2, 3, 4, 5), F32(1), "expects ids of 0 to 4 dims, got [1, 2, 3, 4, 5]");
    refuse(op, of, I32(4, 0), F32(1), "expects ids of sizes >= 1, got [4, 0]");
    refuse(op, (cgp__attributes){.size = 0, .width = 8}, I32(4), F32(1),
           "expects vocabulary and width >= 1, got 0 and 8");
    refuse(op, (cgp__attributes){.size = 5, .width = -8}, I32(4), F32(1),
           "expects vocabulary and width >= 1, got 5 and -8");
    refuse(op, (cgp__attributes){.size = INT64_MAX, .width = 8}, I32(4), F32(1),
           "expects weight of at most 2^40 elements, got 9223372036854775807 x 8");
    refuse(op, (cgp__attributes){.size = 2, .width = (int64_t)1 << 39}, I32(4), F32(1),
           "expects output of at most 2^40 elements, got 4 x 549755813888");
}

TEST_CASE(position_keeps_the_shape) {
    const inferred out = infer(CGP_OP_POSITION, none, F32(6, 8), F32(1));
    assert_type(&out.shapes.output, "[6, 8]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 6, .in = 8, .out = 8});
    assert_int_equal(out.shapes.n_parameters, 1);
    assert_param(&out, 0, "weight", "[6, 8]");
    refuse(CGP_OP_POSITION, none, I32(6, 8), F32(1), "expects f32 input, got i32");
    refuse(CGP_OP_POSITION, none, F32(8), F32(1), "expects input of 2 dims, got [8]");
}

TEST_CASE(add_wants_one_shape) {
    const inferred out = infer(CGP_OP_ADD, none, F32(2, 3, 4), F32(2, 3, 4));
    assert_type(&out.shapes.output, "[2, 3, 4]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 6, .in = 4, .out = 4, .slope = 1});
    refuse(CGP_OP_ADD, none, F32(2, 3), F32(3, 2),
           "expects two inputs of one shape, got [2, 3] and [3, 2]");
    refuse(CGP_OP_ADD, none, F32(2, 3), I32(2, 3), "expects f32 input, got i32");
    refuse(CGP_OP_ADD, none, SCALAR(CGP_F32), F32(1), "expects input of 1 to 5 dims, got []");
}

TEST_CASE(products_and_differences_want_one_shape) {
    static const cgp_op_kind ops[] = {CGP_OP_MULTIPLY, CGP_OP_SUBTRACT};
    for (int i = 0; i < 2; i++) {
        const inferred out = infer(ops[i], none, F32(2, 3, 4), F32(2, 3, 4));
        assert_type(&out.shapes.output, "[2, 3, 4]");
        assert_attributes(&out, (cgp_op_attributes){.rows = 6, .in = 4, .out = 4});
        refuse(ops[i], none, F32(2, 3), F32(3, 2),
               "expects two inputs of one shape, got [2, 3] and [3, 2]");
        refuse(ops[i], none, F32(3), F32(1, 3),
               "expects two inputs of one shape, got [3] and [1, 3]");
        refuse(ops[i], none, F32(2, 3), I32(2, 3), "expects f32 input, got i32");
        refuse(ops[i], none, I32(2, 3), F32(2, 3), "expects f32 input, got i32");
    }
}

TEST_CASE(scale_takes_a_finite_factor) {
    const cgp_op_kind op = CGP_OP_SCALE;
    const inferred out = infer(op, (cgp__attributes){.slope = -0.5}, F32(2, 3), F32(1));
    assert_type(&out.shapes.output, "[2, 3]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 2, .in = 3, .out = 3, .slope = -0.5f});
    infer(op, none, F32(3), F32(1)); /* a factor of 0 is allowed */
    refuse(op, (cgp__attributes){.slope = (double)NAN}, F32(3), F32(1),
           "expects a factor that is finite as f32, got nan");
    refuse(op, (cgp__attributes){.slope = -1e39}, F32(3), F32(1),
           "expects a factor that is finite as f32, got -1e+39");
    refuse(op, none, I32(3), F32(1), "expects f32 input, got i32");
}

TEST_CASE(linear_replaces_the_width) {
    inferred out = infer(CGP_OP_LINEAR, (cgp__attributes){.linear = {.size = 7, .bias = true}},
                         F32(2, 3, 4), F32(1));
    assert_type(&out.shapes.output, "[2, 3, 7]");
    assert_attributes(&out,
                      (cgp_op_attributes){.linear = {.rows = 6, .in = 4, .out = 7, .has_bias = 1}});
    assert_int_equal(out.shapes.n_parameters, 2);
    assert_param(&out, 0, "weight", "[7, 4]");
    assert_param(&out, 1, "bias", "[7]");
    out = infer(CGP_OP_LINEAR, (cgp__attributes){.linear = {.size = 7, .transposed = true}}, F32(4),
                F32(1));
    assert_type(&out.shapes.output, "[7]");
    assert_attributes(
        &out, (cgp_op_attributes){.linear = {.rows = 1, .in = 4, .out = 7, .transposed = 1}});
    assert_int_equal(out.shapes.n_parameters, 1);
    assert_param(&out, 0, "weight", "[4, 7]");
}

TEST_CASE(linear_refuses) {
    const cgp_op_kind op = CGP_OP_LINEAR;
    const cgp__attributes of = {.linear = {.size = 7}};
    refuse(op, of, I32(4), F32(1), "expects f32 input, got i32");
    refuse(op, of, SCALAR(CGP_F32), F32(1), "expects input of 1 to 5 dims, got []");
    refuse(op, of, F32(1, 1, 1, 1, 1, 4), F32(1),
           "expects input of 1 to 5 dims, got [1, 1, 1, 1, 1, 4]");
    refuse(op, (cgp__attributes){.linear = {.size = 0}}, F32(4), F32(1), "expects out >= 1, got 0");
    refuse(op, of, F32((int64_t)1 << 31, (int64_t)1 << 31, 4), F32(1),
           "expects input of at most 2^40 elements, got [2147483648, 2147483648, 4]");
    refuse(op, of, F32(1 << 20, (1 << 20) + 1), F32(1),
           "expects input of at most 2^40 elements, got [1048576, 1048577]");
    infer(op, (cgp__attributes){.linear = {.size = 1}}, F32(1 << 20, 1 << 20), F32(1));
    refuse(op, (cgp__attributes){.linear = {.size = (int64_t)1 << 39}}, F32(4), F32(1),
           "expects weight of at most 2^40 elements, got 549755813888 x 4");
    refuse(op, (cgp__attributes){.linear = {.size = (int64_t)1 << 39}}, F32(4, 1), F32(1),
           "expects output of at most 2^40 elements, got 4 x 549755813888");
}

TEST_CASE(layer_norm_saves_mean_and_rstd) {
    const cgp_op_kind op = CGP_OP_LAYER_NORM;
    const inferred out = infer(op, (cgp__attributes){.norm = {.eps = 1e-5}}, F32(2, 3, 4), F32(1));
    assert_type(&out.shapes.output, "[2, 3, 4]");
    assert_attributes(&out,
                      (cgp_op_attributes){.norm = {.rows = 6, .in = 4, .out = 4, .eps = 1e-5f}});
    assert_int_equal(out.shapes.n_saved, 2);
    assert_type(&out.shapes.saved[0], "[2, 3]");
    assert_type(&out.shapes.saved[1], "[2, 3]");
    assert_int_equal(out.shapes.n_parameters, 2);
    assert_param(&out, 0, "weight", "[4]");
    assert_param(&out, 1, "bias", "[4]");
    refuse(op, none, F32(4), F32(1), "expects eps > 0 and finite as f32, got 0");
    refuse(op, (cgp__attributes){.norm = {.eps = (double)NAN}}, F32(4), F32(1),
           "expects eps > 0 and finite as f32, got nan");
    refuse(op, (cgp__attributes){.norm = {.eps = 1e-60}}, F32(4), F32(1),
           "expects eps > 0 and finite as f32, got 1e-60");
    refuse(op, (cgp__attributes){.norm = {.eps = 1e60}}, F32(4), F32(1),
           "expects eps > 0 and finite as f32, got 1e+60");
}

TEST_CASE(rms_norm_saves_rstd) {
    const cgp_op_kind op = CGP_OP_RMS_NORM;
    const inferred out = infer(op, (cgp__attributes){.norm = {.eps = 1e-5}}, F32(2, 3, 4), F32(1));
    assert_type(&out.shapes.output, "[2, 3, 4]");
    assert_attributes(&out,
                      (cgp_op_attributes){.norm = {.rows = 6, .in = 4, .out = 4, .eps = 1e-5f}});
    assert_int_equal(out.shapes.n_saved, 1);
    assert_type(&out.shapes.saved[0], "[2, 3]");
    assert_int_equal(out.shapes.n_parameters, 1);
    assert_param(&out, 0, "weight", "[4]");
    assert_int_equal(out.shapes.parameters[0].init.kind, CGP_INIT_ONE);
    assert_false(out.shapes.parameters[0].decays);
    refuse(op, none, F32(4), F32(1), "expects eps > 0 and finite as f32, got 0");
    refuse(op, (cgp__attributes){.norm = {.eps = 1e-5}}, I32(4), F32(1),
           "expects f32 input, got i32");
    refuse(op, (cgp__attributes){.norm = {.eps = 1e-5}}, SCALAR(CGP_F32), F32(1),
           "expects input of 1 to 5 dims, got []");
}

TEST_CASE(gelu_and_its_like_keep_the_shape) {
    static const cgp_op_kind forms[] = {CGP_OP_GELU,       CGP_OP_GELU_TANH, CGP_OP_SILU,
                                        CGP_OP_SIGMOID,    CGP_OP_TANH,      CGP_OP_SOFTMAX,
                                        CGP_OP_LOG_SOFTMAX};
    for (int i = 0; i < 7; i++) {
        refuse(forms[i], none, I32(3), F32(1), "expects f32 input, got i32");
        refuse(forms[i], none, SCALAR(CGP_F32), F32(1), "expects input of 1 to 5 dims, got []");
        const inferred out = infer(forms[i], none, F32(2, 3, 4), F32(1));
        assert_type(&out.shapes.output, "[2, 3, 4]");
        assert_attributes(&out, (cgp_op_attributes){.rows = 6, .in = 4, .out = 4});
        assert_int_equal(out.shapes.n_parameters + out.shapes.n_saved, 0);
    }
}

TEST_CASE(fused_attention_takes_three_widths) {
    const cgp_op_kind op = CGP_OP_ATTENTION;
    const cgp__attributes of = {
        .attention = {.heads = 4, .p = 0.25, .fused = true, .causal = true}};
    const inferred out = infer(op, of, F32(5, 24), F32(1));
    assert_type(&out.shapes.output, "[5, 8]");
    assert_attributes(&out, (cgp_op_attributes){.attention = {.rows = 5,
                                                              .in = 24,
                                                              .out = 8,
                                                              .heads = 4,
                                                              .kv_heads = 4,
                                                              .keys = 5,
                                                              .p = 0.25f,
                                                              .scale = (float)sqrt(0.5),
                                                              .fused = 1,
                                                              .causal = 1}});
    assert_int_equal(out.shapes.n_saved, 2);
    assert_type(&out.shapes.saved[0], "[4, 5]");
    assert_type(&out.shapes.saved[1], "[4, 5]");
    refuse(op, of, F32(24), F32(1), "expects input of 2 dims, got [24]");
    refuse(op, of, F32(5, 25), F32(1), "expects input of width 3 C (q, k, v side by side), got 25");
    refuse(op, of, F32(5, 18), F32(1), "expects heads that divide C = 6, got 4");
    refuse(op, (cgp__attributes){.attention = {.heads = 0, .fused = true}}, F32(5, 24), F32(1),
           "expects heads >= 1, got 0");
    refuse(op, (cgp__attributes){.attention = {.heads = 4, .p = 1.0, .fused = true}}, F32(5, 24),
           F32(1), "expects 0 <= p < 1, got 1");
}

TEST_CASE(attention_takes_queries_keys_and_values) {
    const cgp_op_kind op = CGP_OP_ATTENTION;
    const cgp__attributes of = {.attention = {.heads = 6, .kv_heads = 2, .scale = 0.25}};
    const inferred out = infer3(op, of, F32(5, 24), F32(7, 8), F32(7, 20));
    assert_type(&out.shapes.output, "[5, 60]");
    assert_attributes(&out, (cgp_op_attributes){.attention = {.rows = 5,
                                                              .in = 24,
                                                              .out = 60,
                                                              .heads = 6,
                                                              .kv_heads = 2,
                                                              .keys = 7,
                                                              .scale = 0.25f}});
    assert_int_equal(out.shapes.n_saved, 2);
    assert_type(&out.shapes.saved[0], "[6, 5]");
    assert_type(&out.shapes.saved[1], "[6, 5]");
    cgp__attributes window = {.attention = {.heads = 2, .causal = true, .window = 3}};
    assert_int_equal(infer3(op, window, F32(5, 8), F32(5, 8), F32(5, 8)).sizes.attention.window, 3);
    window.attention.window = 5; /* a window over all keys becomes 0 (no window) */
    assert_int_equal(infer3(op, window, F32(5, 8), F32(5, 8), F32(5, 8)).sizes.attention.window, 0);
    assert_int_equal(infer3(op, window, F32(5, 8), F32(5, 8), F32(5, 8)).sizes.attention.kv_heads,
                     2);
}

/* Run the shape rule of CACHED_ATTENTION on q, k, v and positions. */
static cgp_status infer_cached(const cgp__attributes *of, const cgp_op_type inputs[4],
                               inferred *out) {
    cgp__attributes given = *of;
    cgp_op_node node = {.op = &cgp__op_cached_attention.op, .attributes = &given};
    given.kind = out->kind = CGP_OP_CACHED_ATTENTION;
    memcpy(node.inputs, inputs, sizeof node.inputs);
    const cgp_status status = cgp__op_infer(CGP_OP_CACHED_ATTENTION, &node, &out->sizes);
    out->shapes = node.shapes;
    if (status == CGP_OK) assert_int_equal(cgp__op_cached_attention.cache(&node), 9 * (8 + 20));
    return status;
}

static void refuse_cached(cgp__attributes of, cgp_op_type q, cgp_op_type k, cgp_op_type v,
                          cgp_op_type positions, const char *why) {
    inferred out;
    assert_status(infer_cached(&of, (cgp_op_type[]){q, k, v, positions}, &out), CGP_EINVAL);
    assert_string_equal(cgp_message(), why);
}

TEST_CASE(attention_with_a_cache_takes_a_row_and_its_position) {
    const cgp__attributes of = {
        .attention = {.size = 9, .heads = 6, .kv_heads = 2, .scale = 0.25, .window = 4}};
    const cgp_op_type q = F32(1, 24), k = F32(1, 8), v = F32(1, 20), at = I32(1);
    cgp_op_type made = I32(1);
    cgp__attributes other = of;
    inferred out;
    assert_ok(infer_cached(&of, (cgp_op_type[]){q, k, v, at}, &out));
    assert_type(&out.shapes.output, "[1, 60]");
    assert_int_equal(out.shapes.n_saved, 0);
    assert_attributes(&out, (cgp_op_attributes){.attention = {.rows = 1,
                                                              .in = 24,
                                                              .out = 60,
                                                              .heads = 6,
                                                              .kv_heads = 2,
                                                              .keys = 9,
                                                              .window = 4,
                                                              .scale = 0.25f,
                                                              .causal = 1}});
    other.attention.window = 9; /* a window of the whole cache becomes 0 (none) */
    assert_ok(infer_cached(&other, (cgp_op_type[]){q, k, v, at}, &out));
    assert_int_equal(out.sizes.attention.window, 0);
    refuse_cached(of, F32(2, 24), k, v, at, "expects one row of q, got 2");
    refuse_cached(of, q, F32(2, 8), F32(2, 20), at, "expects one row of k, got 2");
    refuse_cached(of, q, k, v, F32(1), "expects i32 positions, got f32");
    refuse_cached(of, q, k, v, I32(2), "expects one position, got 2");
    made.upper_bound = 10;
    refuse_cached(of, q, k, v, made, "expects positions below the length 9, got up to 9");
    other.size = 0;
    refuse_cached(other, q, k, v, at, "expects a length of 1 to 2^31 - 1, got 0");
    other = of;
    other.attention.window = -1;
    refuse_cached(other, q, k, v, at,
                  "expects a window >= 0, and 0 where it is not causal, got -1");
}

TEST_CASE(attention_refuses) {
    const cgp_op_kind op = CGP_OP_ATTENTION;
    const cgp__attributes of = {.attention = {.heads = 6, .kv_heads = 2}};
    const cgp_op_type q = F32(5, 24), k = F32(7, 8), v = F32(7, 20);
    refuse3(op, (cgp__attributes){.attention = {.heads = -1}}, q, k, v,
            "expects heads >= 1, got -1");
    refuse3(op, (cgp__attributes){.attention = {.heads = 6, .kv_heads = 4}}, q, k, v,
            "expects kv_heads that divide heads = 6, got 4");
    refuse3(op, (cgp__attributes){.attention = {.heads = 6, .kv_heads = -2}}, q, k, v,
            "expects kv_heads that divide heads = 6, got -2");
    refuse3(op, of, I32(5, 24), k, v, "expects f32 q, got i32");
    refuse3(op, of, q, F32(8), v, "expects k of 2 dims, got [8]");
    refuse3(op, of, F32(5, 25), k, v, "expects q of a width that 6 heads divide, got 25");
    refuse3(op, of, q, F32(7, 9), v, "expects k of a width that 2 heads divide, got 9");
    refuse3(op, of, q, k, F32(7, 21), "expects v of a width that 2 heads divide, got 21");
    refuse3(op, of, q, F32(7, 10), v, "expects heads of k as wide as those of q, 4, got 5");
    refuse3(op, of, q, k, F32(8, 20), "expects as many rows of v as of k, 7, got 8");
    refuse3(op, (cgp__attributes){.attention = {.heads = 6, .kv_heads = 2, .causal = true}}, q, k,
            v, "expects as many keys as queries where it is causal, got 7 and 5");
    refuse3(op, (cgp__attributes){.attention = {.heads = 6, .kv_heads = 2, .window = 2}}, q, k, v,
            "expects a window >= 0, and 0 where it is not causal, got 2");
    refuse3(op, (cgp__attributes){.attention = {.heads = 2, .window = -1, .causal = true}},
            F32(5, 8), F32(5, 8), F32(5, 8),
            "expects a window >= 0, and 0 where it is not causal, got -1");
    refuse3(op, (cgp__attributes){.attention = {.heads = 6, .kv_heads = 2, .scale = -1}}, q, k, v,
            "expects a scale above 0 and finite as f32, or 0, got -1");
    refuse3(op, (cgp__attributes){.attention = {.heads = 6, .kv_heads = 2, .scale = 1e-60}}, q, k,
            v, "expects a scale above 0 and finite as f32, or 0, got 1e-60");
    refuse3(op, (cgp__attributes){.attention = {.heads = 6, .kv_heads = 2, .p = 1}}, q, k, v,
            "expects 0 <= p < 1, got 1");
    refuse3(op, (cgp__attributes){.attention = {.heads = 2}}, F32(INT64_C(1) << 31, 2), F32(7, 2),
            F32(7, 2), "expects heads x T < 2^32, got 2 x 2147483648");
    refuse3(op, (cgp__attributes){.attention = {.heads = 1}}, F32(5, 1), F32(INT64_C(1) << 35, 1),
            F32(INT64_C(1) << 35, 1), "expects at most 2^34 keys, got 34359738368");
    refuse3(op, (cgp__attributes){.attention = {.heads = 1 << 20, .kv_heads = 1}}, F32(1, 1 << 20),
            F32(1, 1), F32(1, 1 << 21),
            "expects heads of at most 2^40 elements, got 1048576 x 2097152");
    refuse3(op, (cgp__attributes){.attention = {.heads = 2, .kv_heads = 1}}, F32(1 << 20, 2),
            F32(1, 1), F32(1, 1 << 20),
            "expects output of at most 2^40 elements, got 1048576 x 2097152");
}

TEST_CASE(rotary_keeps_the_shape) {
    const cgp_op_kind op = CGP_OP_ROTARY;
    cgp__attributes of = {
        .rotary = {.heads = 2, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4}};
    inferred out = infer(op, of, F32(5, 24), F32(1));
    assert_type(&out.shapes.output, "[5, 24]");
    cgp_op_attributes sizes = {
        .rotary = {.rows = 5, .in = 24, .out = 24, .heads = 2, .rotated = 12, .theta = 10000.0f}};
    assert_attributes(&out, sizes); /* unused constants of scaling are 0 */
    of.rotary.scaling = CGP_ROTARY_LINEAR;
    out = infer(op, of, F32(5, 24), F32(1));
    sizes.rotary.scaling = CGP_ROTARY_LINEAR;
    sizes.rotary.factor = 8.0f;
    assert_attributes(&out, sizes);
    of.rotary.scaling = CGP_ROTARY_LLAMA3;
    of.rotary.rotated = 4;
    of.rotary.offset = 3;
    of.rotary.original_length = 8192;
    of.rotary.theta = 500000;
    of.rotary.interleaved = true;
    out = infer(op, of, F32(5, 24), F32(1));
    assert_attributes(&out, (cgp_op_attributes){.rotary = {.rows = 5,
                                                           .in = 24,
                                                           .out = 24,
                                                           .heads = 2,
                                                           .rotated = 4,
                                                           .offset = 3,
                                                           .theta = 500000.0f,
                                                           .factor = 8.0f,
                                                           .low_freq_factor = 1.0f,
                                                           .high_freq_factor = 4.0f,
                                                           .interleaved = 1,
                                                           .scaling = CGP_ROTARY_LLAMA3,
                                                           .original_length = 8192}});
}

TEST_CASE(rotary_refuses) {
    const cgp_op_kind op = CGP_OP_ROTARY;
    const cgp_op_type x = F32(5, 24);
    const cgp__attributes llama3 = {.rotary = {.heads = 2,
                                               .scaling = CGP_ROTARY_LLAMA3,
                                               .factor = 8,
                                               .low_freq_factor = 1,
                                               .high_freq_factor = 4,
                                               .original_length = 64}};
    cgp__attributes of = {.rotary = {.heads = 2}};
    refuse(op, of, F32(24), F32(1), "expects input of 2 dims, got [24]");
    refuse(op, (cgp__attributes){.rotary = {.heads = 0}}, x, F32(1), "expects heads >= 1, got 0");
    refuse(op, (cgp__attributes){.rotary = {.heads = 5}}, x, F32(1),
           "expects input of a width that 5 heads divide, got 24");
    refuse(op, (cgp__attributes){.rotary = {.heads = 24}}, x, F32(1),
           "expects an even number of columns to rotate, 2 to 1, got 1");
    of.rotary.rotated = 5;
    refuse(op, of, x, F32(1), "expects an even number of columns to rotate, 2 to 12, got 5");
    of.rotary.rotated = 14;
    refuse(op, of, x, F32(1), "expects an even number of columns to rotate, 2 to 12, got 14");
    of.rotary.rotated = -2;
    refuse(op, of, x, F32(1), "expects an even number of columns to rotate, 2 to 12, got -2");
    refuse(op, (cgp__attributes){.rotary = {.heads = 1}}, F32(5, 1026), F32(1),
           "expects an even number of columns to rotate, 2 to 1024, got 1026");
    refuse(op, (cgp__attributes){.rotary = {.heads = 2, .theta = 0.5}}, x, F32(1),
           "expects theta >= 1 and finite as f32, got 0.5");
    refuse(op, (cgp__attributes){.rotary = {.heads = 2, .theta = 1e60}}, x, F32(1),
           "expects theta >= 1 and finite as f32, got 1e+60");
    refuse(op, (cgp__attributes){.rotary = {.heads = 2, .scaling = 3}}, x, F32(1),
           "expects a scaling of 0 to 2, got 3");
    refuse(op, (cgp__attributes){.rotary = {.heads = 2, .scaling = CGP_ROTARY_LINEAR}}, x, F32(1),
           "expects a factor >= 1 and finite as f32, got 0");
    of = llama3;
    of.rotary.high_freq_factor = 1;
    refuse(op, of, x, F32(1), "expects 0 < low_freq_factor < high_freq_factor, got 1 and 1");
    of = llama3;
    of.rotary.original_length = (1 << 24) + 1;
    refuse(op, of, x, F32(1), "expects original_max_position of 1 to 2^24, got 16777217");
    of = llama3;
    of.rotary.offset = -1;
    refuse(op, of, x, F32(1), "expects an offset of 0 to 2^40, got -1");
}

TEST_CASE(dropout_takes_a_probability_below_1) {
    const cgp_op_kind op = CGP_OP_DROPOUT;
    const inferred out = infer(op, (cgp__attributes){.p = 0.5}, F32(2, 3), F32(1));
    assert_type(&out.shapes.output, "[2, 3]");
    assert_attributes(&out, (cgp_op_attributes){.rows = 2, .in = 3, .out = 3, .p = 0.5f});
    refuse(op, (cgp__attributes){.p = -0.1}, F32(3), F32(1), "expects 0 <= p < 1, got -0.1");
    refuse(op, (cgp__attributes){.p = 1.0}, F32(3), F32(1), "expects 0 <= p < 1, got 1");
    refuse(op, (cgp__attributes){.p = (double)NAN}, F32(3), F32(1), "expects 0 <= p < 1, got nan");
    /* 0.9999999999 is below 1 as a double, but becomes 1 as a float */
    refuse(op, (cgp__attributes){.p = 0.9999999999}, F32(3), F32(1), "expects 0 <= p < 1, got 1");
    refuse(op, none, F32((int64_t)1 << 35), F32(1),
           "expects a sample of at most 2^34 elements, got 34359738368");
}

TEST_CASE(cross_entropy_saves_maxima_and_log_sums) {
    const cgp_op_kind op = CGP_OP_CROSS_ENTROPY;
    const cgp__attributes of = {.cross_entropy = {.n_inputs = 2, .ignore = -100}};
    inferred out = infer(op, of, F32(5, 11), I32(5));
    assert_attributes(&out, (cgp_op_attributes){
                                .cross_entropy = {.rows = 5, .in = 11, .out = 11, .ignore = -100}});
    assert_int_equal(out.shapes.n_saved, 2);
    assert_type(&out.shapes.saved[0], "[5]");
    assert_type(&out.shapes.saved[1], "[5]");
    out = infer(op, of, F32(11), I32(1));
    assert_attributes(&out, (cgp_op_attributes){
                                .cross_entropy = {.rows = 1, .in = 11, .out = 11, .ignore = -100}});
    out = infer(op, of, F32(11), SCALAR(CGP_I32));
    assert_attributes(&out, (cgp_op_attributes){
                                .cross_entropy = {.rows = 1, .in = 11, .out = 11, .ignore = -100}});
    refuse(op, of, I32(5, 11), I32(5), "expects f32 logits, got i32");
    refuse(op, of, F32(5, 11), F32(5), "expects i32 targets, got f32");
    refuse(op, of, F32(5, 11), I32(6), "expects targets [5] for logits [5, 11], got [6]");
    refuse(op, of, F32(11), I32(2), "expects targets [1] for logits [11], got [2]");
    refuse(op, of, F32(5, 11), I32(5, 1), "expects targets [5] for logits [5, 11], got [5, 1]");
}

/* Return the index of the first integer that is out of range for an op with 7 ids or classes. */
static int64_t find_invalid(cgp_op_kind kind, int k, const int32_t *data, int64_t count) {
    const cgp__attributes attributes = {
        .cross_entropy = {.kind = kind, .size = 7, .width = 1, .ignore = -1}};
    const bool ids = kind == CGP_OP_EMBEDDING;
    cgp_op_node node = {.op = &cgp__op_find(kind)->op,
                        .attributes = &attributes,
                        .inputs = {ids ? I32(4) : F32(4, 7), I32(4)}};
    int64_t high = -1;
    const int64_t bad = cgp__op_find_invalid(kind, &node, k, data, count, &high);
    if (bad >= 0) assert_int_equal(high, 7);
    return bad;
}

static void assert_valid(cgp_op_kind kind, int k, const int32_t *data, int64_t count) {
    assert_int_equal(find_invalid(kind, k, data, count), -1);
}

static void assert_bad(cgp_op_kind kind, int k, const int32_t *data, int64_t count, int64_t at) {
    assert_int_equal(find_invalid(kind, k, data, count), at);
}

TEST_CASE(integers_out_of_range_are_found) {
    assert_valid(CGP_OP_EMBEDDING, 0, (int32_t[]){0, 6, 3}, 3);
    assert_bad(CGP_OP_EMBEDDING, 0, (int32_t[]){0, 6, 7}, 3, 2);
    assert_bad(CGP_OP_EMBEDDING, 0, (int32_t[]){0, -1, 7}, 3, 1);
    assert_valid(CGP_OP_CROSS_ENTROPY, 1, (int32_t[]){0, -1, 6}, 3);
    assert_bad(CGP_OP_CROSS_ENTROPY, 1, (int32_t[]){0, -2, 6}, 3, 1);
    assert_bad(CGP_OP_CROSS_ENTROPY, 1, (int32_t[]){0, -1, 7}, 3, 2);
    assert_valid(CGP_OP_CROSS_ENTROPY, 0, (int32_t[]){-9, 99}, 2); /* logits are not integers */
    assert_valid(CGP_OP_CACHED_ATTENTION, 3, (int32_t[]){0, 6, 3}, 3);
    assert_bad(CGP_OP_CACHED_ATTENTION, 3, (int32_t[]){0, 6, 7}, 3, 2);
    assert_bad(CGP_OP_CACHED_ATTENTION, 3, (int32_t[]){-1}, 1, 0);
    for (int kind = 0; kind < CGP_OP_KINDS; kind++) {
        if (kind != CGP_OP_EMBEDDING && kind != CGP_OP_CROSS_ENTROPY &&
            kind != CGP_OP_CACHED_ATTENTION)
            assert_null(cgp__op_find((cgp_op_kind)kind)->op.upper_bound);
    }
}

/* Return the number of targets that are not ignored, in n samples of one row each. */
static int64_t count_targets(int64_t ignore, const int32_t *targets, int64_t n) {
    const cgp__attributes attributes = {
        .cross_entropy = {.kind = CGP_OP_CROSS_ENTROPY, .ignore = ignore}};
    const cgp_op_node node = {.attributes = &attributes, .inputs = {F32(11), I32(1)}};
    return cgp__op_cross_entropy.op.count(&node, targets, n);
}

TEST_CASE(targets_that_are_not_ignored_are_counted) {
    const int32_t targets[] = {3, -100, 0, 3, -100};
    assert_int_equal(count_targets(-100, targets, 5), 3);
    assert_int_equal(count_targets(3, targets, 5), 3);
    assert_int_equal(count_targets((int64_t)1 << 40, targets, 5), 5);
    assert_int_equal(count_targets(-100, targets, 0), 0);
    /* NULL means that the graph computes the targets; then no target is ignored */
    assert_int_equal(count_targets(-100, NULL, 5), 5);
    const float fractions[] = {0.0f, 0.5f, -100.0f};
    const cgp_op_node bce = {.inputs = {F32(3), F32(3)}};
    assert_int_equal(cgp__op_bce_with_logits.op.count(&bce, fractions, 1), 3);
}

/* --- initialization by fan --- */

static void assert_init(const inferred *out, int k, cgp_init_kind kind, double scale) {
    const cgp_init *init = &out->shapes.parameters[k].init;
    assert_int_equal(init->kind, kind);
    if (!(fabs(init->scale - scale) <= 1e-12 * scale))
        fail_msg("parameter %d: scale is %.17g, expected %.17g", k, init->scale, scale);
}

/* Compare initial scales with PyTorch's formulas for a weight with 12 inputs and 7 outputs, in both
 * layouts. The bias uses the weight's fan-in and fan-out. */
TEST_CASE(fans_follow_from_the_layout) {
    for (int transposed = 0; transposed < 2; transposed++) {
        cgp__attributes a = {.linear = {.size = 7, .bias = true, .transposed = transposed}};
        a.init[0] = (cgp_init){CGP_INIT_XAVIER_UNIFORM, 1.5};
        a.init[1] = (cgp_init){CGP_INIT_KAIMING_NORMAL, 2};
        inferred out = infer(CGP_OP_LINEAR, a, F32(3, 12), F32(1));
        assert_init(&out, 0, CGP_INIT_UNIFORM, 1.5 * sqrt(6.0 / 19));
        assert_init(&out, 1, CGP_INIT_NORMAL, 2 / sqrt(12.0));
        a.init[0] = (cgp_init){CGP_INIT_KAIMING_UNIFORM, sqrt(2)};
        a.init[1] = (cgp_init){CGP_INIT_XAVIER_NORMAL, 3};
        out = infer(CGP_OP_LINEAR, a, F32(3, 12), F32(1));
        assert_init(&out, 0, CGP_INIT_UNIFORM, sqrt(6.0 / 12));
        assert_init(&out, 1, CGP_INIT_NORMAL, 3 * sqrt(2.0 / 19));
    }
}

/* Test a convolution from 5 to 7 channels with windows of 3 x 2 pixels. Also test tables with 50
 * and 9 rows of 8 columns. Kinds of initialization that do not depend on fan-in or fan-out are
 * unchanged. */
TEST_CASE(fans_count_windows_and_tables) {
    const cgp_init by_in = {CGP_INIT_KAIMING_UNIFORM, 1}, by_both = {CGP_INIT_XAVIER_NORMAL, 1};
    cgp__attributes a = {
        .windows = {
            .size = 7, .bias = true, .kernel = {3, 2}, .stride = {1, 1}, .init = {by_in, by_both}}};
    inferred out = infer(CGP_OP_CONV2D, a, F32(4, 6, 5), F32(1));
    assert_init(&out, 0, CGP_INIT_UNIFORM, sqrt(3.0 / 30));
    assert_init(&out, 1, CGP_INIT_NORMAL, sqrt(2.0 / (30 + 42)));
    a = (cgp__attributes){.size = 50, .width = 8, .init = {by_in}};
    out = infer(CGP_OP_EMBEDDING, a, I32(4), F32(1));
    assert_init(&out, 0, CGP_INIT_UNIFORM, sqrt(3.0 / 8));
    out = infer(CGP_OP_POSITION, (cgp__attributes){.init = {by_both}}, F32(9, 8), F32(1));
    assert_init(&out, 0, CGP_INIT_NORMAL, sqrt(2.0 / 17));
    a = (cgp__attributes){.linear = {.size = 7, .init = {{CGP_INIT_TRUNCATED_NORMAL, 0.02}}}};
    out = infer(CGP_OP_LINEAR, a, F32(12), F32(1));
    assert_init(&out, 0, CGP_INIT_TRUNCATED_NORMAL, 0.02);
}

/* Plans rely on these invariants: only losses count targets, backward does not read an operand that
 * may have been overwritten, and each op has one output y. */
TEST_CASE(tables_are_consistent) {
    for (int kind = 0; kind < CGP_OP_KINDS; kind++) {
        const cgp__op *op = cgp__op_find((cgp_op_kind)kind);
        const uint32_t inputs = (1u << op->op.n_inputs) - 1;
        assert_int_equal(
            (op->op.input_needs_x | op->op.weight_needs_x | op->op.overwrites) & ~inputs, 0);
        assert_int_equal(op->op.is_loss, op->op.count != NULL);
        assert_int_equal(op->op.is_loss, op->dx == CGP__DX_OVER_X);
        if (op->dx == CGP__DX_SAME)
            assert_int_equal(op->op.input_needs_x | op->op.input_needs_saved | op->op.input_needs_y,
                             0);
    }
}

/* A head has 4 columns in q and k, and 10 in v. For each query head, a pair of query and key takes
 * 4 + 10 multiply-adds in forward and 3 x 4 + 2 x 10 in backward, and 12 operations for the
 * softmax. */
static void attention_counts_the_pairs_that_exist(void) {
    static const struct {
        cgp__attributes of;
        int64_t queries, keys;
        double pairs;
    } uses[] = {{{.attention = {.heads = 6, .kv_heads = 2}}, 5, 7, 35},
                {{.attention = {.heads = 6, .kv_heads = 2, .causal = true}}, 5, 5, 15},
                {{.attention = {.heads = 6, .kv_heads = 2, .causal = true, .window = 9}}, 5, 5, 15},
                {{.attention = {.heads = 6, .kv_heads = 2, .causal = true, .window = 2}}, 5, 5, 9},
                {{.attention = {.heads = 6, .kv_heads = 2, .causal = true, .window = 1}}, 5, 5, 5}};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const double expected[] = {6 * (2.0 * 14 + 12), 6 * (2.0 * 32 + 12), 0.0};
        for (int d = 0; d < CGP_OP_DIRECTIONS; d++)
            assert_true(flops_of3(CGP_OP_ATTENTION, (cgp_op_direction)d, uses[i].of,
                                  F32(uses[i].queries, 24), F32(uses[i].keys, 8),
                                  F32(uses[i].keys, 20)) == uses[i].pairs * expected[d]);
    }
}

TEST_CASE(gemm_dominates_the_cost) {
    for (int direction = 0; direction < CGP_OP_DIRECTIONS; direction++)
        assert_true(flops_of(CGP_OP_LINEAR, (cgp_op_direction)direction,
                             (cgp__attributes){.linear = {.size = 7}}, F32(2, 3, 4),
                             F32(1)) == 2.0 * 6 * 4 * 7);
    /* T = 3 has 6 causal pairs of query and key. Each pair takes 2 x 8 multiply-adds in forward and
     * 5 x 8 in backward, plus 12 operations for each of the 2 heads. */
    const cgp__attributes heads = {.attention = {.heads = 2, .fused = true, .causal = true}};
    const double expected[] = {6.0 * (2 * 2 * 8 + 24), 6.0 * (2 * 5 * 8 + 24), 0.0};
    for (int direction = 0; direction < CGP_OP_DIRECTIONS; direction++)
        assert_true(flops_of(CGP_OP_ATTENTION, (cgp_op_direction)direction, heads, F32(3, 24),
                             F32(1)) == expected[direction]);
    attention_counts_the_pairs_that_exist();
    assert_true(flops_of(CGP_OP_ADD, CGP_OP_FORWARD, none, F32(6, 4), F32(6, 4)) == 24.0);
}
