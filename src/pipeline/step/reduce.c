/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c -- implements reduce.h. The exchange of a step's gradients is a part of the step
 * (run/exchange.c).
 *
 * If the optimizer has shards (plan/memory/shards.h), a replica updates the part of each piece that
 * it has after halving. Doubling then distributes the updated parameters instead of the gradients.
 *
 * The statistics of batch norms are not added. All replicas gather the statistics of each
 * micro-batch by recursive doubling, and merge them in the order of the whole mini-batch. */
#include "pipeline/step/reduce.h"

#include "pipeline/run/exchange.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/states.h"
#include "plan/list.h"
#include "plan/memory/devices.h"
#include "plan/setup.h"

/* --- statistics --- */

/* Gather the logs of all replicas of a device: recursive doubling. */
static cgp_status gather_log(cgp__worker *worker, int64_t replica_bytes) {
    const int replica = worker->ranks->replica;
    for (int level = 0; 1 << level < cgp__plan_setup(worker->plan)->replicas; level++) {
        const int64_t first = replica >> level << level;
        const cgp__exchange_block block = {.own = first * replica_bytes,
                                           .other = (first ^ 1 << level) * replica_bytes,
                                           .bytes = replica_bytes << level};
        CGP_TRY(cgp__exchange_blocks(worker, level, &block));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    }
    return CGP_OK;
}

/* Gather and merge the statistics of a device. */
static cgp_status reduce_log(cgp__worker *worker, void *argument) {
    const int *chunks = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const int64_t bytes = cgp__plan_device(worker->plan, worker->index)->log_bytes *
                          cgp__plan_setup(worker->plan)->chunks;
    if (bytes == 0) return CGP_OK;
    cgp__exchange_begin(worker, &(cgp__exchange_options){.memory = cgp__log_of(worker, 0)});
    CGP_TRY(gather_log(worker, bytes));
    return cgp__is_stopped(worker) ? CGP_OK : cgp__states_merge(worker, *chunks);
}

cgp_status cgp__reduce_statistics(cgp__executor *executor, const cgp__minibatch *minibatch) {
    int chunks = cgp__whole_chunks(minibatch);
    bool any = false;
    for (int d = 0; d < cgp_plan_devices(executor->plan); d++)
        any = any || cgp__plan_device(executor->plan, d)->log_bytes > 0;
    return any ? cgp__executor_job(executor, reduce_log, &chunks) : CGP_OK;
}

/* --- gradients and parameters --- */

static cgp_status complete_device(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    cgp__exchange_begin(worker, &(cgp__exchange_options){.memory = worker->gradients,
                                                         .end = device->untied_bytes,
                                                         .doubles_untied = true});
    return cgp__exchange_finish(worker);
}

cgp_status cgp__reduce_complete(cgp__executor *executor) {
    return cgp__executor_job(executor, complete_device, NULL);
}

cgp_status cgp__reduce_parameters(cgp__worker *worker) {
    if (cgp__is_stopped(worker) || !cgp__plan_setup(worker->plan)->shards) return CGP_OK;
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    cgp__exchange_begin(worker, &(cgp__exchange_options){.memory = worker->parameters,
                                                         .end = device->trained_bytes,
                                                         .doubles_untied = true,
                                                         .doubles_other = true});
    return cgp__exchange_finish(worker);
}
