/* SPDX-License-Identifier: Apache-2.0 */
/* device.c -- the jobs that make and free a worker's device, memory and kernels. */
#include "pipeline/run/run.h"

#include <stdlib.h>
#include <string.h>

/* Return the plan's options. Devices of one backend, on this rank and its neighbours, are numbered
 * together, so that they divide the cores among themselves. */
static cgp_device_options options_of(const cgp__worker *worker) {
    const cgp_plan *plan = worker->executor->plan;
    const cgp__ranks *ranks = &worker->executor->ranks;
    cgp_device_options options = plan->devices[worker->index].options;
    if (cgp__backend_of(worker)->isa) options.isa = ranks->isa;
    for (int d = 0; d < plan->n_devices; d++) {
        if (!ranks->may_pin || plan->devices[d].backend != cgp__backend_of(worker) ||
            !ranks->neighbours[plan->devices[d].info.rank])
            continue;
        if (d < worker->index) options.index++;
        options.count++;
    }
    return options;
}

static cgp_status number_calls(cgp__worker *worker) {
    const cgp_plan *plan = worker->executor->plan;
    CGP_TRY(CGP__NEW(worker->first_call, plan->n_stages * CGP__PROGRAMS, "worker"));
    for (int i = 0; i < plan->n_stages * CGP__PROGRAMS; i++) {
        const cgp__stage_plan *stage = &plan->stages[i / CGP__PROGRAMS];
        worker->first_call[i] = worker->n_calls;
        if (stage->info.device == worker->index)
            worker->n_calls += cgp__stage_program(stage, i % CGP__PROGRAMS)->n;
    }
    return CGP_OK;
}

/* Locate the sections that another pipeline may own. */
static void bind_shared(cgp__worker *worker, const cgp__worker *owner) {
    const cgp__device_plan *device = &worker->executor->plan->devices[worker->index];
    worker->changes = owner ? owner->changes : &worker->own_changes;
    worker->packed_at = -1;
    worker->parameters = owner ? owner->parameters : worker->memory + device->parameters;
    worker->gradients = owner ? owner->gradients : worker->memory + device->gradients;
    worker->optimizer = owner ? owner->optimizer : worker->memory + device->optimizer;
    worker->states = owner ? owner->states : worker->memory + device->state;
}

/* Allocate the planned memory: the device's, and the host's for copies. */
static cgp_status create_memory(cgp__worker *worker) {
    const cgp_backend *backend = cgp__backend_of(worker);
    const cgp__device_plan *device = &worker->executor->plan->devices[worker->index];
    const cgp__executor *owner = worker->executor->owner;
    const int64_t host = device->info.host_bytes;
    void *memory = NULL;
    worker->skipped = owner ? cgp__plan_shared_bytes(device) : 0;
    const int64_t bytes = device->info.planned_bytes - worker->skipped;
    CGP_TRY(backend->memory_create(worker->device, (size_t)bytes, &memory));
    worker->memory = memory;
    worker->bytes = bytes;
    bind_shared(worker, owner ? &owner->workers[worker->index] : NULL);
    if (host == 0) return CGP_OK;
    CGP_TRY(backend->host_memory_create(worker->device, (size_t)host, &memory));
    worker->host = memory;
    return device->staging.pieces > 0 ? CGP__NEW(worker->pieces, device->staging.pieces, "worker")
                                      : CGP_OK;
}

/* Log the allocated memory, and what the driver uses before any kernel has run. */
static void log_memory(const cgp__worker *worker) {
    const cgp__device_plan *device = &worker->executor->plan->devices[worker->index];
    char planned[32], host[32], driver[32] = "not known";
    int64_t bytes = INT64_MAX;
    if (device->backend->host_addressable) return;
    if (device->backend->driver_bytes &&
        device->backend->driver_bytes(device->info.ordinal, &bytes) == CGP_OK)
        cgp_bytes_text(bytes, driver, sizeof driver);
    cgp_log(CGP_LOG_INFO, "pipeline",
            "device %s: allocated %s, %s of the host for copies; beside that the driver and other "
            "programs: %s",
            device->info.name, cgp_bytes_text(worker->bytes, planned, sizeof planned),
            cgp_bytes_text(device->info.host_bytes, host, sizeof host), driver);
}

