/* SPDX-License-Identifier: Apache-2.0 */
/* test_gradient_groups.c -- with gradient groups, gradients are sums in a binary tree, bit for bit,
 * in every layout.
 *
 * The reference runs one stage without groups. It computes the gradients of each group as a
 * separate mini-batch, divided by the number of targets of the whole mini-batch. The test then adds
 * these gradients in the tree's order. */
#include "training.h"

#include <cgpipe/planner.h>

#include "model/model.h"

enum { MOST_GROUPS = 16 };

typedef struct setting {
    cgp_model *model;
    test_sizes sizes;
    test_batch batch;
    int samples; /* size of the mini-batch; may be below options.batch */
    cgp_plan_options options;
    const char *devices[5];
    int balance[64];
    uint64_t seed;
} setting;

/* Draw a model of images, or a graph without states. Without states, a repeated step gives the same
 * result. */
static cgp_model *draw_model(uint64_t *state, test_sizes *sizes, bool images) {
    *sizes = (test_sizes){.layers = test_between(state, 2, 5),
                          .sequence = test_between(state, 1, 9),
                          .heads = test_between(state, 1, 2),
                          .vocab = test_between(state, 2, 20),
                          .rough = images};
    sizes->width = sizes->heads * test_between(state, 2, 9);
    cgp_model *model = images ? test_random_images(state, sizes) : test_random_graph(state, sizes);
    while (!images && cgp_model_states(model) > 0) {
        cgp_model_destroy(model);
        model = test_random_graph(state, sizes);
    }
    return model;
}

static void setting_create(setting *s, uint64_t *state, int i) {
    *s = (setting){.seed = test_random(state)};
    s->model = draw_model(state, &s->sizes, i % 3 == 2);
    cgp_plan_options *o = &s->options;
    *o = cgp_plan_options_default();
    o->batch = test_between(state, 1, 11);
    o->chunks = test_between(state, 1, (int)o->batch);
    o->precision = i % 2 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
    o->gradient_groups = 1 << test_between(state, 1, 4);
    o->optim.clip_norm = i % 4 == 0 ? 1e-2 : 0;
    s->samples = test_between(state, 0, 1) ? (int)o->batch : test_between(state, 1, (int)o->batch);
    test_batch_fill(&s->batch, s->model, &s->sizes, s->samples, state);
}

static void setting_destroy(setting *s) {
    test_batch_release(&s->batch);
    cgp_model_destroy(s->model);
}

/* Draw a layout. Its devices are on `cpu` and `late`, because these two backends give bit-equal
 * results. */
static void draw_layout(setting *s, uint64_t *state) {
    static const char *const backends[] = {"cpu", "late"};
    const int layers = cgp_model_layers(s->model);
    const bool mixed = test_between(state, 0, 1) && !getenv("CGP_TEST_DEVICES");
    test_random_schedule(state, layers, 4, &s->options);
    test_random_balance(state, layers, cgp_plan_options_stages(&s->options), s->balance);
    for (int d = 0; d < 5; d++)
        s->devices[d] = backends[test_between(state, 0, 1)];
    s->options.recompute =
        (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE);
    s->options.balance = s->balance;
    s->options.devices = mixed ? s->devices : NULL;
}

/* Run a step on samples `begin` to `end - 1`. */
static void step(const training *r, const setting *s, int begin, int end) {
    cgp_tensor tensors[4];
    const cgp_tensor *inputs[4];
    double loss = 0;
    for (int k = 0; k < s->batch.n; k++) {
        tensors[k] = s->batch.tensors[k];
        const int64_t count = cgp_shape_count(&tensors[k].shape) / s->samples;
        tensors[k].data = (char *)tensors[k].data + 4 * count * begin;
        tensors[k].shape.dims[0] = end - begin;
        inputs[k] = &tensors[k];
    }
    assert_ok(cgp_pipeline_step(r->pipeline, inputs, s->batch.n, &loss));
}

/* --- the reference --- */

/* Return the gradients of all parameters, one after the other; the caller frees the array. */
static float *gradients_of(const training *r, const cgp_model *model) {
    float *all = calloc((size_t)cgp_model_parameter_count(model), sizeof *all), *at = all;
    assert_non_null(all);
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        if (!cgp_model_parameter_frozen(model, p))
            assert_ok(cgp_pipeline_get_gradient(r->pipeline, p, at));
        at += cgp_shape_count(cgp_model_parameter_shape(model, p));
    }
    return all;
}

/* Return the sum of the gradients of groups `first` to `next - 1`, added in the tree's order.
 * Return NULL if these groups contain no micro-batch. */
