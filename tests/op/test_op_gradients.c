/* test_op_gradients.c -- the ref backend's backward is the derivative of its forward.
 *
 * L(x) = sum(y r) with r = dy, or the loss times its scale, is summed in double from float y.
 * With D(h) = (L(x + h) - L(x - h)) / 2h at h and h / 2, the estimate is (4 D(h/2) - D(h)) / 3.
 * It is off by less than
 *
 *     |D(h/2) - D(h)|    3/4 of the truncation error of D(h), most of which it removes
 *   + 4 u |y r| / h      each y is rounded by at most u |y|, u = 2^-24, independently: L
 *                        is off by about u times the 2-norm of y r, on either side
 *
 * and the float gradient itself by 2^-20 of its size (its own rounding, and that of the float
 * values that forward saves). The loss comes in double, so the second term is 0 for it. */
#include "harness.h"

#define STEP 0x1p-6
#define CHECKED 12 /* places of each operand */

static uint64_t seed;

/* L, and the 2-norm of y r */
static double value(const runner *on, operands *o, double *norm) {
    double sum = 0.0, squares = 0.0;
    op_run(on, o, CGP__FORWARD);
    if (o->c.op == CGP__OP_CROSS_ENTROPY) return o->loss * (double)o->loss_scale;
    for (int64_t i = 0; i < o->count[SLOT_Y]; i++) {
        const double term = (double)o->at[SLOT_Y][i] * o->at[SLOT_DY][i];
        sum += term;
        squares += term * term;
    }
    *norm = sqrt(squares);
    return sum;
}

static double difference(const runner *on, operands *o, float *x, double h, double *norm) {
    const float middle = *x, high = (float)(middle + h), low = (float)(middle - h);
    *x = high;
    const double above = value(on, o, norm);
    *x = low;
    const double below = value(on, o, norm);
    *x = middle;
    return (above - below) / ((double)high - low);
}

/* The gradient at `gradient` against differences of the values at `slot`. */
static void check_slot(const runner *on, operands *o, int slot, int gradient) {
    operands moved;
    operands_copy(&moved, o);
    for (int k = 0; o->at[gradient] && k < CHECKED; k++) {
        const int64_t i = (int64_t)(test_random(&seed) % (uint64_t)o->count[slot]);
        double norm = 0.0;
        const double coarse = difference(on, &moved, moved.at[slot] + i, STEP, &norm);
        const double fine = difference(on, &moved, moved.at[slot] + i, STEP / 2, &norm);
        const double expected = (4.0 * fine - coarse) / 3.0, got = o->at[gradient][i];
        const double tolerance = fabs(fine - coarse) + 4.0 * 0x1p-24 * norm / STEP +
                                 0x1p-20 * (fabs(expected) + (double)o->loss_scale);
        if (!(fabs(got - expected) <= tolerance))
            fail_msg("%s: slot %d [%" PRId64 "] is %g, differences give %g +- %g",
                     case_text(&o->c), gradient, i, got, expected, tolerance);
    }
    operands_destroy(&moved);
}

/* Neighbours in a row of layer norm 2 to 6 apart: where a row's deviation is as small as the
 * step, a difference is no estimate. */
static void spread(operands *o) {
    for (int64_t i = 0; o->c.op == CGP__OP_LAYER_NORM && i < o->count[SLOT_X]; i++)
        o->at[SLOT_X][i] += i % 2 ? 2.0f : -2.0f;
}

static void check(const op_case *c) {
    runner on = runner_open(&cgp__backend_ref, 1);
    operands o;
    operands_create(&o, c, &seed);
    spread(&o);
    op_run(&on, &o, CGP__FORWARD);
    for (int direction = CGP__BACKWARD_INPUT; direction < CGP__DIRECTIONS; direction++) {
        if (op_has(c->op, (cgp__direction)direction))
            op_run(&on, &o, (cgp__direction)direction);
    }
    for (int k = 0; k < 2; k++) {
        check_slot(&on, &o, SLOT_X + k, SLOT_DX + k);
        check_slot(&on, &o, SLOT_PARAM + k, SLOT_DPARAM + k);
    }
    operands_destroy(&o);
    runner_close(&on);
}

static const int64_t widths[] = {1, 2, 3, 17, 33};
static const int64_t lengths[] = {1, 5, 130};

