/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_tensors.c -- tests the caller's tensors in device memory, and views of a pipeline's
 * memory. Results are bit-identical to results with host memory, work is ordered with the caller's
 * work, and unusable memory is refused. */
#include "cuda_runtime_api.h"
#include "in_program.h"

#include <cgpipe/cgpipe.h>

#include "base/base.h"

enum { N = 5, C = 3, D = 4, IDS = 6 };

/* Make a model of two layers. The first layer reads input x, and the second reads x and y. The loss
 * reads float targets. */
static cgp_model *two_layers(bool with_loss) {
    const cgp_linear_options options = {.out = C, .init = {CGP_INIT_NORMAL, 1}};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "two"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){C});
    const cgp_value targets =
        with_loss ? cgp_model_input(model, "targets", CGP_F32, 1, (int64_t[]){C}) : x;
    cgp_model_input_gradient(model, x);
    cgp_model_layer(model, "a");
    const cgp_value y = cgp_linear(model, x, "a", options);
    cgp_model_layer(model, "b");
    const cgp_value z = cgp_add(model, cgp_linear(model, y, "b", options), x);
    if (with_loss)
        cgp_model_loss_bce_with_logits(model, z, targets, 1);
    else
        cgp_model_output(model, z);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* --- memory of a device --- */

static const size_t bytes = sizeof(float) * N * C;

static float *new_there(void) {
    void *memory = NULL;
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaMalloc(&memory, bytes), cudaSuccess);
    return memory;
}

/* Copy on a stream of the caller, through pinned host memory. */
static void copy(void *to, const void *from, enum cudaMemcpyKind kind, cudaStream_t stream) {
    assert_int_equal(cudaMemcpyAsync(to, from, bytes, kind, stream), cudaSuccess);
}

typedef struct numbers {
    float x[N * C], z[N * C], dz[N * C], dx[N * C];
} numbers;

static void fill(numbers *h) {
    memset(h, 0, sizeof *h);
    for (int i = 0; i < N * C; i++) {
        h->x[i] = (float)(i * 7 % 11) / 8;
        h->dz[i] = (float)(i * 5 % 13) / 16;
    }
}

static cgp_pipeline *create(const cgp_model *model, const char *const *devices,
                            cgp_precision precision, bool external_loss, cgp_plan **plan) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_pipeline *pipeline = NULL;
    o.external_loss = external_loss;
    o.batch = N;
    o.chunks = 2;
    o.stages = 2;
    o.devices = devices;
    o.precision = precision;
    assert_ok(cgp_plan_create(plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, *plan, 1));
    return pipeline;
}

/* Run forward and backward with the tensors of `at`. */
static void run(cgp_pipeline *pipeline, numbers *at) {
    const cgp_tensor x = {CGP_F32, {2, {N, C}}, at->x}, z = {CGP_F32, {2, {N, C}}, at->z},
                     dz = {CGP_F32, {2, {N, C}}, at->dz}, dx = {CGP_F32, {2, {N, C}}, at->dx};
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, (const cgp_tensor *[]){&dx}, 1));
    assert_ok(cgp_pipeline_forward(pipeline, (const cgp_tensor *[]){&x}, 1,
                                   (const cgp_tensor *[]){&z}, 1));
    assert_ok(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&dz}, 1));
}

static void compare(const char *const *devices, cgp_precision precision) {
    cgp_model *model = two_layers(false);
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = create(model, devices, precision, true, &plan);
    numbers host, got, *there = NULL, *pinned = NULL;
    char before[65], after[65];
    float gradient[C * C], again[C * C];
    fill(&host);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&there, sizeof *there), cudaSuccess);
    assert_int_equal(cudaHostAlloc((void **)&pinned, sizeof *pinned, 0), cudaSuccess);
    *pinned = host;
    cudaStream_t stream = NULL;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(there, pinned, sizeof host, cudaMemcpyHostToDevice, stream),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    run(pipeline, &host);
    assert_ok(cgp_pipeline_get_gradient(pipeline, 0, gradient));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, before));
    cgp__shim_set_delay(200000);
    run(pipeline, there); /* waits for all results */
    memcpy(&got, there, sizeof got);
    cgp__shim_set_delay(0);
    assert_ok(cgp_pipeline_get_gradient(pipeline, 0, again));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, after));
    assert_memory_equal(&host, &got, sizeof host);
    assert_memory_equal(gradient, again, sizeof gradient);
    assert_string_equal(before, after);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaFreeHost(pinned), cudaSuccess);
    assert_int_equal(cudaFree(there), cudaSuccess);
    cgp_model_destroy(model);
}

