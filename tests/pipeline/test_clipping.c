/* SPDX-License-Identifier: Apache-2.0 */
/* test_clipping.c -- the norm of all gradients, clipping by this norm, and weight decay.
 *
 * The squared norm is a sum over the parameters in order. Each parameter's squares are summed on
 * one device, so the number of stages does not matter:
 *
 *     params     p0 p1 | p2 p3 p4 | p5            2 stages: p0 p1 p2 | p3 p4 p5
 *     squares    s0 s1   s2 s3 s4   s5            norm^2 = ((((s0 + s1) + s2) + s3) + s4) + s5
 *
 * So training with clipping is bit-equal for all numbers of stages. Shapes, graphs (some tie
 * parameters across stages) and seeds are random in each run. */
#include "training.h"

enum { STEPS = 3 };

/* A model, its plan options, and the mini-batches. */
typedef struct setting {
    cgp_model *model;
    test_sizes sizes;
    cgp_plan_options options;
    const char *devices[4];
    int balance[4];
    uint64_t seed;
    test_batch batches[STEPS];
} setting;

static void setting_create(setting *s, const char *device, uint64_t *state) {
    *s = (setting){.seed = test_random(state)};
    s->sizes = (test_sizes){.layers = test_between(state, 3, 6),
                            .sequence = test_between(state, 1, 9),
                            .heads = test_between(state, 1, 2),
                            .vocab = test_between(state, 2, 20),
                            .dropout = 0.2};
    s->sizes.width = s->sizes.heads * test_between(state, 2, 9);
    s->model = test_random_graph(state, &s->sizes);
    s->options = cgp_plan_options_default();
    s->options.batch = test_between(state, 1, 5);
    s->options.chunks = test_between(state, 1, 4);
    s->options.devices = s->devices;
    for (int i = 0; i < 4; i++)
        s->devices[i] = device;
    for (int i = 0; i < STEPS; i++)
        test_batch_fill(&s->batches[i], s->model, &s->sizes, s->options.batch, state);
}

static void setting_destroy(setting *s) {
    for (int i = 0; i < STEPS; i++)
        test_batch_release(&s->batches[i]);
    cgp_model_destroy(s->model);
}

static training start(setting *s, int stages, uint64_t *state) {
    s->options.stages = stages;
    s->options.balance = s->balance;
    test_random_balance(state, cgp_model_layers(s->model), stages, s->balance);
    return training_start(s->model, &s->options, s->seed);
}

static void step(const training *r, const test_batch *batch) {
    assert_ok(cgp_pipeline_step(r->pipeline, batch->inputs, batch->n, NULL));
}

typedef struct outcome {
    double norms[STEPS];
    char sha256[65];
} outcome;

static outcome train(setting *s, int stages, uint64_t *state) {
    outcome o;
    training r = start(s, stages, state);
    for (int i = 0; i < STEPS; i++) {
        (void)training_step(&r, &s->batches[i]);
        o.norms[i] = cgp_pipeline_gradient_norm(r.pipeline);
    }
    assert_ok(cgp_pipeline_weights_sha256(r.pipeline, o.sha256));
    training_stop(&r);
    return o;
}

/* Return the norm of the first step's gradients. */
static double first_norm(setting *s, uint64_t *state) {
    s->options.optim.clip_norm = 1e30;
    return train(s, 1, state).norms[0];
}

static cgp_optim draw_optim(uint64_t *state) {
    switch (test_between(state, 0, 3)) {
    case 0:
        return cgp_optim_sgd(0.05, 0.9, true, 1e-2);
    case 1:
        return cgp_optim_adamw(1e-3, 0.1);
    case 2:
        return cgp_optim_adam(1e-3, 0.1);
    default:
        return cgp_optim_rmsprop(1e-3, 0.9, 0.1);
    }
}