#define FOR_EACH(variable, array)                                                              \
    for (size_t variable##_at = 0; variable##_at < sizeof(array) / sizeof *(array);            \
         variable##_at++)                                                                      \
        for (int64_t variable = (array)[variable##_at], once_##variable = 1; once_##variable;  \
             once_##variable = 0)

static void check_plain(cgp__op_kind op) {
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = op, .geometry = plain_geometry(rows, width), .n = 2});
        }
    }
}

static void add_is_differentiated(void **state) {
    (void)state;
    check_plain(CGP__OP_ADD);
}

static void position_is_differentiated(void **state) {
    (void)state;
    check_plain(CGP__OP_POSITION);
}

static void gelu_is_differentiated(void **state) {
    (void)state;
    check_plain(CGP__OP_GELU);
}

static void embedding_is_differentiated(void **state) {
    (void)state;
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = CGP__OP_EMBEDDING,
                             .geometry = embedding_geometry(rows, 7, width),
                             .n = 3});
        }
    }
}

static void linear_is_differentiated_in_both_layouts(void **state) {
    (void)state;
    FOR_EACH(in, widths) {
        FOR_EACH(out, widths) {
            for (int kind = 0; kind < 4; kind++) {
                check(&(op_case){.op = CGP__OP_LINEAR,
                                 .geometry = linear_geometry(5, in, out, kind & 1, kind & 2),
                                 .n = 2});
            }
        }
    }
}

static void layer_norm_is_differentiated(void **state) {
    (void)state;
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = CGP__OP_LAYER_NORM,
                             .geometry = layer_norm_geometry(rows, width),
                             .n = 2});
        }
    }
}

static void attention_is_differentiated_with_dropout_and_without(void **state) {
    (void)state;
    static const int64_t heads_of[] = {1, 3}, depths[] = {1, 5, 16};
    FOR_EACH(heads, heads_of) {
        FOR_EACH(depth, depths) {
            FOR_EACH(rows, lengths) {
                op_case c = {.op = CGP__OP_ATTENTION, .n = rows > 5 ? 1 : 2, .sample = 3};
                c.geometry = attention_geometry(rows, heads, depth, 0.0);
                check(&c);
                c.geometry.p = 0.3f;
                check(&c);
                c.evaluate = true;
                check(&c);
            }
        }
    }
}

static void dropout_is_differentiated(void **state) {
    (void)state;
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            op_case c = {.op = CGP__OP_DROPOUT,
                         .geometry = dropout_geometry(rows, width, 0.4),
                         .n = 2,
                         .sample = ((int64_t)1 << 32) - 1};
            check(&c);
            c.evaluate = true;
            check(&c);
        }
    }
}

static void cross_entropy_is_differentiated_with_ignored_targets(void **state) {
    (void)state;
    FOR_EACH(classes, widths) {
        FOR_EACH(rows, lengths) {
            op_case c = {
                .op = CGP__OP_CROSS_ENTROPY, .geometry = loss_geometry(rows, classes), .n = 2};
            check(&c);
            c.geometry.ignore = 0; /* a class that is ignored */
            check(&c);
        }
    }
}

/* One case of each op, small. */
static op_case one_of(int op) {
    static const int64_t rows = 5, width = 6;
    cgp__geometry g = plain_geometry(rows, width);
    if (op == CGP__OP_EMBEDDING) g = embedding_geometry(rows, 7, width);
    if (op == CGP__OP_LINEAR) g = linear_geometry(rows, width, 3, true, false);
    if (op == CGP__OP_LAYER_NORM) g = layer_norm_geometry(rows, width);
    if (op == CGP__OP_ATTENTION) g = attention_geometry(rows, 2, 3, 0.3);
    if (op == CGP__OP_DROPOUT) g = dropout_geometry(rows, width, 0.3);
    if (op == CGP__OP_CROSS_ENTROPY) g = loss_geometry(rows, width);
    if (op == CGP__OP_ARGMAX) g = argmax_geometry(rows, width);
    return (op_case){.op = (cgp__op_kind)op, .geometry = g, .n = 3};
}

static void assert_sum(const operands *o, int slot, const float *before, const float *plain) {
    for (int64_t i = 0; i < o->count[slot]; i++) {
        const float expected = before[i] + plain[i];
        if (o->at[slot][i] != expected)
            fail_msg("%s: slot %d [%" PRId64 "] is %g, expected %g + %g", case_text(&o->c),
                     slot, i, (double)o->at[slot][i], (double)before[i], (double)plain[i]);
    }
}

