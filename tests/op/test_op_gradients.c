/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_gradients.c -- the ref backend's backward is the derivative of its forward
 * (differences.h). Backward adds to the old value of a gradient if the case requires it, and does
 * not compute a dx that is NULL. Ops over images are in test_op_gradients_images.c. */
#include "differences.h"

static uint64_t seed;

static const int64_t widths[] = {1, 2, 3, 17, 33};
static const int64_t lengths[] = {1, 5, 130};

static void check_plain(cgp_op_kind op) {
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = op, .attributes = plain_attributes(rows, width), .n = 2}, &seed);
        }
    }
}

TEST_CASE(add_is_differentiated) {
    check_plain(CGP_OP_ADD);
}

TEST_CASE(multiply_is_differentiated) {
    check_plain(CGP_OP_MULTIPLY);
}

TEST_CASE(subtract_is_differentiated) {
    check_plain(CGP_OP_SUBTRACT);
}

TEST_CASE(scale_is_differentiated) {
    FOR_EACH(width, widths) {
        check(&(op_case){.op = CGP_OP_SCALE, .attributes = relu_attributes(5, width, -1.7), .n = 2},
              &seed);
    }
}

TEST_CASE(every_function_is_differentiated) {
    for (int function = 0; function < CGP_FUNCTIONS; function++) {
        FOR_EACH(width, widths) {
            check(&(op_case){.op = kind_of_function(function),
                             .attributes = function_attributes(5, width, function),
                             .n = 2},
                  &seed);
        }
    }
}

TEST_CASE(position_is_differentiated) {
    check_plain(CGP_OP_POSITION);
}

TEST_CASE(gelu_is_differentiated) {
    check_plain(CGP_OP_GELU);
}

TEST_CASE(gelu_with_tanh_is_differentiated) {
    check_plain(CGP_OP_GELU_TANH);
}

TEST_CASE(silu_is_differentiated) {
    check_plain(CGP_OP_SILU);
}

TEST_CASE(sigmoid_and_tanh_are_differentiated) {
    check_plain(CGP_OP_SIGMOID);
    check_plain(CGP_OP_TANH);
}

TEST_CASE(softmax_is_differentiated) {
    check_plain(CGP_OP_SOFTMAX);
    check_plain(CGP_OP_LOG_SOFTMAX);
}

TEST_CASE(embedding_is_differentiated) {
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = CGP_OP_EMBEDDING,
                             .attributes = embedding_attributes(rows, 7, width),
                             .n = 3},
                  &seed);
        }
    }
}

TEST_CASE(linear_is_differentiated_in_both_layouts) {
    FOR_EACH(in, widths) {
        FOR_EACH(out, widths) {
            for (int kind = 0; kind < 4; kind++) {
                check(&(op_case){.op = CGP_OP_LINEAR,
                                 .attributes = linear_attributes(5, in, out, kind & 1, kind & 2),
                                 .n = 2},
                      &seed);
            }
        }
    }
}

TEST_CASE(matmul_is_differentiated_however_its_inputs_lie) {
    static const int64_t sides[][4] = {{1, 1, 1, 1}, {2, 3, 5, 4}, {3, 17, 2, 1}, {1, 5, 33, 17}};
    for (int kind = 0; kind < 16; kind++) {
        const int64_t *s = sides[kind / 4];
        check(&(op_case){.op = CGP_OP_MATMUL,
                         .attributes = matmul_attributes(s[0], s[1], s[2], s[3], kind % 4),
                         .n = 2},
              &seed);
    }
}

static void check_norm(cgp_op_kind op) {
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            check(&(op_case){.op = op, .attributes = norm_attributes(rows, width), .n = 2}, &seed);
        }
    }
}

TEST_CASE(layer_norm_is_differentiated) {
    check_norm(CGP_OP_LAYER_NORM);
}

TEST_CASE(rms_norm_is_differentiated) {
    check_norm(CGP_OP_RMS_NORM);
}

