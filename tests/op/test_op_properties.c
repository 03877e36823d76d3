/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_properties.c -- tests properties of each backend; most results are compared bit for bit.
 * Kernels give equal results in place and out of place. A sample's result does not depend on other
 * samples. If two inputs are the same value, their gradients are added up. Dropout masks follow
 * their rule, fewer samples need no more workspace, and BATCH_NORM updates its running
 * statistics. */
#include "harness.h"

static uint64_t seed;
static runner ref, cpu;
static const runner *tested; /* the backend under test */
static int rarely;           /* one case in `rarely` is run, because CUDA's fibers are slow */

/* A plan for n samples is also used for fewer samples, so fewer samples must not need more
 * workspace. */
TEST_ON_BOTH(fewer_samples_need_no_more_workspace) {
    const runner *on = *state;
    static const int threads[] = {1, 2, 5};
    for (int i = 0; i < 600 / FEWER; i++) {
        const cgp_op_kind op = (cgp_op_kind)test_between(&seed, 0, CGP_OP_KINDS - 1);
        cgp_kernel_spec spec = {.op = op,
                                .direction =
                                    (cgp_op_direction)test_between(&seed, 0, CGP_OP_DIRECTIONS - 1),
                                .attributes = draw_attributes(op, test_between(&seed, 1, 300),
                                                              test_between(&seed, 1, 1100),
                                                              test_between(&seed, 1, 1100), &seed),
                                .type = test_random(&seed) & 1 ? CGP_BF16 : CGP_F32};
        const int t = threads[test_random(&seed) % 3], max = test_between(&seed, 2, 12);
        const cgp_device_options options = device_options(t);
        int64_t before = 0, bytes = 0;
        spec.n = 1;
        if (!op_has(op, spec.direction)) continue;
        for (spec.n = 1; spec.n <= max; spec.n++, before = bytes) {
            assert_ok(on->backend->kernels.workspace(&options, &spec, &bytes));
            if (bytes < before)
                fail_msg("%s: direction %d, %d threads: %" PRId64 " samples need %" PRId64
                         " bytes, one less %" PRId64,
                         case_text(&(op_case){.op = op, .attributes = spec.attributes}),
                         (int)spec.direction, t, spec.n, bytes, before);
        }
    }
}

/* --- in place equals out of place, bit for bit --- */

static void check_shared(const operands *from, const operands *apart, cgp_op_direction direction,
                         int slot, int over) {
    operands o;
    operands_copy(&o, from);
    operands_alias(&o, slot, over);
    op_run(tested, &o, direction);
    assert_same_bits(&o, apart, slot, 0, "in place");
    for (int other = SLOT_DX; other < SLOTS; other++)
        assert_same_bits(&o, apart, other, 0, "in place");
    operands_destroy(&o);
}

static void check_in_place(const op_case *c) {
    const cgp__op *op = cgp__op_find(c->op);
    op_case plain = *c;
    plain.add = 0;
    operands from, apart;
    if (!op->op.overwrites && op->dx == CGP__DX_SEPARATE) return;
    operands_create_bent(&from, &plain, &seed);
    operands_copy(&apart, &from);
    op_run(tested, &apart, CGP_OP_FORWARD);
    for (int k = 0; k < op->op.n_inputs; k++) {
        if (op->op.overwrites >> k & 1)
            check_shared(&from, &apart, CGP_OP_FORWARD, SLOT_Y, SLOT_X + k);
    }
    for (int slot = SLOT_Y; slot < SLOT_PARAM; slot++)
        copy_slot(&from, &apart, slot);
    copy_slot(&from, &apart, SLOT_ACCUMULATOR);
    if (case_has(c, CGP_OP_BACKWARD_INPUT) && op->dx != CGP__DX_SEPARATE) {
        op_run(tested, &apart, CGP_OP_BACKWARD_INPUT);
        check_shared(&from, &apart, CGP_OP_BACKWARD_INPUT, SLOT_DX,
                     op->dx == CGP__DX_OVER_X ? SLOT_X : SLOT_DY);
    }
    if (is_binary(c->op)) check_shared(&from, &apart, CGP_OP_BACKWARD_INPUT, SLOT_DX + 1, SLOT_DY);
    operands_destroy(&from);
    operands_destroy(&apart);
}

