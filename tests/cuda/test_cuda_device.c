/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_device.c -- tests the device of the cuda backend on the runtime of cuda-host. The tests
 * cover copies between host and devices, event times on the host's clock, and failures. Each
 * runtime call fails once, and the message names the call. */
#include "custom_ops.h"
#include "in_program.h"

#include <time.h>

#include "backend/cuda/device.h"
#include "base/base.h"
#include "cuda/work.h"

static const cgp_backend *b;

static cgp_device *open_device(int ordinal) {
    cgp_device *device = NULL;
    const cgp_device_options options = {.struct_size = sizeof options, .ordinal = ordinal};
    assert_ok(b->device.create(&device, &options));
    return device;
}

static void assert_fails(cgp_status status, cgp_status expected, const char *message) {
    assert_int_equal(status, expected);
    assert_string_equal(cgp_message(), message);
}

/* Copy from the host through device 0 and a second device back to the host. The second device has
 * ordinal 0, 1 or 2, with or without peer access. */
TEST_CASE(copies_arrive) {
    static const int peers[] = {0, 1, 2};
    enum { BYTES = 4099 };
    cgp_device *first = open_device(0);
    for (int p = 0; p < 3; p++) {
        cgp_device *second = open_device(peers[p]);
        void *here, *back, *one, *two;
        cgp_event *event = NULL;
        assert_ok(b->device.host_memory_create(first, BYTES, &here));
        assert_ok(b->device.host_memory_create(second, BYTES, &back));
        assert_ok(b->device.memory_create(first, BYTES, &one));
        assert_ok(b->device.memory_create(second, BYTES, &two));
        assert_ok(b->streams->event_create(first, &event));
        for (int i = 0; i < BYTES; i++)
            ((char *)here)[i] = (char)(i * 7 + p);
        cgp__shim_set_delay(1000000);
        assert_ok(b->device.copy(first, CGP_QUEUE_IN, (cgp_place){first, one},
                                 (cgp_place){NULL, here}, BYTES));
        assert_ok(b->streams->event_record(first, CGP_QUEUE_IN, event));
        assert_ok(b->streams->event_wait(second, CGP_QUEUE_IN, event));
        assert_ok(b->device.copy(second, CGP_QUEUE_IN, (cgp_place){second, two},
                                 (cgp_place){first, one}, BYTES));
        assert_ok(b->streams->finish(second));
        cgp__shim_set_delay(0);
        assert_ok(b->device.copy(second, CGP_QUEUE_OUT, (cgp_place){NULL, back},
                                 (cgp_place){second, two}, BYTES));
        assert_ok(b->streams->finish(second));
        assert_memory_equal(here, back, BYTES);
        assert_int_equal(cgp__shim_peer_enabled(peers[p], 0), peers[p] == 2);
        b->streams->event_destroy(event);
        b->device.memory_destroy(second, two, BYTES);
        b->device.memory_destroy(first, one, BYTES);
        b->device.host_memory_destroy(second, back, BYTES);
        b->device.host_memory_destroy(first, here, BYTES);
        b->device.destroy(second);
    }
    b->device.destroy(first);
}

TEST_CASE(events_have_times_of_the_hosts_clock) {
    cgp_device *device = open_device(3);
    cgp_event *event = NULL;
    bool done = false;
    int64_t last = 0;
    assert_ok(b->streams->event_create(device, &event));
    assert_ok(b->streams->event_done(event, &done));
    assert_true(done); /* an event that was never recorded is done */
    for (int i = 0; i < 10; i++) {
        const int64_t before = cgp__now_ns();
        assert_ok(b->streams->event_record(device, CGP_QUEUE_OUT, event));
        assert_ok(b->streams->event_sync(event));
        const int64_t time = b->streams->event_time(event), after = cgp__now_ns();
        /* Event times are relative to a host time, which is read just after the first event has
         * completed. Therefore event times may be too large, by up to one second in this test. */
        assert_true(time >= before - 1000 && time <= after + 1000000000);
        assert_true(time >= last);
        last = time;
        assert_ok(b->streams->event_done(event, &done));
        assert_true(done);
    }
    b->streams->event_destroy(event);
    b->device.destroy(device);
}

