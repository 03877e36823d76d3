/* test_reference_numbers.c -- ten steps of SGD and of AdamW on a small GPT-2 follow PyTorch's
 * losses.
 *
 * The numbers are PyTorch's (tools/reference_numbers.py made them, `make reference-numbers`
 * makes them again); parameters and tokens are formulas of their index, so that nothing of ours
 * went into them. float32 and float64 differ there by 1.4e-7 at most; the bound is 2e-5,
 * relative, and what we really see is printed. */
#include "graphs.h"

#include <jansson.h>

static uint32_t hash(uint64_t p, uint64_t i) {
    uint32_t h = (uint32_t)(i * 2654435761u + (p + 1) * 2246822519u);
    h ^= h >> 15;
    return h * 2654435761u;
}

static json_t *load(void) {
    json_error_t error;
    json_t *numbers =
        json_load_file(TEST_DATA "/reference_numbers.json", JSON_REJECT_DUPLICATES, &error);
    if (!numbers) print_error("reference_numbers.json: %s (line %d)\n", error.text, error.line);
    assert_non_null(numbers);
    return numbers;
}

static int integer(const json_t *config, const char *key) {
    return (int)json_integer_value(json_object_get(config, key));
}

static double number(const json_t *options, const char *key) {
    return json_number_value(json_object_get(options, key));
}

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
            data[i] = (float)((hash((uint64_t)p, (uint64_t)i) / 4294967296.0 - 0.5) * 0.2);
            if (norm_weight) data[i] += 1.0f;
        }
        assert_ok(cgp_pipeline_set_parameter(pipeline, p, data));
        free(data);
    }
}

/* The weights after the last update: sum of |w| of each parameter. AdamW makes steps of size
 * `rate` out of what rounding leaves of the gradient of k's bias, which is zero (softmax does
 * not see it): a third of c_attn.bias. */
static void compare_weights(cgp_pipeline *pipeline, const cgp_model *model, const json_t *sums,
                            bool adamw) {
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
        const bool loose = adamw && strstr(cgp_model_parameter_name(model, p), "c_attn.bias");
        float *data = calloc((size_t)n, sizeof *data);
        double sum = 0;
        assert_ok(cgp_pipeline_get_parameter(pipeline, p, data));
        for (int64_t i = 0; i < n; i++)
            sum += fabs((double)data[i]);
        free(data);
        const double expected = json_number_value(json_array_get(sums, (size_t)p));
        const double difference = fabs(sum - expected) / expected;
        if (difference > (loose ? 1e-3 : 1e-5))
            print_error("%s: sum of |w| %.9g, PyTorch's %.9g\n",
                        cgp_model_parameter_name(model, p), sum, expected);
        assert_true(difference <= (loose ? 1e-3 : 1e-5));
    }
}

/* Largest relative difference of the losses. */
static double follow(const char *optimizer, const cgp_optim *optim, const char *device,
                     int stages, int chunks) {
    json_t *numbers = load();
    const json_t *config = json_object_get(numbers, "config");
    const json_t *float32 = json_object_get(json_object_get(numbers, optimizer), "float32");
    const json_t *theirs = json_object_get(float32, "losses");
    const int batch = integer(config, "batch"), steps = integer(config, "steps");
    const test_sizes sizes = {integer(config, "layers"),     integer(config, "sequence"),
                              integer(config, "width"),      integer(config, "heads"),
                              integer(config, "vocabulary"), 0};
    cgp_model *model = test_gpt2(&sizes);
    const char *devices[4] = {device, device, device, device};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = batch;
    o.chunks = chunks;
    o.optim = *optim;
    o.devices = devices;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 0));
    set_parameters(pipeline, model, json_object_get(numbers, "parameters"));
    const int64_t dims[2] = {batch, sizes.sequence};
    const int64_t count = batch * sizes.sequence;
    int32_t *data[2];
    cgp_tensor tensors[2];
    const cgp_tensor *inputs[2];
    for (int k = 0; k < 2; k++) {
        data[k] = calloc((size_t)count, sizeof *data[k]);
        tensors[k] = (cgp_tensor){CGP_I32, cgp_shape_make(2, dims), data[k]};
        inputs[k] = &tensors[k];
    }
    double worst = 0;
    assert_int_equal(steps, 10);
    for (int s = 0; s < steps; s++) {
        for (int64_t i = 0; i < count; i++) {
            for (int k = 0; k < 2; k++)
                data[k][i] = (int32_t)(hash(1000 + (uint64_t)k, (uint64_t)(s * count + i)) %
                                       (uint32_t)sizes.vocabulary);
        }
        double loss = 0;
        assert_ok(cgp_pipeline_step(pipeline, inputs, 2, &loss));
        assert_ok(cgp_optim_step(pipeline));
        const double expected = json_number_value(json_array_get(theirs, (size_t)s));
        const double difference = fabs(loss - expected) / fabs(expected);
        if (!(difference <= worst)) /* a NaN stays */
            worst = difference;
    }
    print_message("%s on %s, %d stages, %d chunks: losses differ from PyTorch's by at most "
                  "%.2e, relative\n",
                  optimizer, device, stages, chunks, worst);
    compare_weights(pipeline, model, json_object_get(float32, "sum_abs"),
                    optim->kind == CGP_OPTIM_ADAMW);
    free(data[0]);
    free(data[1]);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    json_decref(numbers);
    return worst;
}

static void check(const char *optimizer, const cgp_optim *optim) {
    assert_true(follow(optimizer, optim, "ref", 1, 1) < 2e-5);
    assert_true(follow(optimizer, optim, "cpu", 1, 1) < 2e-5);
    assert_true(follow(optimizer, optim, "cpu", 3, 4) < 2e-5);
}

static void sgd_follows_pytorch(void **unused) {
    (void)unused;
    json_t *numbers = load();
    const json_t *options = json_object_get(json_object_get(numbers, "sgd"), "options");
    const cgp_optim optim = cgp_optim_sgd(number(options, "lr"), number(options, "momentum"),
                                          json_is_true(json_object_get(options, "nesterov")),
                                          number(options, "weight_decay"));
    json_decref(numbers);
    check("sgd", &optim);
}

static void adamw_follows_pytorch(void **unused) {
    (void)unused;
    json_t *numbers = load();
    const json_t *options = json_object_get(json_object_get(numbers, "adamw"), "options");
    const cgp_optim optim =
        cgp_optim_adamw(number(options, "lr"), number(options, "weight_decay"));
    json_decref(numbers);
    check("adamw", &optim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_pytorch),
        cmocka_unit_test(adamw_follows_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
