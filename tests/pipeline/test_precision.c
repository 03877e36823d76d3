/* SPDX-License-Identifier: Apache-2.0 */
/* test_precision.c -- precision bf16: activations take half the bytes, losses are almost the same,
 * and tensors at the API are f32. (test_bit_equality.c and test_external_loss.c check that bf16
 * results do not depend on the layout. test_plan_replay.c checks that bf16 plans waste no
 * memory.) */
#include "graphs.h"

#include <cgpipe/models/gpt2.h>

#include "base/bf16.h"

enum { STEPS = 60, BATCH = 8, MODES = CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE + 1 };

static int64_t activation_bytes(const cgp_plan *plan) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        bytes += cgp_plan_device_at(plan, d)->activation_bytes;
    return bytes;
}

static int64_t other_bytes(const cgp_plan *plan) {
    int64_t bytes = -activation_bytes(plan);
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        bytes += cgp_plan_device_at(plan, d)->planned_bytes;
    return bytes;
}

/* An element of a GPT-2's values takes 4 bytes in f32 and 2 bytes in bf16. The saved mean, rstd,
 * max and log_sum of each row stay f32, but they are few. Weights, gradients and optimizer states
 * keep their size. */
TEST_CASE(activations_of_gpt2_take_half_the_bytes) {
    test_needs_cpu();
    const test_sizes sizes = {6, 128, 384, 6, 3000, 0.1, false, false};
    cgp_model *model = test_gpt2(&sizes);
    for (int c = 0; c < 2 * 3 * MODES; c++) {
        cgp_plan *plans[2] = {NULL};
        cgp_plan_options o = cgp_plan_options_default();
        o.schedule = c % 2 ? "1f1b" : "gpipe";
        o.stages = 1 + c / 2 % 3;
        o.recompute = (cgp_recompute)(c / 6);
        o.batch = 8;
        o.chunks = 4;
        for (int p = 0; p < 2; p++) {
            o.precision = p ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
            assert_ok(cgp_plan_create(&plans[p], model, &o));
        }
        const int64_t f32 = activation_bytes(plans[0]), bf16 = activation_bytes(plans[1]);
        print_message("stages %d, %s, %s: %lld bytes of activations in f32, %lld in bf16 (%.4f)\n",
                      o.stages, o.schedule, cgp_recompute_name(o.recompute), (long long)f32,
                      (long long)bf16, (double)bf16 / (double)f32);
        assert_true((double)bf16 <= 0.55 * (double)f32);
        assert_true((double)bf16 >= 0.50 * (double)f32);
        assert_int_equal(other_bytes(plans[0]), other_bytes(plans[1]));
        cgp_plan_destroy(plans[0]);
        cgp_plan_destroy(plans[1]);
    }
    cgp_model_destroy(model);
}

/* Make sequences that can be learned: each token determines the next one. */
static void fill_sequences(test_batch *batch, int64_t vocab, uint64_t *state) {
    int32_t *tokens = batch->tensors[0].data, *targets = batch->tensors[1].data;
    const int64_t length = batch->tensors[0].shape.dims[1];
    for (int s = 0; s < BATCH; s++) {
        int32_t token = test_between(state, 0, (int)vocab - 1);
        for (int64_t t = 0; t < length; t++) {
            tokens[s * length + t] = token;
            token = (int32_t)((5 * token + 3) % vocab);
            targets[s * length + t] = token;
        }
    }
}

