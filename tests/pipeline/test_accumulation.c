/* SPDX-License-Identifier: Apache-2.0 */
/* test_accumulation.c -- the gradients of several steps are added up before a single update.
 *
 *     one mini-batch        0 1 2 3 4 5 6 7        divided by its number of targets
 *     three steps           0 1 | 2 | 3 4 5 6 7    divided by the same number (set_targets)
 *
 * In both cases, the gradients of the micro-batches are added in the same order, so the weights are
 * bit-equal. Graphs (some tie parameters across stages), layouts and seeds are random in each
 * run. */
#include "training.h"

#include <math.h>

enum { N = 8, PARTS = 3 };

static const int begins[PARTS + 1] = {0, 2, 3, N};

typedef struct setting {
    cgp_model *model;
    test_batch batch;
    cgp_plan_options options;
    const char *devices[4];
    int balance[8];
    uint64_t seed;
} setting;

static void setting_create(setting *s, const char *device, uint64_t *state) {
    *s = (setting){.seed = test_random(state)};
    test_sizes sizes = {.layers = test_between(state, 3, 6),
                        .sequence = test_between(state, 1, 9),
                        .heads = test_between(state, 1, 2),
                        .vocab = test_between(state, 2, 20)};
    sizes.width = sizes.heads * test_between(state, 2, 9);
    s->model = test_random_graph(state, &sizes);
    while (cgp_model_states(s->model) > 0) { /* a step would change states */
        cgp_model_destroy(s->model);
        s->model = test_random_graph(state, &sizes);
    }
    s->options = cgp_plan_options_default();
    test_random_training(state, s->model, &s->options, s->balance);
    s->options.precision = CGP_PRECISION_F32;
    s->options.batch = s->options.chunks = N;
    for (int i = 0; i < 4; i++)
        s->devices[i] = device;
    s->options.devices = s->devices;
    test_batch_fill(&s->batch, s->model, &sizes, N, state);
}

static void setting_destroy(setting *s) {
    test_batch_release(&s->batch);
    cgp_model_destroy(s->model);
}

/* Draw a setting whose devices are on one backend, and start its training. */
static training start(setting *s, const char *device) {
    uint64_t state = test_seed();
    setting_create(s, device, &state);
    return training_start(s->model, &s->options, s->seed);
}

static void stop(training *r, setting *s) {
    training_stop(r);
    setting_destroy(s);
}

/* Run a step on samples `begin` to `end - 1`; return its loss. */
static double step(const training *r, const setting *s, int begin, int end) {
    cgp_tensor tensors[4];
    const cgp_tensor *inputs[4];
    double loss = 0;
    for (int k = 0; k < s->batch.n; k++) {
        tensors[k] = s->batch.tensors[k];
        const int64_t count = cgp_shape_count(&tensors[k].shape) / N;
        tensors[k].data = (char *)tensors[k].data + 4 * count * begin;
        tensors[k].shape.dims[0] = end - begin;
        inputs[k] = &tensors[k];
    }
    assert_ok(cgp_pipeline_step(r->pipeline, inputs, s->batch.n, &loss));
    return loss;
}

/* Set the divisors of the losses to the numbers of targets in the last step. */
static void take_targets(const training *r, const setting *s) {
    int64_t targets[8];
    const int n = cgp_model_losses(s->model);
    for (int l = 0; l < n; l++)
        targets[l] = cgp_pipeline_last_loss(r->pipeline, l).count;
    assert_ok(cgp_pipeline_set_targets(r->pipeline, targets, n));
}

/* Set all divisors of the losses to 1. The number of targets would not do: in a part of a
 * mini-batch, it may be 0 because all targets are ignored. */
static void sum_losses(const training *r, const setting *s) {
    const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    assert_ok(cgp_pipeline_set_targets(r->pipeline, ones, cgp_model_losses(s->model)));
}

static float *gradients_of(const training *r, const cgp_model *model) {
    float *all = calloc((size_t)cgp_model_parameter_count(model), sizeof *all), *at = all;
    assert_non_null(all);
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        assert_ok(cgp_pipeline_get_gradient(r->pipeline, p, at));
        at += cgp_shape_count(cgp_model_parameter_shape(model, p));
    }
    return all;
}

