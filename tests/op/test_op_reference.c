/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_reference.c -- the elementwise ops, attention and rotary embeddings have PyTorch's values and gradients
 * (tools/reference_ops.py made the numbers, in double), on every backend. */
#include "harness.h"
#include "reference.h"

static void fill(float *to, const json_t *from) {
    for (size_t i = 0; i < json_array_size(from); i++)
        to[i] = (float)json_number_value(json_array_get(from, i));
}

/* Within so many units of the result, and of the largest of all: gradients pass through 0. */
static void compare(const char *op, const char *name, const float *ours, const json_t *theirs,
                    double units) {
    for (size_t i = 0; i < json_array_size(theirs); i++) {
        const double expected = json_number_value(json_array_get(theirs, i));
        const double bound = units * 6e-8 * (fabs(expected) + 1.0);
        if (!(fabs((double)ours[i] - expected) <= bound))
            fail_msg("%s: %s[%zu] is %.9g, PyTorch's %.9g", op, name, i, (double)ours[i],
                     expected);
    }
}

static void compare_op(const runner *on, const json_t *numbers, cgp_op_kind kind) {
    const char *name = cgp__op_find(kind)->op.name;
    const json_t *x = json_object_get(numbers, "x"), *expected = json_object_get(numbers, name);
    op_case c = {
        .op = kind, .attributes = plain_attributes(1, (int64_t)json_array_size(x)), .n = 1};
    uint64_t seed = 1;
    operands o;
    c.attributes.slope = 0;
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
    const int64_t kv_heads = integer(from, "kv_heads"),
                  group = integer(from, "heads") / kv_heads;
    op_case c = {.op = CGP_OP_ATTENTION, .n = 1};
    c.attributes = grouped_attributes(integer(from, "rows"), integer(from, "keys"), kv_heads,
                                      group, integer(from, "depth"), integer(from, "width"), 0);
    c.attributes.causal = json_is_true(json_object_get(from, "causal"));
    c.attributes.window = integer(from, "window");
    if (real(from, "scale") > 0) c.attributes.scale = (float)real(from, "scale");
    return c;
}

static op_case rotary_case(const json_t *from) {
    const int scaling = (int)integer(from, "scaling");
    op_case c = {.op = CGP_OP_ROTARY, .n = 1};
    c.attributes = rotary_attributes(
        integer(from, "rows"), integer(from, "heads"), integer(from, "depth"),
        integer(from, "width"), json_is_true(json_object_get(from, "interleaved")), scaling);
    c.attributes.theta = (float)real(from, "theta");
    c.attributes.offset = integer(from, "offset");
    if (scaling != CGP_ROTARY_UNSCALED) c.attributes.factor = (float)real(from, "factor");
    if (scaling != CGP_ROTARY_LLAMA3) return c;
    c.attributes.low_freq_factor = (float)real(from, "low");
    c.attributes.high_freq_factor = (float)real(from, "high");
    c.attributes.original_length = (int32_t)integer(from, "length");
    return c;
}

/* Names of the slots' numbers. */
typedef struct named {
    int slot;
    const char *name;
} named;

/* Attention sums up to 16 products of numbers up to 2, of such sums. */
static void compare_case(const runner *on, const op_case *c, const json_t *from,
                         const named *given, const named *made) {
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

static void attention_and_rotary_embeddings_are_those_of_pytorch(void **state) {
    static const named given[][5] = {
        {{SLOT_X, "q"}, {SLOT_X + 1, "k"}, {SLOT_X + 2, "v"}, {SLOT_DY, "dy"}},
        {{SLOT_X, "x"}, {SLOT_DY, "dy"}}};
    static const named made[][5] = {
        {{SLOT_Y, "y"}, {SLOT_DX, "dq"}, {SLOT_DX + 1, "dk"}, {SLOT_DX + 2, "dv"}},
        {{SLOT_Y, "y"}, {SLOT_DX, "dx"}}};
    static const char *const names[] = {"attention", "rotary"};
    (void)state;
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

#define KIND(kind, name) CGP_OP_##kind,

static void elementwise_ops_are_those_of_pytorch(void **state) {
    static const cgp_op_kind kinds[] = {CGP_ELEMENTWISE_OPS(KIND)};
    (void)state;
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            compare_op(&on[b], numbers, kinds[i]);
        runner_close(&on[b]);
    }
    json_decref(numbers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_ops_are_those_of_pytorch),
        cmocka_unit_test(attention_and_rotary_embeddings_are_those_of_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
