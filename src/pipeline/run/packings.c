/* SPDX-License-Identifier: Apache-2.0 */
/* packings.c -- keeps prepacked weights up to date. Parameters are repacked before the first run
 * after each change. Changes are initialization, updates, and writes by the caller. */
#include "pipeline/run/packings.h"

#include "pipeline/run/captured_graphs.h"
#include "pipeline/run/worker.h"
#include "plan/memory/devices.h"
#include "plan/memory/packings.h"

static const float *parameter_of(const cgp__worker *worker, cgp__location location) {
    if (location.arena == CGP__NOWHERE) return NULL;
    return (const float *)(const void *)(worker->parameters + location.offset);
}

static cgp_status launch_packs(cgp__worker *worker, const void *unused, bool captures) {
    const cgp__device_plan *device = cgp__plan_device(worker->plan, worker->index);
    const cgp__packings *packings = cgp__plan_packings(worker->plan);
    (void)unused, (void)captures;
    for (int i = 0; i < packings->n; i++) {
        const cgp__packing *packing = &packings->list[i];
        const float *param[CGP_OP_MAX_PARAMETERS];
        if (packing->device != worker->index) continue;
        for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++)
            param[k] = parameter_of(worker, packing->param[k]);
        void *packed = cgp__worker_at(worker, device->packed + packing->offset);
        CGP_TRY(device->backend->kernels.pack(worker->device, &packing->spec, param, packed));
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return CGP_OK;
}

cgp_status cgp__pack_parameters(cgp__worker *worker) {
    if (worker->changes.packed_at == *worker->changes.count ||
        cgp_plan_device_at(worker->plan, worker->index)->packed_bytes == 0)
        return CGP_OK;
    worker->changes.packed_at = *worker->changes.count;
    return cgp__run_captured(worker, cgp__captured_job(worker, CGP__CAPTURED_PACKS), 0,
                             launch_packs, NULL);
}