/* Make two updates. If `parted` is true, each update uses the gradients of three steps. */
static void train(const setting *s, bool parted, char sha256[65], double *norm) {
    training r = training_start(s->model, &s->options, s->seed);
    for (int update = 0; update < 2; update++) {
        const double whole = step(&r, s, 0, N);
        double sum = 0;
        take_targets(&r, s);
        assert_ok(cgp_pipeline_zero_grad(r.pipeline));
        assert_ok(cgp_pipeline_set_accumulation(r.pipeline, parted));
        for (int i = 0; parted && i < PARTS; i++)
            sum += step(&r, s, begins[i], begins[i + 1]);
        if (parted && !(fabs(sum - whole) <= 1e-9 * fabs(whole)))
            fail_msg("loss %.17g, expected %.17g", sum, whole);
        if (!parted) (void)step(&r, s, 0, N);
        assert_ok(cgp_optim_step(r.pipeline));
        assert_ok(cgp_pipeline_set_accumulation(r.pipeline, false));
        assert_ok(cgp_pipeline_set_targets(r.pipeline, NULL, 0));
    }
    *norm = cgp_pipeline_gradient_norm(r.pipeline);
    assert_ok(cgp_pipeline_weights_sha256(r.pipeline, sha256));
    training_stop(&r);
}

TEST_CASE(parts_with_the_targets_of_all_are_one_mini_batch) {
    static const char *const devices[] = {"cpu", "late", "ref"};
    uint64_t state = test_seed();
    for (int i = 0; i < 24; i++) {
        setting s;
        char whole[65], parts[65];
        double norms[2];
        setting_create(&s, devices[i % 3], &state);
        s.options.optim = cgp_optim_sgd(0.05, 0.9, true, 1e-2);
        s.options.optim.clip_norm = i % 2 ? 1e-2 : 0;
        train(&s, false, whole, &norms[0]);
        train(&s, true, parts, &norms[1]);
        assert_string_equal(whole, parts);
        assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
        setting_destroy(&s);
    }
}

static void assert_close(const float *got, const float *a, const float *b, int64_t n) {
    double norm = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        const double sum = (double)a[i] + (b ? b[i] : 0), off = got[i] - sum;
        norm += sum * sum;
        error += off * off;
    }
    /* the 1e-5 is absolute, because some gradients are zero in exact arithmetic */
    if (!(sqrt(error) <= 1e-5 * sqrt(norm) + 1e-5))
        fail_msg("off by %g of %g", sqrt(error), sqrt(norm));
}

/* The caller may read gradients between two accumulated steps, even gradients of tied
 * parameters. */
TEST_CASE(gradients_of_steps_add_up) {
    uint64_t state = test_seed();
    for (int i = 0; i < 12; i++) {
        setting s;
        setting_create(&s, i % 2 ? "cpu" : "late", &state);
        training r = training_start(s.model, &s.options, s.seed);
        const int64_t n = cgp_model_parameter_count(s.model);
        sum_losses(&r, &s);
        (void)step(&r, &s, 2, N);
        float *second = gradients_of(&r, s.model);
        (void)step(&r, &s, 0, 2);
        float *first = gradients_of(&r, s.model);
        if (i % 4 < 2) /* accumulation may already be on in the first step */
            assert_ok(cgp_pipeline_zero_grad(r.pipeline));
        assert_ok(cgp_pipeline_set_accumulation(r.pipeline, true));
        if (i % 4 < 2) {
            (void)step(&r, &s, 0, 2);
            float *same = gradients_of(&r, s.model);
            assert_memory_equal(same, first, (size_t)n * sizeof *same);
            free(same);
        }
        (void)step(&r, &s, 2, N);
        float *both = gradients_of(&r, s.model);
        assert_close(both, first, second, n);
        (void)step(&r, &s, 0, 2);
        float *three = gradients_of(&r, s.model);
        assert_close(three, both, first, n);
        assert_ok(cgp_optim_step(r.pipeline));
        (void)step(&r, &s, 0, 2); /* the first step after an update overwrites the sums */
        assert_ok(cgp_pipeline_zero_grad(r.pipeline));
        float none;
        assert_int_equal(cgp_pipeline_get_gradient(r.pipeline, 0, &none), CGP_ESTATE);
        assert_int_equal(cgp_optim_step(r.pipeline), CGP_ESTATE);
        free(three);
        free(both);
        free(first);
        free(second);
        training_stop(&r);
        setting_destroy(&s);
    }
}