TEST_CASE(attention_is_differentiated_with_dropout_and_without) {
    static const int64_t heads_of[] = {1, 3}, depths[] = {1, 5, 16};
    FOR_EACH(heads, heads_of) {
        FOR_EACH(depth, depths) {
            FOR_EACH(rows, lengths) {
                op_case c = {.op = CGP_OP_ATTENTION, .n = rows > 5 ? 1 : 2, .sample = 3};
                c.attributes = attention_attributes(rows, heads, depth, 0.0);
                check(&c, &seed);
                c.attributes.p = 0.3f;
                check(&c, &seed);
                c.evaluate = true;
                check(&c, &seed);
            }
        }
    }
}

/* The cases have shared key/value heads, windows, attention to all keys, another width of v's
 * heads, and a scale. */
TEST_CASE(grouped_attention_is_differentiated) {
    const cgp_op_attributes uses[] = {
        windowed_attributes(5, 0, 2, 3, 5, 4, 0.0),    windowed_attributes(70, 9, 1, 2, 4, 6, 0.3),
        windowed_attributes(130, 65, 1, 1, 3, 3, 0.0), grouped_attributes(6, 9, 1, 3, 4, 2, 0.3),
        grouped_attributes(70, 5, 2, 1, 4, 4, 0.0),    windowed_attributes(1, 0, 2, 2, 1, 1, 0.0)};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        op_case c = {.op = CGP_OP_ATTENTION, .n = 2, .sample = 3, .attributes = uses[i]};
        check(&c, &seed);
        c.attributes.attention.scale *= 1.5f;
        check(&c, &seed);
    }
}

TEST_CASE(rotary_is_differentiated) {
    for (int kind = 0; kind < 12; kind++) {
        const int64_t width = kind & 1 ? 17 : 6;
        op_case c = {.op = CGP_OP_ROTARY,
                     .n = 2,
                     .attributes =
                         rotary_attributes(5, 3, width, kind & 1 ? 10 : 6, kind & 2, kind / 4)};
        check(&c, &seed);
        c.attributes.rotary.offset = 1000;
        check(&c, &seed);
    }
}

TEST_CASE(dropout_is_differentiated) {
    FOR_EACH(width, widths) {
        FOR_EACH(rows, lengths) {
            op_case c = {.op = CGP_OP_DROPOUT,
                         .attributes = dropout_attributes(rows, width, 0.4),
                         .n = 2,
                         .sample = ((int64_t)1 << 32) - 1};
            check(&c, &seed);
            c.evaluate = true;
            check(&c, &seed);
        }
    }
}

TEST_CASE(cross_entropy_is_differentiated_with_ignored_targets) {
    FOR_EACH(classes, widths) {
        FOR_EACH(rows, lengths) {
            op_case c = {
                .op = CGP_OP_CROSS_ENTROPY, .attributes = loss_attributes(rows, classes), .n = 2};
            check(&c, &seed);
            c.attributes.cross_entropy.ignore = 0; /* class 0 is ignored */
            check(&c, &seed);
            c.attributes = weighted_attributes(rows, classes);
            check(&c, &seed);
        }
    }
}

/* Draw a small case of an op. */
static op_case one_of(int op) {
    return (op_case){.op = (cgp_op_kind)op,
                     .attributes = draw_attributes((cgp_op_kind)op, 5, 6, 3, &seed),
                     .n = 3};
}

static void assert_sum(const operands *o, int slot, const float *before, const float *plain) {
    for (int64_t i = 0; i < o->count[slot]; i++) {
        const float expected = before[i] + plain[i];
        if (o->at[slot][i] != expected)
            fail_msg("%s: slot %d [%" PRId64 "] is %g, expected %g + %g", case_text(&o->c), slot, i,
                     (double)o->at[slot][i], (double)before[i], (double)plain[i]);
    }
}

/* Check gradients that a kernel must add to their old values. These are dx[k] if bit k of `add` is
 * set, and the gradients of parameters if `accumulate` is true. The result must be exactly the old
 * value plus the value that the kernel writes without adding. */
