/* SPDX-License-Identifier: Apache-2.0 */
/* test_finite.c -- a step that computes infinite or NaN numbers returns normally. Neither the step
 * nor its update changes anything that a later step reads. If check_finite is set, a save fails
 * instead of writing numbers that are not finite. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include <cgpipe/ext/op.h>

#include "custom_ops.h"

#include "checkpoints.h"
#include "training.h"

#include <math.h>

enum { ROWS = 4, CHANNELS = 3, BATCH = 6, CLASSES = 5, STATES = 6 };

static const test_sizes sizes = {.vocab = CLASSES};
static const cgp_init normal = {CGP_INIT_NORMAL, 0.4};

/* Make a model with two batch norms. With two or more stages, the norms are on two devices. */
static cgp_model *make_model(bool loss, double loss_weight) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "norms"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){ROWS, CHANNELS});
    cgp_model_layer(model, "first");
    x = cgp_batch_norm(model, x, "first", 1e-3, 0.1);
    cgp_model_layer(model, "middle");
    x = cgp_linear(model, x, "middle", (cgp_linear_options){.out = CHANNELS, .init = normal});
    x = cgp_relu(model, cgp_batch_norm(model, x, "second", 1e-3, -1));
    cgp_model_layer(model, "head");
    x = cgp_linear(model, cgp_flatten(model, x), "head",
                   (cgp_linear_options){.out = CLASSES, .init = normal});
    cgp_model_output(model, x);
    if (loss) {
        const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1});
        cgp_model_loss_cross_entropy(model, x, y, -100, loss_weight);
    }
    assert_ok(cgp_model_finish(model));
    return model;
}

static const char *const devices[2][3] = {{"cpu", "ref", "cpu"}, {"ref", "cpu", "ref"}};

static training start(const cgp_model *model, int stages, int how, double clip_norm,
                      bool external) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = BATCH;
    o.chunks = 3;
    o.devices = devices[how % 2];
    o.deferred_batch_norm = how / 2 % 2;
    o.external_loss = external;
    if (external) o.schedule = "gpipe";
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    o.optim.clip_norm = clip_norm;
    return training_start(model, &o, 5);
}

static void assert_unchanged(const training *t, const hashes *before) {
    const hashes after = hashes_of(t);
    assert_same(&after, before);
}

/* One way to make a step's numbers infinite or NaN, and the message of the refused update. */
typedef struct trouble {
    float number;       /* if not 0, the last sample of x becomes +-number */
    double loss_weight; /* weight of the loss in the model */
    double clip_norm;
    bool finite_loss;
    const char *message;
} trouble;

#define DUE "nothing was updated, no state changed; another cgp_pipeline_step is due"

static const trouble troubles[] = {
    {NAN, 1, 0, false, "loss: is not finite, got nan (" DUE ")"},
    {NAN, 1, 1, false, "loss: is not finite, got nan (" DUE ")"},
    /* The variance overflows, so the batch norm's output is NaN. */
    {1e30f, 1, 0, false, "loss: is not finite, got nan (" DUE ")"},
    {1e30f, 1, 1, false, "loss: is not finite, got nan (" DUE ")"},
    /* The weight of a loss is f32 in gradients, so the gradients overflow. */
    {0, 1e300, 1, true, "gradients: the norm is not finite, got "},
};

static void check_trouble(const trouble *bad, int stages, int how) {
    uint64_t state = 1 + (uint64_t)how;
    cgp_model *model = make_model(true, bad->loss_weight);
    test_batch good, broken;
    test_batch_fill(&good, model, &sizes, BATCH, &state);
    test_batch_fill(&broken, model, &sizes, BATCH, &state);
    float *x = broken.tensors[0].data;
    for (int i = 0; bad->number != 0 && i < ROWS * CHANNELS; i++)
        x[(BATCH - 1) * ROWS * CHANNELS + i] = i / CHANNELS % 2 ? bad->number : -bad->number;
    training t = start(model, stages, how, bad->clip_norm, false);
    if (bad->loss_weight == 1) training_step(&t, &good);
    const hashes before = hashes_of(&t);
    const int64_t updates = cgp_pipeline_updates(t.pipeline);
    double loss = 0;
    float gradient[4 * CHANNELS * ROWS * CLASSES];
    assert_ok(cgp_pipeline_step(t.pipeline, broken.inputs, broken.n, &loss));
    assert_int_equal(isfinite(loss) != 0, bad->finite_loss);
    assert_unchanged(&t, &before);
    for (int p = 0; p < cgp_model_parameters(model); p++)
        assert_ok(cgp_pipeline_get_gradient(t.pipeline, p, gradient));
    assert_status(cgp_optim_step(t.pipeline), CGP_ESTATE);
    assert_message(bad->message);
    assert_unchanged(&t, &before);
    assert_true(cgp_pipeline_updates(t.pipeline) == updates);
    assert_status(cgp_optim_step(t.pipeline), CGP_ESTATE);
    assert_message("no new gradients");
    const double norm = cgp_pipeline_gradient_norm(t.pipeline);
    assert_true(bad->clip_norm > 0 || isnan(norm));
    assert_false(bad->loss_weight != 1 && isfinite(norm));
    if (bad->loss_weight == 1) { /* the result is as if the bad step had not run */
        training reference = start(model, stages, how, bad->clip_norm, false);
        training_step(&reference, &good);
        for (int s = 0; s < 2; s++) {
            training_step(&t, &good);
            training_step(&reference, &good);
        }
        const hashes expected = hashes_of(&reference);
        assert_unchanged(&t, &expected);
        training_stop(&reference);
    }
    training_stop(&t);
    test_batch_release(&good);
    test_batch_release(&broken);
    cgp_model_destroy(model);
}