/* Each bit of `add`, and `first`: exactly the old value plus what is written otherwise. */
static void gradients_are_added_where_the_case_says_so(void **state) {
    (void)state;
    runner on = runner_open(&cgp__backend_ref, 1);
    for (int op = 0; op < CGP__OP_KINDS; op++) {
        for (int direction = CGP__BACKWARD_INPUT; direction < CGP__DIRECTIONS; direction++) {
            for (uint32_t add = 0;
                 op_has((cgp__op_kind)op, (cgp__direction)direction) && add < 8; add++) {
                const op_case c = one_of(op);
                operands before, plain, o;
                operands_create(&before, &c, &seed);
                op_run(&on, &before, CGP__FORWARD);
                operands_copy(&plain, &before);
                operands_copy(&o, &before);
                o.c.add = add & 3;
                o.c.accumulate = add >> 2;
                op_run(&on, &plain, (cgp__direction)direction);
                op_run(&on, &o, (cgp__direction)direction);
                const bool input = direction == CGP__BACKWARD_INPUT;
                const bool weight = !input || op == CGP__OP_LAYER_NORM;
                for (int k = 0; k < 2; k++) {
                    const int dx = SLOT_DX + k, dparam = SLOT_DPARAM + k;
                    if (input && (add >> k & 1))
                        assert_sum(&o, dx, before.at[dx], plain.at[dx]);
                    if (weight && o.c.accumulate)
                        assert_sum(&o, dparam, before.at[dparam], plain.at[dparam]);
                }
                operands_destroy(&o);
                operands_destroy(&plain);
                operands_destroy(&before);
            }
        }
    }
    runner_close(&on);
}

static void a_gradient_that_nobody_wants_is_left_out(void **state) {
    (void)state;
    runner on = runner_open(&cgp__backend_ref, 1);
    for (int op = CGP__OP_POSITION; op < CGP__OP_KINDS; op++) {
        if (!op_has((cgp__op_kind)op, CGP__BACKWARD_INPUT)) continue;
        const op_case c = one_of(op);
        operands o;
        operands_create(&o, &c, &seed);
        op_run(&on, &o, CGP__FORWARD);
        o.at[SLOT_DX] = NULL;
        free(o.room[SLOT_DX]);
        o.room[SLOT_DX] = NULL;
        op_run(&on, &o, CGP__BACKWARD_INPUT);
        if (op == CGP__OP_ADD)
            assert_memory_equal(o.at[SLOT_DX + 1], o.at[SLOT_DY],
                                (size_t)o.count[SLOT_DY] * sizeof(float));
        operands_destroy(&o);
    }
    runner_close(&on);
}

static void a_direction_that_an_op_has_not_is_refused(void **state) {
    (void)state;
    runner on = runner_open(&cgp__backend_ref, 1);
    for (int op = 0; op < CGP__OP_KINDS; op++) {
        const op_case c = one_of(op);
        for (int direction = 0; direction < CGP__DIRECTIONS; direction++) {
            const cgp__kernel_spec spec = {c.op,   (cgp__direction)direction, c.geometry, 1, 0,
                                           CGP_F32};
            cgp__kernel *kernel = NULL;
            const bool has = op_has(c.op, (cgp__direction)direction);
            assert_status(cgp__backend_ref.kernel_create(on.device, &spec, &kernel),
                          has ? CGP_OK : CGP_EINVAL);
            if (!has) assert_message(cgp__op_find(c.op)->name);
            cgp__backend_ref.kernel_destroy(kernel);
        }
    }
    runner_close(&on);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_is_differentiated),
        cmocka_unit_test(position_is_differentiated),
        cmocka_unit_test(gelu_is_differentiated),
        cmocka_unit_test(embedding_is_differentiated),
        cmocka_unit_test(linear_is_differentiated_in_both_layouts),
        cmocka_unit_test(layer_norm_is_differentiated),
        cmocka_unit_test(attention_is_differentiated_with_dropout_and_without),
        cmocka_unit_test(dropout_is_differentiated),
        cmocka_unit_test(cross_entropy_is_differentiated_with_ignored_targets),
        cmocka_unit_test(gradients_are_added_where_the_case_says_so),
        cmocka_unit_test(a_gradient_that_nobody_wants_is_left_out),
        cmocka_unit_test(a_direction_that_an_op_has_not_is_refused),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
