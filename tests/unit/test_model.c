/* SPDX-License-Identifier: Apache-2.0 */
/* test_model.c -- the model builder keeps the first error, whose message names the layer and the
 * op. The builder removes unneeded ops and allows empty layers. */
#include "support.h"

#include <cgpipe/cgpipe.h>

#include "model/model.h"

#include <limits.h>

static const cgp_init zero = {CGP_INIT_ZERO, 0};

static cgp_model *start(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "small"));
    return model;
}

static cgp_value input(cgp_model *model, const char *name, cgp_dtype dtype, int64_t a, int64_t b) {
    return cgp_model_input(model, name, dtype, b ? 2 : 1, (int64_t[]){a, b});
}

static cgp_value linear(cgp_model *model, cgp_value x, const char *name, int64_t out) {
    return cgp_linear(model, x, name, (cgp_linear_options){.out = out, .bias = true, .init = zero});
}

TEST_CASE(the_first_error_sticks_and_names_layer_and_op) {
    cgp_model *model = start();
    const cgp_value x = input(model, "x", CGP_F32, 3, 8);
    cgp_model_layer(model, "one");
    const cgp_value y = linear(model, x, "one", 4);
    cgp_model_layer(model, "two");
    const cgp_value bad = cgp_add(model, x, y); /* [3, 8] and [3, 4] */
    assert_int_equal(bad.id, -1);
    cgp_model_layer(model, "three");
    assert_int_equal(cgp_gelu(model, bad).id, -1); /* the invalid value causes no second error */
    (void)cgp_dropout(model, y, 7);
    assert_status(cgp_model_finish(model), CGP_EINVAL);
    assert_message("layer two, add: ");
    assert_message("[3, 8]");
    assert_message("[3, 4]");
    assert_status(cgp_model_finish(model), CGP_EINVAL); /* the first error stays */
    assert_message("layer two, add: ");
    cgp_model_destroy(model);
}

TEST_CASE(bad_calls_are_refused) {
    static const char *const expected[] = {"outside of any layer",
                                           "exists already",
                                           "already",
                                           "not a value",
                                           "dropout",
                                           "has no layer",
                                           "neither loss nor output",
                                           "expects a weight above 0, got 0"};
    for (int c = 0; c < 8; c++) {
        cgp_model *model = start();
        const cgp_value x = input(model, "x", CGP_F32, 3, 8);
        if (c != 0 && c != 5) cgp_model_layer(model, "one");
        if (c == 0) (void)cgp_gelu(model, x);
        if (c == 1) (void)linear(model, linear(model, x, "same", 8), "same", 8);
        if (c == 2) (void)input(model, "x", CGP_F32, 3, 8);
        if (c == 3) (void)cgp_gelu(model, (cgp_value){99});
        if (c == 4) (void)cgp_dropout(model, x, 1.0);
        if (c == 7) {
            const cgp_value t = input(model, "t", CGP_I32, 3, 0);
            cgp_model_loss_cross_entropy(model, linear(model, x, "a", 5), t, -100, 1);
            cgp_model_loss_cross_entropy(model, linear(model, x, "b", 5), t, -100, 0);
        }
        assert_status(cgp_model_finish(model), CGP_EINVAL);
        assert_message(expected[c]);
        cgp_model_destroy(model);
    }
}

/* Names of layers, inputs, parameters, ties and models are printed on terminals, so they must not
 * contain control characters. */
