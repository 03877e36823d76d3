/* SPDX-License-Identifier: Apache-2.0 */
/* late.c -- the backend `late`, which has device memory that the caller must not touch, three
 * queues, and events.
 *
 *     caller        enqueues ──► COMPUTE   a thread with a cpu device
 *                            ──► IN, OUT   threads that copy
 *
 * Operands of a kernel, and the device end of a copy, must be in the device's memory. Devices with
 * the same ordinal and index have the same hardware, and may use each other's memory. The host end
 * of a copy must be in memory from host_memory_create(). */
#include "late.h"

#include <stdlib.h>
#include <string.h>

#include "backend/device_names.h"
#include "backend/registry.h"
#include "device.h"
#include "graph.h"

#define MAX_HOST_MEMORIES 256

_Atomic long cgp__late_delay_ns[CGP_QUEUES];

/* List of host memory from host_memory_create(), for all devices. */
static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;
static cgp__late_region host_memories[MAX_HOST_MEMORIES];

/* List of the memory of all devices, with their hardware. */
static pthread_mutex_t lent_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cgp__late_region region;
    int ordinal, index;
} lent[MAX_HOST_MEMORIES];

struct cgp_kernel {
    cgp_device *device;
    cgp_kernel *cpu;
    cgp_kernel_spec spec;
};

/* --- memory --- */

static bool lies_in(const cgp__late_region *list, int n, const void *at, size_t bytes) {
    const char *begin = at;
    for (int i = 0; i < n; i++) {
        if (list[i].begin && begin >= list[i].begin &&
            begin + bytes <= list[i].begin + list[i].bytes)
            return true;
    }
    return false;
}

static bool is_lent(const cgp_device *device, const void *at, size_t bytes) {
    bool found = false;
    pthread_mutex_lock(&lent_lock);
    for (int i = 0; i < MAX_HOST_MEMORIES && !found; i++)
        found = lent[i].ordinal == device->options.ordinal &&
                lent[i].index == device->options.index && lies_in(&lent[i].region, 1, at, bytes);
    pthread_mutex_unlock(&lent_lock);
    return found;
}

static bool owns(const cgp_device *device, const void *at, size_t bytes) {
    return lies_in(device->memories, MAX_MEMORIES, at, bytes) || is_lent(device, at, bytes);
}

/* Let other devices with the same hardware use a region, or end this if `bytes` is 0. */
static void lend(const cgp_device *device, char *begin, size_t bytes) {
    pthread_mutex_lock(&lent_lock);
    for (int i = 0; i < MAX_HOST_MEMORIES; i++) {
        if (lent[i].region.begin != (bytes > 0 ? NULL : begin)) continue;
        lent[i].region = (cgp__late_region){bytes > 0 ? begin : NULL, bytes};
        lent[i].ordinal = device->options.ordinal;
        lent[i].index = device->options.index;
        break;
    }
    pthread_mutex_unlock(&lent_lock);
}

static bool is_of_host(const void *at, size_t bytes) {
    pthread_mutex_lock(&host_lock);
    const bool found = lies_in(host_memories, MAX_HOST_MEMORIES, at, bytes);
    pthread_mutex_unlock(&host_lock);
    return found;
}

/* Allocate memory, and add it to a list of `n` entries. */
static cgp_status allocate(cgp__late_region *list, int n, size_t bytes, void **out) {
    const size_t capacity = (size_t)cgp__align_up((int64_t)bytes + 1);
    int i = 0;
    while (i < n && list[i].begin)
        i++;
    void *memory = i < n ? aligned_alloc(CGP__ALIGN, capacity) : NULL;
    if (!memory) return cgp__no_memory("late: memory", bytes);
    list[i].begin = *out = memset(memory, 0, capacity);
    list[i].bytes = bytes;
    return CGP_OK;
}

static void release(cgp__late_region *list, int n, void *begin, size_t bytes) {
    for (int i = 0; i < n; i++) {
        if (list[i].begin == begin) list[i].begin = NULL;
    }
    memset(begin, 0xff, bytes);
    free(begin);
}