static void check_stages(const char *device, uint64_t *state) {
    setting s;
    setting_create(&s, device, state);
    s.options.optim = draw_optim(state);
    const outcome free = train(&s, 1, state);
    s.options.optim.clip_norm = first_norm(&s, state) / 2;
    const outcome expected = train(&s, 1, state);
    print_message("%s, %s: norms %.9g %.9g %.9g, clipped to %.9g, %.12s\n", device,
                  cgp_optim_kind_name(s.options.optim.kind), expected.norms[0], expected.norms[1],
                  expected.norms[2], s.options.optim.clip_norm, expected.sha256);
    assert_string_not_equal(expected.sha256, free.sha256);
    for (int stages = 1; stages <= 4; stages++) {
        for (int k = 0; k < 2; k++) {
            s.options.schedule = k ? "1f1b" : "gpipe";
            s.options.recompute = k ? CGP_RECOMPUTE_NEVER : CGP_RECOMPUTE_EXCEPT_LAST;
            const outcome got = train(&s, stages, state);
            for (int i = 0; i < STEPS; i++) {
                if (got.norms[i] != expected.norms[i])
                    fail_msg("%d stages, step %d: norm %.17g, expected %.17g", stages, i,
                             got.norms[i], expected.norms[i]);
            }
            assert_string_equal(got.sha256, expected.sha256);
        }
    }
    setting_destroy(&s);
}

TEST_CASE(clipped_training_is_bit_equal_over_stages) {
    uint64_t state = test_seed();
    for (int i = 0; i < 6; i++)
        check_stages(i % 2 ? "cpu" : "ref", &state);
}

static int64_t parameter_size(const cgp_model *model, int p) {
    return cgp_shape_count(cgp_model_parameter_shape(model, p));
}

/* A function that copies one parameter, or the gradient of one parameter. collect() calls it for
 * all parameters and returns a single array, which the caller frees. */
typedef cgp_status getter(cgp_pipeline *pipeline, int parameter, float *data);

static float *collect(const training *r, const cgp_model *model, getter *get) {
    float *all = calloc((size_t)cgp_model_parameter_count(model), sizeof *all), *at = all;
    assert_non_null(all);
    for (int p = 0; p < cgp_model_parameters(model); at += parameter_size(model, p++))
        assert_ok(get(r->pipeline, p, at));
    return all;
}

static bool same_bits(const cgp_model *model, const float *a, const float *b) {
    return memcmp(a, b, (size_t)cgp_model_parameter_count(model) * sizeof *a) == 0;
}

/* Compute the norm as the backend `ref` does. Sum the squares of each parameter's gradient in
 * element order, add up these sums, and take the root. */
static double norm_of(const cgp_model *model, const float *gradient) {
    double sum = 0;
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const int64_t n = parameter_size(model, p);
        double squares = 0;
        for (int64_t i = 0; i < n; i++)
            squares += (double)gradient[i] * gradient[i];
        sum += squares;
        gradient += n;
    }
    return sqrt(sum);
}

/* In the norm, a tied parameter counts once. Backends other than `ref` may add up the squares of a
 * parameter in another order, so the norm may differ slightly. */
TEST_CASE(the_norm_is_that_of_the_gradients) {
    uint64_t state = test_seed();
    for (int i = 0; i < 20; i++) {
        setting s;
        setting_create(&s, i % 2 ? "cpu" : "ref", &state);
        s.options.optim.clip_norm = 1e-6;
        training r = start(&s, test_between(&state, 1, 4), &state);
        step(&r, &s.batches[0]);
        float *before = collect(&r, s.model, cgp_pipeline_get_gradient);
        assert_ok(cgp_optim_step(r.pipeline));
        float *after = collect(&r, s.model, cgp_pipeline_get_gradient);
        const double norm = cgp_pipeline_gradient_norm(r.pipeline);
        const double expected = norm_of(s.model, before);
        if (!(fabs(norm - expected) <= (i % 2 ? 1e-12 : 0) * expected))
            fail_msg("norm %.17g, expected %.17g", norm, expected);
        assert_true(norm > 1e-6);
        assert_true(same_bits(s.model, before, after)); /* the gradient buffers are unchanged */
        free(before);
        free(after);
        training_stop(&r);
        setting_destroy(&s);
    }
}

