/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_bits.c -- GEMMs are chains of FMAs over documented blocks of k. Therefore f32 results of
 * LINEAR, CONV2D, MATMUL and CONV_TRANSPOSE2D are bit-identical on three devices: cpu with wide
 * vectors, cpu with narrow vectors, and the backend named by CGP_TEST_BACKEND. A run compares cpu
 * with narrow vectors to that backend or, if none is named, to cpu with wide vectors. Convolutions
 * with groups or dilations are not compared with that backend, because it adds in another order. */
#include "harness.h"

static uint64_t seed;
static runner narrow, tested;

static void check_direction(const op_case *c, cgp_op_direction direction) {
    operands a, b;
    operands_create(&a, c, &seed);
    operands_copy(&b, &a);
    op_run(&tested, &a, direction);
    op_run(&narrow, &b, direction);
    for (int slot = SLOT_Y; slot < SLOTS; slot++)
        assert_same_bits(&a, &b, slot, 0, "same bits");
    operands_destroy(&a);
    operands_destroy(&b);
}

static void check_bits(const op_case *given) {
    op_case c = *given;
    c.type = CGP_F32;
    if (case_has_parts(&c) && tested.backend != &cgp__backend_cpu) return;
    for (int direction = 0; direction < CGP_OP_DIRECTIONS; direction++) {
        if (op_has(c.op, (cgp_op_direction)direction))
            check_direction(&c, (cgp_op_direction)direction);
    }
}

static cgp_op_kind kinds[] = {CGP_OP_LINEAR, CGP_OP_CONV2D, CGP_OP_MATMUL, CGP_OP_CONV_TRANSPOSE2D};

#define OF_KIND(kind, i)                                                                           \
    { "products_have_the_same_bits (" kind ")", products_have_the_same_bits, NULL, NULL, &kinds[i] }
TEST_CASES(products_have_the_same_bits, OF_KIND("linear", 0), OF_KIND("conv2d", 1),
           OF_KIND("matmul", 2), OF_KIND("conv_transpose2d", 3)) {
    const cgp_op_kind *kind = *state;
    for_each_case(*kind, 4, check_bits, &seed);
    for (int i = 0; i < BLOCK_CASES; i++) {
        const op_case c = block_case(i);
        if (c.op == *kind) check_bits(&c);
    }
}

int main(void) {
    cgp_device_options options = device_options(1);
    options.isa = CGP_ISA_V3;
    seed = test_seed();
    narrow = (runner){.backend = &cgp__backend_cpu, .threads = 1};
    assert_ok(cgp__backend_cpu.device.create(&narrow.device, &options));
    tested = runner_open(backend_under_test(), 1);
    const int failed = test_run();
    runner_close(&tested);
    runner_close(&narrow);
    return failed;
}