static cgp_status host_memory_create(cgp_device *device, size_t bytes, void **out) {
    (void)device;
    pthread_mutex_lock(&host_lock);
    const cgp_status status = allocate(host_memories, MAX_HOST_MEMORIES, bytes, out);
    pthread_mutex_unlock(&host_lock);
    return status;
}

static void host_memory_destroy(cgp_device *device, void *memory, size_t bytes) {
    (void)cgp__late_streams.finish(device);
    pthread_mutex_lock(&host_lock);
    release(host_memories, MAX_HOST_MEMORIES, memory, bytes);
    pthread_mutex_unlock(&host_lock);
}

static cgp_status memory_create(cgp_device *device, size_t bytes, void **out) {
    CGP_TRY(allocate(device->memories, MAX_MEMORIES, bytes, out));
    if (bytes > 0) lend(device, *out, bytes);
    return CGP_OK;
}

static void memory_destroy(cgp_device *device, void *memory, size_t bytes) {
    (void)cgp__late_streams.finish(device);
    lend(device, memory, 0);
    release(device->memories, MAX_MEMORIES, memory, bytes);
}

typedef struct copying {
    void *to;
    const void *from;
    size_t bytes;
} copying;

static cgp_status run_copy(void *device, const void *payload) {
    const copying *c = payload;
    (void)device;
    if (c->bytes > 0) memcpy(c->to, c->from, c->bytes);
    return CGP_OK;
}

cgp_status cgp__late_check_place(const char *what, cgp_place place, size_t bytes) {
    if (place.device ? owns(place.device, place.at, bytes) : is_of_host(place.at, bytes))
        return CGP_OK;
    return cgp_fail(CGP_EINVAL, "late: %s: expected %s, got other memory", what,
                    place.device ? "memory of the device"
                                 : "the host's memory of host_memory_create()");
}

static cgp_status copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                       size_t bytes) {
    const copying c = {to.at, from.at, bytes};
    CGP_TRY(cgp__late_check_not_capturing(device, "copy"));
    CGP_TRY(cgp__late_check_place("copy to", to, bytes));
    CGP_TRY(cgp__late_check_place("copy from", from, bytes));
    if (to.device != device && from.device != device)
        return cgp_fail(CGP_EINVAL, "late: copy: expected a place on the device, got none");
    return cgp__late_queue_add(&device->queues[queue], run_copy, &c, sizeof c, false);
}

/* --- queue COMPUTE: its thread calls the cpu device's functions --- */

static cgp_status compute(cgp_device *device, cgp__late_run *run, const void *payload,
                          size_t bytes) {
    CGP_TRY(cgp__late_check_not_capturing(device, "work of COMPUTE"));
    return cgp__late_queue_add(&device->queues[CGP_QUEUE_COMPUTE], run, payload, bytes, false);
}

/* Do the same as compute() for work that may be captured. During a capture, add the work to the
 * graph instead. */
static cgp_status compute_or_capture(cgp_device *device, cgp__late_run *run, const void *payload,
                                     size_t bytes) {
    device->launches++;
    return device->capture ? cgp__late_graph_add(device->capture, run, payload, bytes)
                           : compute(device, run, payload, bytes);
}

/* Check the contract: all operands of a kernel are in the device's memory. */
static cgp_status check_operands(const cgp_device *device, const void *const *operands, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (operands[i] && !owns(device, operands[i], 1))
            return cgp_fail(CGP_EINVAL,
                            "late: expected operands in memory of the device, got other memory");
    }
    return CGP_OK;
}

typedef struct conversion {
    cgp_dtype to_type, from_type;
    void *to;
    const void *from;
    int64_t n;
} conversion;

static cgp_status run_convert(void *device, const void *payload) {
    const conversion *c = payload;
    return cgp__backend_cpu.kernels.convert(((cgp_device *)device)->cpu, c->to_type, c->to,
                                            c->from_type, c->from, c->n);
}

static cgp_status convert(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                          const void *from, int64_t n) {
    const conversion c = {to_type, from_type, to, from, n};
    CGP_TRY(check_operands(device, (const void *[]){to, from}, 2));
    return compute_or_capture(device, run_convert, &c, sizeof c);
}

