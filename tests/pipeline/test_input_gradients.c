/* SPDX-License-Identifier: Apache-2.0 */
/* test_input_gradients.c -- gradients of inputs, and models with several outputs. The models have
 * known numbers. The tests check which tensors are written, which gradients are zero, and which
 * calls are refused.
 *
 * (test_gradients.c checks that input gradients are the gradients of the loss. test_bit_equality.c
 * and test_external_loss.c check that input gradients are bit-equal in all layouts.) */
#include "support.h"

#include <cgpipe/cgpipe.h>

#include <string.h>

enum { N = 5, C = 3 };

/* Make a model with y = 2 x in layer a, and z = 3 y + detach(4 y) in layer b. The outputs are y, z
 * and argmax(z). No node reads the input `unread`, and there are no parameters. */
static cgp_model *scales(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "scales"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){C});
    const cgp_value unread = cgp_model_input(model, "unread", CGP_F32, 1, (int64_t[]){C});
    cgp_model_input_gradient(model, x);
    cgp_model_input_gradient(model, unread);
    cgp_model_layer(model, "a");
    const cgp_value y = cgp_scale(model, x, 2);
    cgp_model_layer(model, "b");
    const cgp_value fixed = cgp_detach(model, cgp_scale(model, y, 4));
    const cgp_value z = cgp_add(model, cgp_scale(model, y, 3), fixed);
    cgp_model_output(model, y);
    cgp_model_output(model, z);
    cgp_model_output(model, cgp_argmax(model, z));
    assert_ok(cgp_model_finish(model));
    assert_int_equal(cgp_model_outputs(model), 3);
    assert_int_equal(cgp_model_output_dtype(model, 2), CGP_I32);
    assert_int_equal(cgp_model_output_shape(model, 3).rank, -1);
    assert_true(cgp_model_input_has_gradient(model, 0));
    assert_false(cgp_model_input_has_gradient(model, 2));
    return model;
}

typedef struct buffers {
    float x[N * C], y[N * C], z[N * C], dx[N * C], du[N * C];
    int32_t best[N];
    cgp_tensor tensors[6];
    const cgp_tensor *inputs[2], *outputs[3], *gradients[2];
} buffers;

static void fill(buffers *b) {
    float *const data[] = {b->x, b->y, b->z, b->dx, b->du};
    memset(b, 0, sizeof *b);
    for (int i = 0; i < N * C; i++) {
        b->x[i] = (float)(i * 7 % 11);
        b->dx[i] = b->du[i] = -1;
    }
    for (int k = 0; k < 5; k++)
        b->tensors[k] = (cgp_tensor){CGP_F32, {2, {N, C}}, data[k]};
    b->tensors[5] = (cgp_tensor){CGP_I32, {2, {N, 1}}, b->best};
    b->inputs[0] = &b->tensors[0];
    b->outputs[0] = &b->tensors[1];
    b->outputs[1] = &b->tensors[2];
    b->outputs[2] = &b->tensors[5];
    b->gradients[0] = &b->tensors[3];
    b->gradients[1] = &b->tensors[4];
}

static void check_numbers(const cgp_model *model, int stages, cgp_precision precision,
                          cgp_recompute recompute) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    buffers b;
    fill(&b);
    o.external_loss = true;
    o.batch = N;
    o.chunks = 2;
    o.stages = stages;
    o.precision = precision;
    o.recompute = recompute;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, b.gradients, 2));
    assert_ok(cgp_pipeline_forward(pipeline, b.inputs, 2, b.outputs, 3));
    for (int i = 0; i < N * C; i++) {
        assert_true(b.y[i] == 2 * b.x[i] && b.z[i] == 14 * b.x[i]);
        b.y[i] = (float)(i + 1);
        b.z[i] = (float)(i % 4);
    }
    assert_ok(cgp_pipeline_backward(pipeline,
                                    (const cgp_tensor *[]){b.outputs[0], b.outputs[1], NULL}, 3));
    for (int i = 0; i < N * C; i++)
        assert_true(b.dx[i] == 2 * (b.y[i] + 3 * b.z[i]) && b.du[i] == 0);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

TEST_CASE(the_callers_gradients_add_to_those_of_the_uses) {
    cgp_model *model = scales();
    for (int stages = 1; stages <= 2; stages++)
        for (int precision = CGP_PRECISION_F32; precision <= CGP_PRECISION_BF16; precision++)
            for (int r = 0; r <= CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE; r++)
                check_numbers(model, stages, (cgp_precision)precision, (cgp_recompute)r);
    cgp_model_destroy(model);
}

