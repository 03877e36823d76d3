/* SPDX-License-Identifier: Apache-2.0 */
/* test_reference_models.c -- small ResNets, AmoebaNets and U-Nets compute what PyTorch computes.
 * The test compares the loss, the gradient of every parameter, the running statistics after a step,
 * and the output of a later evaluation.
 *
 * PyTorch computed the numbers in float64 with networks written for this test
 * (tools/reference_models.py; `make reference-numbers` repeats it). Each weight and each pixel is a
 * formula of its index. The file also has the error of PyTorch's own float32 results. This library
 * adds in another order, so the tolerance is ten times PyTorch's error, but at least 1e-5. (float32
 * resolves 6e-8, and each number is a sum of some hundred terms.)
 *
 * A tensor is compared by its norm, and by its dot product with a vector of hashes. The dot product
 * depends on the order of the elements. Differences are relative to the norm of the tensor, or to a
 * thousandth of the largest norm if that is larger. The difference of dot products is also divided
 * by sqrt(1/12), the standard deviation of a hash. */
#include "graphs.h"
#include "reference.h"

#include <cgpipe/models/spec.h>

static double uniform(uint64_t p, int64_t i) {
    return test_hash(p, (uint64_t)i) / 4294967296.0 - 0.5;
}

/* --- initial values, as in the script --- */

static void set_parameters(cgp_pipeline *pipeline, const cgp_model *model) {
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const cgp_shape *shape = cgp_model_parameter_shape(model, p);
        const char *name = cgp_model_parameter_name(model, p);
        const bool bias = strcmp(name + strlen(name) - 4, "bias") == 0;
        const int64_t n = cgp_shape_count(shape);
        const int64_t outputs = shape->dims[shape->rank == 4 ? 3 : 0];
        const int64_t fan_in = n / outputs;
        const double scale = 2 * sqrt(6 / (double)fan_in);
        float *data = calloc((size_t)n, sizeof *data);
        for (int64_t i = 0; i < n; i++) {
            const double u = uniform((uint64_t)p, i);
            data[i] = (float)(shape->rank > 1 ? u * scale : u / 2 + !bias);
        }
        assert_ok(cgp_pipeline_set_parameter(pipeline, p, data));
        free(data);
    }
}

/* A mini-batch: images, and labels or masks. */
typedef struct batch {
    cgp_tensor tensors[2];
    const cgp_tensor *inputs[2];
} batch;

static void make_batch(batch *b, const cgp_model *model, int64_t samples) {
    const cgp_shape output = cgp_model_output_shape(model, 0);
    for (int k = 0; k < 2; k++) {
        const cgp_shape shape = cgp_model_input_shape(model, k);
        int64_t dims[CGP_MAX_RANK] = {samples};
        memcpy(dims + 1, shape.dims, (size_t)shape.rank * sizeof *dims);
        const int64_t n = samples * cgp_shape_count(&shape);
        b->tensors[k] = (cgp_tensor){cgp_model_input_dtype(model, k),
                                     cgp_shape_make(shape.rank + 1, dims), calloc((size_t)n, 4)};
        b->inputs[k] = &b->tensors[k];
        for (int64_t i = 0; i < n; i++) {
            if (k == 0)
                ((float *)b->tensors[k].data)[i] = (float)(4 * uniform(9000, i));
            else if (b->tensors[k].dtype == CGP_I32)
                ((int32_t *)b->tensors[k].data)[i] =
                    (int32_t)(test_hash(9001, (uint64_t)i) % (uint32_t)output.dims[0]);
            else
                ((float *)b->tensors[k].data)[i] = uniform(9001, i) < 0;
        }
    }
}

/* --- differences --- */

static double entry(const json_t *reported, const char *list, int i) {
    return json_number_value(json_array_get(json_object_get(reported, list), (size_t)i));
}

static double largest_norm(const json_t *reported) {
    double largest = 0;
    for (int i = 0; i < (int)json_array_size(json_object_get(reported, "norms")); i++)
        largest = fmax(largest, entry(reported, "norms", i));
    return largest;
}

/* Return the difference of a tensor from entry `i` of the reference file. */
static double difference(const float *t, int64_t n, const json_t *reported, int i, double largest) {
    const double norm = entry(reported, "norms", i);
    double square = 0, product = 0;
    for (int64_t e = 0; e < n; e++) {
        square += (double)t[e] * (double)t[e];
        product += (double)t[e] * uniform(7000, e);
    }
    const double of_norm = fabs(sqrt(square) - norm);
    const double of_product = sqrt(12.0) * fabs(product - entry(reported, "products", i));
    return fmax(of_norm, of_product) / fmax(norm, largest / 1000) + (isnan(square) ? NAN : 0);
}

/* Set *worst to `far` if `far` is larger or NaN. */
static void keep_worst(double *worst, double far) {
    if (!(far <= *worst)) *worst = far;
}

static double gradients_differ(cgp_pipeline *pipeline, const cgp_model *model,
                               const json_t *reported) {
    const double largest = largest_norm(reported);
    double worst = 0;
    int worst_at = 0;
    assert_int_equal(cgp_model_parameters(model),
                     json_array_size(json_object_get(reported, "norms")));
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
        float *data = calloc((size_t)n, sizeof *data);
        assert_ok(cgp_pipeline_get_gradient(pipeline, p, data));
        const double before = worst;
        keep_worst(&worst, difference(data, n, reported, p, largest));
        if (!(worst <= before)) worst_at = p;
        free(data);
    }
    print_message("  %s:", cgp_model_parameter_name(model, worst_at));
    return worst;
}