TEST_CASE(device_memory_gives_the_bits_of_host_memory) {
    static const char *const devices[][2] = {{"cuda-host:0", "cuda-host:0"},
                                             {"cuda-host:0", "cuda-host:1"},
                                             {"cuda-host:2", "cuda-host:1"}};
    for (int i = 0; i < 3; i++) {
        compare(devices[i], CGP_PRECISION_F32);
        compare(devices[i], CGP_PRECISION_BF16);
    }
}

/* --- order --- */

/* The caller's stream writes the input late. The pipeline's stream waits for the event of the
 * caller's stream. */
TEST_CASE(the_stream_waits_for_the_callers_work) {
    static const char *const devices[] = {"cuda-host:0", "cuda-host:0"};
    cgp_model *model = two_layers(true);
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = create(model, devices, CGP_PRECISION_F32, false, &plan);
    float *x = new_there(), *targets = new_there(), *spare = new_there(), *pinned = NULL;
    const cgp_tensor inputs[] = {{CGP_F32, {2, {N, C}}, x}, {CGP_F32, {2, {N, C}}, targets}};
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    numbers host;
    double expected = 0, loss = 0;
    fill(&host);
    assert_int_equal(cudaHostAlloc((void **)&pinned, 2 * bytes, 0), cudaSuccess);
    memcpy(pinned, host.x, bytes);
    memcpy(pinned + N * C, host.dz, bytes);
    const cgp_tensor here[] = {{CGP_F32, {2, {N, C}}, host.x}, {CGP_F32, {2, {N, C}}, host.dz}};
    assert_ok(
        cgp_pipeline_step(pipeline, (const cgp_tensor *[]){&here[0], &here[1]}, 2, &expected));
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    cgp__shim_set_delay(200000);
    for (int i = 0; i < 500; i++)
        copy(spare, pinned, cudaMemcpyHostToDevice, stream);
    copy(x, pinned, cudaMemcpyHostToDevice, stream);
    copy(targets, pinned + N * C, cudaMemcpyHostToDevice, stream);
    assert_int_equal(cudaEventRecord(event, stream), cudaSuccess);
    for (int d = 0; d < 2; d++) {
        cudaStream_t waits = cgp_pipeline_stream(pipeline, d);
        assert_non_null(waits);
        assert_int_equal(cudaStreamWaitEvent(waits, event, 0), cudaSuccess);
    }
    assert_ok(
        cgp_pipeline_step(pipeline, (const cgp_tensor *[]){&inputs[0], &inputs[1]}, 2, &loss));
    cgp__shim_set_delay(0);
    assert_true(loss == expected);
    assert_null(cgp_pipeline_stream(pipeline, 2));
    assert_null(cgp_pipeline_stream(pipeline, -1));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaFreeHost(pinned), cudaSuccess);
    assert_int_equal(cudaFree(x), cudaSuccess);
    assert_int_equal(cudaFree(targets), cudaSuccess);
    assert_int_equal(cudaFree(spare), cudaSuccess);
    cgp_model_destroy(model);
}

/* --- refusals --- */

TEST_CASE(a_device_that_cannot_read_the_memory_is_named) {
    static const char *const devices[] = {"cuda-host:0", "cpu"};
    cgp_model *model = two_layers(false);
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = create(model, devices, CGP_PRECISION_F32, true, &plan);
    float *there = new_there();
    numbers host;
    fill(&host);
    const cgp_tensor x = {CGP_F32, {2, {N, C}}, there}, z = {CGP_F32, {2, {N, C}}, host.z},
                     here = {CGP_F32, {2, {N, C}}, host.x};
    /* the second layer's device must read x too */
    assert_status(cgp_pipeline_forward(pipeline, (const cgp_tensor *[]){&x}, 1,
                                       (const cgp_tensor *[]){&z}, 1),
                  CGP_EINVAL);
    assert_message("input x: expected host memory, which device cpu:1 uses, got memory of a "
                   "cuda-host device");
    assert_status(cgp_pipeline_forward(pipeline, (const cgp_tensor *[]){&here}, 1,
                                       (const cgp_tensor *[]){&x}, 1),
                  CGP_EINVAL);
    assert_message("output 0: expected host memory, which device cpu:1 uses, got memory of a "
                   "cuda-host device");
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, (const cgp_tensor *[]){&x}, 1));
    assert_ok(cgp_pipeline_forward(pipeline, (const cgp_tensor *[]){&here}, 1,
                                   (const cgp_tensor *[]){&z}, 1));
    assert_status(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&x}, 1), CGP_EINVAL);
    assert_message("gradient 0: expected host memory, which device cpu:1 uses, got memory of a "
                   "cuda-host device");
    assert_ok(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&here}, 1));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    assert_int_equal(cudaFree(there), cudaSuccess);
    cgp_model_destroy(model);
}

