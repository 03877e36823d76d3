/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_reference.c -- on ref and cpu, ops give the same values and gradients as PyTorch.
 * tools/reference_ops.py computed the expected numbers in double. Most results are compared up to
 * rounding. Ops that only move elements or multiply small integers must match exactly. */
#include "harness.h"
#include "reference.h"

static void fill(float *to, const json_t *from) {
    for (size_t i = 0; i < json_array_size(from); i++)
        to[i] = (float)json_number_value(json_array_get(from, i));
}

/* Compare with a tolerance of `units` float roundings of (the result's magnitude + 1). The 1 is
 * added because gradients may be near 0. */
static void compare(const char *op, const char *name, const float *ours, const json_t *theirs,
                    double units) {
    for (size_t i = 0; i < json_array_size(theirs); i++) {
        const double expected = json_number_value(json_array_get(theirs, i));
        const double bound = units * 6e-8 * (fabs(expected) + 1.0);
        if (!(fabs((double)ours[i] - expected) <= bound))
            fail_msg("%s: %s[%zu] is %.9g, PyTorch's %.9g", op, name, i, (double)ours[i], expected);
    }
}

static void compare_op(const runner *on, const json_t *numbers, cgp_op_kind kind) {
    const char *name = cgp__op_find(kind)->op.name;
    const json_t *x = json_object_get(numbers, "x"), *expected = json_object_get(numbers, name);
    op_case c = {
        .op = kind, .attributes = plain_attributes(1, (int64_t)json_array_size(x)), .n = 1};
    uint64_t seed = 1;
    operands o;
    c.attributes.slope = kind == CGP_OP_SCALE ? -1.25f : 0.0f;
    if (!expected) fail_msg("%s: no numbers (tools/reference_ops.py)", name);
    operands_create(&o, &c, &seed);
    fill(o.at[SLOT_X], x);
    fill(o.at[SLOT_DY], json_object_get(numbers, "dy"));
    op_run(on, &o, CGP_OP_FORWARD);
    compare(name, "y", o.at[SLOT_Y], json_object_get(expected, "y"), 8);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    compare(name, "dx", o.at[SLOT_DX], json_object_get(expected, "dx"), 8);
    operands_destroy(&o);
}

/* --- attention and rotary embeddings --- */

static int64_t integer(const json_t *from, const char *name) {
    return (int64_t)json_number_value(json_object_get(from, name));
}

static double real(const json_t *from, const char *name) {
    return json_number_value(json_object_get(from, name));
}

static op_case attention_case(const json_t *from) {
    const int64_t kv_heads = integer(from, "kv_heads"), group = integer(from, "heads") / kv_heads;
    op_case c = {.op = CGP_OP_ATTENTION, .n = 1};
    c.attributes = grouped_attributes(integer(from, "rows"), integer(from, "keys"), kv_heads, group,
                                      integer(from, "depth"), integer(from, "width"), 0);
    c.attributes.attention.causal = json_is_true(json_object_get(from, "causal"));
    c.attributes.attention.window = integer(from, "window");
    if (real(from, "scale") > 0) c.attributes.attention.scale = (float)real(from, "scale");
    return c;
}

static op_case rotary_case(const json_t *from) {
    const int scaling = (int)integer(from, "scaling");
    op_case c = {.op = CGP_OP_ROTARY, .n = 1};
    c.attributes = rotary_attributes(integer(from, "rows"), integer(from, "heads"),
                                     integer(from, "depth"), integer(from, "width"),
                                     json_is_true(json_object_get(from, "interleaved")), scaling);
    c.attributes.rotary.theta = (float)real(from, "theta");
    c.attributes.rotary.offset = integer(from, "offset");
    if (scaling != CGP_ROTARY_UNSCALED) c.attributes.rotary.factor = (float)real(from, "factor");
    if (scaling != CGP_ROTARY_LLAMA3) return c;
    c.attributes.rotary.low_freq_factor = (float)real(from, "low");
    c.attributes.rotary.high_freq_factor = (float)real(from, "high");
    c.attributes.rotary.original_length = (int32_t)integer(from, "length");
    return c;
}

/* A slot of the operands, and the name of the slot's numbers in the file. */
typedef struct named {
    int slot;
    const char *name;
} named;

/* Compare a case with the numbers in the file. The tolerance allows for attention, which sums up to
 * 16 products of numbers up to 2, and then sums products of such sums. */
static void compare_case(const runner *on, const op_case *c, const json_t *from, const named *given,
                         const named *made) {
    const char *name = cgp__op_find(c->op)->op.name;
    uint64_t seed = 1;
    operands o;
    operands_create(&o, c, &seed);
    for (; given->name; given++) {
        const json_t *numbers = json_object_get(from, given->name);
        assert_int_equal(json_array_size(numbers), o.count[given->slot]);
        fill(o.at[given->slot], numbers);
    }
    op_run(on, &o, CGP_OP_FORWARD);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    for (; made->name; made++)
        compare(name, made->name, o.at[made->slot], json_object_get(from, made->name),
                c->op == CGP_OP_ATTENTION ? 64 : 8);
    operands_destroy(&o);
}

