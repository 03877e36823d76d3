/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_backends.c -- results of the tested backend equal the results of ref within the bounds of
 * bounds.h. The tested backend is cpu, or the backend that CGP_TEST_BACKEND names. The cases have
 * every kind of op; half of the cases are in bf16. Command-line arguments name the ops to test.
 * test_op_properties.c tests the exact properties of each backend. */
#include "bounds.h"

static uint64_t seed;
static runner ref;
/* Number of cases in the current test, and number of cases that failed. A test continues after a
 * failure, so that one run shows all failures. */
static int cases, failures;
static char **named; /* names of the ops to test, then NULL; if empty, all ops */

static bool is_named(cgp_op_kind op) {
    for (char **name = named; *name; name++) {
        if (strcmp(*name, cgp__op_find(op)->op.name) == 0) return true;
    }
    return !*named;
}

static bool loss_is_near(const operands *a, const operands *b) {
    if (fabs(a->loss - b->loss) <= loss_bound(b)) return true;
    print_error("%s: loss is %.9g, ref has %.9g +- %.3g\n", case_text(&a->c), a->loss, b->loss,
                loss_bound(b));
    return false;
}

/* Return true if the tested backend has a kernel for a direction of a case. */
static bool is_taken(const op_case *c, cgp_op_direction direction) {
    const cgp_kernel_spec spec = spec_of(c, direction);
    cgp_kernel *kernel = NULL;
    if (cpu.backend->kernels.create(cpu.device, &spec, &kernel) == CGP_OK) {
        cpu.backend->kernels.destroy(kernel);
        return true;
    }
    print_error("%s: no kernel: %s\n", case_text(c), cgp_message());
    return false;
}

static void compare_direction(operands *a, operands *b, cgp_op_direction direction) {
    if (!case_has(&a->c, direction)) return;
    if (!is_taken(&a->c, direction)) {
        failures++;
        return;
    }
    op_run(&cpu, a, direction);
    op_run(&ref, b, direction);
    if (direction == CGP_OP_FORWARD && is_loss(a->c.op)) failures += !loss_is_near(a, b);
    for (int slot = SLOT_Y; slot < SLOTS; slot++) {
        if (direction == CGP_OP_FORWARD ? slot < SLOT_PARAM || slot == SLOT_ACCUMULATOR
                                        : slot >= SLOT_DX && slot < SLOT_STATE)
            failures += !is_near(a, b, slot);
    }
    if (a->c.op == CGP_OP_CACHED_ATTENTION) {
        assert_same_bits(a, b, SLOT_STATE, 0, "the cache");
    }
}

static void check_against_ref(const op_case *c) {
    operands a, b;
    cases++;
    operands_create_bent(&a, c, &seed);
    if (multiplies_in_bf16(&cpu, c)) round_weights(&a);
    if (c->tf32) round_factors(&a);
    operands_copy(&b, &a);
    b.c.tf32 = false;
    compare_direction(&a, &b, CGP_OP_FORWARD);
    for (int slot = SLOT_Y; slot < SLOT_PARAM; slot++)
        copy_slot(&a, &b, slot); /* start backward from equal values */
    compare_direction(&a, &b, CGP_OP_BACKWARD_INPUT);
    compare_direction(&a, &b, CGP_OP_BACKWARD_WEIGHT);
    operands_destroy(&a);
    operands_destroy(&b);
}

static int begin(void **state) {
    (void)state;
    cases = failures = 0;
    return 0;
}

static void end(void) {
    if (failures > 0) fail_msg("%d failures in %d cases", failures, cases);
}

static void is_what_ref_gives(void **state) {
    const cgp_op_kind *kind = *state;
    for_each_case(*kind, 2, check_against_ref, &seed);
    end();
}

TEST_CASE(cross_entropy_over_a_vocab_is_what_ref_gives) {
    if (!is_named(CGP_OP_CROSS_ENTROPY)) skip();
    for (int add = 0; add < 2; add++) {
        for (int bf16 = 0; bf16 < 2; bf16++)
            check_against_ref(&(op_case){.op = CGP_OP_CROSS_ENTROPY,
                                         .attributes = loss_attributes(3, 50257),
                                         .n = 2,
                                         .add = (uint32_t)add,
                                         .type = bf16 ? CGP_BF16 : CGP_F32});
    }
    end();
}

/* Tensor cores compute heads of up to 128 columns. If the shift is 0 and the number of columns is a
 * multiple of 8, the operands are copied asynchronously. */
TEST_CASE(heads_for_tensor_cores_are_what_ref_gives) {
    static const int shifts[] = {0, 0, 0, 1};
    for (int64_t depth = 64; depth <= 128; depth *= 2) {
        const cgp_op_attributes all[] = {
            attention_attributes(130, 1, depth, 0.3),
            windowed_attributes(200, 70, 1, 2, depth, depth, 0.3),
            grouped_attributes(65, 150, 1, 3, depth, 192 - depth, 0.0),
            grouped_attributes(70, 9, 2, 1, depth - 8, depth, 0.3),
        };
        for (int i = 0; i < 4; i++)
            check_against_ref(&(op_case){.op = CGP_OP_ATTENTION,
                                         .attributes = all[i],
                                         .n = 1 + i % 2,
                                         .add = i == 2 ? 7 : 0,
                                         .shift = shifts[i],
                                         .type = CGP_BF16});
    }
    end();
}

TEST_CASE(several_blocks_are_what_ref_gives) {
    for (int i = 0; i < BLOCK_CASES; i++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            op_case c = block_case(i);
            c.type = bf16 ? CGP_BF16 : CGP_F32;
            if (is_named(c.op)) check_against_ref(&c);
        }
    }
    end();
}

static void check_in_tf32(const op_case *c) {
    op_case in_tf32 = *c;
    in_tf32.type = CGP_F32;
    in_tf32.tf32 = true;
    if (c->shift > 1) in_tf32.shift = 0; /* cuBLASLt needs aligned operands */
    check_against_ref(&in_tf32);
}

TEST_CASE(tf32_is_what_ref_gives) {
    static const cgp_op_kind kinds[] = {CGP_OP_LINEAR, CGP_OP_CONV2D, CGP_OP_CONV_TRANSPOSE2D};
    if (!cpu.backend->tf32) skip();
    for (int k = 0; k < 3; k++)
        if (is_named(kinds[k])) for_each_case(kinds[k], 8, check_in_tf32, &seed);
    end();
}

TEST_GROUP(.before = begin);

int main(int argc, char **argv) {
    static cgp_op_kind kinds[CGP_OP_KINDS];
    static char names[CGP_OP_KINDS][64];
    int found = 0;
    named = argv + 1;
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        kinds[op] = (cgp_op_kind)op;
        if (!is_named(kinds[op])) continue;
        found++;
        snprintf(names[op], sizeof names[op], "%s is what ref gives",
                 cgp__op_find(kinds[op])->op.name);
        test_add(__LINE__, &(const struct CMUnitTest){.name = names[op],
                                                      .test_func = is_what_ref_gives,
                                                      .initial_state = &kinds[op]});
    }
    if (argc > 1 && found != argc - 1) {
        print_error("test_op_backends: expected names of ops, found %d in %d arguments\n", found,
                    argc - 1);
        return 2;
    }
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(backend_under_test(), 1);
    const int failed = test_run();
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