TEST_ON_BOTH(in_place_gives_the_same_bits) {
    tested = *state;
    for (int op = 0; op < CGP_OP_KINDS; op++)
        for_each_case((cgp_op_kind)op, rarely, check_in_place, &seed);
}

/* --- a result depends only on its own row, or its own image --- */

/* Run `n` samples alone, starting at sample `first`, with operands at another address. The results
 * must equal the results of the same samples in a run of all samples. */
static void check_slice(const operands *whole, const operands *before, int64_t first, int64_t n) {
    operands o;
    const int shift = test_between(&seed, 0, 15);
    operands_slice(&o, before, first, n, before->c.tf32 ? shift / 4 * 4 : shift);
    op_run(tested, &o, CGP_OP_FORWARD);
    if (case_has(&o.c, CGP_OP_BACKWARD_INPUT)) op_run(tested, &o, CGP_OP_BACKWARD_INPUT);
    for (int slot = SLOT_Y; slot < SLOT_DPARAM; slot++) {
        if (slot < SLOT_PARAM || slot >= SLOT_DX)
            assert_same_bits(&o, whole, slot, first * per_sample(whole, slot), "rows alone");
    }
    operands_destroy(&o);
}

static void check_slices(const op_case *c) {
    operands before, whole;
    operands_create_bent(&before, c, &seed);
    operands_copy(&whole, &before);
    op_run(tested, &whole, CGP_OP_FORWARD);
    if (case_has(c, CGP_OP_BACKWARD_INPUT)) op_run(tested, &whole, CGP_OP_BACKWARD_INPUT);
    for (int64_t first = 0; first < c->n;) {
        int64_t n = test_random(&seed) % 2 ? 1 : test_between(&seed, 1, 40);
        if (n > c->n - first) n = c->n - first;
        check_slice(&whole, &before, first, n);
        first += n;
    }
    operands_destroy(&before);
    operands_destroy(&whole);
}

/* Check the samples of a case, and then the same case with every row as a separate sample.
 * BATCH_NORM runs as in evaluation, so it uses its state. */
static void check_rows_alone(const op_case *c) {
    op_case rows = *c;
    if (c->op == CGP_OP_BATCH_NORM) rows.evaluate = true;
    if (c->op == CGP_OP_CACHED_ATTENTION) return; /* a row depends on earlier rows */
    check_slices(&rows);
    rows.n *= rows.attributes.rows;
    rows.attributes.rows = 1;
    if (c->op != CGP_OP_ATTENTION && c->op != CGP_OP_TRANSPOSE && c->op != CGP_OP_MATMUL &&
        !is_window_op(c->op))
        check_slices(&rows);
}

/* Check rows in TF32, with aligned operands for cuBLASLt. With unaligned operands, f32 kernels run,
 * and their results are not bit-identical to cuBLASLt's. */
static void check_rows_in_tf32(const op_case *c) {
    op_case in_tf32 = *c;
    in_tf32.type = CGP_F32;
    in_tf32.tf32 = true;
    in_tf32.shift = 0;
    check_rows_alone(&in_tf32);
}

TEST_ON_BOTH(a_row_depends_on_that_row_alone) {
    tested = *state;
    for (int op = 0; op < CGP_OP_KINDS; op++)
        for_each_case((cgp_op_kind)op, rarely, check_rows_alone, &seed);
    if (tested->backend->tf32) for_each_case(CGP_OP_LINEAR, rarely, check_rows_in_tf32, &seed);
}

/* --- a frozen parameter has no gradient --- */

/* Run backward without some gradients of parameters: dparam[k] is left out if bit k of `frozen` is
 * set. */
static void check_without(const operands *before, const operands *whole, cgp_op_direction direction,
                          uint32_t frozen) {
    const cgp__op *op = cgp__op_find(before->c.op);
    operands o;
    operands_copy(&o, before);
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++) {
        if (frozen >> k & 1) operands_drop(&o, SLOT_DPARAM + k);
    }
    if (direction == CGP_OP_BACKWARD_WEIGHT && op->bias_reads_dy && frozen & 1)
        operands_drop(&o, SLOT_X);
    op_run(tested, &o, direction);
    for (int slot = SLOT_DX; slot < SLOT_STATE; slot++) {
        if (o.at[slot]) assert_same_bits(&o, whole, slot, 0, "with frozen parameters");
    }
    operands_destroy(&o);
}