/* The payload of an entry that runs a kernel, a commit, or the check before a commit. */
typedef struct call {
    cgp_kernel *kernel; /* NULL: `spec` is used */
    cgp_kernel_spec spec;
    cgp_kernel_args args;
    int64_t *index; /* where a check stores its result; NULL for a commit */
    int merged;     /* number of entries that are merged; 0 for a commit */
} call;

/* Return whether all indices that a kernel reads are inside its table. If a test leaves out a wait,
 * indices may be arbitrary numbers, and the kernel would access other memory. */
static bool has_indices(const call *c) {
    const cgp_kernel_spec *s = &c->kernel->spec;
    const bool embeds = s->op == CGP_OP_EMBEDDING;
    if (!embeds && s->op != CGP_OP_CROSS_ENTROPY) return true;
    const int32_t *indices = c->args.x[embeds ? 0 : 1];
    for (int64_t row = 0; indices && row < s->n * s->attributes.rows; row++) {
        if (!embeds && indices[row] == cgp_spec_cross_entropy(s)->ignore) continue;
        if (indices[row] < 0 || indices[row] >= s->attributes.in) return false;
    }
    return true;
}

static cgp_status run_kernel(void *device, const void *payload) {
    const call *c = payload;
    cgp_device *d = device;
    if (!has_indices(c)) return CGP_OK;
    atomic_store_explicit(&d->tag, c->args.tag, memory_order_relaxed);
    const cgp_status status = cgp__backend_cpu.kernels.run(c->kernel->cpu, &c->args);
    if (status != CGP_OK) atomic_store_explicit(&d->failed_tag, c->args.tag, memory_order_relaxed);
    atomic_store_explicit(&d->tag, -1, memory_order_relaxed);
    return status;
}

static cgp_status check_args(const cgp_device *device, const cgp_kernel_args *args) {
    CGP_TRY(check_operands(device, (const void *const *)args->x, CGP_OP_MAX_INPUTS));
    CGP_TRY(check_operands(device, (const void *const *)args->saved, CGP_OP_MAX_SAVED));
    CGP_TRY(check_operands(device, (const void *const *)args->state, CGP_OP_MAX_STATE));
    CGP_TRY(check_operands(device, (const void *const *)args->param, CGP_OP_MAX_PARAMETERS));
    CGP_TRY(check_operands(device, (const void *const *)args->dx, CGP_OP_MAX_INPUTS));
    CGP_TRY(check_operands(device, (const void *const *)args->dparam, CGP_OP_MAX_PARAMETERS));
    return check_operands(device,
                          (const void *[]){args->y, args->accumulator, args->log, args->dy,
                                           args->workspace, args->values, args->losses},
                          7);
}

static cgp_status kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    const call c = {.kernel = kernel, .args = *args};
    CGP_TRY(check_args(kernel->device, args));
    return compute_or_capture(kernel->device, run_kernel, &c, sizeof c);
}

static cgp_status run_commit(void *device, const void *payload) {
    const call *c = payload;
    cgp_device *d = device;
    if (c->merged) return cgp__backend_cpu.kernels.merge(d->cpu, &c->spec, &c->args, c->merged);
    return c->index ? cgp__backend_cpu.kernels.check_commit(d->cpu, &c->spec, &c->args, c->index)
                    : cgp__backend_cpu.kernels.commit(d->cpu, &c->spec, &c->args);
}

static cgp_status merge(cgp_device *device, const cgp_kernel_spec *spec,
                        const cgp_kernel_args *args, int n) {
    const call c = {.spec = *spec, .args = *args, .merged = n};
    CGP_TRY(check_args(device, args));
    return compute_or_capture(device, run_commit, &c, sizeof c);
}

static cgp_status commit(cgp_device *device, const cgp_kernel_spec *spec,
                         const cgp_kernel_args *args) {
    const call c = {.spec = *spec, .args = *args};
    CGP_TRY(check_args(device, args));
    return compute_or_capture(device, run_commit, &c, sizeof c);
}

