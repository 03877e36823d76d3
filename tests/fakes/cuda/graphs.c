/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.c -- the fake CUDA runtime: graphs. A captured stream appends its work to a graph; a
 * launch copies that work to a stream.
 *
 * A thread captures one stream at a time. Calls that CUDA forbids during a capture fail: memory
 * calls, waits of the host, events, and copies with pageable host memory or between devices. As
 * with CUDA, the capture is then invalid. */
#include <stdlib.h>

#include "work.h"

typedef cgp__shim_work work;

struct CUgraph_st {
    work *first, **end;
    size_t nodes;
    bool invalid;
};

struct CUgraphExec_st {
    cudaGraph_t graph;
};

/* The stream that this thread captures; NULL: none. */
static __thread cudaStream_t captured;
static __thread cudaGraph_t capture;

static cudaGraph_t new_graph(void) {
    cudaGraph_t graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->end = &graph->first;
    cgp__shim_count_object(1);
    return graph;
}

static void free_graph(cudaGraph_t graph) {
    if (!graph) return;
    for (work *w = graph->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(graph);
    cgp__shim_count_object(-1);
}

static void append(cudaGraph_t graph, work *w) {
    *graph->end = w;
    graph->end = &w->next;
    graph->nodes++;
}

static work *copy_of(const work *w) {
    return cgp__shim_make_work(w->run, w->always, w->payload, w->bytes);
}

/* --- for the other files --- */

bool cgp__shim_captures(cudaStream_t stream) {
    return stream && stream == captured;
}

cudaError_t cgp__shim_capture(work *w) {
    const bool dropped = cgp__shim_drops_node();
    if (!capture->invalid && !dropped)
        append(capture, w);
    else
        free(w);
    return capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t cgp__shim_refuse_capture(void) {
    if (!captured) return cudaSuccess;
    capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

void cgp__shim_drop_capture(cudaStream_t stream) {
    if (!cgp__shim_captures(stream)) return;
    free_graph(capture);
    captured = NULL;
    capture = NULL;
}

/* --- CUDA's functions --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (!stream || mode != cudaStreamCaptureModeThreadLocal)
        return cgp__shim_leave(cudaErrorStreamCaptureUnsupported);
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    capture = new_graph();
    if (!capture) return cgp__shim_leave(cudaErrorMemoryAllocation);
    captured = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    *graph = NULL;
    if (!cgp__shim_captures(stream)) return cgp__shim_leave(cudaErrorInvalidValue);
    const bool invalid = capture->invalid;
    cudaError_t error = cgp__shim_enter();
    if (error == cudaSuccess && invalid) error = cudaErrorStreamCaptureInvalidated;
    if (error == cudaSuccess) {
        *graph = capture;
        capture = NULL;
    }
    cgp__shim_drop_capture(stream);
    return cgp__shim_leave(error);
}

/* Return the number of nodes; the nodes themselves are not supported. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (nodes) return cgp__shim_leave(cudaErrorNotSupported);
    *n = graph->nodes;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != 0) return cgp__shim_leave(cudaErrorInvalidValue);
    cudaGraphExec_t e = calloc(1, sizeof *e);
    if (e) e->graph = new_graph();
    bool copied = e && e->graph;
    for (const work *w = graph->first; w && copied; w = w->next) {
        work *copy = copy_of(w);
        copied = copy != NULL;
        if (copy) append(e->graph, copy);
    }
    if (!copied) {
        if (e) free_graph(e->graph);
        free(e);
        return cgp__shim_leave(cudaErrorMemoryAllocation);
    }
    *exec = e;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    (void)exec;
    (void)stream;
    return cgp__shim_leave(cgp__shim_enter());
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    CGP__SHIM_TRY(cgp__shim_enter());
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    for (const work *w = exec->graph->first; w; w = w->next) {
        work *copy = copy_of(w);
        CGP__SHIM_TRY(copy ? cgp__shim_enqueue(stream, copy) : cudaErrorMemoryAllocation);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    free_graph(graph);
    return cgp__shim_leave(cgp__shim_enter());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    free_graph(exec->graph);
    free(exec);
    return cgp__shim_leave(cgp__shim_enter());
}
