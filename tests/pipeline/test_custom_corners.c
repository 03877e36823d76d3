/* SPDX-License-Identifier: Apache-2.0 */
/* test_custom_corners.c -- rare uses of custom ops: the same value as two inputs, inputs without a
 * gradient, nested parallel_for, failures without a message. */
#include "custom_models.h"

#include "partition/partition.h"

/* --- two inputs of one value --- */

static cgp_status square(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        ((float *)run->y)[i] = x[i] * x[i];
    return CGP_OK;
}

static cgp_status square_dx(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        run->dx[0][i] = 2 * (run->dy[i] * x[i]);
    return CGP_OK;
}

/* Compute the gradient of "first.weight" in a model whose middle layer is this op. All inputs of
 * the op are the same value. */
static void gradient_of(const cgp_op *op, cgp_precision precision, float *gradient) {
    parts p = begin();
    p.x = cgp_op_apply(p.model, op, (cgp_value[]){p.x, p.x}, NULL, NULL);
    cgp_model *model = finish(&p);
    world w;
    start_in(&w, model, 4, precision);
    assert_ok(cgp_pipeline_step(w.pipeline, w.batch.inputs, 2, NULL));
    assert_ok(cgp_pipeline_get_gradient(w.pipeline, 0, gradient));
    stop(&w);
    cgp_model_destroy(model);
}

/* The product x * x has two gradients for its input x. In f32 their sum is exact; in bf16 the first
 * gradient is rounded before the addition. */
TEST_CASE(the_gradient_of_a_product_with_itself_is_that_of_a_square) {
    cgp_op one = custom_relu;
    one.name = "square";
    one.forward = square;
    one.backward_input = square_dx;
    one.input_needs_y = false;
    one.input_needs_x = 1u << 0;
    float expected[C * C], got[C * C];
    double norm = 0, difference = 0;
    gradient_of(&one, CGP_PRECISION_F32, expected);
    gradient_of(&test_custom_product, CGP_PRECISION_F32, got);
    assert_memory_equal(expected, got, sizeof got);
    gradient_of(&test_custom_product, CGP_PRECISION_BF16, got);
    for (int i = 0; i < C * C; i++) {
        norm += pow((double)expected[i], 2);
        difference += pow((double)expected[i] - got[i], 2);
    }
    assert_true(norm > 0);
    assert_true(sqrt(difference / norm) < 0.05);
}

/* Compute y[i] = a[i] + b[n - 1 - i]. y may overwrite `a`, unless `a` and `b` are the same
 * value. */
static cgp_status mirrored(const cgp_op_run *run) {
    const int64_t n = test_custom_count(run);
    const float *a = run->x[0], *b = run->x[1];
    for (int64_t i = 0; i < n; i++)
        ((float *)run->y)[i] = a[i] + b[n - 1 - i];
    return CGP_OK;
}

static cgp_status mirrored_dx(const cgp_op_run *run) {
    const int64_t n = test_custom_count(run);
    for (int64_t i = 0; i < n; i++) {
        if (run->dx[0]) run->dx[0][i] = run->dy[i];
        if (run->dx[1]) run->dx[1][n - 1 - i] = run->dy[i];
    }
    return CGP_OK;
}

/* Compute loss = a^3 / 3 + b^2 / 2. Backward computes dx[1] from b, then dx[0] from a. */
static cgp_status powers(const cgp_op_run *run) {
    const float *a = run->x[0], *b = run->x[1];
    *run->loss = 0;
    for (int64_t i = 0; i < test_custom_count(run); i++)
        *run->loss += (double)a[i] * a[i] * a[i] / 3 + (double)b[i] * b[i] / 2;
    return CGP_OK;
}

static cgp_status powers_dx(const cgp_op_run *run) {
    const float *a = run->x[0], *b = run->x[1], scale = run->loss_scale;
    for (int64_t i = 0; run->dx[1] && i < test_custom_count(run); i++)
        run->dx[1][i] = scale * b[i];
    for (int64_t i = 0; run->dx[0] && i < test_custom_count(run); i++)
        run->dx[0][i] = scale * a[i] * a[i];
    return CGP_OK;
}

static cgp_status no_result(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    (void)inputs;
    (void)out;
    return CGP_OK;
}

TEST_CASE(memory_of_a_value_that_is_two_inputs_is_left_alone) {
    char hashes[2][65];
    for (int over = 0; over < 2; over++) {
        cgp_op op = custom_relu, loss = custom_relu;
        op.name = "mirrored";
        op.n_inputs = 2;
        op.forward = mirrored;
        op.backward_input = mirrored_dx;
        op.input_needs_y = op.dx_in_place = false;
        op.overwrites = over ? 1u << 0 : 0;
        loss.name = "powers";
        loss.n_inputs = 2;
        loss.is_loss = true;
        loss.infer = no_result;
        loss.forward = powers;
        loss.backward_input = powers_dx;
        loss.input_needs_x = 3;
        loss.input_needs_y = loss.cheap = false;
        loss.overwrites = 0;
        loss.dx_in_place = over;
        parts p = begin();
        p.x = cgp_op_apply(p.model, &op, (cgp_value[]){p.x, p.x}, NULL, NULL);
        layer(&p, "last");
        cgp_model_output(p.model, p.x);
        cgp_op_apply_loss(p.model, &loss, (cgp_value[]){p.x, p.x}, NULL, 0.01);
        assert_ok(cgp_model_finish(p.model));
        world w;
        start(&w, p.model, 1, CGP_RECOMPUTE_NEVER);
        assert_ok(cgp_pipeline_step(w.pipeline, w.batch.inputs, 2, NULL));
        assert_ok(cgp_optim_step(w.pipeline));
        assert_ok(cgp_pipeline_weights_sha256(w.pipeline, hashes[over]));
        stop(&w);
        cgp_model_destroy(p.model);
    }
    assert_string_equal(hashes[0], hashes[1]);
}