TEST_CASE(attention_and_rotary_embeddings_are_those_of_pytorch) {
    static const named given[][5] = {
        {{SLOT_X, "q"}, {SLOT_X + 1, "k"}, {SLOT_X + 2, "v"}, {SLOT_DY, "dy"}},
        {{SLOT_X, "x"}, {SLOT_DY, "dy"}}};
    static const named made[][5] = {
        {{SLOT_Y, "y"}, {SLOT_DX, "dq"}, {SLOT_DX + 1, "dk"}, {SLOT_DX + 2, "dv"}},
        {{SLOT_Y, "y"}, {SLOT_DX, "dx"}}};
    static const char *const names[] = {"attention", "rotary"};
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    for (size_t i = 0; i < 4; i++) {
        const size_t kind = i / 2;
        const json_t *cases = json_object_get(numbers, names[kind]);
        assert_true(json_array_size(cases) >= 3);
        for (size_t k = 0; k < json_array_size(cases); k++) {
            const json_t *from = json_array_get(cases, k);
            const op_case c = kind ? rotary_case(from) : attention_case(from);
            compare_case(&on[i % 2], &c, from, given[kind], made[kind]);
        }
    }
    runner_close(&on[0]);
    runner_close(&on[1]);
    json_decref(numbers);
}

#define KIND(kind, name, family) CGP_OP_##kind,

TEST_CASE(elementwise_ops_are_those_of_pytorch) {
    static const cgp_op_kind kinds[] = {CGP_ELEMENTWISE_OPS(KIND)};
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            compare_op(&on[b], numbers, kinds[i]);
        runner_close(&on[b]);
    }
    json_decref(numbers);
}

TEST_CASE(functions_are_those_of_pytorch) {
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    const json_t *cases = json_object_get(numbers, "functions");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    uint64_t found = 0;
    for (size_t i = 0; i < 2 * json_array_size(cases); i++) {
        const json_t *from = json_array_get(cases, i / 2);
        const int function = (int)integer(from, "function");
        op_case c = {.op = kind_of_function(function),
                     .attributes = function_attributes(
                         1, (int64_t)json_array_size(json_object_get(from, "x")), function),
                     .n = 1};
        uint64_t seed = 1;
        operands o;
        c.attributes.function.slope = (float)real(from, "a");
        c.attributes.function.second = (float)real(from, "b");
        operands_create(&o, &c, &seed);
        fill(o.at[SLOT_X], json_object_get(from, "x"));
        fill(o.at[SLOT_DY], json_object_get(numbers, "dy"));
        op_run(&on[i % 2], &o, CGP_OP_FORWARD);
        compare("function", "y", o.at[SLOT_Y], json_object_get(from, "y"), 8);
        op_run(&on[i % 2], &o, CGP_OP_BACKWARD_INPUT);
        compare("function", "dx", o.at[SLOT_DX], json_object_get(from, "dx"), 8);
        operands_destroy(&o);
        found |= 1u << function;
    }
    assert_int_equal(found, (1u << CGP_FUNCTIONS) - 1);
    runner_close(&on[0]);
    runner_close(&on[1]);
    json_decref(numbers);
}

/* Names of operands and of their gradients in the file of expected numbers. */
static const struct {
    int slot, gradient;
    const char *name, *gradient_name;
} operand_names[] = {
    {SLOT_X, SLOT_DX, "x", "dx"},
    {SLOT_X + 1, SLOT_DX + 1, "other", "dother"},
    {SLOT_PARAM, SLOT_DPARAM, "weight", "dweight"},
    {SLOT_PARAM + 1, SLOT_DPARAM + 1, "bias", "dbias"},
};
#define OPERANDS (sizeof operand_names / sizeof operand_names[0])

static void compare_square(const runner *on, const json_t *numbers, const op_case *c) {
    const char *name = cgp__op_find(c->op)->op.name;
    const json_t *expected = json_object_get(numbers, name);
    uint64_t seed = 1;
    operands o;
    if (!expected) fail_msg("%s: no numbers (tools/reference_ops.py)", name);
    operands_create(&o, c, &seed);
    for (size_t k = 0; k < OPERANDS; k++) {
        if (o.at[operand_names[k].slot])
            fill(o.at[operand_names[k].slot], json_object_get(numbers, operand_names[k].name));
    }
    for (int64_t i = 0; i < o.count[SLOT_DY]; i++)
        o.at[SLOT_DY][i] =
            (float)json_number_value(json_array_get(json_object_get(numbers, "dy"), (size_t)i));
    op_run(on, &o, CGP_OP_FORWARD);
    compare(name, "y", o.at[SLOT_Y], json_object_get(expected, "y"), 8);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    for (size_t k = 0; k < OPERANDS; k++) {
        const json_t *theirs = json_object_get(expected, operand_names[k].gradient_name);
        assert_int_equal(json_array_size(theirs), o.count[operand_names[k].gradient]);
        compare(name, operand_names[k].gradient_name, o.at[operand_names[k].gradient], theirs, 8);
    }
    operands_destroy(&o);
}