/* `how` selects the backend of each norm, and whether batch norms are deferred. */
TEST_CASE(a_step_that_is_not_finite_leaves_everything_as_it_was) {
    for (size_t k = 0; k < sizeof troubles / sizeof *troubles; k++) {
        for (int stages = 1; stages <= 3; stages++) {
            for (int how = 0; how < 4; how++)
                check_trouble(&troubles[k], stages, how);
        }
    }
}

/* With an external loss, the library checks only the statistics of the batch norms. With clipping,
 * it also checks the norm of the gradients. */
static void check_external(int stages, int how, double clip_norm) {
    uint64_t state = 1 + (uint64_t)how;
    cgp_model *model = make_model(false, 1);
    test_batch batch;
    float logits[BATCH * CLASSES], d[BATCH * CLASSES] = {0};
    const cgp_tensor output = {CGP_F32, {2, {BATCH, CLASSES}}, logits},
                     gradient = {CGP_F32, {2, {BATCH, CLASSES}}, d};
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    training t = start(model, stages, how, clip_norm, true);
    hashes before = hashes_of(&t);
    d[CLASSES] = NAN;
    assert_ok(cgp_pipeline_forward(t.pipeline, batch.inputs, batch.n,
                                   (const cgp_tensor *[]){&output}, 1));
    assert_ok(cgp_pipeline_backward(t.pipeline, (const cgp_tensor *[]){&gradient}, 1));
    if (clip_norm > 0) {
        assert_unchanged(&t, &before);
        assert_status(cgp_optim_step(t.pipeline), CGP_ESTATE);
        assert_message("gradients: the norm is not finite, got nan (");
        assert_message("; another cgp_pipeline_forward is due)");
        assert_true(isnan(cgp_pipeline_gradient_norm(t.pipeline)));
    } else { /* the library does not check the caller's loss */
        assert_string_not_equal(hashes_of(&t).states, before.states);
        before = hashes_of(&t);
    }
    d[CLASSES] = 1;
    ((float *)batch.tensors[0].data)[0] = INFINITY;
    assert_ok(cgp_pipeline_forward(t.pipeline, batch.inputs, batch.n,
                                   (const cgp_tensor *[]){&output}, 1));
    assert_ok(cgp_pipeline_backward(t.pipeline, (const cgp_tensor *[]){&gradient}, 1));
    assert_unchanged(&t, &before);
    assert_status(cgp_optim_step(t.pipeline), CGP_ESTATE);
    assert_message(
        "state first.running_mean: the last step accumulated a value that is not finite (");
    assert_unchanged(&t, &before);
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(so_does_one_with_an_external_loss) {
    for (int how = 0; how < 4; how++) {
        check_external(2, how, 0);
        check_external(2, how, 1);
    }
}

/* A finite step commits the running statistics before its update. */
TEST_CASE(a_finite_step_commits_before_its_update) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(true, 1);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    for (int clips = 0; clips < 2; clips++) {
        training t = start(model, 2, clips, clips, false);
        const hashes before = hashes_of(&t);
        assert_ok(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, NULL));
        /* no update has run, so there is no norm */
        assert_true(isnan(cgp_pipeline_gradient_norm(t.pipeline)));
        const hashes between = hashes_of(&t);
        assert_string_not_equal(between.states, before.states);
        assert_ok(cgp_optim_step(t.pipeline));
        assert_string_equal(hashes_of(&t).states, between.states);
        assert_int_equal(isfinite(cgp_pipeline_gradient_norm(t.pipeline)) != 0, clips);
        training_stop(&t);
    }
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* --- saving --- */

static cgp_status save_checked(const training *t) {
    cgp_save_options o = cgp_save_options_default();
    o.check_finite = true;
    o.note = "checked";
    return cgp_pipeline_save_with(t->pipeline, run, &o);
}

/* Set element `at` of a parameter, or of the parameter's optimizer state `number` if `number` is
 * not -1. Return the old value. */