TEST_CASE(failures_have_names) {
    static const char *const message =
        "cuda-host: device 5: work of its streams: unspecified launch failure";
    cgp_device *device = open_device(5), *other = open_device(4);
    cgp_event *event = NULL;
    void *x = NULL, *y = NULL;
    assert_ok(b->streams->event_create(device, &event));
    assert_ok(b->device.memory_create(device, 64, &x));
    assert_ok(b->device.memory_create(other, 64, &y));
    void *huge = NULL;
    assert_fails(b->device.memory_create(device, (size_t)1 << 50, &huge), CGP_ENOMEM,
                 "cuda-host: device 5: memory of 1125899906842624 bytes: out of memory");
    assert_ok(b->kernels.add(device, x, x, 16)); /* the failure does not persist */
    assert_ok(b->streams->finish(device));
    cgp__shim_get_settings()->error = cudaErrorLaunchFailure;
    cgp__shim_get_settings()->fail_work = 1;
    assert_ok(b->kernels.add(device, x, x, 16));
    assert_fails(b->streams->finish(device), CGP_EDEVICE, message);
    assert_fails(b->streams->event_record(device, CGP_QUEUE_COMPUTE, event), CGP_EDEVICE, message);
    assert_fails(b->streams->event_sync(event), CGP_EDEVICE, message);
    assert_fails(b->kernels.add(device, x, x, 16), CGP_EDEVICE, message);
    bool done = false;
    assert_fails(b->streams->event_done(event, &done), CGP_EDEVICE, message);
    assert_ok(b->kernels.add(other, y, y, 16));
    assert_ok(b->streams->finish(other));
    b->streams->event_destroy(event);
    b->device.memory_destroy(device, x, 64);
    b->device.memory_destroy(other, y, 64);
    b->device.destroy(device);
    b->device.destroy(other);
}

TEST_CASE(what_is_not_there_is_refused) {
    cgp_device *device = NULL;
    cgp_kernel_spec spec = {.op = CGP_OP_LINEAR, .n = 1, .type = CGP_BF16};
    cgp_device_options options = {.struct_size = sizeof options, .ordinal = 8};
    int64_t bytes = 0;
    int n = 0;
    assert_fails(b->device.create(&device, &options), CGP_EINVAL,
                 "cuda-host: expected ordinal 0 to 7, got 8");
    spec.attributes.rows = spec.attributes.in = spec.attributes.out = 1;
    assert_ok(b->kernels.workspace(&options, &spec, &bytes));
    spec.type = CGP_I32;
    assert_fails(b->kernels.workspace(&options, &spec, &bytes), CGP_EINVAL,
                 "cuda-host: linear: expects f32 or bf16, got i32");
    spec = (cgp_kernel_spec){.op = CGP_OP_CUSTOM, .n = 1};
    assert_fails(b->kernels.workspace(&options, &spec, &bytes), CGP_EINVAL,
                 "cuda-host: expects a built-in op, got a custom one");
    spec = (cgp_kernel_spec){.op = CGP_OP_RELU, .direction = CGP_OP_BACKWARD_WEIGHT, .n = 1};
    assert_fails(b->kernels.workspace(&options, &spec, &bytes), CGP_EINVAL,
                 "cuda-host: expects a direction that relu has, got backward weight");
    spec = (cgp_kernel_spec){.op = CGP_OP_CONV2D, .n = 1};
    spec.attributes.rows = 1;
    spec.attributes.windows.tile = 2;
    assert_fails(b->kernels.workspace(&options, &spec, &bytes), CGP_EINVAL,
                 "cuda-host: conv2d: expects direct convolutions, got winograd");
    cgp__shim_get_settings()->devices = 0;
    assert_fails(b->device.count(&n), CGP_EDEVICE,
                 "cuda-host: no GPU: no CUDA-capable device is detected");
    cgp__shim_get_settings()->devices = 8;
}

/* A copy of pageable memory would block the host until the stream has run the copy, so the backend
 * refuses such copies. */
TEST_CASE(memory_that_is_not_pinned_is_not_copied) {
    cgp_device *device = open_device(4);
    char here[64] = "";
    void *there = NULL;
    assert_ok(b->device.memory_create(device, sizeof here, &there));
    assert_fails(b->device.copy(device, CGP_QUEUE_IN, (cgp_place){device, there},
                                (cgp_place){NULL, here}, sizeof here),
                 CGP_EDEVICE, "cuda-host: device 4: copy of 64 bytes: invalid argument");
    b->device.memory_destroy(device, there, sizeof here);
    b->device.destroy(device);
}