/* Return the largest difference of a running mean or a running variance from the reference file.
 * The counters of batches must equal the number of micro-batches, or 1 with deferred batch
 * norms. */
static double statistics_differ(cgp_pipeline *pipeline, const cgp_model *model,
                                const json_t *reported, int batches) {
    const double largest = largest_norm(reported);
    double worst = 0;
    int seen = 0;
    for (int s = 0; s < cgp_model_states(model); s++) {
        const int64_t n = cgp_shape_count(cgp_model_state_shape(model, s));
        float *data = calloc((size_t)n, sizeof *data);
        assert_ok(cgp_pipeline_get_state(pipeline, s, data));
        if (cgp_model_state_dtype(model, s) == CGP_I32)
            assert_int_equal(*(int32_t *)data, batches);
        else
            keep_worst(&worst, difference(data, n, reported, seen++, largest));
        free(data);
    }
    assert_int_equal(seen, json_array_size(json_object_get(reported, "norms")));
    return worst;
}

static double output_differs(cgp_pipeline *pipeline, const cgp_model *model, const batch *b,
                             const json_t *reported) {
    const cgp_shape shape = cgp_model_output_shape(model, 0);
    int64_t dims[CGP_MAX_RANK] = {b->tensors[0].shape.dims[0]};
    memcpy(dims + 1, shape.dims, (size_t)shape.rank * sizeof *dims);
    cgp_tensor output = {CGP_F32, cgp_shape_make(shape.rank + 1, dims), NULL};
    const int64_t n = cgp_shape_count(&output.shape);
    output.data = calloc((size_t)n, sizeof(float));
    assert_ok(cgp_pipeline_predict(pipeline, b->inputs, 2, (const cgp_tensor *[]){&output}, 1));
    const double worst = difference(output.data, n, reported, 0, largest_norm(reported));
    free(output.data);
    return worst;
}

/* --- runs --- */

/* Print the difference of one kind of tensor, and compare it with the tolerance of that kind. */
static bool near(const char *kind, double far, const json_t *run) {
    const double theirs = test_number(json_object_get(run, "float32"), kind);
    const double allowed = 10 * fmax(theirs, 1e-6);
    print_message("  %s %.1e (PyTorch %.1e)%s", kind, far, theirs,
                  far <= allowed ? "" : " too far");
    return far <= allowed;
}

static void compare(cgp_pipeline *pipeline, const cgp_model *model, const json_t *run,
                    int64_t samples, int micro_batches) {
    const json_t *gradients = json_object_get(run, "gradients");
    const json_t *statistics = json_object_get(run, "statistics");
    const double expected = test_number(run, "loss");
    const bool deferred = json_is_true(json_object_get(run, "deferred"));
    batch b;
    double loss = 0;
    bool good = true;
    make_batch(&b, model, samples);
    set_parameters(pipeline, model);
    assert_ok(cgp_pipeline_step(pipeline, b.inputs, 2, &loss));
    good &= near("loss", fabs(loss - expected) / fabs(expected), run);
    good &= near("gradients", gradients_differ(pipeline, model, gradients), run);
    good &= near("statistics",
                 statistics_differ(pipeline, model, statistics, deferred ? 1 : micro_batches), run);
    good &=
        near("output", output_differs(pipeline, model, &b, json_object_get(run, "output")), run);
    print_message("\n");
    assert_true(good);
    free(b.tensors[0].data);
    free(b.tensors[1].data);
}

static void follow(const char *text, int samples, const json_t *run, const char *device,
                   int stages) {
    const char *devices[4] = {device, device, device, device};
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    spec.unet.dropout = 0;
    assert_ok(cgp_model_spec_parse(&spec, text));
    assert_ok(cgp_model_spec_create(&model, &spec));
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = samples;
    o.chunks = test_integer(run, "chunks");
    o.deferred_batch_norm = json_is_true(json_object_get(run, "deferred"));
    o.devices = devices;
    if (stages > 1) assert_ok(cgp_recompute_parse(&o.recompute, "always+selective"));
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 0));
    print_message("%s, %d chunks%s, %s, %d stages:\n", text, o.chunks,
                  o.deferred_batch_norm ? ", deferred" : "", device, stages);
    compare(pipeline, model, run, samples, cgp_plan_chunks(plan));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* Check all runs of the models whose spec begins with `name`. Runs alternate between one and three
 * stages. (The results do not depend on the number of stages: test_bit_equality.) */
static void check(const char *name) {
    static const char *const devices[] = {"ref", "cpu"};
    json_t *numbers = test_reference_load(TEST_DATA "/reference_models.json");
    const json_t *models = json_object_get(numbers, "models");
    int checked = 0;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *model = json_array_get(models, i), *runs = json_object_get(model, "runs");
        const char *text = json_string_value(json_object_get(model, "text"));
        for (size_t r = 0; strncmp(text, name, strlen(name)) == 0 && r < json_array_size(runs);
             r++) {
            for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++, checked++) {
                const int samples = test_integer(model, "batch");
                follow(text, samples, json_array_get(runs, r), devices[d], (r + d) % 2 ? 3 : 1);
            }
        }
    }
    assert_true(checked > 0);
    json_decref(numbers);
}

TEST_CASE(resnets_compute_what_pytorch_computes) {
    check("resnet");
}

TEST_CASE(amoebanets_compute_what_pytorch_computes) {
    check("amoebanetd");
}

TEST_CASE(unets_compute_what_pytorch_computes) {
    check("unet");
}