/* Clipping by the plan's clip_norm and by cgp_pipeline_clip_grad_norm() gives the same update. */
TEST_CASE(clipping_by_a_call_is_clipping_by_the_plan) {
    uint64_t state = test_seed();
    for (int i = 0; i < 6; i++) {
        setting s;
        hashes weights[2];
        double norms[2] = {0, 0};
        setting_create(&s, i % 2 ? "cpu" : "ref", &state);
        for (int k = 0; k < 2; k++) {
            s.options.optim = cgp_optim_sgd(0.1, 0, false, 0);
            s.options.optim.clip_norm = k ? 0 : 1e-3;
            training r = training_start(s.model, &s.options, s.seed);
            (void)step(&r, &s, 0, N);
            if (k) assert_ok(cgp_pipeline_clip_grad_norm(r.pipeline, 1e-3, &norms[k]));
            if (k) {
                double again = 0;
                assert_ok(cgp_pipeline_set_accumulation(r.pipeline, true));
                assert_int_equal(cgp_pipeline_step(r.pipeline, s.batch.inputs, s.batch.n, NULL),
                                 CGP_ESTATE); /* no step can add to clipped gradients */
                assert_ok(cgp_pipeline_clip_grad_norm(r.pipeline, INFINITY, &again));
                assert_true(fabs(again - 1e-3) < 1e-5);
            }
            assert_ok(cgp_optim_step(r.pipeline));
            const double norm = cgp_pipeline_gradient_norm(r.pipeline);
            if (!k) norms[k] = norm;
            assert_true(norm == norms[k]);
            assert_int_equal(cgp_pipeline_clip_grad_norm(r.pipeline, 1, NULL), CGP_ESTATE);
            weights[k] = hashes_of(&r);
            training_stop(&r);
        }
        assert_true(norms[0] > 1e-3);
        assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
        assert_string_equal(weights[0].weights, weights[1].weights);
        setting_destroy(&s);
    }
}

/* If one of several accumulated steps computes numbers that are not finite, the update is refused.
 * The next step overwrites the gradients. */
TEST_CASE(a_part_that_is_not_finite_refuses_the_update) {
    setting s;
    training r = start(&s, "cpu");
    assert_ok(cgp_pipeline_set_accumulation(r.pipeline, true));
    sum_losses(&r, &s);
    const int64_t n = cgp_shape_count(cgp_model_parameter_shape(s.model, 0));
    float *good = calloc((size_t)n, sizeof *good), *bad = calloc((size_t)n, sizeof *bad);
    assert_non_null(good);
    assert_non_null(bad);
    assert_ok(cgp_pipeline_get_parameter(r.pipeline, 0, good));
    for (int64_t i = 0; i < n; i++)
        bad[i] = NAN;
    for (int part = 0; part < PARTS; part++) {
        assert_ok(cgp_pipeline_set_parameter(r.pipeline, 0, part == 1 ? bad : good));
        (void)step(&r, &s, 0, N);
    }
    hashes before = hashes_of(&r);
    assert_int_equal(cgp_optim_step(r.pipeline), CGP_ESTATE);
    hashes after = hashes_of(&r);
    assert_same(&after, &before);
    (void)step(&r, &s, 0, N);
    assert_ok(cgp_optim_step(r.pipeline));
    free(bad);
    free(good);
    stop(&r, &s);
}

/* A learning rate that the caller sets replaces the rate of the optimizer and its schedule, until
 * the caller sets NaN. */