static int64_t driver_bytes(int ordinal) {
    int64_t bytes = 0;
    assert_ok(b->device.driver_bytes(ordinal, &bytes));
    return bytes;
}

/* The bytes that the driver holds do not depend on allocations, but grow with the first kernel
 * launch. */
TEST_CASE(the_driver_takes_memory_beside_the_devices) {
    const int64_t context = CGP__SHIM_CONTEXT_BYTES, kernels = CGP__SHIM_KERNELS_BYTES;
    void *x = NULL, *y = NULL;
    assert_int_equal(driver_bytes(7), context);
    cgp_device *first = open_device(7), *second = open_device(7);
    assert_ok(b->device.memory_create(first, 1000, &x));
    assert_int_equal(driver_bytes(7), context);
    assert_ok(b->device.memory_create(second, 1 << 20, &y));
    assert_ok(b->kernels.add(first, x, x, 16));
    assert_ok(b->streams->finish(first));
    assert_int_equal(driver_bytes(7), context + kernels);
    b->device.memory_destroy(first, x, 1000);
    b->device.memory_destroy(second, y, 1 << 20);
    b->device.destroy(first);
    b->device.destroy(second);
    assert_int_equal(driver_bytes(7), context + kernels);
    int64_t bytes = 0;
    assert_fails(b->device.driver_bytes(8, &bytes), CGP_EINVAL,
                 "cuda-host: expected ordinal 0 to 7, got 8");
}

static cudaError_t sleep_for(const void *ns) {
    const struct timespec time = {0, (long)*(const int64_t *)ns};
    nanosleep(&time, NULL);
    return cudaSuccess;
}

/* Enqueue a delay of 50 ms on a stream. */
static void delay(cudaStream_t stream) {
    const int64_t ns = 50000000;
    cgp__shim_work *work = cgp__shim_make_work(sleep_for, false, &ns, sizeof ns);
    assert_non_null(work);
    assert_int_equal(cgp__shim_enqueue(stream, work), cudaSuccess);
}

/* The test computes two weight gradients with split-K, one on queue COMPUTE and one on the branch.
 * The branch's kernels run after the first copy only because of the fork, and run before the last
 * copy only because of the join. */
TEST_CASE(kernels_of_the_branch_run_beside_those_of_compute) {
    enum { ROWS = 1200, SIZE = 64, X = ROWS * SIZE, W = SIZE * SIZE, ALL = X + 2 * W, ROUNDS = 20 };
    cgp_kernel_spec spec = {.op = CGP_OP_LINEAR, .direction = CGP_OP_BACKWARD_WEIGHT, .n = 1};
    cgp_device *device = open_device(0);
    cgp_kernel *kernel = NULL;
    float *x, *here;
    spec.attributes.linear =
        (cgp_op_linear){.rows = ROWS, .in = SIZE, .out = SIZE, .transposed = 1};
    assert_ok(b->device.memory_create(device, ALL * sizeof *x, (void **)&x));
    assert_ok(b->device.host_memory_create(device, ALL * sizeof *x, (void **)&here));
    assert_ok(b->kernels.create(device, &spec, &kernel));
    for (int i = 0; i < X; i++)
        here[i] = (float)(i % 7 - 3);
    delay(device->streams[CGP_QUEUE_COMPUTE]);
    assert_ok(b->device.copy(device, CGP_QUEUE_COMPUTE, (cgp_place){device, x},
                             (cgp_place){NULL, here}, ALL * sizeof *x));
    assert_ok(b->streams->fork(device));
    for (int i = 0; i < 2 * ROUNDS; i++) {
        const bool branch = i % 2;
        assert_ok(b->kernels.run(
            kernel, &(cgp_kernel_args){
                        .x = {x}, .dy = x, .branch = branch, .dparam = {x + X + branch * W}}));
    }
    delay(device->branch);
    assert_ok(b->kernels.run(
        kernel, &(cgp_kernel_args){.x = {x}, .dy = x, .branch = true, .dparam = {x + X + W}}));
    assert_ok(b->streams->join(device));
    assert_ok(b->device.copy(device, CGP_QUEUE_COMPUTE, (cgp_place){NULL, here},
                             (cgp_place){device, x}, ALL * sizeof *x));
    assert_ok(b->streams->finish(device));
    for (int i = 0; i < W; i++) { /* sums of integers are exact */
        float sum = 0;
        for (int row = 0; row < ROWS; row++)
            sum += here[row * SIZE + i / SIZE] * here[row * SIZE + i % SIZE];
        assert_true(here[X + i] == ROUNDS * sum);
        assert_true(here[X + W + i] == (ROUNDS + 1) * sum);
    }
    b->kernels.destroy(kernel);
    b->device.host_memory_destroy(device, here, ALL * sizeof *x);
    b->device.memory_destroy(device, x, ALL * sizeof *x);
    b->device.destroy(device);
}