static void check_frozen(const op_case *c) {
    operands before, whole;
    operands_create_bent(&before, c, &seed);
    op_run(tested, &before, CGP_OP_FORWARD);
    for (int d = CGP_OP_BACKWARD_INPUT; d < CGP_OP_DIRECTIONS; d++) {
        const cgp_op_direction direction = (cgp_op_direction)d;
        uint32_t all = 0;
        if (!case_has(c, direction)) continue;
        operands_copy(&whole, &before);
        op_run(tested, &whole, direction);
        for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++)
            all |= (uint32_t)(whole.at[SLOT_DPARAM + k] != NULL) << k;
        /* a plan runs weight backward (W) of an op only if one of the op's parameters is
         * trainable */
        const bool input = direction == CGP_OP_BACKWARD_INPUT;
        for (uint32_t frozen = 1; frozen <= all; frozen++) {
            if (!(frozen & ~all) && (input || frozen != all))
                check_without(&before, &whole, direction, frozen);
        }
        operands_destroy(&whole);
    }
    operands_destroy(&before);
}

TEST_ON_BOTH(frozen_parameters_get_no_gradient_and_the_rest_has_the_same_bits) {
    tested = *state;
    for (int op = 0; op < CGP_OP_KINDS; op++)
        for_each_case((cgp_op_kind)op, rarely, check_frozen, &seed);
}

/* --- attention with a cache gives the rows of full attention --- */

/* Compare n rows of full attention, starting at row `first`, with attention that reads all earlier
 * rows from a cache. */
static void check_cached(const operands *whole, operands *cached, int64_t first, int64_t n) {
    const int64_t size = per_sample(cached, SLOT_Y);
    operands o;
    operands_slice(&o, cached, 0, n, test_between(&seed, 0, 3));
    for (int k = 0; k < 3; k++) {
        const int64_t each = per_sample(&o, SLOT_X + k);
        memcpy(o.at[SLOT_X + k], whole->at[SLOT_X + k] + first * each,
               (size_t)(n * each) * sizeof(float));
    }
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)(void *)o.at[SLOT_X + 3])[i] = (int32_t)(first + i);
    op_run(tested, &o, CGP_OP_FORWARD);
    assert_same_bits(&o, whole, SLOT_Y, first * size, "a row with a cache");
    copy_slot(cached, &o, SLOT_STATE);
    operands_destroy(&o);
}

static void check_attention_in_parts(int64_t rows, int64_t window) {
    const int64_t kv_heads = test_between(&seed, 1, 2), group = test_between(&seed, 1, 3);
    const int64_t depth = test_between(&seed, 1, 70), width = test_between(&seed, 1, 140);
    op_case c = {.op = CGP_OP_ATTENTION, .n = 1};
    c.type = test_random(&seed) & 1 ? CGP_BF16 : CGP_F32;
    c.attributes = windowed_attributes(rows, window, kv_heads, group, depth, width, 0.0);
    operands whole, cached;
    operands_create_bent(&whole, &c, &seed);
    op_run(tested, &whole, CGP_OP_FORWARD);
    c.op = CGP_OP_CACHED_ATTENTION;
    c.n = rows;
    c.attributes =
        cached_attributes(rows + test_between(&seed, 0, 9), window, kv_heads, group, depth, width);
    operands_create_bent(&cached, &c, &seed);
    for (int64_t first = 0, n; first < rows; first += n) {
        n = test_random(&seed) % 2 ? 1 : test_between(&seed, 1, 90);
        if (n > rows - first) n = rows - first;
        check_cached(&whole, &cached, first, n);
    }
    operands_destroy(&cached);
    operands_destroy(&whole);
}

TEST_ON_BOTH(a_row_with_a_cache_is_that_row_of_attention) {
    static const int64_t rows[] = {1, 63, 64, 65, 130, 200}, windows[] = {0, 1, 40, 64, 100};
    tested = *state;
    for (int i = 0; i < (rarely > 3 ? 3 : test_scaled(12)); i++)
        check_attention_in_parts(rows[test_random(&seed) % 6], windows[test_random(&seed) % 5]);
    if (tested->backend != &cgp__backend_cpu) return;
    check_attention_in_parts(600, 0); /* keys are summed in blocks of 512 */
    check_attention_in_parts(700, 530);
}