/* Create the words that kernels write, and the host's copy of them. Both are the same memory if the
 * device shares the host's. */
static cgp_status create_words(cgp__worker *worker) {
    const cgp__device_plan *device = &worker->executor->plan->devices[worker->index];
    CGP_TRY(CGP__NEW(worker->fetched, device->step.n_words, "worker"));
    worker->words = device->backend->host_addressable
                        ? worker->fetched
                        : (double *)(void *)(cgp__worker_at(worker, device->step.words));
    return CGP_OK;
}

static cgp_status create_events(cgp__worker *worker) {
    const cgp_backend *backend = cgp__backend_of(worker);
    if (!backend->asynchronous) return CGP_OK;
    for (int i = 0; i < CGP__FLIGHTS; i++) {
        CGP_TRY(backend->event_create(worker->device, &worker->flights[i].start));
        CGP_TRY(backend->event_create(worker->device, &worker->flights[i].end));
    }
    CGP_TRY(backend->event_create(worker->device, &worker->ring_end));
    CGP_TRY(backend->event_create(worker->device, &worker->timer[0]));
    return backend->event_create(worker->device, &worker->timer[1]);
}

/* Create the events of the link ends on this device. */
static cgp_status create_link_events(cgp__worker *worker) {
    cgp__executor *executor = worker->executor;
    const cgp_plan *plan = executor->plan;
    const cgp_backend *backend = cgp__backend_of(worker);
    for (int l = 0; backend->asynchronous && l < plan->n_links; l++) {
        const cgp__link_plan *link = &plan->links[l];
        for (int side = 0; side < 2; side++) {
            cgp__end *end = &executor->ends[l][side];
            if ((side == 0 ? link->from : link->to) != worker->index) continue;
            CGP_TRY(CGP__NEW(end->events, link->capacity, "worker"));
            for (int i = 0; i < link->capacity; i++)
                CGP_TRY(backend->event_create(worker->device, &end->events[i]));
        }
    }
    return CGP_OK;
}

cgp_status cgp__job_create_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp_device_options options = options_of(worker);
    CGP_TRY(cgp__backend_of(worker)->device_create(&worker->device, &options));
    CGP_TRY(create_memory(worker));
    log_memory(worker);
    CGP_TRY(create_words(worker));
    CGP_TRY(create_events(worker));
    CGP_TRY(create_link_events(worker));
    worker->records = worker->executor->records && cgp__backend_of(worker)->record_begin &&
                      !cgp__backend_of(worker)->host_addressable;
    return number_calls(worker);
}

static void destroy_events(cgp__worker *worker) {
    cgp__executor *executor = worker->executor;
    const cgp_plan *plan = executor->plan;
    const cgp_backend *backend = cgp__backend_of(worker);
    if (!backend->asynchronous) return;
    for (int i = 0; i < CGP__FLIGHTS; i++) {
        if (worker->flights[i].start) backend->event_destroy(worker->flights[i].start);
        if (worker->flights[i].end) backend->event_destroy(worker->flights[i].end);
    }
    if (worker->ring_end) backend->event_destroy(worker->ring_end);
    for (int i = 0; i < 2; i++)
        if (worker->timer[i]) backend->event_destroy(worker->timer[i]);
    for (int k = 0; k < 2 * plan->n_links; k++) {
        const cgp__link_plan *link = &plan->links[k / 2];
        cgp__end *end = &executor->ends[k / 2][k % 2];
        if ((k % 2 == 0 ? link->from : link->to) != worker->index || !end->events) continue;
        for (int i = 0; i < link->capacity; i++)
            if (end->events[i]) backend->event_destroy(end->events[i]);
        free(end->events);
    }
}

cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp_backend *backend = cgp__backend_of(worker);
    const cgp_plan_device *info = &worker->executor->plan->devices[worker->index].info;
    if (worker->device) (void)cgp__worker_finish(worker);
    cgp__recordings_destroy(worker);
    for (int i = 0; i < worker->n_cache; i++)
        backend->kernel_destroy(worker->cache[i].kernel);
    for (int i = 0; i < worker->n_sets; i++)
        free(worker->sets[i].kernels);
    if (worker->device) destroy_events(worker);
    if (worker->host)
        backend->host_memory_destroy(worker->device, worker->host, (size_t)info->host_bytes);
    if (worker->memory)
        backend->memory_destroy(worker->device, worker->memory, (size_t)worker->bytes);
    if (worker->device) backend->device_destroy(worker->device);
    free(worker->pieces);
    free(worker->fetched);
    free(worker->cache);
    free(worker->sets);
    free(worker->first_call);
    free(worker->node_times);
    cgp__trace_release(&worker->trace);
    return CGP_OK;
}

