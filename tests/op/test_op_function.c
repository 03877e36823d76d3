/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_function.c -- tests FUNCTION and FUNCTION_OF_Y at points where a function has a kink, is
 * infinite or is undefined. The file also tests the functions' constants. The expected numbers come
 * from PyTorch. */
#include "harness.h"
#include "shapes.h"

static uint64_t seed;
static runner ref, cpu;

/* The expected y and dx at a point x, for dy = 1. */
typedef struct point {
    cgp_function function;
    float a, b, x, y, dx;
} point;

#define INF INFINITY

static const point points[] = {
    {CGP_FUNCTION_HARDTANH, -0.5f, 0.5f, -0.5f, -0.5f, 0},
    {CGP_FUNCTION_HARDTANH, -0.5f, 0.5f, 0.25f, 0.25f, 1},
    {CGP_FUNCTION_HARDTANH, -0.5f, 0.5f, 0.5f, 0.5f, 0},
    {CGP_FUNCTION_HARDTANH, -0.5f, 0.5f, INF, 0.5f, 0},
    {CGP_FUNCTION_HARDTANH, -0.5f, 0.5f, -INF, -0.5f, 0},
    {CGP_FUNCTION_HARDTANH, -0.5f, 0.5f, NAN, NAN, 0},
    {CGP_FUNCTION_HARDTANH, 0.5f, INF, INF, INF, 1},
    {CGP_FUNCTION_HARDTANH, 0.5f, INF, -INF, 0.5f, 0},
    {CGP_FUNCTION_HARDTANH, -INF, 0.5f, -INF, -INF, 1},
    {CGP_FUNCTION_CLAMP, -0.5f, 0.5f, -0.5f, -0.5f, 1},
    {CGP_FUNCTION_CLAMP, -0.5f, 0.5f, 0.5f, 0.5f, 1},
    {CGP_FUNCTION_CLAMP, -0.5f, 0.5f, 0.625f, 0.5f, 0},
    {CGP_FUNCTION_CLAMP, -0.5f, 0.5f, NAN, NAN, 0},
    {CGP_FUNCTION_CLAMP, 0.5f, INF, INF, INF, 1},
    {CGP_FUNCTION_CLAMP, 0.5f, INF, -INF, 0.5f, 0},
    {CGP_FUNCTION_HARDSIGMOID, 0, 0, -3, 0, 0},
    {CGP_FUNCTION_HARDSIGMOID, 0, 0, 3, 1, 0},
    {CGP_FUNCTION_HARDSIGMOID, 0, 0, INF, 1, 0},
    {CGP_FUNCTION_HARDSIGMOID, 0, 0, -INF, 0, 0},
    {CGP_FUNCTION_HARDSIGMOID, 0, 0, NAN, NAN, 0},
    {CGP_FUNCTION_HARDSWISH, 0, 0, -3, 0, 0},
    {CGP_FUNCTION_HARDSWISH, 0, 0, 3, 3, 1},
    {CGP_FUNCTION_HARDSWISH, 0, 0, INF, INF, 1},
    {CGP_FUNCTION_HARDSWISH, 0, 0, -INF, NAN, 0},
    {CGP_FUNCTION_HARDSWISH, 0, 0, NAN, NAN, 1},
    {CGP_FUNCTION_ABS, 0, 0, 0, 0, 0},
    {CGP_FUNCTION_ABS, 0, 0, -INF, INF, -1},
    {CGP_FUNCTION_ABS, 0, 0, NAN, NAN, 0},
    {CGP_FUNCTION_SQRT, 0, 0, 0, 0, INF},
    {CGP_FUNCTION_SQRT, 0, 0, -0.0f, 0, -INF},
    {CGP_FUNCTION_SQRT, 0, 0, -1, NAN, NAN},
    {CGP_FUNCTION_SQRT, 0, 0, INF, INF, 0},
    {CGP_FUNCTION_RSQRT, 0, 0, 0, INF, -INF},
    {CGP_FUNCTION_RSQRT, 0, 0, -0.0f, -INF, INF},
    {CGP_FUNCTION_RSQRT, 0, 0, -1, NAN, NAN},
    {CGP_FUNCTION_RSQRT, 0, 0, INF, 0, 0},
    {CGP_FUNCTION_RECIPROCAL, 0, 0, 0, INF, -INF},
    {CGP_FUNCTION_RECIPROCAL, 0, 0, -0.0f, -INF, -INF},
    {CGP_FUNCTION_RECIPROCAL, 0, 0, -INF, 0, 0},
    {CGP_FUNCTION_RECIPROCAL, 0, 0, NAN, NAN, NAN},
    {CGP_FUNCTION_EXP, 0, 0, 100, INF, INF},
    {CGP_FUNCTION_EXP, 0, 0, INF, INF, INF},
    {CGP_FUNCTION_EXP, 0, 0, -INF, 0, 0},
    {CGP_FUNCTION_EXP, 0, 0, NAN, NAN, NAN},
    {CGP_FUNCTION_LOG, 0, 0, 0, -INF, INF},
    {CGP_FUNCTION_LOG, 0, 0, -0.0f, -INF, -INF},
    {CGP_FUNCTION_LOG, 0, 0, -1, NAN, -1},
    {CGP_FUNCTION_LOG, 0, 0, INF, INF, 0},
    {CGP_FUNCTION_LOG, 0, 0, -INF, NAN, 0},
    {CGP_FUNCTION_ELU, 0.75f, 1, 0, 0, 0.75f},
    {CGP_FUNCTION_ELU, 0.75f, 1, INF, INF, 1},
    {CGP_FUNCTION_ELU, 0.75f, 1, -INF, -0.75f, 0},
    {CGP_FUNCTION_ELU, 0.75f, 1, NAN, NAN, 1},
    {CGP_FUNCTION_SOFTPLUS, 2, 5, 2.5f, 2.50335765f, 0.993307173f},
    {CGP_FUNCTION_SOFTPLUS, 2, 5, 2.625f, 2.625f, 1},
    {CGP_FUNCTION_SOFTPLUS, 2, 5, INF, INF, 1},
    {CGP_FUNCTION_SOFTPLUS, 2, 5, -INF, 0, 0},
    {CGP_FUNCTION_SOFTPLUS, 2, 5, NAN, NAN, NAN},
    {CGP_FUNCTION_SOFTPLUS, 1, INF, 200, 200, 1},
    {CGP_FUNCTION_SOFTPLUS, 1, INF, INF, INF, 1},
    {CGP_FUNCTION_MISH, 0, 0, 0, 0, 0.6f},
    {CGP_FUNCTION_MISH, 0, 0, 50, 50, 1},
    {CGP_FUNCTION_MISH, 0, 0, INF, INF, NAN},
    {CGP_FUNCTION_MISH, 0, 0, -INF, NAN, NAN},
    {CGP_FUNCTION_MISH, 0, 0, NAN, NAN, NAN},
    {CGP_FUNCTION_BCE_ONE, 0, 0, 0, 100, -1e12f},
    {CGP_FUNCTION_BCE_ONE, 0, 0, 1, 0, 0},
    {CGP_FUNCTION_BCE_ONE, 0, 0, 1e-13f, 29.9336052f, -1e12f},
    {CGP_FUNCTION_BCE_ONE, 0, 0, NAN, NAN, NAN},
    {CGP_FUNCTION_BCE_ZERO, 0, 0, 0, 0, 0},
    {CGP_FUNCTION_BCE_ZERO, 0, 0, 1, 100, 1e12f},
    {CGP_FUNCTION_BCE_ZERO, 0, 0, 1e-13f, 1e-13f, 0.1f},
    {CGP_FUNCTION_BCE_ZERO, 0, 0, 1e-9f, 1e-9f, 1},
    {CGP_FUNCTION_BCE_ZERO, 0, 0, NAN, NAN, NAN},
};