static float *sum_groups(float *const *groups, int first, int next, int64_t count) {
    if (next - first == 1) return groups[first];
    float *left = sum_groups(groups, first, (first + next) / 2, count);
    const float *right = sum_groups(groups, (first + next) / 2, next, count);
    for (int64_t i = 0; left && right && i < count; i++)
        left[i] += right[i];
    return left ? left : (float *)right;
}

/* Set `targets` to the number of targets of each loss in the mini-batch. */
static void count_targets(const setting *s, const training *r, int64_t targets[8]) {
    step(r, s, 0, s->samples);
    for (int l = 0; l < cgp_model_losses(s->model); l++) {
        targets[l] = cgp_pipeline_last_loss(r->pipeline, l).count;
        if (targets[l] == 0) targets[l] = 1; /* all targets are ignored; avoid 0 / 0 */
    }
}

/* Compute the gradients by the definition of gradient groups. The caller frees the array. */
static float *expected_gradients(const setting *s, int groups) {
    cgp_plan_options o = s->options;
    float *sums[MOST_GROUPS] = {NULL};
    int64_t targets[8];
    o.gradient_groups = 1;
    o.schedule = "gpipe";
    o.optim.clip_norm = 0;
    training r = training_start(s->model, &o, s->seed);
    const int b = (int)cgp_plan_microbatch(r.plan), m = (s->samples + b - 1) / b;
    count_targets(s, &r, targets);
    for (int g = 0; g < groups; g++) {
        const int first = g * m / groups, next = (g + 1) * m / groups;
        if (first == next) continue;
        assert_ok(cgp_pipeline_set_targets(r.pipeline, targets, cgp_model_losses(s->model)));
        step(&r, s, first * b, next * b < s->samples ? next * b : s->samples);
        sums[g] = gradients_of(&r, s->model);
    }
    training_stop(&r);
    const int64_t count = cgp_model_parameter_count(s->model);
    float *sum = sum_groups(sums, 0, groups, count);
    for (int g = 0; g < groups; g++)
        if (sums[g] != sum) free(sums[g]);
    return sum;
}

/* Compare the gradients of parameters that are used once. The gradient of a tied parameter is a sum
 * of one tree per use, which the reference cannot compute. */
static void assert_tree(const setting *s, const float *expected, const float *got) {
    for (int p = 0; p < cgp_model_parameters(s->model); p++) {
        const int64_t count = cgp_shape_count(cgp_model_parameter_shape(s->model, p));
        if (s->model->params[p].n_uses == 1 && memcmp(expected, got, 4 * (size_t)count) != 0)
            fail_msg("%s: the gradient is not the tree's (%d samples, batch %d, chunks %d, %d "
                     "groups)",
                     cgp_model_parameter_name(s->model, p), s->samples, (int)s->options.batch,
                     s->options.chunks, s->options.gradient_groups);
        expected += count;
        got += count;
    }
}

/* Results of a layout: gradients, and the weights after two updates. The second step launches
 * captured graphs. */
typedef struct result {
    float *gradients;
    double norm;
    hashes after;
} result;

static result train(const setting *s) {
    result got;
    training r = training_start(s->model, &s->options, s->seed);
    for (int k = 0; k < 2; k++) {
        step(&r, s, 0, s->samples);
        if (k == 0) got.gradients = gradients_of(&r, s->model);
        assert_ok(cgp_optim_step(r.pipeline));
    }
    got.norm = cgp_pipeline_gradient_norm(r.pipeline);
    got.after = hashes_of(&r);
    training_stop(&r);
    return got;
}

TEST_CASE(gradients_are_those_of_the_tree_in_every_layout) {
    uint64_t state = test_seed();
    const int draws = test_scaled(40);
    for (int i = 0; i < draws; i++) {
        setting s;
        setting_create(&s, &state, i);
        const size_t bytes = 4 * (size_t)cgp_model_parameter_count(s.model);
        float *expected = expected_gradients(&s, s.options.gradient_groups);
        s.options.schedule = "gpipe";
        result serial = train(&s);
        assert_tree(&s, expected, serial.gradients);
        for (int k = 0; k < 2; k++) {
            draw_layout(&s, &state);
            result got = train(&s);
            assert_memory_equal(got.gradients, serial.gradients, bytes);
            assert_memory_equal(&got.norm, &serial.norm, sizeof got.norm);
            assert_same(&got.after, &serial.after);
            free(got.gradients);
        }
        free(serial.gradients);
        free(expected);
        setting_destroy(&s);
    }
}

