/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_reference.c -- the elementwise ops have PyTorch's values and gradients (tools/reference_ops.py made the numbers, in
 * double), on every backend. */
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
    c.attributes.slope = 0;
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(elementwise_ops_are_those_of_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