/* Find or make the kernel of a call for n samples; calls of the same spec share one. */
static cgp_status find_kernel(cgp__worker *worker, const cgp__call *call, int64_t n,
                              cgp_kernel **out) {
    const cgp_plan *plan = worker->executor->plan;
    const cgp_backend *backend = cgp__backend_of(worker);
    const cgp_kernel_spec spec = cgp__call_spec(plan, call, n);
    for (int i = 0; i < worker->n_cache; i++) {
        if (memcmp(&worker->cache[i].spec, &spec, sizeof spec) == 0) {
            *out = worker->cache[i].kernel;
            return CGP_OK;
        }
    }
    int64_t bytes = 0;
    CGP_TRY(backend->workspace(&plan->devices[worker->index].options, &spec, &bytes));
    if (bytes > call->workspace_bytes) {
        const cgp__node *node = &plan->model->nodes[call->node];
        return cgp_fail(
            CGP_ELIMIT,
            "micro-batch of %lld samples: layer %s, %s needs %lld bytes of workspace, planned "
            "are %lld (plan for a batch that leaves such a rest)",
            (long long)n, plan->model->layers[node->layer], node->use.op->name, (long long)bytes,
            (long long)call->workspace_bytes);
    }
    if (!cgp__grow(&worker->cache, &worker->cache_capacity, worker->n_cache + 1,
                   sizeof *worker->cache))
        return cgp__no_memory("kernels", sizeof *worker->cache);
    CGP_TRY(backend->kernel_create(worker->device, &spec, out));
    worker->cache[worker->n_cache++] = (cgp__cached_kernel){spec, *out};
    return CGP_OK;
}

/* Find or make the kernels of the worker's stages for n samples. */
static cgp_status find_kernels(cgp__worker *worker, int64_t n, cgp_kernel **kernels) {
    const cgp_plan *plan = worker->executor->plan;
    for (int i = 0; i < plan->n_stages * CGP__PROGRAMS; i++) {
        const cgp__stage_plan *stage = &plan->stages[i / CGP__PROGRAMS];
        if (stage->info.device != worker->index) continue;
        const cgp__program *program = cgp__stage_program(stage, i % CGP__PROGRAMS);
        for (int c = 0; c < program->n; c++) {
            cgp_kernel **kernel = &kernels[worker->first_call[i] + c];
            if (program->calls[c].node >= 0 || program->calls[c].sums)
                CGP_TRY(find_kernel(worker, &program->calls[c], n, kernel));
        }
    }
    return CGP_OK;
}

/* Find or make the kernel set for n samples. */
static cgp_status find_set(cgp__worker *worker, int64_t n, int *index) {
    cgp_kernel **kernels = NULL;
    for (*index = 0; *index < worker->n_sets; ++*index) {
        if (worker->sets[*index].samples == n) return CGP_OK;
    }
    if (!cgp__grow(&worker->sets, &worker->sets_capacity, worker->n_sets + 1, sizeof *worker->sets))
        return cgp__no_memory("kernels", sizeof *worker->sets);
    CGP_TRY(CGP__NEW(kernels, worker->n_calls, "kernels"));
    const cgp_status status = find_kernels(worker, n, kernels);
    if (status == CGP_OK)
        worker->sets[worker->n_sets++] = (cgp__kernel_set){n, kernels};
    else
        free(kernels);
    return status;
}

cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *argument) {
    const cgp__run *run = argument;
    cgp__list *list = &run->lists[worker->index];
    for (int i = 0; i < list->n_variants; i++)
        CGP_TRY(find_set(worker, list->variants[i].samples, &list->variants[i].kernels));
    CGP_TRY(cgp__recordings_bind(worker, list));
    const cgp_status status = cgp__trace_reserve(&worker->trace, list->n);
    worker->trace_start = worker->trace.written;
    return status;
}
