/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c -- implements pieces.h. */
#include "pipeline/run/pieces.h"

#include "pipeline/run/worker.h"
#include "plan/memory/devices.h"

cgp_status cgp__piece_fill(cgp__worker *worker, cgp_place to, const float *from, size_t bytes) {
    const cgp_backend *backend = worker->backend;
    CGP_TRY(backend->device.copy(worker->device, CGP_QUEUE_COMPUTE, to,
                                 cgp__device_place(worker, (void *)from), bytes));
    return cgp__is_stopped(worker) ? CGP_OK : cgp__worker_finish(worker);
}

cgp_status cgp__piece_drain(cgp__worker *worker, float *to, cgp_place from, int64_t n, bool add) {
    const cgp_backend *backend = worker->backend;
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    float *piece = (float *)(void *)cgp__worker_at(worker, device->workspace);
    const bool in_place = add && backend->host_addressable; /* the kernel reads the buffer */
    if (!in_place)
        CGP_TRY(backend->device.copy(worker->device, CGP_QUEUE_COMPUTE,
                                     cgp__device_place(worker, add ? piece : to), from,
                                     4 * (size_t)n));
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    if (add) CGP_TRY(backend->kernels.add(worker->device, to, in_place ? from.at : piece, n));
    return cgp__is_stopped(worker) ? CGP_OK : cgp__worker_finish(worker);
}