static void train(const cgp_model *model, const char *device, cgp_precision precision,
                  const test_batch *batches, double *losses, float *output) {
    const char *devices[] = {device, device};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = BATCH;
    o.chunks = 2;
    o.devices = devices;
    o.optim = cgp_optim_adamw(1e-3, 0.01);
    o.precision = precision;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 3));
    for (int s = 0; s < STEPS; s++) {
        assert_ok(cgp_pipeline_step(pipeline, batches[s].inputs, batches[s].n, &losses[s]));
        assert_ok(cgp_optim_step(pipeline));
    }
    const cgp_shape one = cgp_model_output_shape(model, 0);
    const cgp_tensor *inputs[] = {batches[0].inputs[0], NULL};
    const cgp_tensor to = {CGP_F32, {3, {BATCH, one.dims[0], one.dims[1]}}, output};
    assert_ok(cgp_pipeline_predict(pipeline, inputs, 2, (const cgp_tensor *[]){&to}, 1));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

/* While the losses fall to half, the losses in f32 and bf16 differ by at most 1 %. Outputs of a
 * bf16 model are f32, with numbers that bf16 can represent. */
static void check_losses(const char *device) {
    uint64_t state = test_seed();
    const test_sizes sizes = {2, 12, 32, 2, 17, 0, false, false};
    cgp_model *model = test_gpt2(&sizes);
    test_batch batches[STEPS];
    double f32[STEPS], bf16[STEPS], worst = 0;
    static float logits[2][BATCH * 12 * 17];
    for (int s = 0; s < STEPS; s++) {
        test_batch_fill(&batches[s], model, &sizes, BATCH, &state);
        fill_sequences(&batches[s], sizes.vocab, &state);
    }
    train(model, device, CGP_PRECISION_F32, batches, f32, logits[0]);
    train(model, device, CGP_PRECISION_BF16, batches, bf16, logits[1]);
    for (int s = 0; s < STEPS; s++) {
        const double off = fabs(bf16[s] - f32[s]) / f32[s];
        worst = off > worst ? off : worst;
        if (!(off <= 0.01)) fail_msg("step %d: loss %.6f in bf16, %.6f in f32", s, bf16[s], f32[s]);
    }
    print_message("%s: losses %.4f to %.4f in f32, %.4f to %.4f in bf16, at most %.3f %% apart\n",
                  device, f32[0], f32[STEPS - 1], bf16[0], bf16[STEPS - 1], 100 * worst);
    assert_true(worst > 0);
    assert_true(f32[STEPS - 1] < f32[0] / 2);
    for (int i = 0; i < BATCH * 12 * 17; i++) {
        const float x = logits[1][i];
        assert_true(x == cgp__bf16_to_float(cgp__bf16_from_float(x)));
        if (!(fabsf(x - logits[0][i]) <= 0.1f))
            fail_msg("logit %d is %g in bf16, %g in f32", i, (double)x, (double)logits[0][i]);
    }
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&batches[s]);
    cgp_model_destroy(model);
}

TEST_CASE(losses_are_within_one_percent_of_those_in_f32) {
    check_losses("ref");
    check_losses("cpu");
}

/* Devices keep the float targets of a BCE loss in bf16. Only the loss reads the targets, so a
 * prediction does not need them. */