static cgp_status check_commit(cgp_device *device, const cgp_kernel_spec *spec,
                               const cgp_kernel_args *args, int64_t *index) {
    const call c = {.spec = *spec, .args = *args, .index = index};
    CGP_TRY(check_args(device, args));
    CGP_TRY(check_operands(device, (const void *[]){index}, 1));
    return compute_or_capture(device, run_commit, &c, sizeof c);
}

/* The payload of an entry that computes a sum or a search over one tensor. The payload also names
 * the scalar or tensor that receives the result. */
typedef struct pass {
    const float *x;
    int64_t n;
    void *out;
} pass;

static cgp_status run_sum(void *device, const void *payload) {
    const pass *p = payload;
    return cgp__backend_cpu.kernels.sum_squares(((cgp_device *)device)->cpu, p->x, p->n, p->out);
}

static cgp_status run_find(void *device, const void *payload) {
    const pass *p = payload;
    return cgp__backend_cpu.kernels.find_nonfinite(((cgp_device *)device)->cpu, p->x, p->n, p->out);
}

static cgp_status run_add(void *device, const void *payload) {
    const pass *p = payload;
    return cgp__backend_cpu.kernels.add(((cgp_device *)device)->cpu, p->out, p->x, p->n);
}

static cgp_status run_pass(cgp_device *device, cgp__late_run *run, const float *x, int64_t n,
                           void *out) {
    const pass p = {x, n, out};
    CGP_TRY(check_operands(device, (const void *[]){x, out}, 2));
    return compute_or_capture(device, run, &p, sizeof p);
}

static cgp_status sum_squares(cgp_device *device, const float *x, int64_t n, double *sum) {
    return run_pass(device, run_sum, x, n, sum);
}

static cgp_status find_nonfinite(cgp_device *device, const float *x, int64_t n, int64_t *index) {
    return run_pass(device, run_find, x, n, index);
}

static cgp_status add(cgp_device *device, float *to, const float *from, int64_t n) {
    return run_pass(device, run_add, from, n, to);
}

static cgp_status run_update(void *device, const void *payload) {
    return cgp__backend_cpu.kernels.update(((cgp_device *)device)->cpu, payload, 1);
}

static cgp_status update(cgp_device *device, const cgp_update *updates, int n) {
    for (const cgp_update *u = updates; u < updates + n; u++) {
        CGP_TRY(check_operands(
            device, (const void *[]){u->param, u->grad, u->state[0], u->state[1], u->values}, 5));
        CGP_TRY(compute_or_capture(device, run_update, u, sizeof *u));
    }
    return CGP_OK;
}

/* --- captured graphs --- */

static cgp_status capture_begin(cgp_device *device) {
    CGP_TRY(cgp__late_check_not_capturing(device, "capture_begin"));
    device->capture = cgp__calloc(1, sizeof *device->capture);
    if (!device->capture) return cgp__no_memory("late: graph", sizeof *device->capture);
    device->capture->device = device;
    return CGP_OK;
}

static cgp_status capture_end(cgp_device *device, cgp_captured_graph **out) {
    cgp_captured_graph *graph = device->capture;
    device->capture = NULL;
    *out = graph->n > 0 ? graph : NULL;
    if (graph->n == 0) cgp__late_graph_destroy(graph);
    return CGP_OK;
}

static int64_t launches(const cgp_device *device) {
    return device->launches;
}

static cgp_status graph_launch(cgp_captured_graph *graph, int64_t tag) {
    for (int i = 0; i < graph->n; i++) {
        const cgp__late_node *node = graph->nodes[i];
        const void *payload = node->payload;
        call c;
        if (node->run == run_kernel) {
            c = *(const call *)payload;
            c.args.tag += tag;
            payload = &c;
        }
        CGP_TRY(compute(graph->device, node->run, payload, node->bytes));
    }
    return CGP_OK;
}

