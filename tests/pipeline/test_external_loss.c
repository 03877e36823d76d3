/* SPDX-License-Identifier: Apache-2.0 */
/* test_external_loss.c -- a step in two calls: between cgp_pipeline_forward() and
 * cgp_pipeline_backward(), the caller computes the loss from the output, and the gradient of the
 * loss.
 *
 * Results are bit-equal for every number of stages, balance and recompute mode. They are close to
 * the results of training with the loss inside the model. Calls in any other order are refused. */
#include "graphs.h"

#include <cgpipe/models/gpt2.h>

enum { STEPS = 3, MODES = CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE + 1 };

static cgp_tensor output_tensor(const cgp_model *model, int64_t samples) {
    const cgp_shape one = cgp_model_output_shape(model, 0);
    cgp_tensor tensor = {CGP_F32, {one.rank + 1, {samples}}, NULL};
    for (int i = 0; i < one.rank; i++)
        tensor.shape.dims[i + 1] = one.dims[i];
    tensor.data = calloc((size_t)cgp_shape_count(&tensor.shape), sizeof(float));
    assert_non_null(tensor.data);
    return tensor;
}

/* Return the loss y . y / (2 count), summed in double. The gradient of the loss, y / count,
 * overwrites y. */
static double half_square(cgp_tensor *y) {
    const int64_t n = cgp_shape_count(&y->shape);
    float *data = y->data;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)data[i] * data[i] / (2 * (double)n);
        data[i] /= (float)n;
    }
    return sum;
}

typedef double loss_function(cgp_tensor *y, const test_batch *batch);

static double square_loss(cgp_tensor *y, const test_batch *batch) {
    (void)batch;
    return half_square(y);
}

/* Return PyTorch's mean cross-entropy. The gradient of the loss overwrites y. The targets are the
 * second input of the batch, which the model does not read. */
static double cross_entropy(cgp_tensor *y, const test_batch *batch) {
    const int64_t classes = y->shape.dims[y->shape.rank - 1];
    const int64_t rows = cgp_shape_count(&y->shape) / classes;
    const int32_t *targets = batch->tensors[1].data;
    int64_t count = 0;
    double loss = 0;
    for (int64_t r = 0; r < rows; r++)
        count += targets[r] != -100;
    for (int64_t r = 0; r < rows; r++) {
        float *row = (float *)y->data + r * classes;
        double max = row[0], sum = 0;
        for (int64_t c = 1; c < classes; c++)
            max = row[c] > max ? row[c] : max;
        for (int64_t c = 0; c < classes; c++)
            sum += exp(row[c] - max);
        const bool counts = targets[r] != -100;
        if (counts) loss += (log(sum) + max - row[targets[r]]) / (double)count;
        for (int64_t c = 0; c < classes; c++)
            row[c] = !counts
                         ? 0.0f
                         : (float)((exp(row[c] - max) / sum - (c == targets[r])) / (double)count);
    }
    return loss;
}

/* Run a step, and compute the loss over all outputs and the sum of the input gradients. */
static void step(cgp_pipeline *pipeline, const cgp_model *model, const test_batch *batch,
                 loss_function *loss_of, double *loss, double *gradients) {
    test_results r;
    test_results_make(&r, model, batch->tensors[0].shape.dims[0]);
    assert_ok(cgp_pipeline_forward(pipeline, batch->inputs, cgp_model_inputs(model), r.output_list,
                                   r.n_outputs));
    *loss = 0;
    for (int k = 0; k < r.n_outputs; k++) {
        if (r.outputs[k].dtype == CGP_F32)
            *loss += loss_of(&r.outputs[k], batch);
        else
            r.output_list[k] = NULL;
    }
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, r.gradient_list, r.n_inputs));
    assert_ok(cgp_pipeline_backward(pipeline, r.output_list, r.n_outputs));
    assert_ok(cgp_optim_step(pipeline));
    *gradients += test_results_gradients(&r);
    test_results_release(&r);
}