/* Make a GPT-2, and a mini-batch of `m` micro-batches with one sample each. */
static void small_setting(setting *s, uint64_t *state, int m) {
    *s = (setting){.sizes = {.layers = 2, .sequence = 4, .width = 32, .heads = 2, .vocab = 211},
                   .samples = m,
                   .seed = test_random(state)};
    s->model = test_gpt2(&s->sizes);
    s->options = cgp_plan_options_default();
    s->options.batch = s->options.chunks = m;
    test_batch_fill(&s->batch, s->model, &s->sizes, m, state);
}

TEST_CASE(the_first_group_of_a_step_that_adds_begins_with_earlier_gradients) {
    uint64_t state = test_seed();
    const int64_t one[] = {1};
    setting s;
    float *sums[2];
    small_setting(&s, &state, 5);
    const int64_t count = cgp_model_parameter_count(s.model);
    for (int k = 0; k < 2; k++) { /* k = 0: samples 0, then 1, 2; k = 1: samples 3, 4 */
        training r = training_start(s.model, &s.options, s.seed);
        assert_ok(cgp_pipeline_set_targets(r.pipeline, one, 1));
        assert_ok(cgp_pipeline_set_accumulation(r.pipeline, true));
        if (k == 0) step(&r, &s, 0, 1);
        step(&r, &s, k == 0 ? 1 : 3, k == 0 ? 3 : 5);
        sums[k] = gradients_of(&r, s.model);
        training_stop(&r);
    }
    float *expected = sum_groups(sums, 0, 2, count);
    s.options.gradient_groups = 2;
    training r = training_start(s.model, &s.options, s.seed);
    assert_ok(cgp_pipeline_set_targets(r.pipeline, one, 1));
    step(&r, &s, 0, 5); /* leaves stale partial sums */
    assert_ok(cgp_pipeline_zero_grad(r.pipeline));
    assert_ok(cgp_pipeline_set_accumulation(r.pipeline, true));
    step(&r, &s, 0, 1);
    step(&r, &s, 1, 5);
    float *got = gradients_of(&r, s.model);
    assert_tree(&s, expected, got);
    training_stop(&r);
    free(got);
    free(sums[0]);
    free(sums[1]);
    setting_destroy(&s);
}

TEST_CASE(partial_sums_take_the_planned_memory_and_no_more) {
    uint64_t state = test_seed();
    static const int cases[][3] = {/* micro-batches, groups, buffers for partial sums */
                                   {8, 1, 0}, {8, 2, 1}, {8, 8, 3}, {8, 64, 3},
                                   {3, 8, 2}, {2, 8, 1}, {1, 8, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        setting s;
        small_setting(&s, &state, cases[k][0]);
        s.options.stages = 2;
        cgp_plan *plain = NULL;
        assert_ok(cgp_plan_create(&plain, s.model, &s.options));
        s.options.gradient_groups = cases[k][1];
        training r = training_start(s.model, &s.options, s.seed);
        for (int d = 0; d < 2; d++) {
            const cgp_plan_device *device = cgp_plan_device_at(r.plan, d);
            const cgp_plan_device *before = cgp_plan_device_at(plain, d);
            assert_int_equal(device->partial_gradient_bytes, cases[k][2] * device->gradient_bytes);
            assert_int_equal(device->gradient_bytes, before->gradient_bytes);
            assert_int_equal(device->planned_bytes,
                             before->planned_bytes + device->partial_gradient_bytes);
            assert_int_equal(cgp_pipeline_allocated_bytes(r.pipeline, d), device->planned_bytes);
        }
        training_stop(&r);
        cgp_plan_destroy(plain);
        setting_destroy(&s);
    }
}

/* Return the makespan of a plan's step. Costs are FLOPs. If `by_layers` is true, they are 1 second
 * for the update of each layer, and 0 for everything else. */
static double makespan(const setting *s, bool by_layers) {
    cgp_layer_cost costs[8] = {0};
    cgp_schedule_timeline timeline;
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, s->model, &s->options));
    double all = cgp_plan_timeline(plan)->makespan;
    for (int i = 0; i < cgp_model_layers(s->model); i++)
        costs[i].update_seconds = 1;
    if (by_layers) {
        assert_ok(cgp_plan_simulate(plan, costs, NULL, NULL, &timeline, NULL));
        all = timeline.makespan;
        cgp_schedule_timeline_release(&timeline);
    }
    cgp_plan_destroy(plan);
    return all;
}

