/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_runtime.c -- cuda-host's runtime behaves as CUDA documents. A stream runs
 * asynchronously and in order. Events order the work of different streams. A failed device stays
 * failed. */
#include "cuda/runtime.h"
#include "blocks.h"
#include "support.h"

enum { N = 1000 };

#define OK(call) assert_int_equal(call, cudaSuccess)

static cudaStream_t new_stream(void) {
    cudaStream_t stream = NULL;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t new_event(void) {
    cudaEvent_t event = NULL;
    OK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    return event;
}

static void *memory_of(size_t bytes) {
    void *memory = NULL;
    OK(cudaMalloc(&memory, bytes));
    return memory;
}

/* On three streams with random delays, the test copies data in, runs 20 kernels, and copies the
 * result out. Only events keep these steps in order. */
TEST_CASE(events_order_streams) {
    float *here = NULL, *x = memory_of(N * sizeof *x);
    cudaStream_t in = new_stream(), compute = new_stream(), out = new_stream();
    cudaEvent_t ready = new_event(), done = new_event();
    OK(cudaHostAlloc((void **)&here, N * sizeof *here, cudaHostAllocPortable));
    cgp__shim_set_delay(200000);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++)
            here[i] = (float)(i + round);
        OK(cudaMemcpyAsync(x, here, N * sizeof *x, cudaMemcpyHostToDevice, in));
        OK(cudaEventRecord(ready, in));
        OK(cudaStreamWaitEvent(compute, ready, 0));
        for (int k = 0; k < 5; k++)
            OK(blocks_step(x, N, 1, compute));
        OK(cudaEventRecord(done, compute));
        OK(cudaStreamWaitEvent(out, done, 0));
        OK(cudaMemcpyAsync(here, x, N * sizeof *x, cudaMemcpyDeviceToHost, out));
        OK(cudaStreamSynchronize(out));
        for (int i = 0; i < N; i++)
            assert_true(here[i] == (float)(32 * (i + round) + 31));
    }
    cgp__shim_set_delay(0);
    float ms = -1.0f;
    OK(cudaEventElapsedTime(&ms, ready, done));
    assert_true(ms >= 0.0f && ms < 60000.0f);
    OK(cudaEventDestroy(ready));
    OK(cudaEventDestroy(done));
    OK(cudaStreamDestroy(in));
    OK(cudaStreamDestroy(compute));
    OK(cudaStreamDestroy(out));
    OK(cudaFreeHost(here));
    OK(cudaFree(x));
}

TEST_CASE(an_event_is_not_ready_before_its_work) {
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t gate = new_event(), after = new_event();
    float *x = memory_of(N * sizeof *x);
    int early = 0;
    OK(cudaEventQuery(gate)); /* done: never recorded */
    cgp__shim_set_delay(50000000);
    for (int round = 0; round < 20; round++) { /* repeat, because delays are random */
        OK(blocks_step(x, N, 1, first));
        OK(cudaEventRecord(gate, first));
        OK(cudaStreamWaitEvent(second, gate, 0));
        OK(cudaEventRecord(after, second));
        const cudaError_t error = cudaEventQuery(after);
        if (error == cudaSuccess) OK(cudaEventQuery(gate));
        early += error == cudaErrorNotReady;
        OK(cudaEventSynchronize(after));
        OK(cudaEventQuery(gate));
    }
    (void)cudaGetLastError(); /* clears cudaErrorNotReady */
    assert_true(early > 0);
    cgp__shim_set_delay(0);
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    OK(cudaEventDestroy(gate));
    OK(cudaEventDestroy(after));
    OK(cudaFree(x));
}

