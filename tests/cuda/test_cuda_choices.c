/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_choices.c -- tests how the backend chooses cuBLASLt's algorithms, on cuda-host. All
 * numbers of rows in a plan are known before any kernel runs. Choosing an algorithm needs no memory
 * in addition to the plan's memory. */
#include "backend/cuda/device.h"
#include "in_program.h"
#include "training.h"

/* --- a device --- */

static cgp_kernel_spec linear_spec(int64_t rows, int64_t in, int64_t out) {
    return (cgp_kernel_spec){.op = CGP_OP_LINEAR,
                             .direction = CGP_OP_FORWARD,
                             .attributes = {.rows = rows, .in = in, .out = out},
                             .n = 3,
                             .type = CGP_BF16};
}

/* Return the bytes of memory that a device uses besides its caller's allocations. */
static int64_t own_bytes(void) {
    return CGP__SHIM_CONTEXT_BYTES + CGP__SHIM_KERNELS_BYTES +
           CGP__CUDA_PARTIALS * (int64_t)sizeof(double) +
           2 * CGP__CUDA_SEMAPHORES * (int64_t)sizeof(int);
}

/* Create a device with `bytes` free bytes, announce kernels `specs` [n] to it, and create the first
 * kernel. Return whether cuBLASLt computes this kernel. */
static bool is_library_kernel(int64_t bytes, const cgp_kernel_spec *specs, int n) {
    const cgp_backend *b = cuda_host();
    const cgp_device_options options = {.struct_size = sizeof options};
    cgp__shim_settings *s = cgp__shim_get_settings();
    const int64_t memory = s->memory;
    cgp_device *device = NULL;
    cgp_kernel *kernel = NULL;
    assert_ok(b->device.create(&device, &options));
    s->memory = own_bytes() + bytes;
    if (n > 1) assert_ok(b->kernels.prepare(device, specs, n, 1));
    assert_ok(b->kernels.create(device, &specs[0], &kernel));
    const bool is_library = kernel->gemm != NULL;
    b->kernels.destroy(kernel);
    b->device.destroy(device);
    s->memory = memory;
    return is_library;
}

/* Testing an algorithm with 80 rows needs 1.3 MB for two copies of c, and 0.5 MB for the weight.
 * With less memory, fewer rows are tested. */
TEST_CASE(a_choice_with_little_memory_tests_fewer_rows) {
    const cgp_kernel_spec spec = linear_spec(4, 64, 4096);
    cgp__shim_get_settings()->algorithms = 1;
    cgp__shim_get_settings()->broken = 0;
    assert_true(is_library_kernel(2000000, &spec, 1));
    assert_true(is_library_kernel(1400000, &spec, 1));
    assert_false(is_library_kernel(1000000, &spec, 1)); /* own kernels run instead */
}

/* In a weight's gradient, rows are the terms of each sum. Testing needs 2.1 MB for two copies of c
 * with 64 rows, and 0.7 MB for the operand with 80 terms. With 40 rows and 40 terms it needs half
 * as much. */
TEST_CASE(a_choice_with_little_memory_tests_fewer_terms) {
    cgp_kernel_spec spec = linear_spec(4, 4096, 64);
    spec.direction = CGP_OP_BACKWARD_WEIGHT;
    cgp__shim_get_settings()->algorithms = 1;
    cgp__shim_get_settings()->broken = 0;
    assert_true(is_library_kernel(1 << 30, &spec, 1));
    assert_true(is_library_kernel(2000000, &spec, 1));
    assert_false(is_library_kernel(1000000, &spec, 1));
}

/* A layer's algorithm must not depend on the device of the layer. */
TEST_CASE(a_choice_accepts_the_rows_of_other_devices) {
    const cgp_kernel_spec specs[] = {linear_spec(1, 8, 16), linear_spec(111, 8, 16)};
    cgp__shim_settings *s = cgp__shim_get_settings();
    s->algorithms = s->broken = 1;
    s->fault = CGP__SHIM_REFUSES_ROWS;
    s->refused_rows = 222; /* the rows of 2 samples */
    assert_true(is_library_kernel(1 << 30, specs, 1));
    assert_false(is_library_kernel(1 << 30, specs, 2));
}

/* If the chosen algorithm refuses a kernel that no plan announced, the kernel gets another
 * algorithm. */
