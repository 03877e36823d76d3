/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_bits.c -- ops of cuda, but for ATTENTION, have the bits of the cpu backend with AVX-512: its sums have 16 lanes. So have
 * commits of running statistics. A row's loss, below 16, may differ in the last place of a double: cpu asks libm for a logarithm. */
#include "../op/harness.h"

#include "in_program.h"

static uint64_t seed;
static runner cpu, cuda;

static void assert_equal(const operands *a, const operands *b) {
    for (int slot = SLOT_Y; slot < SLOTS; slot++)
        assert_same_bits(a, b, slot, 0, "as cpu");
    const double rows = (double)(a->c.n * a->c.attributes.rows);
    if (!(fabs(a->loss - b->loss) <= 16 * DBL_EPSILON * rows))
        fail_msg("%s: loss is %.17g, of cpu %.17g", case_text(&a->c), a->loss, b->loss);
}

static void check_case(const op_case *c) {
    op_case k = *c;
    operands a, b;
    const bool ends =
        c->op == CGP_OP_ADD || c->op == CGP_OP_BATCH_NORM || c->op == CGP_OP_INSTANCE_NORM;
    if (ends && test_random(&seed) % 3 == 0)
        k.attributes.slope = test_random(&seed) & 1 ? 0.0f : 0.2f;
    if (!runner_has_bf16(&cuda, spec_of(&k, CGP_OP_FORWARD))) k.type = CGP_F32;
    operands_create_bent(&a, &k, &seed);
    operands_copy(&b, &a);
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        if (!case_has(&k, (cgp_op_direction)d)) continue;
        op_run(&cuda, &a, (cgp_op_direction)d);
        op_run(&cpu, &b, (cgp_op_direction)d);
        assert_equal(&a, &b);
    }
    operands_destroy(&a);
    operands_destroy(&b);
}

static void bits_are_those_of_cpu(void **state) {
    const cgp_op_kind *kind = *state;
    for_each_case(*kind, 2, check_case, &seed);
    for (int i = 0; i < BLOCK_CASES; i++) {
        op_case c = block_case(i);
        if (c.op == *kind) check_case(&c);
    }
}

/* Rows of several tiles, a vocabulary, many rows of one id, a sample of several parts. */
static void large_sizes_have_the_bits_of_cpu(void **state) {
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const cgp_dtype type = bf16 ? CGP_BF16 : CGP_F32;
        check_case(&(op_case){.op = CGP_OP_LAYER_NORM,
                              .attributes = norm_attributes(75, 2200),
                              .n = 2,
                              .type = type});
        check_case(&(op_case){.op = CGP_OP_CROSS_ENTROPY,
                              .attributes = loss_attributes(3, 50257),
                              .n = 2,
                              .type = type});
        check_case(&(op_case){.op = CGP_OP_EMBEDDING,
                              .attributes = embedding_attributes(700, 500, 96),
                              .n = 2,
                              .accumulate = true,
                              .type = type});
        check_case(&(op_case){.op = CGP_OP_BCE_WITH_LOGITS,
                              .attributes = plain_attributes(300, 120),
                              .n = 2,
                              .type = type});
    }
}

/* Some accumulators hold a number that no state can. */
static void spoil(const operands *o) {
    double *values = (double *)(void *)o->at[SLOT_ACCUMULATOR] + 2;
    const int at = test_between(&seed, 0, 2 * (int)o->c.attributes.out - 1);
    if (test_random(&seed) % 2) values[at] = test_random(&seed) % 2 ? (double)INFINITY : 1e300;
}

static int64_t commit(const runner *on, operands *o) {
    const cgp_kernel_spec spec = spec_of(&o->c, CGP_OP_FORWARD);
    const value_row row = row_of(o);
    int64_t index = -2;
    there t = {.on = on};
    put_operands(&t, o, NULL);
    there_put(&t, &index, sizeof index);
    const cgp_kernel_args args = op_args(o, &row), moved = there_args(&t, args);
    assert_ok(on->backend->check_commit(on->device, &spec, &moved, there_of(&t, &index)));
    assert_ok(on->backend->commit(on->device, &spec, &moved));
    there_end(&t);
    return index;
}

static void commits_are_those_of_cpu(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        op_case c = draw_case(CGP_OP_BATCH_NORM, 3, &seed);
        operands a, b;
        c.attributes = norm_attributes(3, test_between(&seed, 1, 700));
        c.attributes.momentum = i % 2 ? 0.1f : -1.0f;
        operands_create(&a, &c, &seed);
        *(int32_t *)(void *)a.at[SLOT_STATE + 2] = i % 5 ? i : INT32_MAX - 1;
        spoil(&a);
        operands_copy(&b, &a);
        assert_int_equal(commit(&cuda, &a), commit(&cpu, &b));
        assert_equal(&a, &b);
        operands_destroy(&a);
        operands_destroy(&b);
    }
}

int main(void) {
    static cgp_op_kind kinds[CGP_OP_KINDS];
    static char names[CGP_OP_KINDS][64];
    struct CMUnitTest tests[CGP_OP_KINDS + 1] = {
        cmocka_unit_test(commits_are_those_of_cpu),
        cmocka_unit_test(large_sizes_have_the_bits_of_cpu),
    };
    cgp_isa isa;
    int n = 2;
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        if (op == CGP_OP_ATTENTION) continue;
        kinds[op] = (cgp_op_kind)op;
        snprintf(names[op], sizeof names[op], "%s has the bits of cpu",
                 cgp__op_find(kinds[op])->op.name);
        tests[n++] = (struct CMUnitTest){
            .name = names[op], .test_func = bits_are_those_of_cpu, .initial_state = &kinds[op]};
    }
    setenv("CGP_CPU_ISA", "v4", 1);
    setenv("CGP_CUDA_HOST_ORDER", "shuffled", 0); /* a missing barrier shows */
    if (cgp__backend_cpu.isa(CGP_F32, &isa) != CGP_OK) {
        fprintf(stderr, "skipped: %s\n", cgp_message());
        return 77;
    }
    seed = test_seed();
    cpu = runner_open(&cgp__backend_cpu, 1);
    cuda = runner_open(cuda_host(), 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_close(&cuda);
    runner_close(&cpu);
    return failed;
}
