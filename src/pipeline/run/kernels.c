/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c -- finds or makes the kernels of a worker's stages. Calls with the same spec share a
 * kernel. */
#include "pipeline/run/kernels.h"

#include "model/model.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/captured_graphs.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/worker.h"
#include "plan/memory/devices.h"
#include "plan/program/program.h"
#include "plan/setup.h"

#include <stdlib.h>
#include <string.h>

/* The kernels of a device's stages for micro-batches of one size. The kernel of a call is
 * kernels[first_call[stage][program] + call]. */
typedef struct kernel_set {
    int64_t samples;
    cgp_kernel **kernels;
} kernel_set;

typedef struct cached_kernel {
    cgp_kernel_spec spec;
    cgp_kernel *kernel;
} cached_kernel;

struct cgp__kernels {
    int n_calls;     /* number of calls in all programs of the worker's stages */
    int *first_call; /* [stages x programs] */
    kernel_set *sets;
    int n_sets, sets_capacity;
    cached_kernel *cache; /* one kernel for all calls of one spec */
    int n_cache, cache_capacity;
    cgp_event *timer[2]; /* events at the start and the end of a measured kernel */
};

/* --- the kernels of a plan --- */

typedef struct spec_list {
    cgp_kernel_spec *specs;
    int n, capacity;
} spec_list;

static cgp_status add_spec(spec_list *list, const cgp_kernel_spec *spec) {
    for (int i = 0; i < list->n; i++)
        if (memcmp(&list->specs[i], spec, sizeof *spec) == 0) return CGP_OK;
    if (!cgp__grow(&list->specs, &list->capacity, list->n + 1, sizeof *list->specs))
        return cgp__no_memory("kernels", sizeof *list->specs);
    list->specs[list->n++] = *spec;
    return CGP_OK;
}

/* Add the kernel specs of a stage, for full micro-batches. */
static cgp_status add_stage(spec_list *list, const cgp_plan *plan, const cgp__stage_plan *stage) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    for (int p = 0; p < CGP__PROGRAMS; p++) {
        const cgp__program *program = &stage->programs[p];
        for (int c = 0; c < program->n; c++) {
            if (program->calls[c].node < 0 && !program->calls[c].sums) continue;
            const cgp_kernel_spec spec =
                cgp__call_spec(setup, &program->calls[c], setup->microbatch);
            CGP_TRY(add_spec(list, &spec));
        }
    }
    return CGP_OK;
}

/* List the kernel specs of the worker's stages, then the kernel specs of the backend's other
 * devices. */
static cgp_status list_specs(const cgp__worker *worker, spec_list *list, int *n_own) {
    const cgp_plan *plan = worker->plan;
    for (int others = 0; others < 2; others++) {
        for (int j = 0; j < cgp_plan_stages(plan); j++) {
            const cgp__stage_plan *stage = cgp__plan_stage(plan, j);
            const bool own = stage->info.device == worker->index;
            if (own == (others == 1) ||
                cgp__plan_device(plan, stage->info.device)->backend != worker->backend)
                continue;
            CGP_TRY(add_stage(list, plan, stage));
        }
        if (!others) *n_own = list->n;
    }
    return CGP_OK;
}

cgp_status cgp__kernels_prepare(cgp__worker *worker) {
    const cgp_backend *backend = worker->backend;
    spec_list list = {0};
    int n_own = 0;
    if (!backend->kernels.prepare) return CGP_OK;
    cgp_status status = list_specs(worker, &list, &n_own);
    if (status == CGP_OK)
        status = backend->kernels.prepare(worker->device, list.specs, list.n, n_own);
    free(list.specs);
    return status;
}

/* --- the kernels of a worker --- */

static cgp_status number_calls(cgp__worker *worker) {
    const cgp_plan *plan = worker->plan;
    CGP_TRY(CGP__NEW(worker->kernels->first_call, cgp_plan_stages(plan) * CGP__PROGRAMS, "worker"));
    for (int i = 0; i < cgp_plan_stages(plan) * CGP__PROGRAMS; i++) {
        const cgp__stage_plan *stage = cgp__plan_stage(plan, i / CGP__PROGRAMS);
        worker->kernels->first_call[i] = worker->kernels->n_calls;
        if (stage->info.device == worker->index)
            worker->kernels->n_calls += stage->programs[i % CGP__PROGRAMS].n;
    }
    return CGP_OK;
}

cgp_status cgp__kernels_create(cgp__worker *worker) {
    const cgp_backend_streams *streams = worker->backend->streams;
    CGP_TRY(CGP__NEW(worker->kernels, 1, "worker"));
    for (int i = 0; i < 2 && streams; i++)
        CGP_TRY(streams->event_create(worker->device, &worker->kernels->timer[i]));
    return number_calls(worker);
}