TEST_CASE(names_with_control_characters_are_refused) {
    static const char *const names[] = {"a\033[2Jb",
                                        "a\nb",
                                        "a\177b",
                                        ("a\xc2\x9b" /* a two-byte control character */
                                         "b"),
                                        "\t",
                                        "a\xff"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int place = 0; place < 4; place++) {
            cgp_model *model = start();
            const cgp_value x = input(model, place == 0 ? names[i] : "x", CGP_F32, 3, 8);
            cgp_model_layer(model, place == 1 ? names[i] : "h.\xc3\xa9 0");
            if (place == 3) cgp_model_tie(model, names[i], "one.weight");
            const cgp_value y = linear(model, x, place == 2 ? names[i] : "one", 4);
            cgp_model_output(model, y);
            assert_status(cgp_model_finish(model), CGP_EINVAL);
            assert_message("expected a name in UTF-8 without control characters, got \"");
            cgp_model_destroy(model);
        }
        cgp_model *model = NULL;
        assert_status(cgp_model_create(&model, names[i]), CGP_EINVAL);
        assert_null(model);
    }
}

TEST_CASE(bad_ties_are_refused) {
    static const char *const expected[] = {
        "tie: b.weight: there is no parameter of this name yet",
        "tie: a.weight: exists already",
        "linear: parameter b.weight: expected shape [5, 8], got [8, 8] of a.weight",
        "linear: parameter b.weight exists already",
        "tie c.weight: no op made a parameter of this name (it is tied to a.weight",
        "tie: b.weight: exists already"};
    for (int c = 0; c < 6; c++) {
        cgp_model *model = start();
        const cgp_value x = input(model, "x", CGP_F32, 3, 8);
        cgp_model_layer(model, "one");
        cgp_value y = linear(model, x, "a", 8);
        if (c == 0) cgp_model_tie(model, "a2.weight", "b.weight");
        if (c == 1) cgp_model_tie(model, "a.weight", "a.bias");
        if (c == 4) cgp_model_tie(model, "c.weight", "a.weight");
        cgp_model_tie(model, "b.weight", "a.weight");
        if (c == 5) cgp_model_tie(model, "b.weight", "a.bias");
        y = linear(model, y, "b", c == 2 ? 5 : 8);
        if (c == 3) y = linear(model, y, "b", 8);
        cgp_model_output(model, y);
        assert_status(cgp_model_finish(model), CGP_EINVAL);
        assert_message(expected[c]);
        cgp_model_destroy(model);
    }
}

/* The model lists the ops that use a tied parameter. The list is in order and omits unneeded
 * ops. */
TEST_CASE(a_tied_parameter_knows_its_uses) {
    cgp_model *model = start();
    const cgp_value x = input(model, "x", CGP_F32, 3, 8);
    cgp_model_layer(model, "one");
    cgp_value y = linear(model, x, "a", 8);
    cgp_model_tie(model, "unused.weight", "a.weight");
    (void)linear(model, y, "unused", 8);
    cgp_model_tie(model, "b.weight", "unused.weight"); /* a tied parameter has several names */
    y = linear(model, cgp_gelu(model, y), "b", 8);
    cgp_model_output(model, y);
    assert_ok(cgp_model_finish(model));
    assert_int_equal(cgp_model_parameters(model), 3); /* a.weight (shared), a.bias, b.bias */
    assert_int_equal(model->params[0].n_uses, 2);
    assert_int_equal(model->uses[0].node, 0);
    assert_int_equal(model->uses[1].node, 2);
    assert_int_equal(model->nodes[2].params[0], 0);
    assert_int_equal(cgp_model_parameter_count(model), 64 + 8 + 8);
    cgp_model_destroy(model);
}

/* Integers that the graph computes may index an embedding table, or may be target classes. If an
 * integer could be out of range in such a use, the model is refused. */
TEST_CASE(integers_out_of_range_are_refused_by_the_builder) {
    static const char *const expected[] = {
        "embedding: expects ids below the vocabulary 7, got up to 7",
        "cross_entropy: expects targets below the 5 classes, got up to 7",
        "cross_entropy: expects an ignored target that the graph never makes, got 3",
        "argmax: expects f32 input, got i32"};
    for (int c = 0; c < 4; c++) {
        cgp_model *model = start();
        const cgp_value x = input(model, "x", CGP_F32, 3, 8);
        cgp_model_layer(model, "one");
        const cgp_value ids = cgp_argmax(model, linear(model, x, "a", 8)); /* 0 .. 7 */
        if (c == 0) cgp_model_output(model, cgp_embedding(model, ids, "e", 7, 2, zero));
        if (c == 1) cgp_model_loss_cross_entropy(model, linear(model, x, "b", 5), ids, -100, 1);
        if (c == 2) cgp_model_loss_cross_entropy(model, linear(model, x, "b", 8), ids, 3, 1);
        if (c == 3) cgp_model_output(model, cgp_argmax(model, ids));
        assert_status(cgp_model_finish(model), CGP_EINVAL);
        assert_message(expected[c]);
        cgp_model_destroy(model);
    }
}