static float set_element(const training *t, int parameter, int number, int at, float value) {
    float data[ROWS * CHANNELS * CLASSES];
    if (number < 0)
        assert_ok(cgp_pipeline_get_parameter(t->pipeline, parameter, data));
    else
        assert_ok(cgp_pipeline_get_optimizer_state(t->pipeline, parameter, number, data));
    const float before = data[at];
    data[at] = value;
    if (number < 0)
        assert_ok(cgp_pipeline_set_parameter(t->pipeline, parameter, data));
    else
        assert_ok(cgp_pipeline_set_optimizer_state(t->pipeline, parameter, number, data));
    return before;
}

/* Assert that saving is refused with this message, and that the run's directory still has `entries`
 * entries. */
static void assert_refused(const training *t, const char *message, int entries) {
    char whole[200];
    snprintf(whole, sizeof whole, "%s (nothing was saved)", message);
    assert_int_equal(count_names(run, ""), entries);
    assert_status(save_checked(t), CGP_ESTATE);
    assert_string_equal(cgp_message(), whole);
    assert_int_equal(count_names(run, ""), entries);
}

/* Saving with check_finite checks each tensor. The message names the first tensor with a number
 * that is not finite. The order is weights, states, optimizer states, as in the files. */
TEST_CASE(what_is_not_finite_is_not_saved_where_that_is_asked_for) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(true, 1);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    for (int stages = 1; stages <= 3; stages++) {
        training t = start(model, stages, stages, 0, false);
        const float nan3[CHANNELS] = {0, 0, -NAN}, one3[CHANNELS] = {1, 1, 1};
        remove_tree(run);
        training_step(&t, &batch);
        const float mean = set_element(&t, 2, 1, 8, INFINITY);
        assert_refused(&t, "middle.weight.exp_avg_sq: is not finite, got inf at element 8", 0);
        const float moment = set_element(&t, 0, 0, 1, -INFINITY);
        assert_refused(&t, "first.weight.exp_avg: is not finite, got -inf at element 1", 0);
        assert_ok(cgp_pipeline_set_state(t.pipeline, 4, nan3));
        assert_refused(&t, "second.running_var: is not finite, got nan at element 2", 0);
        const float bias = set_element(&t, 5, -1, 4, NAN);
        assert_refused(&t, "head.weight: is not finite, got nan at element 4", 0);
        assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL)); /* check_finite is off */
        set_element(&t, 5, -1, 4, bias);
        assert_ok(cgp_pipeline_set_state(t.pipeline, 4, one3));
        set_element(&t, 0, 0, 1, moment);
        assert_refused(&t, "middle.weight.exp_avg_sq: is not finite, got inf at element 8", 2);
        set_element(&t, 2, 1, 8, mean);
        assert_ok(save_checked(&t));
        char *note = NULL;
        assert_ok(cgp_pipeline_load(t.pipeline, run, &note));
        assert_string_equal(note, "checked");
        free(note);
        training_stop(&t);
    }
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* States of custom ops are not checked: a running maximum may begin at -infinity. */
TEST_CASE(a_custom_op_may_keep_infinity) {
    const int64_t dims[1] = {CHANNELS};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "meter"));
    cgp_model_layer(model, "all");
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, dims);
    x = cgp_op_apply(model, &test_custom_meter, &x, "meter", NULL);
    x = cgp_linear(model, x, "head", (cgp_linear_options){.out = CLASSES, .init = normal});
    cgp_model_loss_cross_entropy(
        model, x, cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1}), -100, 1);
    assert_ok(cgp_model_finish(model));
    training t = start(model, 1, 0, 0, false);
    assert_true(cgp_model_states(model) > 0);
    for (int s = 0; s < cgp_model_states(model); s++) {
        float data[16];
        for (int i = 0; i < 16; i++)
            data[i] = -INFINITY;
        if (cgp_model_state_dtype(model, s) == CGP_F32)
            assert_ok(cgp_pipeline_set_state(t.pipeline, s, data));
    }
    assert_ok(save_checked(&t));
    training_stop(&t);
    cgp_model_destroy(model);
}

TEST_CASE(save_options_are_checked) {
    cgp_model *model = make_model(true, 1);
    training t = start(model, 1, 0, 0, false);
    cgp_save_options o = cgp_save_options_default();
    assert_int_equal(o.struct_size, sizeof o);
    o.struct_size = 1;
    assert_status(cgp_pipeline_save_with(t.pipeline, run, &o), CGP_EINVAL);
    assert_message("save options: expected struct_size ");
    o = cgp_save_options_default();
    o.keep = -1;
    assert_status(cgp_pipeline_save_with(t.pipeline, run, &o), CGP_EINVAL);
    assert_int_equal(count_names(run, ""), 0);
    assert_ok(cgp_pipeline_save_with(t.pipeline, run, NULL));
    assert_true(found_step(run) == 0);
    training_stop(&t);
    cgp_model_destroy(model);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