/* --- rare cases --- */

/* The op's input has no gradient, but its parameter has one. */
TEST_CASE(an_op_on_an_input_of_the_model_trains_its_parameters) {
    parts p = begin();
    p.x =
        cgp_add(p.model, p.x, cgp_op_apply(p.model, &test_custom_bias, &p.features, "bias", NULL));
    cgp_model *model = finish(&p);
    world w;
    start(&w, model, 2, CGP_RECOMPUTE_NEVER);
    float gradient[C];
    double sum = 0;
    assert_string_equal(cgp_model_parameter_name(model, 2), "bias.weight");
    step(&w);
    assert_ok(cgp_pipeline_get_gradient(w.pipeline, 2, gradient));
    for (int c = 0; c < C; c++)
        sum += fabs((double)gradient[c]);
    assert_true(sum > 0);
    stop(&w);
    cgp_model_destroy(model);
}

static void inner_part(const cgp_op_run *run, void *work, int64_t begin_, int64_t end, int thread) {
    (void)thread;
    float *y = run->y;
    for (int64_t i = begin_; i < end; i++)
        y[*(int64_t *)work + i] += 1;
}

static void outer_part(const cgp_op_run *run, void *work, int64_t begin_, int64_t end, int thread) {
    (void)work;
    (void)thread;
    for (int64_t row = begin_; row < end; row++) {
        int64_t at = row * C;
        for (int64_t c = 0; c < C; c++)
            ((float *)run->y)[at + c] = ((const float *)run->x[0])[at + c];
        cgp_op_parallel_for(run, C, 1, inner_part, &at);
    }
}

static cgp_status nested(const cgp_op_run *run) {
    cgp_op_parallel_for(run, test_custom_count(run) / C, 1, outer_part, NULL);
    return CGP_OK;
}

TEST_CASE(a_parallel_for_in_another_runs_whole) {
    cgp_op op = custom_relu;
    op.name = "nested";
    op.forward = nested;
    op.backward_input = NULL;
    op.input_needs_y = op.dx_in_place = op.cheap = false;
    op.overwrites = 0;
    parts p = begin();
    cgp_model_output(p.model, cgp_op_apply(p.model, &op, &p.features, NULL, NULL));
    cgp_model_loss_cross_entropy(p.model, p.x, p.kinds, -100, 1);
    assert_ok(cgp_model_finish(p.model));
    cgp_plan_options o = options();
    o.threads_per_device = 2;
    world w;
    start_with(&w, p.model, &o);
    float got[B * T * C];
    const cgp_tensor output = {CGP_F32, {3, {B, T, C}}, got};
    assert_ok(
        cgp_pipeline_predict(w.pipeline, w.batch.inputs, 2, (const cgp_tensor *[]){&output}, 1));
    for (int i = 0; i < B * T * C; i++)
        assert_true(got[i] == w.batch.features[i] + 1);
    stop(&w);
    cgp_model_destroy(p.model);
}

static cgp_status quiet(const cgp_op_run *run) {
    (void)run;
    return CGP_ELIMIT;
}

TEST_CASE(a_failure_without_a_message_is_reported_by_its_name) {
    cgp_op op = custom_relu;
    op.name = "quiet";
    op.forward = quiet;
    parts p = begin();
    p.x = cgp_op_apply(p.model, &op, &p.x, NULL, NULL);
    cgp_model *model = finish(&p);
    world w;
    double loss;
    start(&w, model, 1, CGP_RECOMPUTE_NEVER);
    assert_status(cgp_pipeline_step(w.pipeline, w.batch.inputs, 2, &loss), CGP_EDEVICE);
    assert_message("0F0: layer first, quiet: failed with CGP_ELIMIT");
    stop(&w);
    cgp_model_destroy(model);
}

TEST_CASE(names_of_states_come_once) {
    parts p = begin();
    for (int k = 0; k < 2; k++)
        p.x = cgp_op_apply(p.model, &test_custom_meter, &p.x, "meter", NULL);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message("layer first, meter: state meter.mean exists already");
    cgp_model_destroy(p.model);
}

static cgp_status whole_steps(const cgp_op_run *run) {
    const int32_t steps = *(const int32_t *)run->state[1];
    if (steps != 3) return cgp_fail(CGP_EDEVICE, "begins with 3 steps, got %d", (int)steps);
    return test_custom_meter.forward(run);
}

static cgp_status three_steps(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    CGP_TRY(test_custom_meter.infer(attributes, inputs, out));
    out->state[1].begin = 3;
    return CGP_OK;
}

TEST_CASE(a_profile_has_the_states_of_the_beginning) {
    cgp_op op = test_custom_meter;
    op.infer = three_steps;
    op.forward = whole_steps;
    parts p = begin();
    p.x = cgp_op_apply(p.model, &op, &p.x, "meter", NULL);
    cgp_model *model = finish(&p);
    cgp_layer_cost costs[2];
    const cgp__kernel_profile o = {"cpu", 1, 1, 5, {.type = CGP_F32}};
    assert_ok(cgp__profile_kernels(model, &o, costs));
    cgp_model_destroy(model);
}
