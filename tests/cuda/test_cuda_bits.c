/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_bits.c -- results of cuda are bit-identical to results of cpu's x86-64-v4 kernels,
 * whose sums have 16 lanes. This holds for updates, for commits of running statistics, and for all
 * ops except ATTENTION, CACHED_ATTENTION, GEMMs in bf16 and convolutions with groups or dilations.
 * The loss may differ by rounding, because cpu uses libm's logarithm: by 16 DBL_EPSILON per row,
 * since the loss of a row is below 16.
 */
#include "tests/op/harness.h"

#include "in_program.h"

static uint64_t seed;
static runner cpu, cuda;

static void compare_direction(operands *a, operands *b, cgp_op_direction direction) {
    const double rows = (double)(a->c.n * a->c.attributes.rows);
    if (!case_has(&a->c, direction)) return;
    op_run(&cuda, a, direction);
    op_run(&cpu, b, direction);
    if (is_loss(a->c.op) && !(fabs(a->loss - b->loss) <= 16 * DBL_EPSILON * rows))
        fail_msg("%s: loss is %.17g, cpu has %.17g", case_text(&a->c), a->loss, b->loss);
    for (int slot = SLOT_Y; slot < SLOTS; slot++) {
        if (slot < SLOT_PARAM || slot >= SLOT_DX)
            assert_same_bits(a, b, slot, 0, "the bits of cpu");
    }
}

/* Check a case. If the op supports a fused RELU, a third of the cases have one. */
static void check(const op_case *of) {
    op_case c = *of;
    operands a, b;
    if (on_tensor_cores(&cuda, &c) || case_has_parts(&c)) return;
    if (cgp__op_find(c.op)->ends_in_relu && test_random(&seed) % 3 == 0)
        c.attributes.slope = test_random(&seed) & 1 ? 0.0f : 0.2f;
    operands_create_bent(&a, &c, &seed);
    operands_copy(&b, &a);
    compare_direction(&a, &b, CGP_OP_FORWARD);
    compare_direction(&a, &b, CGP_OP_BACKWARD_INPUT);
    compare_direction(&a, &b, CGP_OP_BACKWARD_WEIGHT);
    operands_destroy(&a);
    operands_destroy(&b);
}

static void an_op_has_the_bits_of_cpu(void **state) {
    const cgp_op_kind *kind = *state;
    for_each_case(*kind, 2, check, &seed);
    for (int i = 0; i < BLOCK_CASES; i++) {
        const op_case c = block_case(i);
        if (c.op == *kind) check(&c);
    }
}

/* The cases include rows of several tiles, a large vocabulary, many rows with the same id, a sample
 * that is split into several parts, and matrices that need several launches. */
TEST_CASE(large_sizes_have_the_bits_of_cpu) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const cgp_dtype type = bf16 ? CGP_BF16 : CGP_F32;
        check(&(op_case){.op = CGP_OP_LAYER_NORM,
                         .attributes = norm_attributes(75, 2200),
                         .n = 2,
                         .type = type});
        check(&(op_case){.op = CGP_OP_CROSS_ENTROPY,
                         .attributes = loss_attributes(3, 50257),
                         .n = 2,
                         .type = type});
        check(&(op_case){.op = CGP_OP_EMBEDDING,
                         .attributes = embedding_attributes(700, 500, 96),
                         .n = 2,
                         .accumulate = true,
                         .type = type});
        check(&(op_case){.op = CGP_OP_MATMUL,
                         .attributes = matmul_attributes(4100, 1, 2, 3, bf16),
                         .n = 2,
                         .type = type});
        static const cgp_op_kind losses[] = {CGP_OP_BCE_WITH_LOGITS, CGP_OP_MSE, CGP_OP_SMOOTH_L1,
                                             CGP_OP_WEIGHTED_MEAN};
        for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++)
            check(&(op_case){.op = losses[i],
                             .attributes = element_loss_attributes(300, 120, 0.5),
                             .n = 2,
                             .type = type});
    }
}

enum { EQUAL, DIFFERENT, ENDS, RANDOM, KINDS_OF_IDS };

static int32_t id_of(int kind, int64_t row, int64_t vocabulary) {
    if (kind == EQUAL) return (int32_t)vocabulary - 1;
    if (kind == DIFFERENT) return (int32_t)(vocabulary - 1 - row);
    if (kind == ENDS) return row % 3 ? (int32_t)vocabulary - 1 : 0;
    return test_between(&seed, 0, (int)vocabulary - 1);
}

/* The gradient of an embedding sorts rows by id. The time must be proportional to the number of
 * rows. */