TEST_CASE(a_finished_model_takes_nothing_more) {
    cgp_model *model = start();
    const cgp_value x = input(model, "x", CGP_F32, 3, 8);
    cgp_model_layer(model, "one");
    cgp_model_output(model, linear(model, x, "a", 5));
    assert_ok(cgp_model_finish(model));
    assert_status(cgp_model_finish(model), CGP_ESTATE);
    assert_int_equal(cgp_gelu(model, x).id, -1);
    assert_message("the model is finished");
    assert_status(cgp_model_finish(model), CGP_ESTATE); /* the model is unchanged */
    cgp_model_destroy(model);
}

/* An unused branch costs nothing: its ops and parameters are removed, and all other ops and
 * parameters keep their order. */
TEST_CASE(unneeded_ops_are_left_out) {
    cgp_model *model = start();
    const cgp_value x = input(model, "x", CGP_F32, 3, 8), t = input(model, "t", CGP_I32, 3, 0);
    cgp_model_layer(model, "one");
    const cgp_value a = linear(model, x, "a", 8);
    (void)linear(model, a, "unused", 8);
    cgp_model_layer(model, "empty");
    cgp_model_layer(model, "two");
    cgp_model_loss_cross_entropy(model, linear(model, a, "b", 5), t, -100, 1);
    (void)cgp_gelu(model, a);
    assert_ok(cgp_model_finish(model));
    assert_int_equal(cgp_model_layers(model), 3);
    assert_int_equal(cgp_model_parameters(model), 4);
    assert_string_equal(cgp_model_parameter_name(model, 0), "a.weight");
    assert_string_equal(cgp_model_parameter_name(model, 3), "b.bias");
    assert_int_equal(cgp_model_parameter_count(model), 8 * 8 + 8 + 5 * 8 + 5);
    assert_int_equal(model->n_nodes, 3);
    assert_int_equal(model->n_losses, 1);
    assert_true(model->nodes[2].use.op->is_loss);
    for (int p = 0; p < 4; p++)
        assert_int_equal(model->nodes[model->uses[model->params[p].first_use].node].params[p % 2],
                         p);
    cgp_model_destroy(model);
}

/* Check that the mean is within 5 standard errors of 0, and that the variance is within 5 standard
 * errors of `variance`. `kurtosis` is the fourth moment divided by the square of the second moment,
 * minus 1. */
static void assert_moments(const float *x, int n, double variance, double kurtosis) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    assert_true(fabs(sum / n) < 5 * sqrt(variance / n));
    assert_true(fabs(squares / n - variance) < 5 * variance * sqrt(kurtosis / n));
}

/* An initial weight depends only on seed, parameter and element. Filling a parameter in pieces
 * gives the same weights. */