/* --- inputs that are one value --- */

/* If both inputs are the same value, the kernel adds dx[0] and dx[1] in the same memory. This may
 * also be the memory of dy. The result must equal the sum of dx[0] and dx[1] from a run with
 * separate memory. */
static void check_one_value(const op_case *c) {
    operands one, apart;
    op_case both = *c;
    both.add = 0;
    operands_create_bent(&one, &both, &seed);
    operands_copy(&apart, &one);
    op_run(tested, &apart, CGP_OP_BACKWARD_INPUT);
    memcpy(apart.at[SLOT_DX], apart.at[SLOT_DX + 1], (size_t)apart.count[SLOT_DX] * sizeof(float));
    one.c.add = apart.c.add = 1;
    op_run(tested, &apart, CGP_OP_BACKWARD_INPUT);
    operands in_place;
    operands_copy(&in_place, &one);
    operands_alias(&one, SLOT_DX, SLOT_DX + 1);
    op_run(tested, &one, CGP_OP_BACKWARD_INPUT);
    assert_same_bits(&one, &apart, SLOT_DX, 0, "one value");
    if (cgp__op_find(c->op)->dx == CGP__DX_IN_PLACE) {
        operands_alias(&in_place, SLOT_DX, SLOT_DY);
        operands_alias(&in_place, SLOT_DX + 1, SLOT_DY);
        op_run(tested, &in_place, CGP_OP_BACKWARD_INPUT);
        assert_same_bits(&in_place, &apart, SLOT_DX, 0, "one value, in place");
    }
    operands_destroy(&in_place);
    operands_destroy(&one);
    operands_destroy(&apart);
}

TEST_ON_BOTH(inputs_that_are_one_value_add_their_gradients) {
    static const int64_t widths[] = {1, 3, 17, 64, 500};
    tested = *state;
    for (int i = 0; i < 5; i++) {
        op_case c = draw_case(CGP_OP_CONCAT, 4, &seed);
        c.attributes = concat_attributes(test_between(&seed, 1, 70),
                                         (int64_t[CGP_OP_MAX_INPUTS]){widths[i], widths[i]});
        check_one_value(&c);
        c.attributes = plain_attributes(c.attributes.rows, widths[i]);
        for (c.op = 0; c.op < CGP_OP_KINDS; c.op++) {
            if (is_binary(c.op)) check_one_value(&c);
        }
        c.op = CGP_OP_MATMUL;
        c.attributes =
            matmul_attributes(2, widths[i] / 2 + 1, widths[i] / 2 + 1, widths[i] / 2 + 1, i % 4);
        check_one_value(&c);
    }
}

/* --- running statistics --- */

/* Compute the mean and the unbiased variance of a channel of x. */
static void statistics(const operands *o, int64_t c, double *mean, double *variance) {
    const int64_t width = o->c.attributes.out, rows = o->count[SLOT_X] / width;
    double sum = 0.0, squares = 0.0;
    for (int64_t row = 0; row < rows; row++)
        sum += o->at[SLOT_X][row * width + c];
    *mean = sum / (double)rows;
    for (int64_t row = 0; row < rows; row++)
        squares += pow(o->at[SLOT_X][row * width + c] - *mean, 2.0);
    *variance = squares / (double)(rows - 1);
}

static void commit(operands *o) {
    const cgp_kernel_spec spec = spec_of(&o->c, CGP_OP_FORWARD);
    value_row row = row_of(o);
    int64_t index = -2;
    there t = {.on = tested};
    there_put(&t, &row, sizeof row);
    there_put(&t, &index, sizeof index);
    put_operands(&t, o, NULL);
    const cgp_kernel_args args = there_args(&t, op_args(o, &row));
    assert_ok(
        tested->backend->kernels.check_commit(tested->device, &spec, &args, there_of(&t, &index)));
    assert_ok(tested->backend->kernels.commit(tested->device, &spec, &args));
    there_end(&t);
    assert_int_equal(index, -1);
}