static void check_adding(const runner *on, int op, cgp_op_direction direction, uint32_t add,
                         bool accumulate) {
    const op_case c = one_of(op);
    const bool input = direction == CGP_OP_BACKWARD_INPUT;
    operands before, plain, o;
    operands_create(&before, &c, &seed);
    op_run(on, &before, CGP_OP_FORWARD);
    operands_copy(&plain, &before);
    operands_copy(&o, &before);
    o.c.add = add;
    o.c.accumulate = accumulate;
    op_run(on, &plain, direction);
    op_run(on, &o, direction);
    for (int slot = SLOT_DX; input && slot < SLOT_DPARAM; slot++) {
        if (add >> (slot - SLOT_DX) & 1) assert_sum(&o, slot, before.at[slot], plain.at[slot]);
    }
    for (int slot = SLOT_DPARAM; slot < SLOT_STATE && accumulate; slot++) {
        if (!input || cgp__op_find(c.op)->op.weight_in_input)
            assert_sum(&o, slot, before.at[slot], plain.at[slot]);
    }
    operands_destroy(&o);
    operands_destroy(&plain);
    operands_destroy(&before);
}

TEST_CASE(gradients_are_added_where_the_case_says_so) {
    runner on = runner_open(&cgp__backend_ref, 1);
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        for (int direction = CGP_OP_BACKWARD_INPUT; direction < CGP_OP_DIRECTIONS; direction++) {
            for (uint32_t add = 0; add < 2u << CGP_OP_MAX_INPUTS; add++) {
                if (op_has((cgp_op_kind)op, (cgp_op_direction)direction))
                    check_adding(&on, op, (cgp_op_direction)direction, add >> 1, add & 1);
            }
        }
    }
    runner_close(&on);
}

/* The test sets each dx[k] to NULL, one at a time. The other gradients must not change. */
TEST_CASE(a_gradient_that_is_not_wanted_is_left_out) {
    runner on = runner_open(&cgp__backend_ref, 1);
    for (int i = 0; i < CGP_OP_KINDS * CGP_OP_MAX_INPUTS; i++) {
        const op_case c = one_of(i / CGP_OP_MAX_INPUTS);
        const int unwanted = SLOT_DX + i % CGP_OP_MAX_INPUTS;
        if (!makes_dx(c.op, i % CGP_OP_MAX_INPUTS)) continue;
        operands o, all;
        operands_create(&o, &c, &seed);
        op_run(&on, &o, CGP_OP_FORWARD);
        operands_copy(&all, &o);
        op_run(&on, &all, CGP_OP_BACKWARD_INPUT);
        operands_drop(&o, unwanted);
        op_run(&on, &o, CGP_OP_BACKWARD_INPUT);
        for (int slot = SLOT_DX; slot < SLOT_STATE; slot++) {
            if (o.at[slot])
                assert_memory_equal(o.at[slot], all.at[slot],
                                    (size_t)o.count[slot] * sizeof(float));
        }
        operands_destroy(&o);
        operands_destroy(&all);
    }
    runner_close(&on);
}

TEST_CASE(a_direction_that_an_op_has_not_is_refused) {
    runner on = runner_open(&cgp__backend_ref, 1);
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        const op_case c = one_of(op);
        for (int direction = 0; direction < CGP_OP_DIRECTIONS; direction++) {
            const cgp_kernel_spec spec = spec_of(&c, (cgp_op_direction)direction);
            cgp_kernel *kernel = NULL;
            const bool has = op_has(c.op, (cgp_op_direction)direction);
            assert_status(cgp__backend_ref.kernels.create(on.device, &spec, &kernel),
                          has ? CGP_OK : CGP_EINVAL);
            if (!has) assert_message(cgp__op_find(c.op)->op.name);
            cgp__backend_ref.kernels.destroy(kernel);
        }
    }
    runner_close(&on);
}

int main(void) {
    seed = test_seed();
    return test_run();
}