static void check_prediction_without_targets(const char *device, int stages,
                                             cgp_precision precision) {
    enum { SAMPLES = 5, WIDTH = 3 };
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "mask"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){WIDTH});
    const cgp_value targets = cgp_model_input(model, "targets", CGP_F32, 1, (int64_t[]){WIDTH});
    cgp_model_layer(model, "one");
    const cgp_linear_options square = {.out = WIDTH, .init = {CGP_INIT_NORMAL, 0.5}};
    cgp_value y = cgp_linear(model, x, "one", square);
    cgp_model_layer(model, "two");
    y = cgp_linear(model, y, "two", square);
    cgp_model_output(model, y);
    cgp_model_loss_bce_with_logits(model, y, targets, 1);
    assert_ok(cgp_model_finish(model));
    const char *devices[] = {device, device};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = SAMPLES;
    o.chunks = 2;
    o.devices = devices;
    o.precision = precision;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 3));
    uint64_t state = test_seed();
    const test_sizes none = {0};
    test_batch batch;
    float with[SAMPLES * WIDTH], without[SAMPLES * WIDTH] = {0};
    const cgp_tensor to_with = {CGP_F32, {2, {SAMPLES, WIDTH}}, with},
                     to_without = {CGP_F32, {2, {SAMPLES, WIDTH}}, without};
    test_batch_fill(&batch, model, &none, SAMPLES, &state);
    const cgp_tensor *alone[] = {batch.inputs[0], NULL};
    assert_ok(cgp_pipeline_predict(pipeline, alone, 2, (const cgp_tensor *[]){&to_without}, 1));
    assert_ok(cgp_pipeline_predict(pipeline, batch.inputs, 2, (const cgp_tensor *[]){&to_with}, 1));
    assert_memory_equal(with, without, sizeof with);
    assert_status(cgp_pipeline_evaluate(pipeline, alone, 2, NULL), CGP_EINVAL);
    assert_message("input targets: is missing");
    assert_ok(cgp_pipeline_evaluate(pipeline, batch.inputs, 2, NULL));
    assert_ok(cgp_pipeline_step(pipeline, batch.inputs, 2, NULL));
    assert_ok(cgp_pipeline_predict(pipeline, alone, 2, (const cgp_tensor *[]){&to_without}, 1));
    test_batch_release(&batch);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(a_prediction_needs_no_floats_that_only_a_loss_reads) {
    for (int k = 0; k < 8; k++)
        check_prediction_without_targets(k & 1 ? "cpu" : "ref", k & 2 ? 2 : 1,
                                         k & 4 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32);
}

TEST_CASE(what_is_not_possible_is_refused) {
    const test_sizes sizes = {1, 4, 8, 2, 5, 0, false, false};
    cgp_model *model = test_gpt2(&sizes);
    cgp_plan *plan = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.precision = (cgp_precision)7;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("precision: expected f32, tf32 or bf16, got number 7");
    o.precision = CGP_PRECISION_TF32;
    o.devices = (const char *const[]){"ref"};
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("precision: expected devices that multiply in tf32, such as cuda:0, got ref "
                   "(f32 or bf16 there)");
    o.devices = NULL;
    o.precision = CGP_PRECISION_F32;
    o.convolution = (cgp_convolution)7;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("convolution: expected direct or winograd, got number 7");
    assert_null(plan);
    cgp_model_destroy(model);
    cgp_precision precision = CGP_PRECISION_BF16;
    assert_status(cgp_precision_parse(&precision, "bf61"), CGP_EINVAL);
    assert_message("precision: expected f32, tf32 or bf16, got \"bf61\" (did you mean bf16?)");
    assert_ok(cgp_precision_parse(&precision, "f32"));
    assert_int_equal(precision, CGP_PRECISION_F32);
    assert_ok(cgp_precision_parse(&precision, cgp_precision_name(CGP_PRECISION_BF16)));
    assert_int_equal(precision, CGP_PRECISION_BF16);
    assert_ok(cgp_precision_parse(&precision, cgp_precision_name(CGP_PRECISION_TF32)));
    assert_int_equal(precision, CGP_PRECISION_TF32);
    cgp_convolution convolution = CGP_CONVOLUTION_DIRECT;
    assert_status(cgp_convolution_parse(&convolution, "winogard"), CGP_EINVAL);
    assert_message(
        "convolution: expected direct or winograd, got \"winogard\" (did you mean winograd?)");
    assert_ok(cgp_convolution_parse(&convolution, cgp_convolution_name(CGP_CONVOLUTION_WINOGRAD)));
    assert_int_equal(convolution, CGP_CONVOLUTION_WINOGRAD);
    assert_ok(cgp_model_create(&model, "m"));
    (void)cgp_model_input(model, "x", CGP_BF16, 1, (int64_t[]){4});
    assert_status(cgp_model_finish(model), CGP_EINVAL);
    assert_message("an input is of f32 or i32, got bf16");
    cgp_model_destroy(model);
}