static void compare_loss(const runner *on, const json_t *numbers, const char *name,
                         const op_case *c) {
    const json_t *expected = json_object_get(numbers, name);
    uint64_t seed = 1;
    operands o;
    if (!expected) fail_msg("%s: no numbers (tools/reference_ops.py)", name);
    operands_create(&o, c, &seed);
    fill(o.at[SLOT_X], json_object_get(numbers, "x"));
    fill(o.at[SLOT_X + 1], json_object_get(numbers, "other"));
    for (int64_t i = 0; c->op == CGP_OP_BCE_WITH_LOGITS && i < o.count[SLOT_X + 1]; i++)
        o.at[SLOT_X + 1][i] = fabsf(o.at[SLOT_X + 1][i]);
    o.loss_scale = 1.0f;
    op_run(on, &o, CGP_OP_FORWARD);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    const double loss = json_real_value(json_object_get(expected, "loss"));
    if (!(fabs(o.loss - loss) <= 1e-6 * loss))
        fail_msg("%s: loss is %.9g, PyTorch has %.9g", name, o.loss, loss);
    compare(name, "dx", o.at[SLOT_DX], json_object_get(expected, "dx"), 8);
    operands_destroy(&o);
}

TEST_CASE(losses_are_those_of_pytorch) {
    static const struct {
        const char *name;
        cgp_op_kind op;
        double beta;
    } losses[] = {{"bce_with_logits", CGP_OP_BCE_WITH_LOGITS, 0},
                  {"mse", CGP_OP_MSE, 0},
                  {"smooth_l1", CGP_OP_SMOOTH_L1, 0.75},
                  {"l1", CGP_OP_SMOOTH_L1, 0},
                  {"weighted_mean", CGP_OP_WEIGHTED_MEAN, 0}};
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
            const op_case c = {.op = losses[i].op,
                               .attributes = element_loss_attributes(9, 9, losses[i].beta),
                               .n = 1};
            compare_loss(&on[b], numbers, losses[i].name, &c);
        }
        runner_close(&on[b]);
    }
    json_decref(numbers);
}

TEST_CASE(other_ops_are_those_of_pytorch) {
    const op_case cases[] = {
        {.op = CGP_OP_MEAN, .attributes = mean_attributes(2, (int64_t[]){9, 9}, 0), .n = 1},
        {.op = CGP_OP_MULTIPLY, .attributes = plain_attributes(9, 9), .n = 1},
        {.op = CGP_OP_SUBTRACT, .attributes = plain_attributes(9, 9), .n = 1},
        {.op = CGP_OP_SOFTMAX, .attributes = plain_attributes(9, 9), .n = 1},
        {.op = CGP_OP_LOG_SOFTMAX, .attributes = plain_attributes(9, 9), .n = 1},
        {.op = CGP_OP_GROUP_NORM, .attributes = group_norm_attributes(9, 9, 3), .n = 1},
        {.op = CGP_OP_RMS_NORM, .attributes = norm_attributes(9, 9), .n = 1},
    };
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            compare_square(&on[b], numbers, &cases[i]);
        runner_close(&on[b]);
    }
    json_decref(numbers);
}

/* --- exact numbers --- */

/* An op with two samples, and the name of its numbers in the file. */
typedef struct exact_case {
    const char *name;
    cgp_op_kind op;
    cgp__attributes attributes;
    cgp_shape inputs[2];
} exact_case;

