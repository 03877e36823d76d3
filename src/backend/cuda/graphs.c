/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.c -- captured graphs: CUDA graphs (CUDA C++ Programming Guide, "Stream Capture"), captured
 * from the COMPUTE stream and, between fork and join, from the branch. An event that is recorded
 * during a capture makes edges of the graph and no node.
 *
 * A graph must have a node for every kernel, copy and clear that was enqueued during the capture.
 * This is checked, because some drivers leave a node out and report success. A library call adds at
 * least one node. */
#include "backend/cuda/device.h"

#include <inttypes.h>
#include <stdlib.h>

/* A captured graph. */
struct cgp_captured_graph {
    cgp_device *device;
    cudaGraphExec_t executable;
};

static _Thread_local int64_t launches, libraries;

void cgp__cuda_count_launch(void) {
    launches++;
}

void cgp__cuda_count_library(void) {
    libraries++;
}

int64_t cgp__cuda_launches(const cgp_device *device) {
    (void)device; /* counts are kept per thread, and this thread owns the device */
    return launches + libraries;
}

cgp_status cgp__cuda_capture_begin(cgp_device *device) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    device->launches = launches;
    device->libraries = libraries;
    /* With this capture mode, calls that are illegal during a capture fail only in this thread. */
    return cgp__cuda_check(device,
                           cudaStreamBeginCapture(device->streams[CGP_QUEUE_COMPUTE],
                                                  cudaStreamCaptureModeThreadLocal),
                           "begin of a graph capture");
}

static cgp_status no_memory(const cgp_device *device, size_t nodes) {
    (void)cudaGetLastError();
    return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": device %d: a graph of %zu nodes: %s",
                                device->ordinal, nodes,
                                cudaGetErrorString(cudaErrorMemoryAllocation));
}

static cgp_status check_nodes(cgp_device *device, cudaGraph_t graph, size_t *nodes) {
    const int64_t of_libraries = libraries - device->libraries,
                  enqueued = launches - device->launches + of_libraries;
    CGP__TRY_STATUS(
        cgp__cuda_check(device, cudaGraphGetNodes(graph, NULL, nodes), "nodes of a graph"));
    const int64_t captured = (int64_t)*nodes;
    if (captured == enqueued || (of_libraries > 0 && captured > enqueued)) return CGP_OK;
    return cgp__cuda_host->fail(CGP_EDEVICE,
                                CGP__CUDA_NAME ": device %d: expected a graph of %" PRId64
                                               " launches, got %zu (set CGP_GRAPHS=off)",
                                device->ordinal, enqueued, *nodes);
}

static cgp_status instantiate(cgp_device *device, cudaGraph_t graph, cgp_captured_graph **out) {
    const cudaStream_t stream = device->streams[CGP_QUEUE_COMPUTE];
    size_t nodes = 0;
    CGP__TRY_STATUS(check_nodes(device, graph, &nodes));
    if (nodes == 0) return CGP_OK;
    cgp_captured_graph *captured = calloc(1, sizeof *captured);
    if (!captured) return no_memory(device, nodes);
    captured->device = device;
    cudaError_t error = cudaGraphInstantiateWithFlags(&captured->executable, graph, 0);
    if (error == cudaSuccess) error = cudaGraphUpload(captured->executable, stream);
    if (error == cudaSuccess) {
        *out = captured;
        return CGP_OK;
    }
    cgp__cuda_graph_destroy(captured);
    if (error == cudaErrorMemoryAllocation) return no_memory(device, nodes);
    return cgp__cuda_check(device, error, "a graph of %zu nodes", nodes);
}

/* End a capture. If a call has failed during the capture, the device keeps the error of that call,
 * even if the end of the capture also fails. */
cgp_status cgp__cuda_capture_end(cgp_device *device, cgp_captured_graph **out) {
    cudaGraph_t graph = NULL;
    *out = NULL;
    if (device->open) (void)cgp__cuda_join(device); /* the capture was abandoned */
    const cudaError_t error = cudaStreamEndCapture(device->streams[CGP_QUEUE_COMPUTE], &graph);
    if (error == cudaErrorMemoryAllocation) return no_memory(device, 0);
    cgp_status status = cgp__cuda_check(device, error, "end of a graph capture");
    if (status == CGP_OK) status = cgp__cuda_failure(device);
    if (status == CGP_OK) status = instantiate(device, graph, out);
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return status;
}

/* A GPU does not report which kernel runs, so tags are ignored. */
cgp_status cgp__cuda_graph_launch(cgp_captured_graph *graph, int64_t tag) {
    cgp_device *device = graph->device;
    (void)tag;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device,
                           cudaGraphLaunch(graph->executable, device->streams[CGP_QUEUE_COMPUTE]),
                           "launch of a graph");
}

void cgp__cuda_graph_destroy(cgp_captured_graph *graph) {
    if (graph->executable) (void)cudaGraphExecDestroy(graph->executable);
    (void)cudaGetLastError();
    free(graph);
}