TEST_CASE(a_refused_kernel_has_another_algorithm) {
    const cgp_backend *b = cuda_host();
    const cgp_device_options options = {.struct_size = sizeof options};
    const cgp_kernel_spec first = linear_spec(1, 8, 16), second = linear_spec(111, 8, 16);
    cgp__shim_settings *s = cgp__shim_get_settings();
    s->fault = CGP__SHIM_REFUSES_ROWS;
    s->refused_rows = 333;
    s->broken = 1;
    for (s->algorithms = 1; s->algorithms <= 2; s->algorithms++) {
        cgp_device *device = NULL;
        cgp_kernel *kernels[2] = {NULL, NULL};
        assert_ok(b->device.create(&device, &options));
        assert_ok(b->kernels.create(device, &first, &kernels[0]));
        assert_ok(b->kernels.create(device, &second, &kernels[1]));
        assert_non_null(kernels[0]->gemm);
        assert_true((kernels[1]->gemm != NULL) == (s->algorithms == 2));
        for (int k = 0; k < 2; k++)
            b->kernels.destroy(kernels[k]);
        b->device.destroy(device);
    }
}

/* --- a pipeline --- */

/* A micro-batch has 4 or 3 samples of 100 rows. */
enum { BATCH = 8, REST = 7, CHUNKS = 2, REFUSED = 300 };

static const test_sizes sizes = {
    .layers = 1, .sequence = 100, .width = 8, .heads = 2, .vocab = 11, .dropout = 0.1};
static cgp_model *model;
static test_batch batches[2];

/* Train with full micro-batches, then with a smaller last micro-batch, on one device. The device
 * has `spare` bytes besides the plan's memory; -1 means ample memory. */
static cgp_status train(int64_t spare, char sha256[65]) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    const int64_t memory = s->memory;
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    o.batch = BATCH;
    o.chunks = CHUNKS;
    o.precision = CGP_PRECISION_BF16;
    o.devices = (const char *const[]){"cuda-host:0"};
    assert_ok(cgp_plan_create(&plan, model, &o));
    if (spare >= 0) s->memory = cgp_plan_device_at(plan, 0)->planned_bytes + own_bytes() + spare;
    cgp_status status = cgp_pipeline_create(&pipeline, plan, 1);
    for (int i = 0; i < 2 && status == CGP_OK; i++) {
        status = cgp_pipeline_step(pipeline, batches[i].inputs, batches[i].n, NULL);
        if (status == CGP_OK) status = cgp_optim_step(pipeline);
    }
    char message[1024];
    snprintf(message, sizeof message, "%s", cgp_message());
    if (status == CGP_OK) assert_ok(cgp_pipeline_weights_sha256(pipeline, sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    s->memory = memory;
    return status == CGP_OK ? status : cgp_fail(status, "%s", message);
}

/* Train with a cuBLASLt that offers `algorithms` algorithms. The first `broken` algorithms refuse
 * as many rows as the smaller micro-batch has. */
static void train_with(int algorithms, int broken, char sha256[65]) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    s->algorithms = algorithms;
    s->broken = broken;
    s->fault = CGP__SHIM_REFUSES_ROWS;
    s->refused_rows = REFUSED;
    assert_ok(train(-1, sha256));
}

TEST_CASE(an_algorithm_that_refuses_the_rest_is_not_taken_for_whole_micro_batches) {
    char none[65], good[65], second[65], refusing[65];
    train_with(0, 0, none);
    train_with(2, 0, good);
    train_with(2, 1, second);
    train_with(1, 1, refusing);
    assert_string_not_equal(good, none);
    assert_string_equal(second, good);
    assert_string_equal(refusing, none);
}

TEST_CASE(a_choice_needs_no_memory_beside_the_plan) {
    char ample[65], tight[65];
    train_with(2, 0, ample);
    assert_ok(train(4096, tight));
    assert_string_equal(tight, ample);
}

int main(void) {
    static const int samples[] = {BATCH, REST};
    uint64_t seed = 1;
    (void)cuda_host();
    model = test_gpt2(&sizes);
    for (int i = 0; i < 2; i++)
        test_batch_fill(&batches[i], model, &sizes, samples[i], &seed);
    const int failed = test_run();
    for (int i = 0; i < 2; i++)
        test_batch_release(&batches[i]);
    cgp_model_destroy(model);
    return failed;
}