TEST_CASE(a_learning_rate_that_is_set_is_used) {
    uint64_t state = test_seed();
    setting s;
    hashes weights[3];
    setting_create(&s, "cpu", &state);
    for (int k = 0; k < 3; k++) {
        s.options.optim = cgp_optim_adamw(k == 1 ? 0.5 : 0.1, 0.1);
        training r = training_start(s.model, &s.options, s.seed);
        if (k == 1) assert_ok(cgp_pipeline_set_lr(r.pipeline, 0.1));
        if (k == 2) assert_ok(cgp_pipeline_set_updates(r.pipeline, 41));
        (void)step(&r, &s, 0, N);
        if (k == 2) assert_int_equal(cgp_pipeline_set_updates(r.pipeline, 0), CGP_ESTATE);
        assert_ok(cgp_optim_step(r.pipeline));
        assert_int_equal(cgp_pipeline_updates(r.pipeline), k == 2 ? 42 : 1);
        weights[k] = hashes_of(&r);
        assert_ok(cgp_pipeline_set_lr(r.pipeline, NAN));
        (void)step(&r, &s, 0, N);
        assert_ok(cgp_optim_step(r.pipeline));
        hashes after = hashes_of(&r);
        if (k == 1) assert_string_not_equal(after.weights, weights[0].weights);
        assert_int_equal(cgp_pipeline_set_lr(r.pipeline, -1), CGP_EINVAL);
        assert_int_equal(cgp_pipeline_set_lr(r.pipeline, INFINITY), CGP_EINVAL);
        assert_int_equal(cgp_pipeline_set_updates(r.pipeline, -1), CGP_EINVAL);
        training_stop(&r);
    }
    assert_string_equal(weights[0].weights, weights[1].weights);
    /* AdamW's bias correction depends on the number of updates */
    assert_string_not_equal(weights[0].weights, weights[2].weights);
    setting_destroy(&s);
}

TEST_CASE(wrong_arguments_are_refused) {
    setting s;
    training r = start(&s, "cpu");
    const int n = cgp_model_losses(s.model);
    const int64_t zeros[8] = {0};
    assert_int_equal(cgp_pipeline_set_targets(r.pipeline, zeros, n), CGP_EINVAL);
    assert_int_equal(cgp_pipeline_set_targets(r.pipeline, zeros, n + 1), CGP_EINVAL);
    assert_int_equal(cgp_pipeline_clip_grad_norm(r.pipeline, 1, NULL), CGP_ESTATE);
    (void)step(&r, &s, 0, N);
    assert_int_equal(cgp_pipeline_clip_grad_norm(r.pipeline, -1, NULL), CGP_EINVAL);
    assert_int_equal(cgp_pipeline_clip_grad_norm(r.pipeline, NAN, NULL), CGP_EINVAL);
    assert_ok(cgp_optim_step(r.pipeline));
    stop(&r, &s);
}

/* --- an external loss --- */

/* A batch norm and a linear layer on two stages, with an external loss. The gradient of the loss is
 * the output itself. */
typedef struct outer {
    cgp_model *model;
    test_batch good, bad; /* `bad` makes infinite statistics in the norm */
    training t;
    test_results results;
} outer;

static void outer_start(outer *o, double clip_norm) {
    enum { WIDTH = 3 };
    uint64_t state = 4;
    const char *devices[] = {"cpu", "cpu"};
    assert_ok(cgp_model_create(&o->model, "outer"));
    cgp_value x = cgp_model_input(o->model, "x", CGP_F32, 2, (int64_t[]){4, WIDTH});
    cgp_model_layer(o->model, "norm");
    x = cgp_batch_norm(o->model, x, "norm", 1e-3, 0.1);
    cgp_model_layer(o->model, "head");
    cgp_model_output(o->model,
                     cgp_linear(o->model, x, "head",
                                (cgp_linear_options){.out = 5, .init = {CGP_INIT_NORMAL, 0.4}}));
    assert_ok(cgp_model_finish(o->model));
    test_batch_fill(&o->good, o->model, &(const test_sizes){0}, N, &state);
    test_batch_fill(&o->bad, o->model, &(const test_sizes){0}, N, &state);
    ((float *)o->bad.tensors[0].data)[0] = INFINITY;
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = options.chunks = 2;
    options.batch = N;
    options.devices = devices;
    options.external_loss = true;
    options.optim = cgp_optim_sgd(0.1, 0, false, 0);
    options.optim.clip_norm = clip_norm;
    o->t = training_start(o->model, &options, 3);
    assert_ok(cgp_pipeline_set_accumulation(o->t.pipeline, true));
}

static void outer_stop(outer *o) {
    training_stop(&o->t);
    test_batch_release(&o->good);
    test_batch_release(&o->bad);
    cgp_model_destroy(o->model);
}