static void assert_state(const operands *o, int k, int64_t c, double want) {
    const double got = (double)o->at[SLOT_STATE + k][c];
    if (!(fabs(got - want) <= 1e-5 * (1.0 + fabs(want))))
        fail_msg("%s: state %d [%" PRId64 "] is %.9g, expected %.9g", case_text(&o->c), k, c, got,
                 want);
}

/* A commit at the end of the step sets the state to (1 - momentum) * state + momentum * statistics.
 * The state does not change before the commit. */
TEST_ON_BOTH(training_moves_running_statistics_when_it_commits) {
    tested = *state;
    for (int i = 0; i < 40; i++) {
        op_case c = draw_case(CGP_OP_BATCH_NORM, 4, &seed);
        c.attributes = norm_attributes(test_between(&seed, 2, 90), test_between(&seed, 1, 70));
        c.attributes.norm.momentum = 0.25f;
        c.accumulate = c.evaluate = false;
        operands o, before;
        operands_create_bent(&o, &c, &seed);
        operands_copy(&before, &o);
        op_run(tested, &o, CGP_OP_FORWARD);
        for (int k = 0; k < CGP_OP_MAX_STATE; k++)
            assert_same_bits(&o, &before, SLOT_STATE + k, 0, "before the commit");
        commit(&o);
        for (int64_t channel = 0; channel < c.attributes.out; channel++) {
            double batch[2];
            statistics(&o, channel, &batch[0], &batch[1]);
            for (int k = 0; k < 2; k++)
                assert_state(&o, k, channel,
                             0.75 * (double)before.at[SLOT_STATE + k][channel] + 0.25 * batch[k]);
        }
        operands_destroy(&o);
        operands_destroy(&before);
    }
}

/* Statistics are collected only in training and with an accumulator. Recomputation has no
 * accumulator; evaluation may have an accumulator. The result y does not depend on the
 * accumulator. */
TEST_ON_BOTH(only_training_with_accumulator_collects) {
    tested = *state;
    for (int i = 0; i < 40; i++) {
        op_case c = draw_case(CGP_OP_BATCH_NORM, 4, &seed);
        c.attributes =
            draw_attributes(c.op, test_between(&seed, 1, 90), test_between(&seed, 1, 70), 0, &seed);
        operands o, before, without;
        operands_create_bent(&before, &c, &seed);
        operands_copy(&o, &before);
        operands_copy(&without, &before);
        op_run(tested, &o, CGP_OP_FORWARD);
        operands_drop(&without, SLOT_ACCUMULATOR);
        op_run(tested, &without, CGP_OP_FORWARD);
        for (int slot = SLOT_Y; slot < SLOT_PARAM; slot++)
            assert_same_bits(&without, &o, slot, 0, "without accumulator");
        const bool changed = memcmp(o.at[SLOT_ACCUMULATOR], before.at[SLOT_ACCUMULATOR],
                                    (size_t)o.count[SLOT_ACCUMULATOR] * sizeof(float)) != 0;
        assert_int_equal(changed, !c.evaluate);
        operands_destroy(&o);
        operands_destroy(&before);
        operands_destroy(&without);
    }
}

/* --- dropout's rule (cgpipe/ext/ops/common.h) --- */

static bool kept(const operands *o, int64_t sample, int64_t group, int64_t element) {
    const uint64_t index = (uint64_t)(o->c.sample + sample);
    const uint32_t counter[] = {(uint32_t)(element / 4), (uint32_t)group, (uint32_t)index,
                                (uint32_t)(index >> 32)};
    uint32_t words[4];
    cgp__philox(words, counter, cgp__rng_derive(o->seed, CGP__RNG_DROPOUT, o->step, o->id));
    return words[element % 4] >= cgp__dropout_threshold(o->c.attributes.p);
}

/* DROPOUT drops elements; DROPOUT2D drops whole channels of a sample. */
static void check_mask(const op_case *c) {
    const int64_t size = c->attributes.rows * c->attributes.out;
    const int64_t period = c->op == CGP_OP_DROPOUT ? size : c->attributes.out;
    operands o;
    operands_create(&o, c, &seed);
    op_run(tested, &o, CGP_OP_FORWARD);
    for (int64_t i = 0; i < o.count[SLOT_Y]; i++) {
        const bool keep = c->evaluate || kept(&o, i / size, 0, i % size % period);
        if (keep != (o.at[SLOT_Y][i] != 0.0f))
            fail_msg("%s: [%" PRId64 "] is %g, kept: %d", case_text(c), i, (double)o.at[SLOT_Y][i],
                     keep);
    }
    operands_destroy(&o);
}