TEST_CASE(initial_weights_do_not_depend_on_pieces) {
    /* A normal distribution truncated at +-2 has variance 1 - 4 phi(2) / (2 Phi(2) - 1). */
    static const struct {
        cgp_init init;
        double variance, kurtosis;
    } inits[] = {{{CGP_INIT_NORMAL, 0.5}, 0.25, 2},
                 {{CGP_INIT_UNIFORM, 0.25}, 0.25 * 0.25 / 3, 0.8},
                 {{CGP_INIT_TRUNCATED_NORMAL, 0.5}, 0.25 * 0.7737413, 1.4}};
    enum { N = 4000 };
    static float whole[N], pieces[N];
    for (int k = 0; k < 3; k++) {
        const cgp_init *init = &inits[k].init;
        cgp__init_fill(init, 7, 3, 0, N, whole);
        for (int64_t at = 0, n = 1; at < N; at += n, n = n % 13 + 1)
            cgp__init_fill(init, 7, 3, at, at + n > N ? N - at : n, pieces + at);
        assert_memory_equal(whole, pieces, sizeof whole);
        assert_moments(whole, N, inits[k].variance, inits[k].kurtosis);
        cgp__init_fill(init, 8, 3, 0, N, pieces);
        assert_memory_not_equal(whole, pieces, sizeof whole);
        cgp__init_fill(init, 7, 4, 0, N, pieces);
        assert_memory_not_equal(whole, pieces, sizeof whole);
    }
}

/* 4.6 % of a normal distribution's values lie beyond two standard deviations. A truncated normal
 * draws these values again instead of clamping them. All other values stay the same. */
TEST_CASE(a_truncated_normal_draws_the_tails_again) {
    const cgp_init normal = {CGP_INIT_NORMAL, 0.02}, cut = {CGP_INIT_TRUNCATED_NORMAL, 0.02};
    enum { N = 20000 };
    static float all[N], within[N];
    int again = 0;
    cgp__init_fill(&normal, 7, 3, 0, N, all);
    cgp__init_fill(&cut, 7, 3, 0, N, within);
    for (int i = 0; i < N; i++) {
        const bool outside = fabsf(all[i]) > 0.04f;
        again += outside;
        assert_true(outside ? fabsf(within[i]) < 0.04f : within[i] == all[i]);
    }
    assert_in_range(again, N * 0.040, N * 0.051);
}

/* --- indices out of range: array `past` has one such index of each kind --- */

static void check_model_without(const cgp_model *model, const int past[4]) {
    assert_null(cgp_model_layer_name(model, past[0]));
    assert_true(cgp_layer_flops(model, past[0]) == 0);
    assert_null(cgp_model_parameter_name(model, past[1]));
    assert_null(cgp_model_parameter_shape(model, past[1]));
    assert_null(cgp_model_state_name(model, past[2]));
    assert_null(cgp_model_state_shape(model, past[2]));
    assert_int_equal(cgp_model_state_dtype(model, past[2]), CGP_F32);
    assert_null(cgp_model_input_name(model, past[3]));
    assert_int_equal(cgp_model_input_shape(model, past[3]).rank, -1);
    assert_int_equal(cgp_model_input_dtype(model, past[3]), CGP_F32);
}

static void check_plan_without(const cgp_plan *plan, const int past[4]) {
    assert_null(cgp_plan_stage_at(plan, past[0]));
    assert_null(cgp_plan_device_at(plan, past[1]));
    assert_int_equal(cgp_plan_edge_at(plan, past[2]).bytes, 0);
    assert_int_equal(cgp_plan_edge_at(plan, past[2]).buffers, 0);
    assert_int_equal(cgp_schedule_device_of(cgp_plan_schedule(plan), past[0]), -1);
    assert_null(cgp_schedule_info_at(past[3]));
}

