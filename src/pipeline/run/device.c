/* SPDX-License-Identifier: Apache-2.0 */
/* device.c -- the jobs that make and free a worker's device, memory and kernels. */
#define _GNU_SOURCE
#include "pipeline/run/run.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return whether a core is the first hardware thread of its physical core; true if the system does not say. */
static bool is_first_sibling(int core) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             core);
    return cgp__read_number(path, core) == core;
}

/* Return the first core of device d, which takes one per thread: consecutive cores that this process may use, if every
 * device gets its own and no two share a physical core; otherwise -1. A single device is not pinned, so that two programs
 * may share a machine. */
static int core_of(const cgp_plan *plan, int d) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (plan->n_devices == 1 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        CPU_COUNT(&allowed) < plan->n_devices * plan->threads)
        return -1;
    int first = 0;
    while (!CPU_ISSET(first, &allowed))
        first++;
    for (int core = first; core < first + plan->n_devices * plan->threads; core++) {
        if (core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed) || !is_first_sibling(core))
            return -1;
    }
    return first + d * plan->threads;
}

bool cgp__devices_have_cores(const cgp_plan *plan) {
    for (int d = 0; d < plan->n_devices; d++) {
        if (plan->devices[d].backend != &cgp__backend_cpu) return false; /* ref pins nothing */
    }
    return core_of(plan, 0) >= 0;
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

cgp_status cgp__job_create_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp_plan *plan = worker->executor->plan;
    const cgp__backend *backend = cgp__backend_of(worker);
    const int64_t bytes = plan->devices[worker->index].info.planned_bytes;
    void *memory = NULL;
    CGP_TRY(
        backend->device_create(&worker->device, plan->threads, core_of(plan, worker->index)));
    CGP_TRY(backend->memory_create(worker->device, (size_t)bytes, &memory));
    worker->memory = memory;
    worker->bytes = bytes;
    return number_calls(worker);
}

cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp__backend *backend = cgp__backend_of(worker);
    for (int i = 0; i < worker->n_cache; i++)
        backend->kernel_destroy(worker->cache[i].kernel);
    for (int i = 0; i < worker->n_sets; i++)
        free(worker->sets[i].kernels);
    if (worker->memory)
        backend->memory_destroy(worker->device, worker->memory, (size_t)worker->bytes);
    if (worker->device) backend->device_destroy(worker->device);
    free(worker->cache);
    free(worker->sets);
    free(worker->first_call);
    free(worker->node_times);
    cgp__trace_release(&worker->trace);
    return CGP_OK;
}

/* Find or make the kernel of a call for n samples; calls of the same spec share one. */
static cgp_status find_kernel(cgp__worker *worker, const cgp__call *call, int64_t n,
                              cgp__kernel **out) {
    const cgp_plan *plan = worker->executor->plan;
    const cgp__backend *backend = cgp__backend_of(worker);
    const cgp__kernel_spec spec = cgp__call_spec(plan, call, n);
    for (int i = 0; i < worker->n_cache; i++) {
        if (memcmp(&worker->cache[i].spec, &spec, sizeof spec) == 0) {
            *out = worker->cache[i].kernel;
            return CGP_OK;
        }
    }
    int64_t bytes = 0;
    CGP_TRY(backend->workspace(&spec, plan->threads, &bytes));
    if (bytes > call->workspace_bytes) {
        const cgp__node *node = &plan->model->nodes[call->node];
        return cgp_fail(
            CGP_ELIMIT,
            "micro-batch of %lld samples: layer %s, %s needs %lld bytes of workspace, planned "
            "are %lld (plan for a batch that leaves such a rest)",
            (long long)n, plan->model->layers[node->layer], node->use.op->name,
            (long long)bytes, (long long)call->workspace_bytes);
    }
    if (!cgp__grow(&worker->cache, &worker->cache_capacity, worker->n_cache + 1,
                   sizeof *worker->cache))
        return cgp__no_memory("kernels", sizeof *worker->cache);
    CGP_TRY(backend->kernel_create(worker->device, &spec, out));
    worker->cache[worker->n_cache++] = (cgp__cached_kernel){spec, *out};
    return CGP_OK;
}

/* Find or make the kernels of the worker's stages for n samples. */
static cgp_status find_kernels(cgp__worker *worker, int64_t n, cgp__kernel **kernels) {
    const cgp_plan *plan = worker->executor->plan;
    for (int i = 0; i < plan->n_stages * CGP__PROGRAMS; i++) {
        const cgp__stage_plan *stage = &plan->stages[i / CGP__PROGRAMS];
        if (stage->info.device != worker->index) continue;
        const cgp__program *program = cgp__stage_program(stage, i % CGP__PROGRAMS);
        for (int c = 0; c < program->n; c++) {
            cgp__kernel **kernel = &kernels[worker->first_call[i] + c];
            if (program->calls[c].node >= 0)
                CGP_TRY(find_kernel(worker, &program->calls[c], n, kernel));
        }
    }
    return CGP_OK;
}

/* Find or make the kernel set for n samples. */
static cgp_status find_set(cgp__worker *worker, int64_t n, int *index) {
    cgp__kernel **kernels = NULL;
    for (*index = 0; *index < worker->n_sets; ++*index) {
        if (worker->sets[*index].samples == n) return CGP_OK;
    }
    if (!cgp__grow(&worker->sets, &worker->sets_capacity, worker->n_sets + 1,
                   sizeof *worker->sets))
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
    for (int i = 0; i < list->n; i++)
        CGP_TRY(find_set(worker, list->actions[i].samples, &list->actions[i].kernels));
    const cgp_status status = cgp__trace_reserve(&worker->trace, list->n);
    worker->trace_start = worker->trace.written;
    return status;
}