TEST_CASE(a_prediction_fills_the_outputs_that_are_wanted) {
    cgp_model *model = scales();
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    buffers b;
    fill(&b);
    o.inference = true;
    o.batch = 2;
    o.stages = 2;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_pipeline_predict(pipeline, b.inputs, 2,
                                   (const cgp_tensor *[]){NULL, b.outputs[1], NULL}, 3));
    for (int i = 0; i < N * C; i++)
        assert_true(b.y[i] == 0 && b.z[i] == 14 * b.x[i]);
    assert_ok(cgp_pipeline_predict(pipeline, b.inputs, 2,
                                   (const cgp_tensor *[]){b.outputs[0], NULL, b.outputs[2]}, 3));
    for (int i = 0; i < N * C; i++)
        assert_true(b.y[i] == 2 * b.x[i]);
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            assert_true(b.x[n * C + b.best[n]] >= b.x[n * C + c]);
    assert_status(cgp_pipeline_predict(pipeline, b.inputs, 2, b.outputs, 2), CGP_EINVAL);
    assert_message("outputs: the model has 3 outputs, got 2");
    b.tensors[2].dtype = CGP_I32;
    assert_status(cgp_pipeline_predict(pipeline, b.inputs, 2, b.outputs, 3), CGP_EINVAL);
    assert_message("output 1: expected f32 of shape [5] x [3], got i32 [5, 3]");
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(tensors_that_do_not_fit_are_refused) {
    cgp_model *model = scales();
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    buffers b;
    fill(&b);
    o.external_loss = true;
    o.batch = N;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_status(cgp_pipeline_set_input_gradients(pipeline, b.gradients, 1), CGP_EINVAL);
    assert_message("gradients: the model has 2 inputs, got 1");
    assert_status(cgp_pipeline_set_input_gradients(pipeline, NULL, 2), CGP_EINVAL);
    cgp_tensor few = b.tensors[3];
    few.shape.dims[0] = N - 1;
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, (const cgp_tensor *[]){&few, NULL}, 2));
    assert_ok(cgp_pipeline_forward(pipeline, b.inputs, 2, b.outputs, 3));
    const cgp_tensor *gradients[] = {b.outputs[0], b.outputs[1], NULL};
    assert_status(cgp_pipeline_backward(pipeline, gradients, 3), CGP_EINVAL);
    assert_message("gradient of input x: expected f32 of shape [5] x [3], got f32 [4, 3]");
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, NULL, 0));
    gradients[1] = NULL;
    assert_status(cgp_pipeline_backward(pipeline, gradients, 3), CGP_EINVAL);
    assert_message("gradient 1: is missing");
    gradients[1] = b.outputs[1];
    assert_ok(cgp_pipeline_backward(pipeline, gradients, 3));
    assert_true(b.dx[0] == -1 && b.du[0] == -1); /* unchanged: not requested */
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* Make a classifier of `x`. The input `mask` has the targets. If `wrong` is not 0, request the
 * gradient of something that cannot have a gradient. */
static cgp_model *classifier(int wrong) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "classifier"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){C});
    const cgp_value mask = cgp_model_input(model, "mask", CGP_F32, 1, (int64_t[]){C});
    const cgp_value ids = cgp_model_input(model, "ids", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "a");
    const cgp_value y =
        cgp_linear(model, x, "a", (cgp_linear_options){.out = C, .init = {CGP_INIT_ONE, 0}});
    cgp_model_loss_bce_with_logits(model, y, mask, 1);
    if (wrong == 0) cgp_model_input_gradient(model, x);
    if (wrong == 1) cgp_model_input_gradient(model, ids);
    if (wrong == 2) cgp_model_input_gradient(model, y);
    if (wrong == 3) cgp_model_input_gradient(model, mask);
    if (wrong == 4) cgp_model_input_gradient(model, (cgp_value){-1});
    return model;
}

TEST_CASE(what_has_no_gradient_is_refused) {
    static const char *const messages[] = {
        "", "input ids: expected f32, got i32", "is not of an input",
        "input mask: expected no gradient of a target", "is not of an input"};
    for (int wrong = 1; wrong < 5; wrong++) {
        cgp_model *model = classifier(wrong);
        assert_status(cgp_model_finish(model), CGP_EINVAL);
        assert_message(messages[wrong]);
        cgp_model_destroy(model);
    }
    cgp_model *model = classifier(0);
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    buffers b;
    int32_t ids[N] = {0};
    const cgp_tensor of_ids = {CGP_I32, {2, {N, 1}}, ids};
    const cgp_tensor *const inputs[] = {&b.tensors[0], &b.tensors[1], &of_ids};
    double loss;
    fill(&b);
    assert_ok(cgp_model_finish(model));
    o.batch = N;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_status(cgp_pipeline_set_input_gradients(
                      pipeline, (const cgp_tensor *[]){NULL, &b.tensors[4], NULL}, 3),
                  CGP_EINVAL);
    assert_message("input mask: has no gradient (call cgp_model_input_gradient)");
    assert_ok(cgp_pipeline_set_input_gradients(
        pipeline, (const cgp_tensor *[]){&b.tensors[3], NULL, NULL}, 3));
    assert_ok(cgp_pipeline_evaluate(pipeline, inputs, 3, &loss));
    assert_true(b.dx[0] == -1); /* unchanged: evaluation makes no gradients */
    assert_ok(cgp_pipeline_step(pipeline, inputs, 3, &loss));
    assert_true(b.dx[0] > 0 && b.dx[0] == b.dx[1]); /* all weights are 1 */
    b.tensors[3].shape.dims[1] = C - 1;
    assert_ok(cgp_pipeline_set_input_gradients(
        pipeline, (const cgp_tensor *[]){&b.tensors[3], NULL, NULL}, 3));
    assert_status(cgp_pipeline_step(pipeline, inputs, 3, &loss), CGP_EINVAL);
    assert_message("gradient of input x: expected f32 of shape [5] x [3], got f32 [5, 2]");
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