/* Return the name of a part that differs between two nodes; NULL if no part differs. */
static const char *differing(const cgp__late_node *a, const cgp__late_node *b) {
    const void *x = a->payload, *y = b->payload;
    const call *p = x, *q = y;
    if (a->run != b->run) return "the function";
    if (a->run == run_update) return cgp__late_differing_update(x, y);
    if (a->run != run_kernel && a->run != run_commit)
        return memcmp(x, y, a->bytes) == 0 ? NULL : "an operand";
    if (p->kernel != q->kernel || p->index != q->index || p->merged != q->merged)
        return "the kernel";
    return cgp__late_differing_args(&p->args, &q->args);
}

cgp_status cgp__late_graphs_compare(const cgp_captured_graph *a, const cgp_captured_graph *b) {
    const int n = a ? a->n : 0, now = b ? b->n : 0;
    if (n != now) return cgp_fail(CGP_EDEVICE, "late: graph: expected %d nodes, got %d", n, now);
    for (int i = 0; i < n; i++) {
        const char *what = differing(a->nodes[i], b->nodes[i]);
        if (what)
            return cgp_fail(CGP_EDEVICE, "late: graph: node %d of %d: %s has changed", i, n, what);
    }
    return CGP_OK;
}

/* --- kernels and devices: created by queue COMPUTE's thread, while the caller waits --- */

static cgp_status run_create_kernel(void *device, const void *payload) {
    cgp_kernel *kernel = *(cgp_kernel *const *)payload;
    return cgp__backend_cpu.kernels.create(((cgp_device *)device)->cpu, &kernel->spec,
                                           &kernel->cpu);
}

static cgp_status run_destroy_kernel(void *device, const void *payload) {
    (void)device;
    cgp_kernel *kernel = *(cgp_kernel *const *)payload;
    if (kernel->cpu) cgp__backend_cpu.kernels.destroy(kernel->cpu);
    return CGP_OK;
}

static void kernel_destroy(cgp_kernel *kernel) {
    cgp__late_queue *queue = &kernel->device->queues[CGP_QUEUE_COMPUTE];
    (void)cgp__late_queue_add(queue, run_destroy_kernel, &kernel, sizeof kernel, true);
    (void)cgp__late_streams.finish(kernel->device);
    free(kernel);
}

static cgp_status prepare(cgp_device *device, const cgp_kernel_spec *specs, int n, int n_own) {
    if (device->announced)
        return cgp_fail(CGP_EDEVICE, "late: expected prepare() once, got it twice");
    device->announced = cgp__calloc((size_t)n_own + 1, sizeof *specs);
    if (!device->announced) return cgp__no_memory("late: kernels", (size_t)n * sizeof *specs);
    for (int i = 0; i < n_own; i++)
        device->announced[i] = specs[i];
    device->n_announced = n_own;
    return CGP_OK;
}

/* If prepare() was called, check that prepare() announced the same kernel for at least as many
 * samples. */
static cgp_status check_announced(const cgp_device *device, const cgp_kernel_spec *spec) {
    for (int i = 0; i < device->n_announced; i++) {
        cgp_kernel_spec one = device->announced[i];
        if (one.n < spec->n) continue;
        one.n = spec->n;
        if (memcmp(&one, spec, sizeof one) == 0) return CGP_OK;
    }
    if (!device->announced) return CGP_OK;
    return cgp_fail(CGP_EDEVICE, "late: expected an announced kernel, got %s of %lld samples",
                    cgp_op_name(spec->op), (long long)spec->n);
}

static cgp_status kernel_create(cgp_device *device, const cgp_kernel_spec *spec, cgp_kernel **out) {
    CGP_TRY(check_announced(device, spec));
    cgp_kernel *kernel = cgp__calloc(1, sizeof *kernel);
    if (!kernel) return cgp__no_memory("late: kernel", sizeof *kernel);
    *kernel = (cgp_kernel){.device = device, .spec = *spec};
    cgp_status status = compute(device, run_create_kernel, &kernel, sizeof kernel);
    if (status == CGP_OK) status = cgp__late_streams.finish(device);
    if (status == CGP_OK)
        *out = kernel;
    else
        kernel_destroy(kernel);
    return status;
}

