/* SPDX-License-Identifier: Apache-2.0 */
/* test_reference_numbers.c -- the losses of a small GPT-2 are close to PyTorch's losses. SGD and
 * AdamW run for ten steps, and every optimizer runs for thirty steps. The optimizers have common
 * settings: warm-up, cosine or step schedules, clipping, and no decay of norms and biases.
 *
 * PyTorch computed the numbers (tools/reference_numbers.py; `make reference-numbers` repeats it).
 * Parameters and tokens are computed from their index by a formula, so they do not depend on this
 * library. PyTorch's float32 and float64 differ by at most 1.9e-7. The relative tolerance is 2e-5;
 * the largest difference is printed. */
#include "graphs.h"
#include "reference.h"

static void set_parameters(cgp_pipeline *pipeline, const cgp_model *model,
                           const json_t *parameters) {
    assert_int_equal(cgp_model_parameters(model), json_array_size(parameters));
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const char *theirs =
            json_string_value(json_object_get(json_array_get(parameters, (size_t)p), "name"));
        const char *ours = cgp_model_parameter_name(model, p);
        const size_t prefix = strncmp(ours, "transformer.", 12) == 0 ? 12 : 0;
        assert_string_equal(ours + prefix, theirs);
        const bool norm_weight = strstr(theirs, "ln_") && strstr(theirs, ".weight");
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
        float *data = calloc((size_t)n, sizeof *data);
        for (int64_t i = 0; i < n; i++) {
            data[i] = (float)((test_hash((uint64_t)p, (uint64_t)i) / 4294967296.0 - 0.5) * 0.2);
            if (norm_weight) data[i] += 1.0f;
        }
        assert_ok(cgp_pipeline_set_parameter(pipeline, p, data));
        free(data);
    }
}

/* For each parameter, compare the sum of |w| after the last update. The tolerance for c_attn.bias
 * is larger, because a third of c_attn.bias is the bias of k. The exact gradient of that bias is
 * zero, because softmax does not depend on this bias. All optimizers but SGD turn the rounding
 * error of this gradient into steps of size `lr`. */
static void compare_weights(cgp_pipeline *pipeline, const cgp_model *model, const json_t *sums,
                            const cgp_optim *optim) {
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
        const bool loose = optim->kind != CGP_OPTIM_SGD &&
                           strstr(cgp_model_parameter_name(model, p), "c_attn.bias");
        float *data = calloc((size_t)n, sizeof *data);
        double sum = 0;
        assert_ok(cgp_pipeline_get_parameter(pipeline, p, data));
        for (int64_t i = 0; i < n; i++)
            sum += fabs((double)data[i]);
        free(data);
        const double expected = json_number_value(json_array_get(sums, (size_t)p));
        if (!(fabs(sum - expected) <= (loose ? 1e-3 : 1e-5) * expected))
            fail_msg("%s: sum of |w| %.9g, PyTorch's %.9g", cgp_model_parameter_name(model, p), sum,
                     expected);
    }
}

/* The tokens and targets of one step. */
typedef struct batch {
    cgp_tensor tensors[2];
    const cgp_tensor *inputs[2];
} batch;

static void batch_create(batch *b, int64_t samples, int64_t sequence) {
    const int64_t dims[2] = {samples, sequence};
    for (int k = 0; k < 2; k++) {
        b->tensors[k] = (cgp_tensor){CGP_I32, cgp_shape_make(2, dims),
                                     calloc((size_t)(samples * sequence), sizeof(int32_t))};
        b->inputs[k] = &b->tensors[k];
    }
}

static void batch_fill(batch *b, int64_t step, int64_t vocab) {
    const int64_t count = cgp_shape_count(&b->tensors[0].shape);
    for (int k = 0; k < 2; k++) {
        int32_t *data = b->tensors[k].data;
        for (int64_t i = 0; i < count; i++)
            data[i] = (int32_t)(test_hash(1000 + (uint64_t)k, (uint64_t)(step * count + i)) %
                                (uint32_t)vocab);
    }
}

static double relative(double got, const json_t *list, int index) {
    const double expected = json_number_value(json_array_get(list, (size_t)index));
    return fabs(got - expected) / fabs(expected);
}

/* Set *worst to `difference` if `difference` is larger or NaN. */
static void keep_worst(double *worst, double difference) {
    if (!(difference <= *worst)) *worst = difference;
}