static void train(const cgp_model *model, const cgp_plan_options *o, uint64_t seed,
                  const test_batch *batches, loss_function *loss_of, test_outcome *out) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    memset(out, 0, sizeof *out);
    assert_ok(cgp_plan_create(&plan, model, o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, seed));
    for (int s = 0; s < STEPS; s++)
        step(pipeline, model, &batches[s], loss_of, &out->losses[s], &out->gradients);
    assert_ok(cgp_pipeline_weights_sha256(pipeline, out->sha256));
    assert_ok(cgp_pipeline_state_sha256(pipeline, out->state_sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

/* Draw a schedule that runs all forwards before the first backward. It has at most one stage per
 * layer. */
static void draw_schedule(uint64_t *state, int layers, cgp_plan_options *o) {
    static const char *const names[] = {"gpipe", "looped-bfs", "looped-bfs-zb"};
    o->schedule = names[test_between(state, 0, 2)];
    const bool twice = strcmp(o->schedule, "gpipe") != 0 && 2 * o->stages <= layers;
    o->virtual_stages = twice ? test_between(state, 1, 2) : 1;
}

static void check_graph(uint64_t *state, const char *device, cgp_precision precision, bool images) {
    test_sizes sizes = {.layers = test_between(state, 1, 6),
                        .sequence = test_between(state, 1, 9),
                        .no_loss = true,
                        .dropout = 0.3};
    sizes.heads = test_between(state, 1, 3);
    sizes.width = sizes.heads * test_between(state, 1, 6);
    sizes.vocab = test_between(state, 2, 20);
    sizes.rough = test_between(state, 0, 1);
    cgp_model *model =
        images ? test_random_images(state, &sizes) : test_random_graph(state, &sizes);
    const char *devices[4] = {device, device, device, device};
    int balance[8];
    cgp_plan_options o = cgp_plan_options_default();
    o.external_loss = true;
    o.batch = test_between(state, 1, 7);
    o.chunks = test_between(state, 1, 7);
    o.devices = devices;
    o.precision = precision;
    o.optim = cgp_optim_sgd(0.05, 0.9, false, 0);
    test_batch batches[STEPS];
    for (int s = 0; s < STEPS; s++)
        test_batch_fill(&batches[s], model, &sizes,
                        s == 1 ? test_between(state, 1, (int)o.batch) : o.batch, state);
    const uint64_t seed = test_random(state);
    test_outcome expected, got;
    train(model, &o, seed, batches, square_loss, &expected);
    o.balance = balance;
    for (o.stages = 1; o.stages <= 4 && o.stages <= cgp_model_layers(model); o.stages++) {
        for (int mode = 0; mode < MODES; mode++) {
            o.recompute = (cgp_recompute)mode;
            draw_schedule(state, cgp_model_layers(model), &o);
            test_random_balance(state, cgp_model_layers(model), o.stages * o.virtual_stages,
                                balance);
            train(model, &o, seed, batches, square_loss, &got);
            if (memcmp(expected.losses, got.losses, sizeof got.losses) != 0 ||
                expected.gradients != got.gradients || strcmp(expected.sha256, got.sha256) != 0 ||
                strcmp(expected.state_sha256, got.state_sha256) != 0)
                fail_msg("stages %d, %s, %s: losses %.9g %.9g %.9g, expected %.9g %.9g %.9g, "
                         "gradients of inputs %.17g, expected %.17g",
                         o.stages, o.schedule, cgp_recompute_name(o.recompute), got.losses[0],
                         got.losses[1], got.losses[2], expected.losses[0], expected.losses[1],
                         expected.losses[2], got.gradients, expected.gradients);
        }
    }
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&batches[s]);
    cgp_model_destroy(model);
}

TEST_CASE(two_calls_are_bit_equal_over_layouts) {
    uint64_t state = test_seed();
    test_graph_extras = (test_extras){.outputs = 2, .input_gradients = true};
    for (int i = 0; i < 16; i++)
        check_graph(&state, i % 2 ? "cpu" : "ref", i & 2 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32,
                    false);
    for (int i = 0; i < 8; i++)
        check_graph(&state, i % 2 ? "cpu" : "ref", i & 2 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32,
                    true);
}

static cgp_model *gpt2(bool loss) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    options.layers = 2;
    options.width = 24;
    options.heads = 3;
    options.vocab = 19;
    options.sequence = 10;
    options.loss = loss;
    options.tied = true;
    options.dropout = 0.2;
    cgp_model *model = NULL;
    assert_ok(cgp_gpt2_create(&model, &options));
    return model;
}

/* Compare an external loss with the same loss inside the model. The two output gradients differ by
 * a few rounding errors of f32. In bf16 they sometimes round to neighbouring numbers, which are
 * 2^-8 apart. */
