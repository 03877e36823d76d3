/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_graphs.c -- tests captured graphs of cuda, on cuda-host's runtime. Training with graphs
 * is bit-identical to training without graphs. A launch that is missing from a graph is detected,
 * and so is every failed call. */
#include "graphs.h"
#include "in_program.h"

#include "base/base.h"

enum { N = 64, STEPS = 4 };

static const cgp_backend *b;

/* --- the device alone --- */

enum { BYTES = N * sizeof(float) };

static void put(cgp_device *device, void *to, void *from) {
    assert_ok(b->device.copy(device, CGP_QUEUE_COMPUTE, (cgp_place){device, to},
                             (cgp_place){NULL, from}, BYTES));
    assert_ok(b->streams->finish(device));
}

TEST_CASE(a_captured_graph_runs_at_each_launch) {
    const cgp_device_options options = {.struct_size = sizeof options};
    cgp_device *device = NULL;
    cgp_captured_graph *graph = NULL;
    void *x = NULL, *here = NULL;
    assert_ok(b->device.create(&device, &options));
    assert_ok(b->device.memory_create(device, BYTES, &x));
    assert_ok(b->device.host_memory_create(device, BYTES, &here));
    for (int i = 0; i < N; i++)
        ((float *)here)[i] = (float)i;
    put(device, x, here);
    assert_ok(b->graphs->capture_begin(device));
    assert_ok(b->graphs->capture_end(device, &graph));
    assert_null(graph); /* nothing was captured */
    assert_ok(b->graphs->capture_begin(device));
    assert_ok(b->kernels.add(device, x, x, N));
    assert_ok(b->kernels.add(device, x, x, N));
    assert_ok(b->graphs->capture_end(device, &graph));
    put(device, x, here); /* a capture does not run the copy */
    for (int i = 0; i < 3; i++)
        assert_ok(b->graphs->launch(graph, i));
    assert_ok(b->device.copy(device, CGP_QUEUE_COMPUTE, (cgp_place){NULL, here},
                             (cgp_place){device, x}, BYTES));
    assert_ok(b->streams->finish(device));
    for (int i = 0; i < N; i++)
        assert_true(((float *)here)[i] == 64.0f * (float)i);
    b->graphs->destroy(graph);
    b->device.host_memory_destroy(device, here, BYTES);
    b->device.memory_destroy(device, x, BYTES);
    b->device.destroy(device);
}

/* Create a device, capture and launch a graph on it, and destroy it; return the first failure. If
 * `wrong` is true, make a call that is illegal during a capture. */
static cgp_status live(bool wrong) {
    const cgp_device_options options = {.struct_size = sizeof options, .ordinal = 6};
    cgp_device *device = NULL;
    cgp_captured_graph *graph = NULL;
    void *x = NULL, *y = NULL;
    cgp_status status = b->device.create(&device, &options);
    if (status != CGP_OK) return status;
    status = b->device.memory_create(device, 256, &x);
    if (status == CGP_OK) status = b->graphs->capture_begin(device);
    if (status == CGP_OK) {
        status = b->kernels.add(device, x, x, N);
        if (wrong) status = b->device.memory_create(device, 256, &y);
        const cgp_status end = b->graphs->capture_end(device, &graph);
        if (status == CGP_OK) status = end;
    }
    if (status == CGP_OK) status = b->graphs->launch(graph, 0);
    if (status == CGP_OK) status = b->graphs->launch(graph, 0);
    if (status == CGP_OK) status = b->streams->finish(device);
    char message[256];
    snprintf(message, sizeof message, "%s", cgp_message());
    if (graph) b->graphs->destroy(graph);
    if (x) b->device.memory_destroy(device, x, 256);
    b->device.destroy(device);
    return status == CGP_OK ? status : cgp_fail(status, "%s", message);
}

TEST_CASE(any_call_may_fail) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    int failed = 0;
    const int64_t alive = cgp__shim_get_objects().alive;
    for (int memory = 0; memory < 2; memory++) {
        s->error = memory ? cudaErrorMemoryAllocation : cudaErrorUnknown;
        for (int call = 1;; call++) {
            s->fail_call = call;
            const cgp_status status = live(false);
            const bool reached = s->fail_call == 0;
            s->fail_call = 0;
            assert_int_equal(cgp__shim_get_objects().alive, alive);
            if (status != CGP_OK) {
                assert_true(status == CGP_EDEVICE || (memory && status == CGP_ENOMEM));
                assert_message(memory ? ": out of memory" : ": unknown error");
                failed++;
            }
            if (!reached) break;
        }
    }
    assert_true(failed >= 30);
    assert_ok(live(false));
}

TEST_CASE(a_call_that_no_capture_allows_is_named) {
    assert_status(live(true), CGP_EDEVICE);
    assert_message("cuda-host: device 6: memory of 256 bytes: operation not permitted when "
                   "stream is capturing");
    assert_ok(live(false));
}