TEST_CASE(wrong_calls_are_refused_and_do_not_stick) {
    cudaStream_t stream = new_stream();
    char here[64], *there = memory_of(64);
    assert_int_equal(blocks_empty((dim3){1, 1, 1}, (dim3){1025, 1, 1}, stream),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(blocks_empty((dim3){1, 65536, 1}, (dim3){1, 1, 1}, stream),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(here, there, 65, cudaMemcpyDeviceToHost, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(here, here, 1, cudaMemcpyHostToDevice, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(here, 0, 64, stream), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(64), cudaErrorInvalidDevice);
    assert_int_equal(cudaFree(here), cudaErrorInvalidValue);
    void *huge = NULL;
    assert_int_equal(cudaMalloc(&huge, (size_t)1 << 50), cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
    OK(blocks_empty((dim3){1, 1, 1}, (dim3){1024, 1, 1}, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(there));
}

/* --- graphs --- */

static cudaGraph_t captured(float *x, int kernels, cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < kernels; k++)
        OK(blocks_step(x, N, 1, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

/* Nothing runs during a capture. Each launch of the graph runs all nodes, in order with the
 * stream's other work. */
TEST_CASE(a_graph_runs_when_it_is_launched) {
    cudaStream_t stream = new_stream();
    float *here = NULL, *x = memory_of(N * sizeof *x);
    cudaGraphExec_t exec = NULL;
    size_t nodes = 0;
    OK(cudaHostAlloc((void **)&here, 2 * sizeof *here, cudaHostAllocPortable));
    cgp__shim_set_delay(100000);
    OK(cudaMemsetAsync(x, 0, N * sizeof *x, stream));
    cudaGraph_t graph = captured(x, 3, stream);
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphUpload(exec, stream));
    OK(cudaMemcpyAsync(&here[0], x, sizeof *x, cudaMemcpyDeviceToHost, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(blocks_step(x, N, 1, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaMemcpyAsync(&here[1], x, sizeof *x, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    assert_true(here[0] == 0.0f);
    assert_true(here[1] == 127.0f); /* 7 kernels: 2^7 - 1 */
    cgp__shim_set_delay(0);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
    OK(cudaFreeHost(here));
    OK(cudaFree(x));
}

/* Each of these calls fails during a capture, invalidates it, and is allowed afterwards. */
TEST_CASE(a_capture_refuses_what_cuda_refuses) {
    cudaStream_t stream = new_stream();
    cudaEvent_t event = new_event();
    float *x = memory_of(N * sizeof *x);
    for (int call = 0; call < 8; call++) {
        void *memory = NULL;
        cudaGraph_t graph = NULL;
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        OK(blocks_step(x, N, 1, stream));
        const cudaError_t error = call == 0   ? cudaMalloc(&memory, 64)
                                  : call == 1 ? cudaFree(x)
                                  : call == 2 ? cudaHostAlloc(&memory, 64, cudaHostAllocPortable)
                                  : call == 3 ? cudaStreamSynchronize(stream)
                                  : call == 4 ? cudaEventQuery(event)
                                  : call == 5 ? cudaEventSynchronize(event)
                                  : call == 6 ? cudaMemcpyPeerAsync(x, 0, x, 0, 4, stream)
                                              : blocks_step(x, N, 1, NULL);
        assert_int_equal(error, cudaErrorStreamCaptureUnsupported);
        assert_int_equal(blocks_step(x, N, 1, stream), cudaErrorStreamCaptureInvalidated);
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
        OK(cudaStreamSynchronize(stream));
        OK(cudaEventQuery(event));
    }
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(blocks_step(x, N, 1, stream));
    OK(cudaStreamDestroy(stream)); /* drops the capture in progress */
    OK(cudaEventDestroy(event));
    OK(cudaFree(x));
    (void)cudaGetLastError();
}

/* Capture a graph of x = 2 x + 1, y = x and x = 2 x + 1, where the copy y = x is on a branch
 * between the two kernels. */
static cudaGraph_t captured_branch(float *x, float *y, cudaStream_t stream, cudaStream_t branch) {
    cudaGraph_t graph = NULL;
    cudaEvent_t fork = new_event(), join = new_event();
    size_t nodes = 0;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(blocks_step(x, N, 1, stream));
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(branch, fork, 0));
    OK(cudaMemcpyAsync(y, x, N * sizeof *x, cudaMemcpyDeviceToDevice, branch));
    OK(cudaEventRecord(join, branch));
    OK(cudaStreamWaitEvent(stream, join, 0));
    OK(blocks_step(x, N, 1, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    assert_int_equal(cudaEventQuery(join), cudaErrorCapturedEvent);
    assert_int_equal(cudaStreamWaitEvent(stream, join, 0), cudaErrorCapturedEvent);
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
    (void)cudaGetLastError();
    return graph;
}

/* A stream that waits for an event recorded during a capture becomes a branch of the graph. Each
 * launch keeps the order of records and waits. */
TEST_CASE(a_graph_runs_its_branches) {
    cudaStream_t stream = new_stream(), branch = new_stream();
    cudaGraphExec_t exec = NULL;
    float *x = memory_of(N * sizeof *x), *y = memory_of(N * sizeof *y);
    float *here = NULL;
    cudaGraph_t graph = captured_branch(x, y, stream, branch);
    OK(cudaHostAlloc((void **)&here, N * sizeof *here, cudaHostAllocPortable));
    OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cudaMemsetAsync(x, 0, N * sizeof *x, stream));
    cgp__shim_set_delay(5000000);
    for (int round = 0, expected = 0; round < 10; round++) {
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaMemcpyAsync(here, y, N * sizeof *y, cudaMemcpyDeviceToHost, stream));
        OK(cudaStreamSynchronize(stream));
        for (int i = 0; i < N; i++)
            assert_true(here[i] == (float)(2 * expected + 1));
        expected = 4 * expected + 3;
    }
    cgp__shim_set_delay(0);
    OK(cudaStreamSynchronize(branch));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(branch));
    OK(cudaFreeHost(here));
    OK(cudaFree(x));
    OK(cudaFree(y));
}

/* A capture fails if a branch is not joined, or if it waits for an event recorded outside the
 * capture. */
TEST_CASE(a_capture_refuses_loose_branches) {
    cudaStream_t stream = new_stream(), branch = new_stream();
    cudaEvent_t event = new_event();
    float *x = memory_of(N * sizeof *x);
    cudaGraph_t graph = NULL;
    for (int joins = 0; joins < 2; joins++) {
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        OK(cudaEventRecord(event, stream));
        OK(cudaStreamWaitEvent(branch, event, 0));
        OK(cudaEventRecord(event, branch));
        OK(blocks_step(x, N, 1, branch)); /* work after the branch's record */
        if (joins) OK(cudaStreamWaitEvent(stream, event, 0));
        assert_int_equal(cudaStreamEndCapture(branch, &graph), cudaErrorInvalidValue);
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    }
    OK(cudaEventRecord(event, branch));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(branch));
    OK(cudaEventDestroy(event));
    OK(cudaFree(x));
    (void)cudaGetLastError();
}

/* The runtime keeps a destroyed event until streams that wait for it have run the wait. */
TEST_CASE(an_event_that_a_stream_waits_for_may_be_destroyed) {
    cudaStream_t first = new_stream(), second = new_stream();
    float *x = memory_of(N * sizeof *x);
    cgp__shim_set_delay(2000000);
    for (int round = 0; round < 20; round++) {
        cudaEvent_t event = new_event();
        OK(cudaEventRecord(event, first));
        OK(cudaStreamWaitEvent(second, event, 0));
        OK(cudaEventDestroy(event));
        OK(blocks_step(x, N, 1, second));
    }
    cgp__shim_set_delay(0);
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    OK(cudaFree(x));
}

/* --- failures --- */

/* Device 7 fails; the other devices still work. */
TEST_CASE(a_failure_sticks_to_its_device) {
    OK(cudaSetDevice(7));
    cudaStream_t stream = new_stream();
    cudaEvent_t event = new_event();
    float *x = memory_of(N * sizeof *x);
    cgp__shim_get_settings()->error = cudaErrorIllegalAddress;
    cgp__shim_get_settings()->fail_work = 2;
    OK(blocks_step(x, N, 1, stream));
    OK(cudaStreamSynchronize(stream));
    OK(blocks_step(x, N, 1, stream));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    assert_int_equal(blocks_step(x, N, 1, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaEventRecord(event, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaEventSynchronize(event), cudaErrorIllegalAddress);
    assert_string_equal(cudaGetErrorString(cudaErrorIllegalAddress),
                        "an illegal memory access was encountered");
    (void)cudaStreamDestroy(stream);
    (void)cudaEventDestroy(event);
    (void)cudaFree(x);
    OK(cudaSetDevice(0));
    (void)cudaGetLastError();
    OK(cudaDeviceSynchronize());
}