static void check_against_inside(const char *device, cgp_precision precision, double limit) {
    const char *devices[2] = {device, device};
    uint64_t state = test_seed();
    const test_sizes sizes = {.sequence = 10, .vocab = 19};
    cgp_model *inside = gpt2(true), *external = gpt2(false);
    test_batch batches[STEPS];
    for (int s = 0; s < STEPS; s++)
        test_batch_fill(&batches[s], inside, &sizes, 5, &state);
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = 5;
    o.chunks = 2;
    o.stages = 2;
    o.devices = devices;
    o.precision = precision;
    o.optim = cgp_optim_sgd(0.5, 0, false, 0);
    test_outcome expected, got;
    test_train(inside, &o, 7, batches, STEPS, &expected);
    o.external_loss = true;
    train(external, &o, 7, batches, cross_entropy, &got);
    for (int s = 0; s < STEPS; s++) {
        if (!(fabs(got.losses[s] - expected.losses[s]) <= limit * expected.losses[s]))
            fail_msg("%s, step %d: loss %.9g outside, %.9g inside", cgp_precision_name(precision),
                     s, got.losses[s], expected.losses[s]);
    }
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&batches[s]);
    cgp_model_destroy(external);
    cgp_model_destroy(inside);
}

TEST_CASE(an_external_loss_trains_as_the_internal_one) {
    test_graph_extras = (test_extras){0};
    check_against_inside("cpu", CGP_PRECISION_F32, 2e-6);
    check_against_inside("ref", CGP_PRECISION_BF16, 2e-4);
    check_against_inside("cpu", CGP_PRECISION_BF16, 2e-4);
}

TEST_CASE(any_other_order_is_refused) {
    uint64_t state = 5;
    const test_sizes sizes = {.sequence = 10, .vocab = 19};
    cgp_model *model = gpt2(false);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, 3, &state);
    cgp_plan_options o = cgp_plan_options_default();
    o.external_loss = true;
    o.batch = 3;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    cgp_tensor y = output_tensor(model, 3), wrong = y;
    wrong.shape.dims[0] = 2;
    assert_status(cgp_pipeline_step(pipeline, batch.inputs, 1, NULL), CGP_ESTATE);
    assert_message("cgp_pipeline_forward is due");
    assert_status(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&y}, 1), CGP_ESTATE);
    assert_message("cgp_pipeline_forward is due");
    assert_status(
        cgp_pipeline_forward(pipeline, batch.inputs, 1, (const cgp_tensor *[]){&wrong}, 1),
        CGP_EINVAL);
    assert_message("output: expected f32 of shape [3] x [10, 19], got f32 [2, 10, 19]");
    assert_status(cgp_pipeline_get_gradient(pipeline, 0, y.data), CGP_ESTATE);
    assert_message("cgp_pipeline_forward is due");
    assert_ok(cgp_pipeline_forward(pipeline, batch.inputs, 1, (const cgp_tensor *[]){&y}, 1));
    assert_status(cgp_pipeline_save(pipeline, "unused", 0, NULL), CGP_ESTATE);
    assert_status(cgp_pipeline_load(pipeline, "unused", NULL), CGP_ESTATE);
    assert_message("cgp_pipeline_backward is due");
    assert_status(cgp_pipeline_forward(pipeline, batch.inputs, 1, (const cgp_tensor *[]){&y}, 1),
                  CGP_ESTATE);
    assert_message("cgp_pipeline_backward is due");
    assert_status(cgp_pipeline_predict(pipeline, batch.inputs, 1, (const cgp_tensor *[]){&y}, 1),
                  CGP_ESTATE);
    assert_message("cgp_pipeline_backward is due");
    assert_status(cgp_optim_step(pipeline), CGP_ESTATE);
    assert_message("cgp_pipeline_backward is due");
    assert_status(cgp_pipeline_set_parameter(pipeline, 0, y.data), CGP_ESTATE);
    assert_message("cgp_pipeline_backward is due");
    cgp_pipeline_times times = cgp_pipeline_last_times(pipeline, NULL);
    assert_true(times.forward_seconds == times.seconds && times.backward_seconds == 0);
    assert_status(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&wrong}, 1), CGP_EINVAL);
    assert_message("gradient: expected f32 of shape [3]");
    assert_ok(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&y}, 1));
    times = cgp_pipeline_last_times(pipeline, NULL);
    assert_true(times.backward_seconds == times.seconds && times.forward_seconds == 0);
    assert_ok(cgp_pipeline_predict(pipeline, batch.inputs, 1, (const cgp_tensor *[]){&y}, 1));
    assert_ok(cgp_optim_step(pipeline));
    assert_ok(cgp_pipeline_forward(pipeline, batch.inputs, 1, (const cgp_tensor *[]){&y},
                                   1)); /* destroy the pipeline before its backward */
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    o.schedule = "1f1b";
    o.stages = o.chunks = 2;
    plan = NULL;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("expected gpipe, looped-bfs or looped-bfs-zb, got \"1f1b\"");
    cgp_model *with_loss = gpt2(true);
    o.schedule = NULL;
    assert_status(cgp_plan_create(&plan, with_loss, &o), CGP_EINVAL);
    assert_message("has a loss of its own");
    free(y.data);
    test_batch_release(&batch);
    cgp_model_destroy(with_loss);
    cgp_model_destroy(model);
}