TEST_CASE(the_planned_step_takes_the_time_of_three_additions) {
    static const char *const schedules[] = {"gpipe", "zb-h1"};
    uint64_t state = test_seed();
    setting s;
    small_setting(&s, &state, 4);
    for (int k = 0; k < 2; k++) {
        s.options.schedule = schedules[k];
        s.options.gradient_groups = 1;
        const double flops = makespan(&s, false);
        assert_true(makespan(&s, true) == 0);
        s.options.gradient_groups = 4;
        const double added = makespan(&s, false) - flops;
        assert_true(added == 3.0 * (double)cgp_model_parameter_count(s.model));
        /* SGD moves 3 numbers per element, like an addition: it reads parameter and gradient, and
         * writes the parameter */
        assert_true(fabs(makespan(&s, true) - 3.0 * cgp_model_layers(s.model)) < 1e-9);
        s.options.optim = cgp_optim_adamw(1e-3, 0); /* AdamW moves 7 numbers */
        assert_true(fabs(makespan(&s, true) - 9.0 / 7 * cgp_model_layers(s.model)) < 1e-9);
        s.options.optim = cgp_optim_sgd(0.01, 0, false, 0);
    }
    setting_destroy(&s);
}

TEST_CASE(one_group_is_the_plan_without_groups) {
    uint64_t state = test_seed();
    setting s;
    cgp_plan *plans[2] = {NULL};
    char hex[3][65];
    small_setting(&s, &state, 4);
    assert_ok(cgp_plan_create(&plans[0], s.model, &s.options));
    assert_ok(cgp_plan_hash(plans[0], hex[0]));
    for (int k = 0; k < 2; k++) { /* k = 0: 2 groups; k = 1: inference */
        cgp_plan *plan = NULL;
        s.options.gradient_groups = 2;
        s.options.inference = k == 1;
        s.options.schedule = NULL;
        assert_ok(cgp_plan_create(&plan, s.model, &s.options));
        assert_ok(cgp_plan_hash(plan, hex[1 + k]));
        assert_int_equal(cgp_plan_device_at(plan, 0)->partial_gradient_bytes > 0, k == 0);
        cgp_plan_destroy(plan);
    }
    assert_string_not_equal(hex[0], hex[1]);
    s.options.gradient_groups = 1;
    assert_ok(cgp_plan_create(&plans[1], s.model, &s.options));
    assert_ok(cgp_plan_hash(plans[1], hex[0]));
    assert_string_equal(hex[0], hex[2]);
    cgp_plan_destroy(plans[1]);
    cgp_plan_destroy(plans[0]);
    setting_destroy(&s);
}

TEST_CASE(a_limit_counts_partial_sums) {
    uint64_t state = test_seed();
    setting s;
    cgp_plan *plan = NULL;
    small_setting(&s, &state, 4);
    s.options.stages = cgp_model_layers(s.model); /* the most stages possible */
    assert_ok(cgp_plan_create(&plan, s.model, &s.options));
    for (int d = 0; d < s.options.stages; d++) {
        const int64_t bytes = cgp_plan_device_at(plan, d)->planned_bytes;
        if (s.options.memory_limit < bytes) s.options.memory_limit = bytes;
    }
    cgp_plan_destroy(plan);
    assert_ok(cgp_plan_create(&plan, s.model, &s.options));
    cgp_plan_destroy(plan);
    s.options.gradient_groups = 2;
    assert_status(cgp_plan_create(&plan, s.model, &s.options), CGP_ELIMIT);
    assert_message(", partial gradients ");
    assert_message("fewer gradient groups");
    setting_destroy(&s);
}

TEST_CASE(what_groups_cannot_be_is_refused) {
    static const struct {
        int groups;
        const char *message;
    } cases[] = {{0, "gradient groups: expected 1 to 1024, got 0"},
                 {-2, "got -2"},
                 {6, "gradient groups: expected a power of two, got 6 (4 and 8 are the nearest)"},
                 {2048, "got 2048"}};
    uint64_t state = test_seed();
    cgp_plan *plan = NULL;
    setting s;
    small_setting(&s, &state, 2);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        s.options.gradient_groups = cases[k].groups;
        assert_status(cgp_plan_create(&plan, s.model, &s.options), CGP_EINVAL);
        assert_message(cases[k].message);
    }
    static const char csv[] = "0F0,0F1,0B1,0B0\n"; /* backward order descends */
    cgp_schedule *table = NULL;
    assert_ok(cgp_schedule_from_csv(&table, "mine", csv, sizeof csv - 1));
    s.options.table = table;
    s.options.gradient_groups = 1;
    assert_ok(cgp_plan_create(&plan, s.model, &s.options));
    cgp_plan_destroy(plan);
    s.options.gradient_groups = 2;
    assert_status(cgp_plan_create(&plan, s.model, &s.options), CGP_EINVAL);
    assert_message("schedule mine: does not run the backward of each stage in ascending order");
    cgp_schedule_destroy(table);
    setting_destroy(&s);
}