/* Train, and compare losses and gradient norms with PyTorch's float32. */
static void train(cgp_pipeline *pipeline, const json_t *theirs, const test_sizes *sizes,
                  int samples, double *worst_loss, double *worst_norm) {
    const json_t *losses = json_object_get(theirs, "losses");
    const json_t *norms = json_object_get(theirs, "norms");
    batch b;
    batch_create(&b, samples, sizes->sequence);
    *worst_loss = *worst_norm = 0;
    for (int s = 0; s < (int)json_array_size(losses); s++) {
        double loss = 0;
        batch_fill(&b, s, sizes->vocab);
        assert_ok(cgp_pipeline_step(pipeline, b.inputs, 2, &loss));
        assert_ok(cgp_optim_step(pipeline));
        keep_worst(worst_loss, relative(loss, losses, s));
        if (norms) keep_worst(worst_norm, relative(cgp_pipeline_gradient_norm(pipeline), norms, s));
    }
    free(b.tensors[0].data);
    free(b.tensors[1].data);
}

static void follow(const json_t *numbers, const char *run, const cgp_optim *optim,
                   const char *device, int stages, int chunks) {
    const json_t *config = json_object_get(numbers, "config");
    const json_t *theirs = json_object_get(json_object_get(numbers, run), "float32");
    const test_sizes sizes = {.layers = test_integer(config, "layers"),
                              .sequence = test_integer(config, "sequence"),
                              .width = test_integer(config, "width"),
                              .heads = test_integer(config, "heads"),
                              .vocab = test_integer(config, "vocabulary")};
    cgp_model *model = test_gpt2(&sizes);
    const char *devices[4] = {device, device, device, device};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = test_integer(config, "batch");
    o.chunks = chunks;
    o.optim = *optim;
    o.devices = devices;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 0));
    set_parameters(pipeline, model, json_object_get(numbers, "parameters"));
    double loss, norm;
    train(pipeline, theirs, &sizes, (int)o.batch, &loss, &norm);
    print_message("%s on %s, %d stages, %d chunks: losses differ from PyTorch's by at most "
                  "%.2e, relative",
                  run, device, stages, chunks, loss);
    print_message(json_object_get(theirs, "norms") ? ", norms by %.2e\n" : "\n", norm);
    assert_true(loss < 2e-5);
    assert_true(norm < 2e-5);
    compare_weights(pipeline, model, json_object_get(theirs, "sum_abs"), optim);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

static cgp_lr_schedule schedule_of(const json_t *options) {
    cgp_lr_schedule schedule = {.kind = CGP_LR_CONSTANT};
    if (!options) return schedule;
    assert_ok(
        cgp_lr_kind_parse(&schedule.kind, json_string_value(json_object_get(options, "kind"))));
    schedule.warmup = test_integer(options, "warmup");
    schedule.steps = test_integer(options, "steps");
    schedule.min_ratio = test_number(options, "least");
    schedule.step_size = test_integer(options, "interval");
    schedule.gamma = test_number(options, "factor");
    return schedule;
}

static cgp_optim optim_of(const json_t *options) {
    const json_t *betas = json_object_get(options, "betas");
    cgp_optim optim = {.lr = test_number(options, "lr"),
                       .weight_decay = test_number(options, "weight_decay"),
                       .momentum = test_number(options, "momentum"),
                       .nesterov = json_is_true(json_object_get(options, "nesterov")),
                       .beta1 = json_number_value(json_array_get(betas, 0)),
                       .beta2 = json_number_value(json_array_get(betas, 1)),
                       .eps = test_number(options, "eps"),
                       .alpha = test_number(options, "alpha"),
                       .clip_norm = test_number(options, "clip_norm"),
                       .decay_all = json_is_true(json_object_get(options, "decay_all")),
                       .schedule = schedule_of(json_object_get(options, "schedule"))};
    assert_ok(cgp_optim_kind_parse(&optim.kind,
                                   json_string_value(json_object_get(options, "optimizer"))));
    return optim;
}

/* Check the reference run with the name `run`, which has `steps` steps. */
static void check(const char *run, int steps) {
    json_t *numbers = test_reference_load(TEST_DATA "/reference_numbers.json");
    const json_t *options = json_object_get(json_object_get(numbers, run), "options");
    const cgp_optim optim = optim_of(options);
    assert_int_equal(test_integer(options, "steps"), steps);
    follow(numbers, run, &optim, "ref", 1, 1);
    follow(numbers, run, &optim, "cpu", 1, 1);
    follow(numbers, run, &optim, "cpu", 3, 4);
    json_decref(numbers);
}

TEST_CASE(sgd_follows_pytorch) {
    check("sgd", 10);
}

TEST_CASE(adamw_follows_pytorch) {
    check("adamw", 10);
}

TEST_CASE(clipping_warm_up_and_cosine_follow_pytorch) {
    check("adamw_clipped", 30);
    check("sgd_clipped", 30);
}

TEST_CASE(adam_with_step_decay_follows_pytorch) {
    check("adam", 30);
}

TEST_CASE(rmsprop_with_step_decay_follows_pytorch) {
    check("rmsprop", 30);
    check("rmsprop_momentum", 30);
}