static const exact_case exact_cases[] = {
    {"transpose 0 2", CGP_OP_TRANSPOSE, {.parts = {.dim = {0, 2}}}, {{3, {3, 4, 5}}}},
    {"transpose 1 0", CGP_OP_TRANSPOSE, {.parts = {.dim = {1, 0}}}, {{3, {3, 4, 5}}}},
    {"slice 1", CGP_OP_SLICE, {.parts = {.dim = {1}, .begin = 1, .end = 4}}, {{3, {4, 6, 3}}}},
    {"slice -1", CGP_OP_SLICE, {.parts = {.dim = {-1}, .begin = 2, .end = 3}}, {{3, {4, 6, 3}}}},
    {"matmul", CGP_OP_MATMUL, {.matmul = {0}}, {{3, {3, 4, 5}}, {3, {3, 5, 2}}}},
    {"matmul a",
     CGP_OP_MATMUL,
     {.matmul = {.transpose = {true}}},
     {{3, {3, 5, 4}}, {3, {3, 5, 2}}}},
    {"matmul b",
     CGP_OP_MATMUL,
     {.matmul = {.transpose = {false, true}}},
     {{3, {3, 4, 5}}, {3, {3, 2, 5}}}},
    {"matmul a b",
     CGP_OP_MATMUL,
     {.matmul = {.transpose = {true, true}}},
     {{3, {3, 5, 4}}, {3, {3, 2, 5}}}},
    {"conv_transpose2d",
     CGP_OP_CONV_TRANSPOSE2D,
     {.windows = {.size = 3, .bias = true, .kernel = {3, 2}, .stride = {1, 1}}},
     {{3, {3, 4, 2}}}},
    {"conv_transpose2d padded",
     CGP_OP_CONV_TRANSPOSE2D,
     {.windows = {.size = 3,
                  .bias = true,
                  .kernel = {3, 4},
                  .stride = {2, 3},
                  .padding = {1, 1, 2, 2},
                  .output_padding = {1, 2}}},
     {{3, {3, 4, 2}}}},
    {"conv_transpose2d apart",
     CGP_OP_CONV_TRANSPOSE2D,
     {.windows =
          {.size = 2, .bias = true, .kernel = {1, 2}, .stride = {3, 3}, .output_padding = {2, 0}}},
     {{3, {3, 2, 3}}}},
    {"conv_transpose2d pointwise",
     CGP_OP_CONV_TRANSPOSE2D,
     {.windows = {.size = 2, .bias = true, .kernel = {1, 1}, .stride = {1, 1}}},
     {{3, {3, 4, 5}}}},
};

static void fill_exact(operands *o, int slot, int k) {
    for (int64_t i = 0; i < o->count[slot]; i++)
        o->at[slot][i] = (float)((37 * i + 11 * k) % 41 - 20) / 16.0f;
}

static void expect_exact(const operands *o, int slot, const json_t *numbers, const char *name,
                         const char *key) {
    const json_t *expected = json_object_get(numbers, key);
    if (!o->at[slot]) return;
    if ((int64_t)json_array_size(expected) != o->count[slot])
        fail_msg("%s: %s has %" PRId64 " elements, PyTorch's %zu", name, key, o->count[slot],
                 json_array_size(expected));
    for (int64_t i = 0; i < o->count[slot]; i++) {
        const double want = json_number_value(json_array_get(expected, (size_t)i));
        if ((double)o->at[slot][i] != want)
            fail_msg("%s: %s[%" PRId64 "] is %.9g, PyTorch's %.9g", name, key, i,
                     (double)o->at[slot][i], want);
    }
}

static void compare_exact(const runner *on, const json_t *all, const exact_case *e) {
    const json_t *numbers = json_object_get(all, e->name);
    cgp__attributes attributes = e->attributes;
    cgp_op_node node = {.op = &cgp__op_find(e->op)->op, .attributes = &attributes};
    op_case c = {.op = e->op, .n = 2};
    uint64_t seed = 1;
    operands o;
    attributes.kind = e->op;
    if (!numbers) fail_msg("%s: no numbers (tools/reference_ops.py)", e->name);
    for (int k = 0; k < 2; k++)
        node.inputs[k].shape = e->inputs[k];
    assert_ok(cgp__op_infer(e->op, &node, &c.attributes));
    operands_create(&o, &c, &seed);
    fill_exact(&o, SLOT_X, 0);
    fill_exact(&o, SLOT_X + 1, 1);
    fill_exact(&o, SLOT_PARAM, 1);
    fill_exact(&o, SLOT_PARAM + 1, 2);
    fill_exact(&o, SLOT_DY, 3);
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        if (op_has(e->op, (cgp_op_direction)d)) op_run(on, &o, (cgp_op_direction)d);
    }
    expect_exact(&o, SLOT_Y, numbers, e->name, "y");
    expect_exact(&o, SLOT_DX, numbers, e->name, "dx0");
    expect_exact(&o, SLOT_DX + 1, numbers, e->name, "dx1");
    expect_exact(&o, SLOT_DPARAM, numbers, e->name, "dweight");
    expect_exact(&o, SLOT_DPARAM + 1, numbers, e->name, "dbias");
    operands_destroy(&o);
}

TEST_CASE(the_rest_is_exactly_that_of_pytorch) {
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof exact_cases / sizeof exact_cases[0]; i++)
            compare_exact(&on[b], numbers, &exact_cases[i]);
        runner_close(&on[b]);
    }
    json_decref(numbers);
}