TEST_ON_BOTH(dropout_follows_its_rule) {
    tested = *state;
    for_each_case(CGP_OP_DROPOUT, 3, check_mask, &seed);
    for_each_case(CGP_OP_DROPOUT2D, 3, check_mask, &seed);
}

/* If q = 0, query t gives equal weight to the keys 0 to t. Because v[j] is unit vector number j, y
 * contains the probability of each key. The probability is 1 / (t + 1) / (1 - p), or 0 if dropout
 * drops the key. */
TEST_ON_BOTH(attention_follows_dropouts_rule) {
    tested = *state;
    static const int64_t all_rows[] = {1, 5, 64, 65, 130};
    for (int r = 0; r < 5; r++) {
        const int64_t rows = all_rows[r], depth = rows, width = 3 * depth;
        const op_case c = {.op = CGP_OP_ATTENTION,
                           .attributes = attention_attributes(rows, 3, depth, 0.3),
                           .n = 2,
                           .sample = ((int64_t)1 << 32) - 1};
        operands o;
        operands_create(&o, &c, &seed);
        for (int64_t i = 0; i < o.count[SLOT_X]; i++) {
            const int64_t t = i / (3 * width) % rows, column = i % (3 * width);
            o.at[SLOT_X][i] = column >= 2 * width && column % depth == t ? 1.0f : 0.0f;
        }
        op_run(tested, &o, CGP_OP_FORWARD);
        for (int64_t i = 0; i < o.count[SLOT_Y]; i++) {
            const int64_t sample = i / width / rows, t = i / width % rows;
            const int64_t head = i % width / depth, key = i % depth;
            const bool keep = key <= t && kept(&o, sample, head * rows + t, key);
            const double want = keep ? 1.0 / (double)(t + 1) / (1.0 - 0.3) : 0.0;
            if (!(fabs(o.at[SLOT_Y][i] - want) <= 16 * (double)FLT_EPSILON * want))
                fail_msg("%s: query %" PRId64 ", key %" PRId64 " is %g, expected %g", case_text(&c),
                         t, key, (double)o.at[SLOT_Y][i], want);
        }
        operands_destroy(&o);
    }
}

/* An op with a fused RELU equals the op followed by a RELU. */
static void check_fused(const op_case *c) {
    op_case ends = *c;
    ends.attributes.slope = test_random(&seed) & 1 ? 0.0f : 0.2f;
    const op_case relu = {.op = CGP_OP_RELU,
                          .attributes = relu_attributes(c->attributes.rows, c->attributes.out,
                                                        (double)ends.attributes.slope),
                          .n = c->n,
                          .type = c->type};
    operands one, two, last;
    operands_create(&one, c, &seed);
    operands_copy(&two, &one);
    two.c = ends;
    operands_create(&last, &relu, &seed);
    op_run(tested, &one, CGP_OP_FORWARD);
    op_run(tested, &two, CGP_OP_FORWARD);
    memcpy(last.at[SLOT_X], one.at[SLOT_Y], (size_t)one.count[SLOT_Y] * sizeof(float));
    op_run(tested, &last, CGP_OP_FORWARD);
    if (memcmp(two.at[SLOT_Y], last.at[SLOT_Y], (size_t)two.count[SLOT_Y] * sizeof(float)) != 0)
        fail_msg("%s: is not the RELU of it", case_text(&ends));
    operands_destroy(&one);
    operands_destroy(&two);
    operands_destroy(&last);
}

TEST_CASES(an_op_that_ends_in_a_relu_is_two, ON_ONE(an_op_that_ends_in_a_relu_is_two, cpu)) {
    tested = *state;
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        if (cgp__op_find((cgp_op_kind)op)->ends_in_relu)
            for_each_case((cgp_op_kind)op, 3, check_fused, &seed);
    }
}

int main(void) {
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(backend_under_test(), 1);
    rarely = cpu.backend == &cgp__backend_cpu ? 3 : 9;
    const int failed = test_run();
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