/* A custom op's functions run on the host, so a plan refuses a custom op on a cuda device. */
TEST_CASE(a_custom_op_is_refused_by_the_plan_with_the_way_out) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    assert_ok(cgp_model_create(&model, "model"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){8});
    const cgp_value target = cgp_model_input(model, "target", CGP_I32, 1, (const int64_t[]){1});
    cgp_model_layer(model, "first");
    x = cgp_linear(model, x, "first", (cgp_linear_options){.out = 8});
    cgp_model_layer(model, "mine");
    x = cgp_op_apply(model, &test_custom_scale, &x, "mine", NULL);
    cgp_model_loss_cross_entropy(model, x, target, -100, 1);
    assert_ok(cgp_model_finish(model));
    o.stages = 2;
    o.batch = o.chunks = 2;
    o.devices = (const char *const[]){"cuda-host", "cuda-host"};
    assert_fails(cgp_plan_create(&plan, model, &o), CGP_EINVAL,
                 "layer mine, op scale: device cuda-host:1 runs no custom ops (put that layer on "
                 "a cpu device)");
    o.devices = (const char *const[]){"cuda-host", "cpu"};
    assert_ok(cgp_plan_create(&plan, model, &o));
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* Create a device, use it and destroy it; return the first failure. */
static cgp_status live(void) {
    const cgp_device_options options = {.struct_size = sizeof options, .ordinal = 6};
    cgp_device *device = NULL;
    cgp_event *event = NULL;
    void *x = NULL, *here = NULL;
    cgp_status status = b->device.create(&device, &options);
    if (status != CGP_OK) return status;
    if (status == CGP_OK) status = b->streams->event_create(device, &event);
    if (status == CGP_OK) status = b->device.memory_create(device, 256, &x);
    if (status == CGP_OK) status = b->device.host_memory_create(device, 256, &here);
    if (status == CGP_OK)
        status = b->device.copy(device, CGP_QUEUE_IN, (cgp_place){device, x},
                                (cgp_place){NULL, here}, 256);
    if (status == CGP_OK) status = b->streams->event_record(device, CGP_QUEUE_IN, event);
    if (status == CGP_OK) status = b->streams->event_wait(device, CGP_QUEUE_COMPUTE, event);
    if (status == CGP_OK) status = b->kernels.add(device, x, x, 64);
    if (status == CGP_OK) status = b->streams->event_record(device, CGP_QUEUE_COMPUTE, event);
    if (status == CGP_OK) status = b->streams->event_sync(event);
    if (status == CGP_OK) status = b->streams->fork(device);
    if (status == CGP_OK) status = b->streams->join(device);
    if (status == CGP_OK) status = b->streams->finish(device);
    if (here) b->device.host_memory_destroy(device, here, 256);
    if (x) b->device.memory_destroy(device, x, 256);
    if (event) b->streams->event_destroy(event);
    b->device.destroy(device);
    return status;
}

TEST_CASE(any_call_may_fail) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    int failed = 0;
    s->error = cudaErrorUnknown;
    const int64_t alive = cgp__shim_get_objects().alive;
    for (int call = 1;; call++) {
        s->fail_call = call;
        const cgp_status status = live();
        const bool reached = s->fail_call == 0;
        s->fail_call = 0;
        assert_int_equal(cgp__shim_get_objects().alive, alive);
        if (status != CGP_OK) {
            assert_int_equal(status, CGP_EDEVICE);
            assert_non_null(strstr(cgp_message(), ": unknown error"));
            failed++;
        }
        if (!reached) break;
    }
    assert_true(failed >= 15); /* the other calls only destroy objects */
    assert_ok(live());
}

int main(void) {
    b = cuda_host();
    return test_run();
}
