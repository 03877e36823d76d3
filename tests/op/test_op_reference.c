/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_reference.c -- ops have PyTorch's values and gradients (tools/reference_ops.py made the numbers, in double), on ref and
 * cpu. */
#include "harness.h"
#include "reference.h"

static void fill(float *to, const json_t *from) {
    for (size_t i = 0; i < json_array_size(from); i++)
        to[i] = (float)json_number_value(json_array_get(from, i));
}

/* Within 8 units of the result, and of the largest of all: gradients pass through 0. */
static void compare(const char *op, const char *name, const float *ours, const json_t *theirs) {
    for (size_t i = 0; i < json_array_size(theirs); i++) {
        const double expected = json_number_value(json_array_get(theirs, i));
        const double bound = 8 * 6e-8 * (fabs(expected) + 1.0);
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
    c.attributes.slope = kind == CGP_OP_SCALE ? -1.25f : 0.0f;
    if (!expected) fail_msg("%s: no numbers (tools/reference_ops.py)", name);
    operands_create(&o, &c, &seed);
    fill(o.at[SLOT_X], x);
    fill(o.at[SLOT_DY], json_object_get(numbers, "dy"));
    op_run(on, &o, CGP_OP_FORWARD);
    compare(name, "y", o.at[SLOT_Y], json_object_get(expected, "y"));
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    compare(name, "dx", o.at[SLOT_DX], json_object_get(expected, "dx"));
    operands_destroy(&o);
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

/* Where PyTorch's numbers have an operand, and those of its gradient. */
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

static void compare_case(const runner *on, const json_t *numbers, const op_case *c) {
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
    compare(name, "y", o.at[SLOT_Y], json_object_get(expected, "y"));
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    for (size_t k = 0; k < OPERANDS; k++) {
        const json_t *theirs = json_object_get(expected, operand_names[k].gradient_name);
        assert_int_equal(json_array_size(theirs), o.count[operand_names[k].gradient]);
        compare(name, operand_names[k].gradient_name, o.at[operand_names[k].gradient], theirs);
    }
    operands_destroy(&o);
}

static void other_ops_are_those_of_pytorch(void **state) {
    const op_case cases[] = {
        {.op = CGP_OP_MEAN, .attributes = mean_attributes(2, (int64_t[]){9, 9}, 0), .n = 1},
        {.op = CGP_OP_MULTIPLY, .attributes = plain_attributes(9, 9), .n = 1},
        {.op = CGP_OP_SUBTRACT, .attributes = plain_attributes(9, 9), .n = 1},
        {.op = CGP_OP_SOFTMAX, .attributes = plain_attributes(9, 9), .n = 1},
        {.op = CGP_OP_GROUP_NORM, .attributes = group_norm_attributes(9, 9, 3), .n = 1},
        {.op = CGP_OP_RMS_NORM, .attributes = norm_attributes(9, 9), .n = 1},
    };
    (void)state;
    json_t *numbers = test_reference_load(TEST_DATA "/reference_ops.json");
    runner on[] = {runner_open(&cgp__backend_ref, 1), runner_open(&cgp__backend_cpu, 2)};
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            compare_case(&on[b], numbers, &cases[i]);
        runner_close(&on[b]);
    }
    json_decref(numbers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_ops_are_those_of_pytorch),
        cmocka_unit_test(other_ops_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