static cgp_model *two_layers(void) {
    cgp_model *model = start();
    const cgp_value x = input(model, "x", CGP_F32, 3, 8), t = input(model, "t", CGP_I32, 3, 0);
    cgp_model_layer(model, "one");
    const cgp_value y = cgp_batch_norm(model, linear(model, x, "a", 8), "norm", 1e-3, 0.1);
    cgp_model_layer(model, "two");
    cgp_model_loss_cross_entropy(model, linear(model, y, "b", 5), t, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

TEST_CASE(indices_out_of_range_have_no_answer) {
    cgp_model *model = two_layers();
    cgp_plan *plan = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    assert_ok(cgp_plan_create(&plan, model, &o));
    int schedules = 0;
    while (cgp_schedule_info_at(schedules))
        schedules++;
    const int of_model[4] = {cgp_model_layers(model), cgp_model_parameters(model),
                             cgp_model_states(model), cgp_model_inputs(model)};
    const int of_plan[4] = {cgp_plan_stages(plan), cgp_plan_devices(plan), cgp_plan_edges(plan),
                            schedules};
    assert_non_null(cgp_model_layer_name(model, of_model[0] - 1));
    assert_non_null(cgp_model_parameter_name(model, of_model[1] - 1));
    assert_non_null(cgp_model_state_name(model, of_model[2] - 1));
    assert_non_null(cgp_model_input_name(model, of_model[3] - 1));
    assert_non_null(cgp_plan_stage_at(plan, of_plan[0] - 1));
    assert_non_null(cgp_plan_device_at(plan, of_plan[1] - 1));
    assert_true(cgp_plan_edge_at(plan, of_plan[2] - 1).bytes > 0);
    static const int anywhere[3][4] = {{-1, -1, -1, -1},
                                       {INT_MIN, INT_MIN, INT_MIN, INT_MIN},
                                       {INT_MAX, INT_MAX, INT_MAX, INT_MAX}};
    check_model_without(model, of_model);
    check_plan_without(plan, of_plan);
    for (int k = 0; k < 3; k++) {
        check_model_without(model, anywhere[k]);
        check_plan_without(plan, anywhere[k]);
    }
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(inputs_have_bounds_and_losses_have_logits) {
    cgp_model *model = start();
    cgp_plan *plan = NULL;
    const cgp_value ids = cgp_model_input(model, "ids", CGP_I32, 1, (const int64_t[]){2});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (const int64_t[]){2});
    const cgp_value mask = input(model, "mask", CGP_F32, 2, 9);
    cgp_model_layer(model, "first");
    const cgp_value wide = cgp_embedding(model, ids, "wide", 7, 9, zero);
    const cgp_value narrow = cgp_embedding(model, ids, "narrow", 5, 9, zero);
    const cgp_value x = cgp_add(model, wide, narrow);
    cgp_model_layer(model, "second");
    const cgp_value logits = linear(model, x, "logits", 4);
    const cgp_value shown = linear(model, x, "shown", 6);
    cgp_model_output(model, logits);
    cgp_model_output(model, x);
    cgp_model_loss_cross_entropy(model, shown, labels, -100, 0.5);
    cgp_model_loss_cross_entropy(model, logits, labels, -100, 2);
    cgp_model_loss_bce_with_logits(model, x, mask, 1);
    assert_ok(cgp_model_finish(model));
    assert_int_equal(cgp_model_input_bound(model, 0), 5); /* the smaller bound */
    assert_int_equal(cgp_model_input_bound(model, 1), 4);
    assert_int_equal(cgp_model_input_bound(model, 2), 0); /* a float input has no bound */
    assert_int_equal(cgp_model_input_bound(model, 3) + cgp_model_input_bound(model, -1), 0);
    assert_int_equal(cgp_model_losses(model), 3);
    static const cgp_model_loss expected[] = {{-1, 1, 0.5}, {0, 1, 2}, {1, 2, 1}, {-1, -1, 0}};
    for (int i = 0; i < 5; i++) { /* the last iteration asks for loss -1 */
        const cgp_model_loss got = cgp_model_loss_at(model, i < 4 ? i : -1),
                             want = expected[i < 4 ? i : 3];
        assert_int_equal(got.output, want.output);
        assert_int_equal(got.target, want.target);
        assert_true(got.weight == want.weight);
    }
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.balance = (const int[]){1, 1};
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_int_equal(cgp_plan_output_stage(plan, 0), 1);
    assert_int_equal(cgp_plan_output_stage(plan, 1), 0);
    assert_int_equal(cgp_plan_output_stage(plan, 2), -1);
    assert_int_equal(cgp_plan_output_stage(plan, -1), -1);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