/* Make a model of a batch norm and a dropout. Even without a backward, a forward changes the
 * running statistics and the key of the dropout masks. */
static cgp_model *norm_and_dropout(void) {
    cgp_model *model = NULL;
    const int64_t dims[] = {4, 4, 3};
    assert_ok(cgp_model_create(&model, "norm and dropout"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 3, dims);
    cgp_model_layer(model, "norm");
    cgp_model_output(model, cgp_dropout(model, cgp_batch_norm(model, x, "bn", 1e-5, 0.1), 0.5));
    assert_ok(cgp_model_finish(model));
    return model;
}

TEST_CASE(a_forward_may_go_without_its_backward) {
    uint64_t state = 3;
    cgp_model *model = norm_and_dropout();
    test_batch batch;
    const test_sizes sizes = {0};
    test_batch_fill(&batch, model, &sizes, 4, &state);
    cgp_plan_options o = cgp_plan_options_default();
    o.external_loss = true;
    o.batch = 4;
    o.chunks = 2;
    cgp_plan *plan = NULL;
    cgp_pipeline *whole = NULL, *skipped = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&whole, plan, 1));
    assert_ok(cgp_pipeline_create(&skipped, plan, 2));
    cgp_tensor y = output_tensor(model, 4), z = output_tensor(model, 4);
    const size_t bytes = (size_t)cgp_shape_count(&y.shape) * sizeof(float);
    char expected[65], got[65];
    assert_status(cgp_pipeline_skip_backward(skipped), CGP_ESTATE);
    assert_message("cgp_pipeline_forward is due");
    assert_ok(cgp_pipeline_set_seed(skipped, 1));
    for (int s = 0; s < STEPS; s++) { /* states and masks need no backward */
        assert_ok(cgp_pipeline_forward(whole, batch.inputs, 1, (const cgp_tensor *[]){&y}, 1));
        assert_ok(cgp_pipeline_backward(whole, (const cgp_tensor *[]){&y}, 1));
        assert_ok(cgp_pipeline_forward(skipped, batch.inputs, 1, (const cgp_tensor *[]){&z}, 1));
        assert_status(cgp_pipeline_set_seed(skipped, 1), CGP_ESTATE);
        assert_ok(cgp_pipeline_skip_backward(skipped));
        assert_memory_equal(y.data, z.data, bytes);
        assert_ok(cgp_pipeline_state_sha256(whole, expected));
        assert_ok(cgp_pipeline_state_sha256(skipped, got));
        assert_string_equal(expected, got);
    }
    assert_status(cgp_optim_step(skipped), CGP_ESTATE);
    assert_status(cgp_pipeline_backward(skipped, (const cgp_tensor *[]){&z}, 1), CGP_ESTATE);
    assert_ok(cgp_pipeline_set_seed(skipped, 1)); /* same masks as in the first step */
    assert_ok(cgp_pipeline_set_seed(whole, 9));
    assert_ok(cgp_pipeline_forward(whole, batch.inputs, 1, (const cgp_tensor *[]){&y}, 1));
    assert_memory_not_equal(y.data, z.data, bytes);
    cgp_pipeline_destroy(whole);
    cgp_pipeline_destroy(skipped);
    cgp_plan_destroy(plan);
    free(y.data);
    free(z.data);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(a_model_may_have_no_parameter) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    float data[] = {1, 1, 1, 1, 1, 1, 1, 1}, out[8], dx[8];
    const cgp_shape shape = {2, {2, 4}};
    const cgp_tensor x = {CGP_F32, shape, data}, y = {CGP_F32, shape, out},
                     gradient = {CGP_F32, shape, dx};
    assert_ok(cgp_model_create(&model, "mask"));
    const cgp_value input = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){4});
    cgp_model_input_gradient(model, input);
    cgp_model_layer(model, "dropout");
    cgp_model_output(model, cgp_dropout(model, input, 0.5));
    assert_ok(cgp_model_finish(model));
    cgp_plan_options o = cgp_plan_options_default();
    o.external_loss = true;
    o.batch = 2;
    o.chunks = 2;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, (const cgp_tensor *[]){&gradient}, 1));
    assert_ok(cgp_pipeline_forward(pipeline, (const cgp_tensor *[]){&x}, 1,
                                   (const cgp_tensor *[]){&y}, 1));
    assert_ok(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&x}, 1));
    /* the input is 1, so the output and the input gradient both equal the mask */
    assert_memory_equal(out, dx, sizeof out);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