/* After a failure, the pipeline abandons a capture between fork and join. */
TEST_CASE(a_capture_that_is_given_up_leaves_the_device_usable) {
    const cgp_device_options options = {.struct_size = sizeof options};
    cgp_device *device = NULL;
    cgp_captured_graph *graph = NULL;
    void *x = NULL;
    assert_ok(b->device.create(&device, &options));
    assert_ok(b->device.memory_create(device, BYTES, &x));
    assert_ok(b->graphs->capture_begin(device));
    assert_ok(b->kernels.add(device, x, x, N));
    assert_ok(b->streams->fork(device));
    assert_ok(b->graphs->capture_end(device, &graph));
    b->graphs->destroy(graph);
    assert_ok(b->streams->fork(device));
    assert_ok(b->streams->finish(device)); /* after an abandoned action */
    assert_ok(b->graphs->capture_begin(device));
    assert_ok(b->kernels.add(device, x, x, N));
    assert_ok(b->graphs->capture_end(device, &graph));
    b->graphs->destroy(graph);
    b->device.memory_destroy(device, x, BYTES);
    b->device.destroy(device);
}

/* --- training with graphs --- */

static const test_sizes sizes = {
    .layers = 2, .sequence = 4, .width = 8, .heads = 2, .vocab = 11, .dropout = 0.1};
static cgp_model *model;
static test_batch batch;

/* Train four steps. After the first step, set `*at` to n; `at` points to a setting of the fake
 * runtime, or is NULL. Check that the last step creates no objects, and that no objects remain at
 * the end. */
static cgp_status train(int *at, int n, char sha256[65]) {
    const int64_t alive = cgp__shim_get_objects().alive;
    int64_t made = 0;
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    o.stages = 2;
    o.batch = 5;
    o.chunks = 3; /* the last micro-batch is smaller */
    o.devices = (const char *const[]){"cuda-host:1", "cuda-host:3"};
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    cgp_status status = CGP_OK;
    for (int s = 0; s < STEPS && status == CGP_OK; s++) {
        if (s == 1 && at) *at = n;
        if (s == STEPS - 1) made = cgp__shim_get_objects().made;
        status = cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL);
        if (status == CGP_OK) status = cgp_optim_step(pipeline);
    }
    if (at) *at = 0;
    if (status == CGP_OK) assert_int_equal(cgp__shim_get_objects().made, made);
    char message[1024];
    snprintf(message, sizeof message, "%s", cgp_message());
    if (status == CGP_OK) assert_ok(cgp_pipeline_weights_sha256(pipeline, sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    assert_int_equal(cgp__shim_get_objects().alive, alive);
    return status == CGP_OK ? status : cgp_fail(status, "%s", message);
}

TEST_CASE(captured_or_not_the_bits_are_the_same) {
    char expected[65], got[65];
    setenv("CGP_GRAPHS", "off", 1);
    assert_ok(train(NULL, 0, expected));
    unsetenv("CGP_GRAPHS");
    cgp__shim_set_delay(20000);
    assert_ok(train(NULL, 0, got));
    cgp__shim_set_delay(0);
    assert_string_equal(got, expected);
}

TEST_CASE(a_missing_node_is_noticed) {
    char sha256[65];
    for (int node = 1; node < 60; node += 27) {
        assert_status(train(&cgp__shim_get_settings()->drop_node, node, sha256), CGP_EDEVICE);
        assert_message("expected a graph of ");
        assert_message("(set CGP_GRAPHS=off)");
        assert_message("stage ");
    }
}

/* With CGP_TEST_FAULTS=all, every runtime call fails once; otherwise only some calls fail. */
TEST_CASE(a_failing_call_ends_the_step) {
    enum { CALLS = 500 };
    cgp__shim_settings *s = cgp__shim_get_settings();
    uint64_t seed = test_seed();
    char expected[65], sha256[65];
    const char *faults = getenv("CGP_TEST_FAULTS");
    const bool all = faults && strcmp(faults, "all") == 0;
    assert_ok(train(NULL, 0, expected));
    s->error = cudaErrorUnknown;
    for (int i = 0; i < (all ? CALLS : test_scaled(8)); i++) {
        const int call = all ? i + 1 : test_between(&seed, 1, CALLS);
        const cgp_status status = train(&s->fail_call, call, sha256);
        if (status == CGP_OK) { /* a call whose failure has no effect */
            assert_string_equal(sha256, expected);
            continue;
        }
        assert_int_equal(status, CGP_EDEVICE);
        assert_message(": unknown error");
    }
}

int main(void) {
    uint64_t seed = 1;
    b = cuda_host();
    model = test_gpt2(&sizes);
    test_batch_fill(&batch, model, &sizes, 5, &seed);
    const int failed = test_run();
    test_batch_release(&batch);
    cgp_model_destroy(model);
    return failed;
}