static void expect(const point *p, const char *name, float got, float want) {
    const bool equal = isnan(want) ? isnan(got) : got == want;
    if (!equal && !(fabsf(got - want) <= 4 * FLT_EPSILON * fabsf(want)))
        fail_msg("function %d: %s at %g is %.9g, PyTorch's %.9g", (int)p->function, name,
                 (double)p->x, (double)got, (double)want);
}

/* Run forward and backward with all elements of x equal. There are 19 elements, which make full
 * vectors and a tail. */
static void run_at(const runner *on, operands *o, const point *p, cgp_dtype type) {
    op_case c = {.op = kind_of_function((int)p->function),
                 .attributes = function_attributes(1, 19, (int)p->function),
                 .n = 1,
                 .type = type};
    c.attributes.function.slope = p->a;
    c.attributes.function.second = p->b;
    operands_create(o, &c, &seed);
    for (int64_t i = 0; i < o->count[SLOT_X]; i++) {
        o->at[SLOT_X][i] = p->x;
        o->at[SLOT_DY][i] = 1.0f;
    }
    op_run(on, o, CGP_OP_FORWARD);
    op_run(on, o, CGP_OP_BACKWARD_INPUT);
}

TEST_ON_BOTH(bends_infinities_and_nans_are_those_of_pytorch) {
    for (size_t k = 0; k < sizeof points / sizeof points[0]; k++) {
        operands o;
        run_at(*state, &o, &points[k], CGP_F32);
        for (int64_t i = 0; i < o.count[SLOT_X]; i++) {
            expect(&points[k], "y", o.at[SLOT_Y][i], points[k].y);
            expect(&points[k], "dx", o.at[SLOT_DX][i], points[k].dx);
        }
        operands_destroy(&o);
    }
}

/* The limits 0.3 and 0.7 of a clamp are rounded to bf16; 0.3 is rounded up. Where y equals a limit,
 * the gradient is 0. */
TEST_ON_BOTH(limits_in_bf16_are_rounded) {
    static const float below[] = {0.25f, 0.30078125f, 0.703125f, 0.75f};
    for (size_t k = 0; k < 4; k++) {
        operands o;
        run_at(*state, &o, &(point){CGP_FUNCTION_HARDTANH, 0.3f, 0.7f, below[k], 0, 0}, CGP_BF16);
        for (int64_t i = 0; i < o.count[SLOT_X]; i++)
            assert_true(o.at[SLOT_DX][i] == 0.0f);
        operands_destroy(&o);
    }
}

