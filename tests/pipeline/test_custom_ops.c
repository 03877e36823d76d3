/* SPDX-License-Identifier: Apache-2.0 */
/* test_custom_ops.c -- custom ops in a pipeline are planned, run, recomputed and refused like
 * built-in ops. (Random graphs contain custom ops too, so other tests check the bits, gradients,
 * memory and messages of custom ops.) */
#include "custom_models.h"

#include <stdatomic.h>

#include "late/late.h"

TEST_CASE(a_custom_copy_of_a_built_in_op_has_its_bytes_and_bits) {
    char hashes[2][65];
    int64_t bytes[2];
    for (int mode = 0; mode <= CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE; mode++) {
        for (int custom = 0; custom < 2; custom++) {
            parts p = begin();
            for (int k = 0; k < 3; k++) {
                char name[16];
                snprintf(name, sizeof name, "hidden%d", k);
                p.x = custom ? cgp_op_apply(p.model, &custom_relu, &p.x, NULL, NULL)
                             : cgp_relu(p.model, p.x);
                layer(&p, name);
            }
            cgp_model *model = finish(&p);
            world r;
            start(&r, model, 2, (cgp_recompute)mode);
            bytes[custom] = cgp_plan_device_at(r.plan, 0)->planned_bytes +
                            cgp_plan_device_at(r.plan, 1)->planned_bytes;
            for (int k = 0; k < 3; k++)
                step(&r);
            assert_ok(cgp_pipeline_weights_sha256(r.pipeline, hashes[custom]));
            stop(&r);
            cgp_model_destroy(model);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_string_equal(hashes[0], hashes[1]);
    }
}

/* The forward of an op runs once for each micro-batch. With recomputation it runs once more before
 * backward. */
TEST_CASE(an_op_knows_when_it_is_recomputed) {
    const test_noise noise = {0.3};
    const struct {
        cgp_recompute mode;
        int again; /* how many of 4 micro-batches are recomputed */
    } cases[] = {
        {CGP_RECOMPUTE_NEVER, 0}, {CGP_RECOMPUTE_ALWAYS, 4}, {CGP_RECOMPUTE_NEVER_SELECTIVE, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parts p = begin();
        /* backward reads RELU's result, so the noise op's output can be recomputed from this
         * result */
        p.x = cgp_relu(p.model, p.x);
        p.x = cgp_op_apply(p.model, &test_custom_noise, &p.x, NULL, &noise);
        cgp_model *model = finish(&p);
        world r;
        start(&r, model, 1, cases[i].mode);
        test_noise_runs = test_noise_recomputed = 0;
        step(&r);
        assert_int_equal(test_noise_runs, 4);
        assert_int_equal(test_noise_recomputed, cases[i].again);
        double loss;
        assert_ok(cgp_pipeline_evaluate(r.pipeline, r.batch.inputs, 2, &loss));
        assert_int_equal(test_noise_runs, 8);
        assert_int_equal(test_noise_recomputed, cases[i].again);
        stop(&r);
        cgp_model_destroy(model);
        assert_false(cgp_is_recomputing());
    }
}

static int64_t outside; /* bytes outside the plan per sample; -1: unknown */

static int64_t outside_bytes(const cgp_op_node *node, int64_t n) {
    (void)node;
    return outside < 0 ? -1 : outside * n;
}

/* Plan a model whose first layer has an op with memory outside the plan. Return NULL if the plan is
 * refused. */
static cgp_plan *plan_outside(cgp_model *model, cgp_recompute recompute, int64_t limit) {
    cgp_plan *plan = NULL;
    cgp_plan_options o = options();
    o.stages = 2;
    o.recompute = recompute;
    o.memory_limit = limit;
    return cgp_plan_create(&plan, model, &o) == CGP_OK ? plan : NULL;
}

/* The first of two stages has two micro-batches in flight, of 2 samples each. With recomputation,
 * the op may keep data of two forward runs: the latest one and the recomputed one. */
TEST_CASE(limits_count_the_memory_that_an_op_keeps_outside_the_plan) {
    cgp_op keeper = custom_relu;
    keeper.outside_bytes = outside_bytes;
    parts p = begin();
    p.x = cgp_op_apply(p.model, &keeper, &p.x, NULL, NULL);
    cgp_model *model = finish(&p);
    for (int mode = 0; mode <= CGP_RECOMPUTE_ALWAYS; mode++) {
        outside = 100000;
        cgp_plan *plan = plan_outside(model, (cgp_recompute)mode, 0);
        const cgp_plan_device *device = cgp_plan_device_at(plan, 0);
        const int64_t planned = device->planned_bytes;
        assert_int_equal(device->outside_bytes, 2 * 2 * 100000);
        assert_int_equal(cgp_plan_device_at(plan, 1)->outside_bytes, 0);
        cgp_plan_destroy(plan);
        plan = plan_outside(model, (cgp_recompute)mode, planned + 400000);
        assert_non_null(plan);
        cgp_plan_destroy(plan);
        assert_null(plan_outside(model, (cgp_recompute)mode, planned + 399999));
        assert_message(":0: needs ");
        assert_message(", outside the plan 390.6 KiB) but its memory is limited to ");
        outside = -1;
        assert_null(plan_outside(model, (cgp_recompute)mode, INT64_C(1) << 40));
        assert_message("custom_relu: its memory outside the plan is not known, so it cannot be "
                       "counted in the memory limit of device ");
        plan = plan_outside(model, (cgp_recompute)mode, 0);
        assert_non_null(plan);
        cgp_plan_destroy(plan);
    }
    cgp_model_destroy(model);
}

/* The state of the op "meter" is a running mean, which starts at 0.5. Each step changes the mean to
 * (mean + the mean of |features|) / 2. */
TEST_CASE(state_changes_once_a_step) {
    for (int mode = 0; mode <= CGP_RECOMPUTE_ALWAYS; mode++) {
        parts p = begin();
        p.x = cgp_add(p.model, p.x,
                      cgp_op_apply(p.model, &test_custom_meter, &p.features, "meter", NULL));
        cgp_model *model = finish(&p);
        world r;
        start(&r, model, 2, (cgp_recompute)mode);
        assert_int_equal(cgp_model_states(model), 2);
        assert_string_equal(cgp_model_state_name(model, 0), "meter.mean");
        double sum = 0, expected = 0.5;
        for (int i = 0; i < B * T * C; i++)
            sum += fabs((double)r.batch.features[i]);
        for (int k = 1; k <= 3; k++) {
            float mean;
            int32_t steps;
            step(&r);
            expected = 0.5 * expected + 0.5 * sum / (B * T * C);
            assert_ok(cgp_pipeline_get_state(r.pipeline, 0, &mean));
            assert_ok(cgp_pipeline_get_state(r.pipeline, 1, &steps));
            assert_true(fabs(mean - expected) < 1e-6);
            assert_int_equal(steps, k);
        }
        stop(&r);
        cgp_model_destroy(model);
    }
}

/* This custom loss is the mean over the rows whose first feature is above 0. It ignores all other
 * rows. */
TEST_CASE(a_custom_loss_counts_its_targets) {
    parts p = begin();
    const cgp_value made = cgp_op_apply(p.model, &test_custom_rms, &p.x, "rms", NULL);
    cgp_op_apply_loss(p.model, &test_custom_weighted, (cgp_value[]){made, p.features}, NULL, 2);
    cgp_model_output(p.model, made);
    assert_ok(cgp_model_finish(p.model));
    world r;
    start(&r, p.model, 1, CGP_RECOMPUTE_NEVER);
    float got[B * T * C];
    cgp_tensor output = {CGP_F32, {3, {B, T, C}}, got};
    double loss, sum = 0;
    int counted = 0;
    assert_ok(
        cgp_pipeline_predict(r.pipeline, r.batch.inputs, 2, (const cgp_tensor *[]){&output}, 1));
    for (int row = 0; row < B * T; row++) {
        if (r.batch.features[row * C] <= 0) continue;
        counted++;
        for (int i = row * C; i < (row + 1) * C; i++)
            sum += 0.5 * pow((double)got[i] - r.batch.features[i], 2);
    }
    assert_true(counted > 0 && counted < B * T);
    assert_ok(cgp_pipeline_evaluate(r.pipeline, r.batch.inputs, 2, &loss));
    assert_true(fabs(loss - 2 * sum / counted) < 1e-9 * loss);
    const double first = step(&r);
    assert_true(first == loss);
    for (int k = 0; k < 20; k++)
        loss = step(&r);
    assert_true(loss < 0.9 * first);
    for (int row = 0; row < B * T; row++)
        r.batch.features[row * C] = -1;
    assert_status(cgp_pipeline_step(r.pipeline, r.batch.inputs, 2, &loss), CGP_EINVAL);
    assert_message("loss weighted: expected a count above 0 of 8 samples, got 0");
    stop(&r);
    cgp_model_destroy(p.model);
}

/* Set each element of y to its random number. The numbers of a sample are drawn in two parts. */
static cgp_status numbers(const cgp_op_run *run) {
    const int64_t each = test_custom_count(run) / run->n, half = each / 2 - 1;
    float *y = run->y;
    for (int64_t s = 0; s < run->n; s++) {
        cgp_op_random(run, s, 0, half, y + s * each);
        cgp_op_random(run, s, half, each - half, y + s * each + half);
    }
    return CGP_OK;
}

/* Predict with a model of two ops that only draw random numbers. Predict in `chunks` micro-batches,
 * once before and once after a step. */
static void draw_numbers(int chunks, float out[2][2 * B * T * C]) {
    cgp_op op = custom_relu;
    op.name = "numbers";
    op.forward = numbers;
    op.backward_input = NULL;
    op.overwrites = 0;
    op.input_needs_y = op.dx_in_place = false;
    parts p = begin();
    cgp_value both[2];
    for (int k = 0; k < 2; k++)
        both[k] = cgp_op_apply(p.model, &op, &p.x, NULL, NULL);
    cgp_model_output(p.model, cgp_concat(p.model, both, 2));
    cgp_model_loss_cross_entropy(p.model, p.x, p.kinds, -100, 1);
    assert_ok(cgp_model_finish(p.model));
    world w;
    start_in(&w, p.model, chunks, CGP_PRECISION_F32);
    for (int k = 0; k < 2; k++) {
        const cgp_tensor output = {CGP_F32, {3, {B, T, 2 * C}}, out[k]};
        assert_ok(cgp_pipeline_predict(w.pipeline, w.batch.inputs, 2,
                                       (const cgp_tensor *[]){&output}, 1));
        step(&w);
    }
    stop(&w);
    cgp_model_destroy(p.model);
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

TEST_CASE(random_numbers_are_those_of_seed_step_op_sample_and_element) {
    enum { EACH = 2 * B * T * C, ALL = 2 * EACH };
    static float drawn[2][EACH], again[2][EACH];
    float *sorted = &drawn[0][0];
    double sum = 0;
    draw_numbers(4, drawn);
    draw_numbers(1, again);
    assert_memory_equal(drawn, again, sizeof drawn);
    qsort(sorted, ALL, sizeof *sorted, by_value);
    for (int i = 0; i < ALL; i++)
        sum += sorted[i];
    for (int i = 1; i < ALL; i++)
        assert_true(sorted[i - 1] < sorted[i]); /* with this seed all numbers differ */
    assert_true(sorted[0] >= 0 && sorted[ALL - 1] < 1);
    assert_true(fabs(sum / ALL - 0.5) < 0.05);
}

TEST_CASE(integers_out_of_range_are_refused) {
    int64_t high = C;
    parts p = begin();
    p.x = cgp_op_apply(p.model, &test_custom_gain, (cgp_value[]){p.x, p.kinds}, "gain", &high);
    high = 1; /* has no effect: attributes were copied */
    cgp_model *model = finish(&p);
    world r;
    start(&r, model, 2, CGP_RECOMPUTE_NEVER);
    step(&r);
    char before[65], after[65];
    double loss;
    assert_ok(cgp_pipeline_weights_sha256(r.pipeline, before));
    r.batch.kinds[2 * T + 1] = C;
    assert_status(cgp_pipeline_step(r.pipeline, r.batch.inputs, 2, &loss), CGP_EINVAL);
    assert_message("input kinds: sample 2, element 1 is 6, expected 0 to 5 (layer first, gain)");
    assert_ok(cgp_pipeline_weights_sha256(r.pipeline, after));
    assert_string_equal(before, after);
    stop(&r);
    cgp_model_destroy(model);
}

static cgp_status fails_in_the_third(const cgp_op_run *run) {
    float u;
    cgp_op_random(run, 0, 0, 1, &u); /* works even if the run then fails */
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++) {
        if (x[i] > 1000) return cgp_fail(CGP_EDEVICE, "%g is too bright", (double)x[i]);
        ((float *)run->y)[i] = x[i];
    }
    return CGP_OK;
}

TEST_CASE(an_error_of_the_op_comes_back_with_its_place) {
    cgp_op op = custom_relu;
    op.name = "bright";
    op.forward = fails_in_the_third;
    parts p = begin();
    cgp_model_layer(p.model, "second");
    p.x = cgp_op_apply(p.model, &op, &p.features, NULL, NULL);
    cgp_model *model = finish(&p);
    world r;
    start(&r, model, 1, CGP_RECOMPUTE_NEVER);
    step(&r);
    double loss;
    r.batch.features[5 * T * C + 7] = 2000;
    /* delay kernels, so that the host is ahead of the backend `late` when the op fails */
    atomic_store(&cgp__late_delay_ns[CGP_QUEUE_COMPUTE], 100000);
    assert_status(cgp_pipeline_step(r.pipeline, r.batch.inputs, 2, &loss), CGP_EDEVICE);
    atomic_store(&cgp__late_delay_ns[CGP_QUEUE_COMPUTE], 0);
    assert_message("stage 0, micro-batch 2, 0F2: layer second, bright: 2000 is too bright");
    stop(&r);
    cgp_model_destroy(model);
}

static cgp_op_shapes rule_result; /* what the shape rule of the next test returns */

static cgp_status says(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    (void)inputs;
    *out = rule_result;
    return CGP_OK;
}

static void expect_refused(const cgp_op *op, const char *name, const char *message) {
    parts p = begin();
    p.x = cgp_op_apply(p.model, op, &p.x, name, NULL);
    assert_int_equal(p.x.id, -1);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message(message);
    cgp_model_destroy(p.model);
}

TEST_CASE(a_bad_use_sticks_with_layer_and_op) {
    cgp_op op = custom_relu;
    expect_refused(&test_custom_scale, NULL,
                   "layer first, scale: has parameters or state, expected a name");
    expect_refused(&test_custom_squares, NULL, "layer first, squares: is a loss and has no result");
    expect_refused(&test_custom_gain, "g",
                   "layer first, gain: op gain: expected 8 bytes of attributes");
    op.infer = says;
    expect_refused(&op, NULL, "layer first, custom_relu: expects output of 1 to 5 dims, got []");
    rule_result.output = (cgp_op_type){.shape = {2, {T, 0}}};
    expect_refused(&op, NULL, "layer first, custom_relu: expects output of sizes >= 1, got [4, 0]");
    rule_result.output = (cgp_op_type){.dtype = CGP_I32, .shape = {2, {T, C}}};
    expect_refused(&op, NULL, "its shape rule says integers below 0, expected 1 to ");
    rule_result.output = (cgp_op_type){.shape = {2, {T, C}}};
    rule_result.n_saved = 5;
    expect_refused(&op, NULL, "its shape rule says 5 saved values, expected 0 to 4");
    rule_result.n_saved = 0;
    rule_result.n_parameters = 1;
    rule_result.parameters[0].shape = cgp_shape_make(1, (int64_t[]){C});
    expect_refused(&op, "w", "its shape rule gives parameter 0 no suffix");
    rule_result.parameters[0].suffix = "weight";
    rule_result.parameters[0].init = (cgp_init){CGP_INIT_XAVIER_NORMAL, 1};
    expect_refused(&op, "w", "its shape rule says an initialization of parameter 0 by fan");
    rule_result.parameters[0].init = (cgp_init){CGP_INIT_ZERO, 0};
    expect_refused(&op, "w", "its shape rule says parameters, expected backward_weight");
    parts p = begin();
    cgp_op_apply_loss(p.model, &custom_relu, &p.x, NULL, 1);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message("layer first, custom_relu: is no loss");
    cgp_model_destroy(p.model);
    p = begin();
    p.x = cgp_op_apply(p.model, &test_custom_product, (cgp_value[]){p.x, cgp_flatten(p.model, p.x)},
                       NULL, NULL);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message("layer first, product: expects two values of one shape, got [4, 6] and [24]");
    cgp_model_destroy(p.model);
}
