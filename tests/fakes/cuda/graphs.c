/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.c -- the fake CUDA runtime: graphs. A captured stream appends its work to a graph; a
 * launch copies that work to a stream.
 *
 * A thread captures one stream at a time. A stream that waits for an event recorded in this capture
 * becomes a branch of the graph. Records and waits are edges of the graph, not nodes. A launch
 * enqueues branch 0 in the launch's stream, and each other branch in a separate stream
 * (cgp__shim_branch_of()). It also enqueues the records and waits of the branches.
 *
 * Calls that CUDA forbids during a capture fail. These are memory calls, waits of the host, waits
 * for events recorded outside the capture, copies with pageable host memory, and copies between
 * devices. As in CUDA, such a call also invalidates the capture. */
#include <stdlib.h>

#include "work.h"

typedef cgp__shim_work work;

/* An item of a branch. It is a node if `work` is set; otherwise it is a record, or a wait for a
 * record. */
typedef struct item {
    struct item *next;
    work *work;
    int branch, record;
    bool waits;
} item;

struct CUgraph_st {
    item *first, **end;
    size_t nodes;
    int records;
    bool invalid;
};

struct CUgraphExec_st {
    cudaGraph_t graph;
    /* one event per record; the last element is the event for which every branch waits first */
    cudaEvent_t *events;
};

/* The capture of this thread; there is none if `graph` is NULL. `streams[0]` is the stream that
 * began the capture. */
static __thread struct capture {
    cudaGraph_t graph;
    uint64_t number;
    cudaStream_t streams[1 + CGP__SHIM_BRANCHES];
    int n;
    /* number of records when the last work was added to the branch; -1 if stream 0 has waited for
     * that work */
    int unjoined[1 + CGP__SHIM_BRANCHES];
} capture;

static cudaGraph_t new_graph(void) {
    cudaGraph_t graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->end = &graph->first;
    cgp__shim_count_object(1);
    return graph;
}

static void free_graph(cudaGraph_t graph) {
    if (!graph) return;
    for (item *i = graph->first, *next; i; i = next) {
        next = i->next;
        free(i->work);
        free(i);
    }
    free(graph);
    cgp__shim_count_object(-1);
}

/* Append an item to a graph. The graph takes ownership of the item's work. */
static bool append(cudaGraph_t graph, item of) {
    item *i = malloc(sizeof *i);
    if (!i) {
        free(of.work);
        return false;
    }
    *i = of;
    i->next = NULL;
    *graph->end = i;
    graph->end = &i->next;
    graph->nodes += of.work != NULL;
    return true;
}

static work *copy_of(const work *w) {
    return cgp__shim_make_work(w->run, w->always, w->payload, w->bytes);
}

/* --- functions for the other files --- */

/* Return the branch of a stream in this thread's capture; -1 if the stream is not captured. */
static int branch_of(cudaStream_t stream) {
    for (int i = 0; stream && capture.graph && i < capture.n; i++) {
        if (capture.streams[i] == stream) return i;
    }
    return -1;
}

bool cgp__shim_captures(cudaStream_t stream) {
    return branch_of(stream) >= 0;
}

static cudaError_t invalidate(cudaError_t error) {
    capture.graph->invalid = true;
    return error;
}

cudaError_t cgp__shim_capture(cudaStream_t stream, work *w) {
    const int branch = branch_of(stream);
    if (capture.graph->invalid || cgp__shim_drops_node()) {
        free(w);
        return capture.graph->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    }
    if (!append(capture.graph, (item){.work = w, .branch = branch}))
        return invalidate(cudaErrorMemoryAllocation);
    if (branch > 0) capture.unjoined[branch] = capture.graph->records;
    return cudaSuccess;
}

cudaError_t cgp__shim_capture_record(cudaStream_t stream, cgp__shim_captured_record *record) {
    cudaGraph_t graph = capture.graph;
    if (graph->invalid) return cudaErrorStreamCaptureInvalidated;
    *record = (cgp__shim_captured_record){capture.number, graph->records};
    if (!append(graph, (item){.branch = branch_of(stream), .record = graph->records}))
        return invalidate(cudaErrorMemoryAllocation);
    graph->records++;
    return cudaSuccess;
}

/* Return the branch that contains record `number`. */
static int recorder_of(cudaGraph_t graph, int number) {
    const item *i = graph->first;
    while (i->work || i->waits || i->record != number)
        i = i->next;
    return i->branch;
}

cudaError_t cgp__shim_capture_wait(cudaStream_t stream, const cgp__shim_captured_record *record) {
    cudaGraph_t graph = capture.graph;
    if (!graph || record->capture != capture.number)
        return graph && branch_of(stream) >= 0 ? invalidate(cudaErrorStreamCaptureIsolation)
                                               : cudaErrorCapturedEvent;
    if (graph->invalid) return cudaErrorStreamCaptureInvalidated;
    if (branch_of(stream) < 0) {
        if (capture.n > CGP__SHIM_BRANCHES) return invalidate(cudaErrorNotSupported);
        capture.unjoined[capture.n] = graph->records;
        capture.streams[capture.n++] = stream;
    }
    const int branch = branch_of(stream), from = recorder_of(graph, record->number);
    if (branch == 0 && record->number >= capture.unjoined[from]) capture.unjoined[from] = -1;
    return append(graph, (item){.branch = branch, .record = record->number, .waits = true})
               ? cudaSuccess
               : invalidate(cudaErrorMemoryAllocation);
}