static void forward(outer *o, const test_batch *batch) {
    test_results_make(&o->results, o->model, N);
    assert_ok(cgp_pipeline_forward(o->t.pipeline, batch->inputs, 1, o->results.output_list, 1));
}

static void backward(outer *o) {
    assert_ok(cgp_pipeline_backward(o->t.pipeline, o->results.output_list, 1));
    test_results_release(&o->results);
}

static void no_backward(outer *o) {
    assert_ok(cgp_pipeline_skip_backward(o->t.pipeline));
    test_results_release(&o->results);
}

/* After a step that is not finite, updates are refused. A later forward without backward commits
 * its states if it is finite, but updates are still refused. */
TEST_CASE(a_skipped_forward_keeps_a_refusal_of_gradients_that_wait) {
    for (int clips = 0; clips < 2; clips++) {
        outer o;
        outer_start(&o, clips);
        const hashes before = hashes_of(&o.t);
        forward(&o, &o.bad);
        backward(&o);
        forward(&o, &o.good);
        no_backward(&o);
        const hashes after = hashes_of(&o.t);
        assert_string_not_equal(after.states, before.states);
        assert_status(cgp_optim_step(o.t.pipeline), CGP_ESTATE);
        assert_message("the last step accumulated a value that is not finite");
        assert_string_equal(hashes_of(&o.t).weights, before.weights);
        outer_stop(&o);
    }
}

TEST_CASE(a_skipped_forward_does_not_refuse_gradients_that_wait) {
    for (int clips = 0; clips < 2; clips++) {
        outer skipped, plain;
        outer_start(&skipped, clips);
        outer_start(&plain, clips);
        forward(&plain, &plain.good);
        backward(&plain);
        assert_ok(cgp_optim_step(plain.t.pipeline));
        forward(&skipped, &skipped.good);
        backward(&skipped);
        forward(&skipped, &skipped.bad); /* commits no state */
        no_backward(&skipped);
        assert_ok(cgp_optim_step(skipped.t.pipeline));
        const hashes expected = hashes_of(&plain.t), got = hashes_of(&skipped.t);
        assert_same(&got, &expected);
        outer_stop(&plain);
        outer_stop(&skipped);
    }
}

/* A forward is refused after clipping, because its backward could not add to the clipped
 * gradients. */
TEST_CASE(no_forward_runs_after_clipping) {
    outer o;
    outer_start(&o, 0);
    forward(&o, &o.good);
    backward(&o);
    assert_ok(cgp_pipeline_clip_grad_norm(o.t.pipeline, 1e-3, NULL));
    test_results_make(&o.results, o.model, N);
    const double before = test_results_outputs(&o.results);
    assert_status(cgp_pipeline_forward(o.t.pipeline, o.good.inputs, 1, o.results.output_list, 1),
                  CGP_ESTATE);
    assert_message("gradients: are clipped, so no step can add to them");
    assert_true(test_results_outputs(&o.results) == before);
    assert_ok(cgp_optim_step(o.t.pipeline));
    test_results_release(&o.results);
    outer_stop(&o);
}

TEST_CASE(a_skipped_forward_does_not_change_the_norm_of_gradients_that_wait) {
    outer skipped, plain;
    float gradient[64];
    outer_start(&skipped, 1e-3);
    outer_start(&plain, 1e-3);
    forward(&plain, &plain.good);
    backward(&plain);
    assert_ok(cgp_optim_step(plain.t.pipeline));
    forward(&skipped, &skipped.good);
    backward(&skipped);
    /* reading a gradient also computes the norm */
    assert_ok(cgp_pipeline_get_gradient(skipped.t.pipeline, 0, gradient));
    forward(&skipped, &skipped.good);
    no_backward(&skipped);
    assert_ok(cgp_optim_step(skipped.t.pipeline));
    const double expected = cgp_pipeline_gradient_norm(plain.t.pipeline),
                 got = cgp_pipeline_gradient_norm(skipped.t.pipeline);
    if (!(got == expected)) fail_msg("norm %.17g, expected %.17g", got, expected);
    assert_string_equal(hashes_of(&skipped.t).weights, hashes_of(&plain.t).weights);
    outer_stop(&plain);
    outer_stop(&skipped);
}