/* Draw a number whose binary exponent is between -30 and 6. */
static float draw_number(void) {
    const double size =
        exp2(test_between(&seed, -30, 5)) * (1 + (test_random(&seed) >> 11) * 0x1p-53);
    return (float)(test_random(&seed) & 1 ? size : -size);
}

/* Results near 0 have a small relative error: exp(x) - 1 in ELU, log(1 + exp(x)) in SOFTPLUS, and
 * log(x) near x = 1. */
TEST_CASE(functions_are_relatively_exact) {
    static const cgp_function functions[] = {CGP_FUNCTION_EXP, CGP_FUNCTION_LOG, CGP_FUNCTION_ELU,
                                             CGP_FUNCTION_SOFTPLUS, CGP_FUNCTION_MISH};
    for (size_t k = 0; k < sizeof functions / sizeof functions[0]; k++) {
        op_case c = {.op = kind_of_function((int)functions[k]),
                     .attributes = function_attributes(64, 67, (int)functions[k]),
                     .n = 1};
        operands o, want;
        if (functions[k] == CGP_FUNCTION_SOFTPLUS) c.attributes.slope = 2.0f; /* 2 x is exact */
        operands_create(&o, &c, &seed);
        for (int64_t i = 0; i < o.count[SLOT_X]; i++) {
            const float x = draw_number();
            o.at[SLOT_X][i] = functions[k] == CGP_FUNCTION_LOG ? expf(x) : x;
        }
        operands_copy(&want, &o);
        op_run(&ref, &want, CGP_OP_FORWARD);
        op_run(&cpu, &o, CGP_OP_FORWARD);
        for (int64_t i = 0; i < o.count[SLOT_X]; i++) {
            const double y = want.at[SLOT_Y][i], got = o.at[SLOT_Y][i];
            if (!(fabs(got - y) <= 8 * (double)FLT_EPSILON * fabs(y) + 1e-36))
                fail_msg("function %d of %.9g is %.9g, expected %.9g", (int)functions[k],
                         (double)o.at[SLOT_X][i], got, y);
        }
        operands_destroy(&want);
        operands_destroy(&o);
    }
}

/* --- shapes and constants --- */

TEST_CASE(a_function_has_two_constants) {
    const cgp_op_kind op = CGP_OP_FUNCTION;
    cgp__attributes a = {
        .function = {.slope = -0.5, .function = CGP_FUNCTION_CLAMP, .second = 0.25}};
    inferred out = infer(op, a, F32(2, 3, 4), F32(1));
    assert_type(&out.shapes.output, "[2, 3, 4]");
    assert_attributes(&out, (cgp_op_attributes){.function = {.rows = 6,
                                                             .in = 4,
                                                             .out = 4,
                                                             .slope = -0.5f,
                                                             .function = CGP_FUNCTION_CLAMP,
                                                             .second = 0.25f}});
    a.function.second = 1e300;
    out = infer(op, a, F32(4), F32(1));
    assert_true(out.sizes.function.second == INFINITY);
    a.function.function = CGP_FUNCTION_MISH;
    out = infer(op, a, F32(4), F32(1));
    assert_true(out.sizes.function.slope == 0.0f && out.sizes.function.second == 0.0f);
    a.function.function = CGP_FUNCTION_EXP;
    out = infer(CGP_OP_FUNCTION_OF_Y, a, F32(4), F32(1));
    assert_type(&out.shapes.output, "[4]");
}

TEST_CASE(constants_of_a_function_are_checked) {
    const cgp_op_kind op = CGP_OP_FUNCTION, of_y = CGP_OP_FUNCTION_OF_Y;
    cgp__attributes a = {.function = {.slope = 1, .function = CGP_FUNCTION_CLAMP, .second = -1}};
    refuse(op, a, F32(3), F32(1), "expects limits that ascend, got 1 and -1");
    a.function.slope = NAN;
    refuse(op, a, F32(3), F32(1), "expects limits that ascend, got nan and -1");
    a.function.slope = 0;
    a.function.function = CGP_FUNCTION_SOFTPLUS;
    refuse(op, a, F32(3), F32(1),
           "expects a factor > 0 and finite as f32, and a threshold, got 0 and -1");
    a.function.function = CGP_FUNCTION_ELU;
    refuse(op, a, F32(3), F32(1), "expects factors finite as f32, the second > 0, got 0 and -1");
    a.function.function = CGP_FUNCTIONS;
    refuse(op, a, F32(3), F32(1), "expects a function from 5 to 14, got 15");
    a.function.function = CGP_FUNCTION_EXP;
    refuse(op, a, F32(3), F32(1), "expects a function from 5 to 14, got 4");
    a.function.function = CGP_FUNCTION_MISH;
    refuse(of_y, a, F32(3), F32(1), "expects a function from 0 to 4, got 12");
    refuse(op, a, I32(3), F32(1), "expects f32 input, got i32");
}

int main(void) {
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(backend_under_test(), 1);
    const int failed = test_run();
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