cudaError_t cgp__shim_refuse_capture(void) {
    return capture.graph ? invalidate(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

void cgp__shim_drop_capture(cudaStream_t stream) {
    if (!cgp__shim_captures(stream)) return;
    free_graph(capture.graph);
    capture.graph = NULL;
}

/* --- CUDA's functions --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    static _Atomic uint64_t captures;
    CGP__SHIM_TRY(cgp__shim_enter());
    if (!stream || mode != cudaStreamCaptureModeThreadLocal)
        return cgp__shim_leave(cudaErrorStreamCaptureUnsupported);
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    capture = (struct capture){
        .graph = new_graph(), .number = ++captures, .streams = {stream}, .n = 1, .unjoined = {-1}};
    return capture.graph ? cudaSuccess : cgp__shim_leave(cudaErrorMemoryAllocation);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    *graph = NULL;
    if (branch_of(stream) != 0) return cgp__shim_leave(cudaErrorInvalidValue);
    cudaError_t error = cgp__shim_enter();
    if (error == cudaSuccess && capture.graph->invalid) error = cudaErrorStreamCaptureInvalidated;
    for (int i = 1; i < capture.n && error == cudaSuccess; i++) {
        if (capture.unjoined[i] >= 0) error = cudaErrorStreamCaptureUnjoined;
    }
    if (error == cudaSuccess) {
        *graph = capture.graph;
        capture.graph = NULL;
    }
    cgp__shim_drop_capture(stream);
    return cgp__shim_leave(error);
}

/* `n` gets the number of nodes. Getting the nodes is not supported. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (nodes) return cgp__shim_leave(cudaErrorNotSupported);
    *n = graph->nodes;
    return cudaSuccess;
}

static void free_exec(cudaGraphExec_t exec) {
    if (!exec) return;
    for (int i = 0; exec->events && i <= exec->graph->records; i++) {
        if (exec->events[i]) (void)cudaEventDestroy(exec->events[i]);
    }
    free(exec->events);
    free_graph(exec->graph);
    free(exec);
}

static cudaError_t copy_graph(cudaGraphExec_t exec, cudaGraph_t graph) {
    exec->graph = new_graph();
    if (!exec->graph) return cudaErrorMemoryAllocation;
    exec->graph->records = graph->records;
    exec->events = calloc((size_t)graph->records + 1, sizeof(cudaEvent_t));
    if (!exec->events) return cudaErrorMemoryAllocation;
    for (int i = 0; i <= graph->records && graph->records > 0; i++) {
        const cudaError_t error = cgp__shim_new_event(&exec->events[i]);
        if (error != cudaSuccess) return error;
    }
    for (const item *i = graph->first; i; i = i->next) {
        item copy = *i;
        if (i->work && !(copy.work = copy_of(i->work))) return cudaErrorMemoryAllocation;
        if (!append(exec->graph, copy)) return cudaErrorMemoryAllocation;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != 0) return cgp__shim_leave(cudaErrorInvalidValue);
    cudaGraphExec_t e = calloc(1, sizeof *e);
    const cudaError_t error = e ? copy_graph(e, graph) : cudaErrorMemoryAllocation;
    if (error == cudaSuccess)
        *exec = e;
    else
        free_exec(e);
    return cgp__shim_leave(error);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    (void)exec;
    (void)stream;
    return cgp__shim_leave(cgp__shim_enter());
}

/* Enqueue an item of a graph. Before the first item of a branch, enqueue a wait for the work that
 * precedes the launch. */
static cudaError_t enqueue_item(cudaGraphExec_t exec, const item *i, cudaStream_t stream,
                                bool *begun) {
    cudaStream_t branch = cgp__shim_branch_of(stream, i->branch);
    if (!branch) return cudaErrorMemoryAllocation;
    if (i->branch > 0 && !begun[i->branch]) {
        begun[i->branch] = true;
        CGP__SHIM_TRY(cgp__shim_enqueue_wait(branch, exec->events[exec->graph->records]));
    }
    if (i->work) {
        work *copy = copy_of(i->work);
        return copy ? cgp__shim_enqueue(branch, copy) : cudaErrorMemoryAllocation;
    }
    return i->waits ? cgp__shim_enqueue_wait(branch, exec->events[i->record])
                    : cgp__shim_enqueue_record(branch, exec->events[i->record]);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    bool begun[1 + CGP__SHIM_BRANCHES] = {false};
    CGP__SHIM_TRY(cgp__shim_enter());
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    if (exec->graph->records > 0)
        CGP__SHIM_TRY(cgp__shim_enqueue_record(stream, exec->events[exec->graph->records]));
    for (const item *i = exec->graph->first; i; i = i->next)
        CGP__SHIM_TRY(enqueue_item(exec, i, stream, begun));
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    free_graph(graph);
    return cgp__shim_leave(cgp__shim_enter());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    free_exec(exec);
    return cgp__shim_leave(cgp__shim_enter());
}
