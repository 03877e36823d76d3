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
    int first = core;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             core);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &first) != 1) first = core;
    if (file) fclose(file);
    return first == core;
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
    const size_t n = (size_t)plan->n_stages * CGP__PROGRAMS;
    worker->first_call = cgp__calloc(n, sizeof *worker->first_call);
    if (!worker->first_call) return cgp__no_memory("worker", n * sizeof *worker->first_call);
    for (int j = 0; j < plan->n_stages; j++) {
        for (int p = 0; p < CGP__PROGRAMS && plan->stages[j].info.device == worker->index;
             p++) {
            worker->first_call[j * CGP__PROGRAMS + p] = worker->n_calls;
            worker->n_calls += cgp__stage_program(&plan->stages[j], p)->n;
        }
    }
    return CGP_OK;
}

cgp_status cgp__job_create_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp_plan *plan = worker->executor->plan;
    const cgp__backend *backend = plan->devices[worker->index].backend;
    const int64_t bytes = plan->devices[worker->index].info.planned_bytes;
    CGP_TRY(
        backend->device_create(&worker->device, plan->threads, core_of(plan, worker->index)));
    void *memory = NULL;
    CGP_TRY(backend->memory_create(worker->device, (size_t)bytes, &memory));
    worker->memory = memory;
    worker->bytes = bytes;
    return number_calls(worker);
}

cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp__backend *backend = worker->executor->plan->devices[worker->index].backend;
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
    const cgp__backend *backend = plan->devices[worker->index].backend;
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

/* Find or make the kernel set for n samples. */
static cgp_status find_set(cgp__worker *worker, int64_t n, int *index) {
    const cgp_plan *plan = worker->executor->plan;
    for (*index = 0; *index < worker->n_sets; ++*index) {
        if (worker->sets[*index].samples == n) return CGP_OK;
    }
    if (!cgp__grow(&worker->sets, &worker->sets_capacity, worker->n_sets + 1,
                   sizeof *worker->sets))
        return cgp__no_memory("kernels", sizeof *worker->sets);
    cgp__kernel **kernels = cgp__calloc((size_t)worker->n_calls, sizeof(cgp__kernel *));
    if (!kernels)
        return cgp__no_memory("kernels", (size_t)worker->n_calls * sizeof(cgp__kernel *));
    cgp_status status = CGP_OK;
    for (int j = 0; j < plan->n_stages; j++) {
        for (int p = 0; p < CGP__PROGRAMS && plan->stages[j].info.device == worker->index;
             p++) {
            const cgp__program *program = cgp__stage_program(&plan->stages[j], p);
            cgp__kernel **at = kernels + worker->first_call[j * CGP__PROGRAMS + p];
            for (int i = 0; i < program->n && status == CGP_OK; i++) {
                if (program->calls[i].node >= 0)
                    status = find_kernel(worker, &program->calls[i], n, &at[i]);
            }
        }
    }
    if (status != CGP_OK) {
        free(kernels);
        return status;
    }
    worker->sets[worker->n_sets++] = (cgp__kernel_set){n, kernels};
    return CGP_OK;
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