/* The backend `ref` computes in double, so it updates p to exactly p - lr min(1, c / (norm + 1e-6))
 * g, where c is the clip_norm. */
TEST_CASE(gradients_are_scaled_as_pytorch_does) {
    uint64_t state = test_seed();
    for (int i = 0; i < 4; i++) {
        setting s;
        setting_create(&s, "ref", &state);
        s.options.optim = cgp_optim_sgd(0.1, 0, false, 0);
        s.options.optim.clip_norm = first_norm(&s, &state) * (i % 2 ? 0.3 : 2);
        training r = start(&s, 2, &state);
        step(&r, &s.batches[0]);
        float *expected = collect(&r, s.model, cgp_pipeline_get_parameter);
        float *gradient = collect(&r, s.model, cgp_pipeline_get_gradient);
        assert_ok(cgp_optim_step(r.pipeline));
        const double norm = cgp_pipeline_gradient_norm(r.pipeline);
        const double scale = fmin(1, s.options.optim.clip_norm / (norm + 1e-6));
        assert_true((scale == 1) == (i % 2 == 0));
        for (int64_t k = 0; k < cgp_model_parameter_count(s.model); k++)
            expected[k] = (float)(expected[k] - 0.1 * (scale * gradient[k]));
        float *got = collect(&r, s.model, cgp_pipeline_get_parameter);
        assert_true(same_bits(s.model, got, expected));
        free(expected);
        free(gradient);
        free(got);
        training_stop(&r);
        setting_destroy(&s);
    }
}

TEST_CASE(without_clipping_there_is_no_norm) {
    uint64_t state = test_seed();
    setting s;
    setting_create(&s, "cpu", &state);
    training r = start(&s, 2, &state);
    assert_true(isnan(cgp_pipeline_gradient_norm(r.pipeline)));
    step(&r, &s.batches[0]);
    assert_ok(cgp_optim_step(r.pipeline));
    assert_true(isnan(cgp_pipeline_gradient_norm(r.pipeline)));
    training_stop(&r);
    setting_destroy(&s);
}

/* NaNs in the head's weight make the gradients NaN, so the update is refused. Once the weight is
 * repaired, training goes on. */
TEST_CASE(a_loss_that_is_not_finite_updates_nothing) {
    uint64_t state = test_seed();
    setting s;
    setting_create(&s, "cpu", &state);
    s.options.optim = cgp_optim_adamw(1e-2, 0.1);
    s.options.optim.clip_norm = 1;
    training r = start(&s, 3, &state);
    const int head = cgp_model_parameters(s.model) - 1;
    const int64_t n = parameter_size(s.model, head);
    float *good = calloc((size_t)n, sizeof *good), *bad = calloc((size_t)n, sizeof *bad);
    assert_ok(cgp_pipeline_get_parameter(r.pipeline, head, good));
    for (int64_t i = 0; i < n; i++)
        bad[i] = NAN;
    assert_ok(cgp_pipeline_set_parameter(r.pipeline, head, bad));
    step(&r, &s.batches[0]);
    float *before = collect(&r, s.model, cgp_pipeline_get_parameter);
    assert_status(cgp_optim_step(r.pipeline), CGP_ESTATE);
    assert_message("loss: is not finite, got nan (nothing was updated, no state changed; another "
                   "cgp_pipeline_step is due)");
    assert_false(isfinite(cgp_pipeline_gradient_norm(r.pipeline)));
    assert_int_equal(cgp_pipeline_updates(r.pipeline), 0);
    assert_status(cgp_optim_step(r.pipeline), CGP_ESTATE);
    assert_message("no new gradients");
    float *after = collect(&r, s.model, cgp_pipeline_get_parameter);
    assert_true(same_bits(s.model, before, after));
    assert_ok(cgp_pipeline_set_parameter(r.pipeline, head, good));
    step(&r, &s.batches[1]);
    assert_ok(cgp_optim_step(r.pipeline));
    assert_true(isfinite(cgp_pipeline_gradient_norm(r.pipeline)));
    assert_int_equal(cgp_pipeline_updates(r.pipeline), 1);
    free(good);
    free(bad);
    free(before);
    free(after);
    training_stop(&r);
    setting_destroy(&s);
}