static cgp_status run_create_device(void *device, const void *payload) {
    cgp_device *d = device;
    (void)payload;
    return cgp__backend_cpu.device.create(&d->cpu, &d->options);
}

static cgp_status run_destroy_device(void *device, const void *payload) {
    cgp_device *d = device;
    (void)payload;
    if (d->cpu) cgp__backend_cpu.device.destroy(d->cpu);
    return CGP_OK;
}

static void device_destroy(cgp_device *device) {
    cgp__late_queue *queue = &device->queues[CGP_QUEUE_COMPUTE];
    if (queue->started) (void)cgp__late_queue_add(queue, run_destroy_device, NULL, 0, true);
    for (int q = 0; q < CGP_QUEUES; q++)
        cgp__late_queue_stop(&device->queues[q]);
    pthread_mutex_destroy(&device->failure.lock);
    free(device->announced);
    free(device);
}

static cgp_status device_create(cgp_device **out, const cgp_device_options *options) {
    static atomic_uint devices;
    CGP_TRY(cgp__device_check_ordinal(&cgp__backend_late, options));
    cgp_device *device = cgp__calloc(1, sizeof *device);
    if (!device) return cgp__no_memory("late: device", sizeof *device);
    device->options = *options;
    device->options.count = 0; /* threads are not pinned */
    atomic_init(&device->tag, -1);
    atomic_init(&device->failed_tag, -1);
    pthread_mutex_init(&device->failure.lock, NULL);
    const uint64_t seed = 977 * (uint64_t)atomic_fetch_add(&devices, 1);
    cgp_status status = CGP_OK;
    for (int q = 0; q < CGP_QUEUES && status == CGP_OK; q++)
        status = cgp__late_queue_start(&device->queues[q], device, &device->failure,
                                       seed + (uint64_t)q, &cgp__late_delay_ns[q]);
    if (status == CGP_OK) status = compute(device, run_create_device, NULL, 0);
    if (status == CGP_OK) status = cgp__late_streams.finish(device);
    if (status == CGP_OK)
        *out = device;
    else
        device_destroy(device);
    return status;
}

static cgp_status workspace(const cgp_device_options *options, const cgp_kernel_spec *spec,
                            int64_t *bytes) {
    return cgp__backend_cpu.kernels.workspace(options, spec, bytes);
}

static cgp_status count(int *out) {
    *out = 1;
    return CGP_OK;
}

static cgp_status available(int ordinal, int64_t *bytes) {
    return cgp__backend_cpu.device.memory(ordinal, bytes);
}

static bool has_cores(const cgp_device *device) {
    (void)device;
    return false;
}

static cgp_status isa(cgp_dtype type, cgp_isa *best) {
    return cgp__backend_cpu.device.isa(type, best);
}

static const cgp_backend_graphs graphs = {
    .struct_size = sizeof graphs,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .launch = graph_launch,
    .destroy = cgp__late_graph_destroy,
    .launches = launches,
};

const cgp_backend cgp__backend_late = {
    .struct_size = sizeof(cgp_backend),
    .name = "late",
    .custom_ops = true,
    .fuses = true,
    .device.count = count,
    .device.memory = available,
    .device.isa = isa,
    .device.create = device_create,
    .device.destroy = device_destroy,
    .device.has_cores = has_cores,
    .device.memory_create = memory_create,
    .device.memory_destroy = memory_destroy,
    .device.host_memory_create = host_memory_create,
    .device.host_memory_destroy = host_memory_destroy,
    .device.copy = copy,
    .kernels.workspace = workspace,
    .kernels.prepare = prepare,
    .kernels.create = kernel_create,
    .kernels.run = kernel_run,
    .kernels.destroy = kernel_destroy,
    .kernels.merge = merge,
    .kernels.commit = commit,
    .kernels.check_commit = check_commit,
    .kernels.sum_squares = sum_squares,
    .kernels.find_nonfinite = find_nonfinite,
    .kernels.update = update,
    .kernels.add = add,
    .kernels.convert = convert,
    .streams = &cgp__late_streams,
    .graphs = &graphs,
};