TEST_CASE(integers_are_checked_on_the_host) {
    static const char *const devices[] = {"cuda-host:0", "cuda-host:0"};
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    assert_ok(cgp_model_create(&model, "ids"));
    const cgp_value ids = cgp_model_input(model, "ids", CGP_I32, 1, (int64_t[]){C});
    cgp_model_layer(model, "a");
    const cgp_value rows =
        cgp_embedding(model, ids, "rows", IDS, D, (cgp_init){CGP_INIT_NORMAL, 1});
    cgp_model_layer(model, "b");
    cgp_model_output(model, cgp_relu(model, rows));
    assert_ok(cgp_model_finish(model));
    cgp_pipeline *pipeline = create(model, devices, CGP_PRECISION_F32, true, &plan);
    float *there = new_there();
    float out[N * C * D];
    const cgp_tensor input = {CGP_I32, {2, {N, C}}, there}, output = {CGP_F32, {3, {N, C, D}}, out};
    assert_status(cgp_pipeline_forward(pipeline, (const cgp_tensor *[]){&input}, 1,
                                       (const cgp_tensor *[]){&output}, 1),
                  CGP_EINVAL);
    assert_message("input ids: expected integers in host memory, where their range is checked, "
                   "got memory of a cuda-host device");
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    assert_int_equal(cudaFree(there), cudaSuccess);
    cgp_model_destroy(model);
}

/* --- views --- */

TEST_CASE(views_are_the_pipelines_memory) {
    static const char *const devices[] = {"cuda-host:0", "cuda-host:1"};
    cgp_model *model = two_layers(true);
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = create(model, devices, CGP_PRECISION_F32, false, &plan);
    float values[C * C];
    cgp_tensor view;
    int device = -1;
    numbers host;
    fill(&host);
    const cgp_tensor here[] = {{CGP_F32, {2, {N, C}}, host.x}, {CGP_F32, {2, {N, C}}, host.dz}};
    assert_ok(cgp_pipeline_step(pipeline, (const cgp_tensor *[]){&here[0], &here[1]}, 2, NULL));
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        assert_ok(cgp_pipeline_get_parameter(pipeline, p, values));
        assert_ok(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_PARAMETER, p, &device, &view));
        assert_int_equal(device, p);
        assert_memory_equal(view.data, values, 4 * (size_t)cgp_shape_count(&view.shape));
        assert_ok(cgp_pipeline_get_gradient(pipeline, p, values));
        assert_ok(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_GRADIENT, p, &device, &view));
        assert_memory_equal(view.data, values, 4 * (size_t)cgp_shape_count(&view.shape));
    }
    assert_status(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_PARAMETER, 2, &device, &view),
                  CGP_EINVAL);
    assert_status(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_STATE, 0, &device, &view),
                  CGP_EINVAL);
    assert_status(cgp_pipeline_device_tensor(pipeline, (cgp_tensor_kind)3, 0, &device, &view),
                  CGP_EINVAL);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    static const char *const hosts[] = {"cpu", "cpu"};
    pipeline = create(model, hosts, CGP_PRECISION_F32, false, &plan);
    assert_status(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_PARAMETER, 0, &device, &view),
                  CGP_ESTATE);
    assert_message("a.weight: device cpu:0 uses the host's memory (cgp_pipeline_..._tensor views "
                   "it)");
    assert_null(cgp_pipeline_stream(pipeline, 0));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(a_frozen_parameter_has_no_gradient_to_view) {
    static const char *const devices[] = {"cuda-host:0", "cuda-host:0"};
    cgp_model *model = two_layers(true);
    cgp_plan *plan = NULL;
    cgp_tensor view;
    int device = -1;
    assert_ok(cgp_model_freeze(model, "a.weight"));
    cgp_pipeline *pipeline = create(model, devices, CGP_PRECISION_F32, false, &plan);
    assert_ok(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_PARAMETER, 0, &device, &view));
    assert_ok(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_GRADIENT, 1, &device, &view));
    assert_status(cgp_pipeline_device_tensor(pipeline, CGP_TENSOR_GRADIENT, 0, &device, &view),
                  CGP_EINVAL);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

int main(void) {
    (void)cuda_host();
    return test_run();
}