/* Make a model with one parameter of each kind. Its loss is external, so that the test can set the
 * gradient of the output. */
static cgp_model *all_sorts(void) {
    static const cgp_init normal = {CGP_INIT_NORMAL, 0.5};
    const int64_t dims[1] = {4};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "all sorts"));
    cgp_model_layer(model, "first");
    cgp_value x = cgp_model_input(model, "ids", CGP_I32, 1, dims);
    x = cgp_embedding(model, x, "embedding", 7, 5, normal);
    x = cgp_position_embedding(model, x, "position", normal);
    cgp_model_layer(model, "second");
    x = cgp_layer_norm(model, x, "norm", 1e-5);
    cgp_model_output(model,
                     cgp_linear(model, x, "linear",
                                (cgp_linear_options){.out = 6, .bias = true, .init = normal}));
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Update with zero gradients, so that only weight decay changes the parameters. */
static void check_decay(const cgp_model *model, cgp_optim optim) {
    static int32_t ids[8];
    static float output[48], zeros[48];
    const int64_t in[] = {2, 4}, out[] = {2, 4, 6};
    const cgp_tensor tensor = {CGP_I32, cgp_shape_make(2, in), ids};
    const cgp_tensor *const inputs[] = {&tensor};
    const cgp_tensor y = {CGP_F32, cgp_shape_make(3, out), output};
    const cgp_tensor dy = {CGP_F32, cgp_shape_make(3, out), zeros};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = 2;
    o.schedule = "gpipe";
    o.external_loss = true;
    o.optim = optim;
    training r = training_start(model, &o, 1);
    float start[64], end[64];
    for (int k = 0; k < 64; k++)
        start[k] = 1 + (float)k / 64; /* a bias starts at zero, where decay has no effect */
    for (int p = 0; p < cgp_model_parameters(model); p++)
        assert_ok(cgp_pipeline_set_parameter(r.pipeline, p, start));
    assert_ok(cgp_pipeline_forward(r.pipeline, inputs, 1, (const cgp_tensor *[]){&y}, 1));
    assert_ok(cgp_pipeline_backward(r.pipeline, (const cgp_tensor *[]){&dy}, 1));
    assert_ok(cgp_optim_step(r.pipeline));
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const char *name = cgp_model_parameter_name(model, p);
        const bool spared = strstr(name, "norm") || strstr(name, ".bias");
        const int64_t n = parameter_size(model, p);
        assert_ok(cgp_pipeline_get_parameter(r.pipeline, p, end));
        for (int64_t k = 0; k < n; k++) {
            if ((end[k] < start[k]) != (optim.decay_all || !spared) || end[k] > start[k])
                fail_msg("%s, %s[%d]: %.9g to %.9g", cgp_optim_kind_name(optim.kind), name, (int)k,
                         (double)start[k], (double)end[k]);
        }
    }
    training_stop(&r);
}

TEST_CASE(norms_and_biases_do_not_decay) {
    cgp_model *model = all_sorts();
    const cgp_optim optims[] = {
        cgp_optim_sgd(0.1, 0, false, 0.1), cgp_optim_sgd(0.1, 0.9, true, 0.1),
        cgp_optim_adamw(0.1, 0.1),         cgp_optim_adam(0.1, 0.1),
        cgp_optim_rmsprop(0.1, 0, 0.1),    cgp_optim_rmsprop(0.1, 0.9, 0.1)};
    for (int i = 0; i < 24; i++) {
        cgp_optim optim = optims[i / 4];
        optim.decay_all = i % 2;
        optim.clip_norm = i / 2 % 2; /* the norm is 0 here */
        check_decay(model, optim);
    }
    cgp_model_destroy(model);
}
