/* SPDX-License-Identifier: Apache-2.0 */
/* device.c -- jobs that create and free a worker's device and its memory. */
#include "pipeline/run/device.h"

#include "pipeline/run/captured_graphs.h"
#include "pipeline/run/exchange.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/kernels.h"
#include "pipeline/run/landings.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/queues.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/shared_edges.h"
#include "pipeline/run/staging.h"
#include "pipeline/run/worker.h"
#include "plan/memory/devices.h"
#include "plan/memory/replays.h"
#include "plan/setup.h"

#include <stdlib.h>

/* Return the number of the device on whose hardware, and in whose memory, the worker's device is
 * placed. */
static int place_of(const cgp__worker *worker) {
    const cgp__executor *executor = worker->executor;
    return executor->lender ? cgp__plan_layout(worker->plan, executor->layout)->on[worker->index]
                            : worker->index;
}

/* Return the device's options. Ranks that share cores number their devices of one backend
 * consecutively, so these devices divide the cores among themselves. */
static cgp_device_options options_of(const cgp__worker *worker) {
    const cgp_plan *plan = worker->plan;
    const cgp__executor *lender = worker->executor->lender;
    const cgp__ranks *ranks = lender ? lender->ranks : worker->ranks;
    cgp_device_options options = cgp__plan_device(plan, place_of(worker))->options;
    if (worker->backend->device.isa) options.isa = worker->ranks->isa;
    const int devices = cgp_plan_devices(plan), here = ranks->replica * devices + place_of(worker);
    for (int k = 0; k < cgp__plan_setup(plan)->replicas * devices; k++) {
        const int d = k % devices, rank = cgp_plan_device_at(plan, d)->rank;
        if (!ranks->may_pin || cgp__plan_device(plan, d)->backend != worker->backend ||
            !ranks->neighbours[k / devices * cgp__plan_setup(plan)->ranks + rank])
            continue;
        if (k < here) options.index++;
        options.count++;
    }
    return options;
}

/* Set the addresses of the memory sections that another pipeline may own. */
static void bind_shared(cgp__worker *worker, const cgp__worker *owner) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    worker->changes.count = owner ? owner->changes.count : &worker->changes.own;
    worker->changes.packed_at = -1;
    worker->parameters = owner ? owner->parameters : worker->memory + device->parameters;
    worker->gradients = owner ? owner->gradients : worker->memory + device->gradients;
    worker->optimizer = owner ? owner->optimizer : worker->memory + device->optimizer;
    worker->states = owner ? owner->states : worker->memory + device->state;
}

/* Place the device's sections in the allocations of another executor. */
static cgp_status borrow_memory(cgp__worker *worker) {
    const cgp__executor *executor = worker->executor;
    const cgp__layout *layout = cgp__plan_layout(worker->plan, executor->layout);
    const cgp__worker *lender = &executor->lender->workers[place_of(worker)];
    worker->memory = lender->memory + layout->memory[worker->index];
    bind_shared(worker, NULL);
    if (!lender->host) return CGP_OK;
    worker->host = lender->host + layout->host[worker->index];
    return cgp__staging_create(worker);
}

/* Allocate the planned device memory, and the planned host memory for copies. */
static cgp_status create_memory(cgp__worker *worker) {
    const cgp_backend *backend = worker->backend;
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    const cgp__executor *owner = worker->executor->owner;
    const int64_t host = device->info.host_bytes;
    void *memory = NULL;
    worker->skipped = owner ? cgp__plan_shared_bytes(device) : 0;
    const int64_t bytes = device->info.planned_bytes - worker->skipped;
    CGP_TRY(backend->device.memory_create(worker->device, (size_t)bytes, &memory));
    worker->memory = memory;
    worker->measured->bytes = bytes;
    bind_shared(worker, owner ? &owner->workers[worker->index] : NULL);
    if (host == 0) return CGP_OK;
    CGP_TRY(backend->device.host_memory_create(worker->device, (size_t)host, &memory));
    worker->host = memory;
    return cgp__staging_create(worker);
}

/* Log the allocated memory, and the memory that the driver uses before any kernel has run. */
static void log_memory(const cgp__worker *worker) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    char planned[32], host[32], driver[32] = "not known";
    int64_t bytes = INT64_MAX;
    if (device->backend->host_addressable) return;
    if (device->backend->device.driver_bytes &&
        device->backend->device.driver_bytes(device->info.ordinal, &bytes) == CGP_OK)
        cgp_bytes_text(bytes, driver, sizeof driver);
    cgp_log(CGP_LOG_INFO, "pipeline",
            "device %s: allocated %s, %s of the host for copies; beside that the driver and other "
            "programs: %s",
            device->info.name, cgp_bytes_text(worker->measured->bytes, planned, sizeof planned),
            cgp_bytes_text(device->info.host_bytes, host, sizeof host), driver);
}

/* Allocate the words to which kernels write results, and the host's copy of these words. If the
 * device shares host memory, words and copy are the same memory. */
static cgp_status create_words(cgp__worker *worker) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    CGP_TRY(CGP__NEW(worker->fetched, device->step.n_words, "worker"));
    worker->words = device->backend->host_addressable
                        ? worker->fetched
                        : (double *)(void *)(cgp__worker_at(worker, device->step.words));
    return CGP_OK;
}

cgp_status cgp__job_create_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp_device_options options = options_of(worker);
    CGP_TRY(worker->backend->device.create(&worker->device, &options));
    return cgp__kernels_prepare(worker);
}

cgp_status cgp__job_create_memory(cgp__worker *worker, void *unused) {
    (void)unused;
    if (worker->executor->lender)
        CGP_TRY(borrow_memory(worker));
    else
        CGP_TRY(create_memory(worker));
    if (!worker->executor->lender) log_memory(worker);
    CGP_TRY(create_words(worker));
    CGP_TRY(cgp__queues_create(worker));
    CGP_TRY(cgp__exchange_create(worker));
    CGP_TRY(cgp__landings_create(worker));
    CGP_TRY(cgp__link_ends_create_events(worker));
    CGP_TRY(cgp__captured_graphs_create(worker, worker->executor->captures));
    return cgp__kernels_create(worker);
}

cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused) {
    (void)unused;
    const cgp_backend *backend = worker->backend;
    const cgp_plan_device *info = cgp_plan_device_at(worker->plan, worker->index);
    if (worker->device) (void)cgp__worker_finish(worker);
    cgp__captured_graphs_destroy(worker);
    cgp__kernels_destroy(worker);
    cgp__queues_destroy(worker);
    cgp__landings_destroy(worker);
    cgp__staging_destroy(worker);
    if (worker->device) cgp__link_ends_destroy_events(worker);
    if (worker->device) cgp__shared_edges_destroy_events(worker);
    const bool borrows = worker->executor->lender != NULL;
    if (worker->host && !borrows)
        backend->device.host_memory_destroy(worker->device, worker->host, (size_t)info->host_bytes);
    if (worker->memory && !borrows && !worker->executor->keeps)
        backend->device.memory_destroy(worker->device, worker->memory,
                                       (size_t)worker->measured->bytes);
    if (worker->device) backend->device.destroy(worker->device);
    free(worker->exchange);
    free(worker->fetched);
    cgp__measured_release(worker->measured);
    return CGP_OK;
}