TEST_CASE(rows_are_sorted_by_any_ids) {
    static const int64_t sizes[] = {1, 2, 511, 513, 1100, 70000};
    for (int i = 0; i < 6 * KINDS_OF_IDS; i++) {
        const int64_t rows = sizes[i / KINDS_OF_IDS], vocabulary = rows + (i % 2 ? 0 : 20000);
        operands a, b;
        operands_create_bent(&a,
                             &(op_case){.op = CGP_OP_EMBEDDING,
                                        .attributes = embedding_attributes(rows, vocabulary, 2),
                                        .n = 1,
                                        .accumulate = i % 3 == 0},
                             &seed);
        for (int64_t row = 0; row < rows; row++)
            ((int32_t *)(void *)a.at[SLOT_X])[row] = id_of(i % KINDS_OF_IDS, row, vocabulary);
        operands_copy(&b, &a);
        compare_direction(&a, &b, CGP_OP_BACKWARD_WEIGHT);
        operands_destroy(&a);
        operands_destroy(&b);
    }
}

/* Below some number of rows, each thread block has one row. That number depends on the number of
 * multiprocessors. Some rows are wider than shared memory. */
TEST_CASE(any_number_of_rows_has_the_bits_of_cpu) {
    static const int64_t widths[] = {5, 768, 1500, 4200};
    const runner all = cuda;
    cgp__shim_get_settings()->multiprocessors = 1;
    runner small = runner_open(cuda_host(), 1);
    for (int i = 0; i < 2 * 40; i++) {
        const cgp_dtype type = test_random(&seed) & 1 ? CGP_BF16 : CGP_F32;
        const int64_t rows = 1 + i / 2, width = widths[test_random(&seed) % (rows < 10 ? 4 : 2)];
        cuda = i % 2 ? small : all;
        check(&(op_case){.op = test_random(&seed) & 1 ? CGP_OP_LAYER_NORM : CGP_OP_RMS_NORM,
                         .attributes = norm_attributes(rows, width),
                         .n = 1,
                         .add = test_random(&seed) & 1,
                         .type = type});
        check(&(op_case){.op = test_random(&seed) & 1 ? CGP_OP_SOFTMAX : CGP_OP_LOG_SOFTMAX,
                         .attributes = plain_attributes(rows, width),
                         .n = 1,
                         .add = test_random(&seed) & 1,
                         .type = type});
    }
    runner_close(&small);
    cuda = all;
}

/* --- commits --- */

/* Put a value that is not finite as a float into some accumulators, so that a commit must report
 * it. */
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
    assert_ok(on->backend->kernels.check_commit(on->device, &spec, &moved, there_of(&t, &index)));
    assert_ok(on->backend->kernels.commit(on->device, &spec, &moved));
    there_end(&t);
    return index;
}

/* Merge the statistics of `n` micro-batches. They are in a log in device memory, with gaps between
 * the entries. */
static void merge(const runner *on, operands *o, const char *log, int64_t entry, int n, bool first,
                  bool deferred) {
    const cgp_kernel_spec spec = spec_of(&o->c, CGP_OP_FORWARD);
    const value_row row = row_of(o);
    there t = {.on = on};
    put_operands(&t, o, NULL);
    there_put(&t, (void *)log, (size_t)(entry * n));
    const cgp_kernel_args args = op_args(o, &row);
    cgp_kernel_args moved = there_args(&t, args);
    moved.log = there_of(&t, (void *)log);
    moved.log_bytes = entry;
    moved.first = first;
    moved.deferred = deferred;
    assert_ok(on->backend->kernels.merge(on->device, &spec, &moved, n));
    there_end(&t);
}

TEST_CASE(merges_have_the_bits_of_cpu) {
    for (int i = 0; i < 40; i++) {
        op_case c = draw_case(CGP_OP_BATCH_NORM, 3, &seed);
        operands a, b;
        c.attributes = norm_attributes(3, test_between(&seed, 1, 700));
        c.attributes.norm.momentum = i % 2 ? 0.1f : -1.0f;
        operands_create(&a, &c, &seed);
        *(int32_t *)(void *)a.at[SLOT_STATE + 2] = i;
        const int n = test_between(&seed, 1, 5);
        const int64_t entry = cgp__running_stats_entry_bytes(c.attributes.out) + 64;
        char *log = calloc((size_t)n, (size_t)entry);
        for (int k = 0; k < n; k++) {
            float *values = (float *)(void *)(log + k * entry + sizeof(double));
            *(double *)(void *)(log + k * entry) = test_between(&seed, 1, 9);
            for (int64_t j = 0; j < 2 * c.attributes.out; j++)
                values[j] = (float)test_between(&seed, 1, 1000) / 100;
        }
        operands_copy(&b, &a);
        merge(&cuda, &a, log, entry, n, i % 4 < 3, i % 3 == 0);
        merge(&cpu, &b, log, entry, n, i % 4 < 3, i % 3 == 0);
        for (int slot = SLOT_STATE; slot < SLOTS; slot++)
            assert_same_bits(&a, &b, slot, 0, "the bits of cpu");
        operands_destroy(&a);
        operands_destroy(&b);
        free(log);
    }
}