void cgp__kernels_destroy(cgp__worker *worker) {
    struct cgp__kernels *k = worker->kernels;
    if (!k) return;
    for (int i = 0; i < k->n_cache; i++)
        worker->backend->kernels.destroy(k->cache[i].kernel);
    for (int i = 0; i < k->n_sets; i++)
        free(k->sets[i].kernels);
    for (int i = 0; i < 2; i++)
        if (k->timer[i]) worker->backend->streams->event_destroy(k->timer[i]);
    free(k->cache);
    free(k->sets);
    free(k->first_call);
    free(k);
    worker->kernels = NULL;
}

cgp_kernel *const *cgp__kernels_of(const cgp__worker *worker, const cgp__variant *variant) {
    const struct cgp__kernels *k = worker->kernels;
    return k->sets[variant->kernels].kernels +
           k->first_call[variant->stage * CGP__PROGRAMS + variant->program];
}

cgp_event *const *cgp__kernels_timer(const cgp__worker *worker) {
    return worker->kernels->timer;
}

/* Find or make the kernel of a call for n samples. Calls with the same spec share a kernel. */
static cgp_status find_kernel(cgp__worker *worker, const cgp__call *call, int64_t n,
                              cgp_kernel **out) {
    const cgp_plan *plan = worker->plan;
    const cgp__setup *setup = cgp__plan_setup(plan);
    const cgp_backend *backend = worker->backend;
    const cgp_kernel_spec spec = cgp__call_spec(setup, call, n);
    for (int i = 0; i < worker->kernels->n_cache; i++) {
        if (memcmp(&worker->kernels->cache[i].spec, &spec, sizeof spec) == 0) {
            *out = worker->kernels->cache[i].kernel;
            return CGP_OK;
        }
    }
    int64_t bytes = 0;
    CGP_TRY(
        backend->kernels.workspace(&cgp__plan_device(plan, worker->index)->options, &spec, &bytes));
    if (bytes > call->workspace_bytes) {
        const cgp__node *node = &setup->model->nodes[call->node];
        return cgp_fail(
            CGP_ELIMIT,
            "micro-batch of %lld samples: layer %s, %s needs %lld bytes of workspace, planned "
            "are %lld (plan for a batch that leaves such a rest)",
            (long long)n, setup->model->layers[node->layer], node->use.op->name, (long long)bytes,
            (long long)call->workspace_bytes);
    }
    if (!cgp__grow(&worker->kernels->cache, &worker->kernels->cache_capacity,
                   worker->kernels->n_cache + 1, sizeof *worker->kernels->cache))
        return cgp__no_memory("kernels", sizeof *worker->kernels->cache);
    CGP_TRY(backend->kernels.create(worker->device, &spec, out));
    worker->kernels->cache[worker->kernels->n_cache++] = (cached_kernel){spec, *out};
    return CGP_OK;
}

/* Find or make the kernels of the worker's stages for n samples. */
static cgp_status find_kernels(cgp__worker *worker, int64_t n, cgp_kernel **kernels) {
    const cgp_plan *plan = worker->plan;
    for (int i = 0; i < cgp_plan_stages(plan) * CGP__PROGRAMS; i++) {
        const cgp__stage_plan *stage = cgp__plan_stage(plan, i / CGP__PROGRAMS);
        if (stage->info.device != worker->index) continue;
        const cgp__program *program = &stage->programs[i % CGP__PROGRAMS];
        for (int c = 0; c < program->n; c++) {
            cgp_kernel **kernel = &kernels[worker->kernels->first_call[i] + c];
            if (program->calls[c].node >= 0 || program->calls[c].sums)
                CGP_TRY(find_kernel(worker, &program->calls[c], n, kernel));
        }
    }
    return CGP_OK;
}

/* Find or make the kernel set for n samples. */
static cgp_status find_set(cgp__worker *worker, int64_t n, int *index) {
    cgp_kernel **kernels = NULL;
    for (*index = 0; *index < worker->kernels->n_sets; ++*index) {
        if (worker->kernels->sets[*index].samples == n) return CGP_OK;
    }
    if (!cgp__grow(&worker->kernels->sets, &worker->kernels->sets_capacity,
                   worker->kernels->n_sets + 1, sizeof *worker->kernels->sets))
        return cgp__no_memory("kernels", sizeof *worker->kernels->sets);
    CGP_TRY(CGP__NEW(kernels, worker->kernels->n_calls, "kernels"));
    const cgp_status status = find_kernels(worker, n, kernels);
    if (status == CGP_OK)
        worker->kernels->sets[worker->kernels->n_sets++] = (kernel_set){n, kernels};
    else
        free(kernels);
    return status;
}

cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *argument) {
    const cgp__run *run = argument;
    cgp__list *list = &run->lists[worker->index];
    for (int i = 0; i < list->n_variants; i++)
        CGP_TRY(find_set(worker, list->variants[i].samples, &list->variants[i].kernels));
    CGP_TRY(cgp__captured_graphs_bind(worker, list));
    const cgp_status status = cgp__trace_reserve(&worker->measured->trace, list->n);
    worker->measured->trace_start = worker->measured->trace.written;
    return status;
}