TEST_CASE(commits_have_the_bits_of_cpu) {
    for (int i = 0; i < 100; i++) {
        op_case c = draw_case(CGP_OP_BATCH_NORM, 3, &seed);
        operands a, b;
        c.attributes = norm_attributes(3, test_between(&seed, 1, 700));
        c.attributes.norm.momentum = i % 2 ? 0.1f : -1.0f;
        operands_create(&a, &c, &seed);
        *(int32_t *)(void *)a.at[SLOT_STATE + 2] = i % 5 ? i : INT32_MAX - 1;
        spoil(&a);
        operands_copy(&b, &a);
        assert_int_equal(commit(&cuda, &a), commit(&cpu, &b));
        for (int slot = SLOT_STATE; slot < SLOTS; slot++)
            assert_same_bits(&a, &b, slot, 0, "the bits of cpu");
        operands_destroy(&a);
        operands_destroy(&b);
    }
}

/* --- updates --- */

enum { PARAM, GRAD, FIRST, SECOND, BUFFERS, N = 1027 };

typedef struct update_case {
    const char *name;
    cgp_update update;
    int states;
} update_case;

static const update_case updates[] = {
    {"SGD", {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01}, 0},
    {"SGD, momentum", {.rule = CGP_UPDATE_SGD, .weight_decay = 0.01, .momentum = 0.9}, 1},
    {"SGD, Nesterov", {.rule = CGP_UPDATE_SGD, .momentum = 0.9, .nesterov = true}, 1},
    {"Adam",
     {.rule = CGP_UPDATE_ADAM, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
     2},
    {"AdamW",
     {.rule = CGP_UPDATE_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
     2},
    {"RMSprop", {.rule = CGP_UPDATE_RMSPROP, .weight_decay = 0.01, .alpha = 0.99, .eps = 1e-8}, 1},
    {"RMSprop, momentum",
     {.rule = CGP_UPDATE_RMSPROP, .momentum = 0.9, .alpha = 0.9, .eps = 1e-8},
     2},
};

/* Update the buffers from element `from` on. Depending on `from`, the address is aligned for
 * vectors of four floats or not. */
static void run_update(const runner *on, const update_case *c, float buffers[BUFFERS][N + 4],
                       int from) {
    cgp_update_values values = {
        .lr = 0.003, .correction1 = 0.271, .correction2_sqrt = 0.0547, .gradient_scale = 0.7};
    cgp_update update = c->update;
    there t = {.on = on};
    there_put(&t, &values, sizeof values);
    for (int b = 0; b < BUFFERS; b++)
        there_put(&t, buffers[b], sizeof buffers[b]);
    update.n = N;
    update.values = there_of(&t, &values);
    update.param = there_of(&t, buffers[PARAM] + from);
    update.grad = there_of(&t, buffers[GRAD] + from);
    for (int s = 0; s < c->states; s++)
        update.state[s] = there_of(&t, buffers[FIRST + s] + from);
    assert_ok(on->backend->kernels.update(on->device, &update, 1));
    there_end(&t);
}

TEST_CASE(updates_have_the_bits_of_cpu) {
    static float a[BUFFERS][N + 4], b[BUFFERS][N + 4];
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        for (int from = 0; from < 4; from++) {
            for (int k = 0; k < BUFFERS; k++)
                fill_random(a[k], N + 4, &seed);
            for (int k = 0; k < N + 4; k++) { /* means of squares are not negative */
                a[FIRST][k] =
                    updates[i].update.rule == CGP_UPDATE_RMSPROP ? fabsf(a[FIRST][k]) : a[FIRST][k];
                a[SECOND][k] = fabsf(a[SECOND][k]);
            }
            memcpy(b, a, sizeof b);
            run_update(&cuda, &updates[i], a, from);
            run_update(&cpu, &updates[i], b, from);
            if (memcmp(a, b, sizeof a) != 0)
                fail_msg("%s, from element %d on: not the bits of cpu", updates[i].name, from);
        }
    }
}

int main(void) {
    static cgp_op_kind kinds[CGP_OP_KINDS];
    static char names[CGP_OP_KINDS][64];
    cgp_isa isa = CGP_ISA_NONE;
    setenv("CGP_CPU_ISA", "v4", 1);
    setenv("CGP_CUDA_HOST_ORDER", "shuffled", 0); /* reveals missing barriers */
    if (cgp__backend_cpu.device.isa(CGP_F32, &isa) != CGP_OK) {
        printf("skipped: %s\n", cgp_message());
        return 77;
    }
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        kinds[op] = (cgp_op_kind)op;
        if (op == CGP_OP_ATTENTION || op == CGP_OP_CACHED_ATTENTION) continue;
        snprintf(names[op], sizeof names[op], "%s has the bits of cpu",
                 cgp__op_find(kinds[op])->op.name);
        test_add(__LINE__, &(const struct CMUnitTest){.name = names[op],
                                                      .test_func = an_op_has_the_bits_of_cpu,
                                                      .initial_state = &kinds[op]});
    }
    seed = test_seed();
    cpu = runner_open(&cgp__backend_cpu, 1);
    cuda = runner_open(cuda_host(), 1);
    const int failed = test_run();
    runner_close(&cuda);
    runner_close(&cpu);
    return failed;
}
