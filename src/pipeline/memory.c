/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c -- compares the memory that a plan needs with the available memory, before anything is
 * allocated. Host memory is checked for all ranks of a machine together, and for all ranks of a
 * container together, because Linux overcommits memory. Memory of other hardware, such as GPUs, is
 * checked for each rank separately, because one ordinal may mean different devices on different
 * ranks. */
#include "pipeline/memory.h"

#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/places.h"
#include "pipeline/run/ranks.h"
#include "plan/memory/devices.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <string.h>

/* Return the bytes that a pipeline allocates on a device. If `shares`, exclude the shared sections,
 * which another pipeline owns. */
static int64_t device_bytes(const cgp__device_plan *device, bool shares) {
    return device->info.planned_bytes - (shares ? cgp__plan_shared_bytes(device) : 0);
}

/* Return the bytes of host memory that a rank needs: the host buffers of all its devices, and all
 * memory of those devices that share host memory. */
static int64_t host_bytes(const cgp_plan *plan, int rank, bool shares) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        if (!cgp__plan_is_on(plan, d, rank)) continue;
        bytes += cgp_plan_device_at(plan, d)->host_bytes;
        if (cgp__plan_device(plan, d)->backend->host_addressable)
            bytes += device_bytes(cgp__plan_device(plan, d), shares);
    }
    return bytes;
}

static cgp_status check_alone(const cgp_plan *plan, int64_t planned, int64_t now) {
    char needed[32], left[32];
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT, "memory: the plan needs %s but the machine has %s available (%s)",
                    cgp_bytes_text(planned, needed, sizeof needed),
                    cgp_bytes_text(now, left, sizeof left), cgp__plan_advice(plan));
}

/* --- ranks of a host --- */

typedef bool together(const cgp__place *a, const cgp__place *b);

/* Check the ranks that share a machine or container with rank r. Each rank has read the available
 * memory at a different time, so the lowest value counts. */
static cgp_status check_group(const cgp__ranks *ranks, const cgp_plan *plan, int r, bool shares,
                              together *with) {
    const cgp__place *first = &ranks->places[r];
    char needed[32], left[32];
    int64_t planned = 0, now = INT64_MAX;
    int count = 0;
    for (int q = 0; q < ranks->n; q++) {
        const cgp__place *place = &ranks->places[q];
        if (!with(first, place)) continue;
        planned += host_bytes(plan, q, shares);
        now = cgp__min(now,
                       with == cgp__same_machine ? place->machine_bytes : place->container_bytes);
        count++;
    }
    if (ranks->n == 1) return check_alone(plan, planned, now);
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT,
                    "memory: host %s has %s available, but %s need %s (%s; or more hosts)",
                    first->host, cgp_bytes_text(now, left, sizeof left),
                    count == 1 ? "its rank" : "its ranks together",
                    cgp_bytes_text(planned, needed, sizeof needed), cgp__plan_advice(plan));
}

static bool is_first(const cgp__ranks *ranks, int r, together *with) {
    for (int q = 0; q < r; q++)
        if (with(&ranks->places[q], &ranks->places[r])) return false;
    return true;
}

cgp_status cgp__memory_check_hosts(const cgp__ranks *ranks, const cgp_plan *plan, bool shares) {
    static together *const groups[] = {cgp__same_machine, cgp__same_container};
    for (int r = 0; r < ranks->n; r++)
        for (int g = 0; g < 2; g++)
            if (is_first(ranks, r, groups[g]))
                CGP_TRY(check_group(ranks, plan, r, shares, groups[g]));
    return CGP_OK;
}

/* --- other hardware --- */

/* If device `d` is the rank's first device on its hardware, check that the hardware has enough
 * memory for all of the rank's devices on it. */
static cgp_status check_hardware(const cgp_plan *plan, int rank, bool shares, int d) {
    const cgp__device_plan *first = cgp__plan_device(plan, d);
    char needed[32], left[32];
    int64_t planned = 0, now = 0;
    for (int e = 0; e < cgp_plan_devices(plan); e++) {
        const cgp__device_plan *device = cgp__plan_device(plan, e);
        if (!cgp__plan_is_on(plan, e, rank) || device->backend != first->backend ||
            device->info.ordinal != first->info.ordinal)
            continue;
        if (e < d) return CGP_OK;
        planned += device_bytes(device, shares);
    }
    CGP_TRY(first->backend->device.memory(first->info.ordinal, &now));
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT, "memory: the plan needs %s but %s %d has %s available (%s)",
                    cgp_bytes_text(planned, needed, sizeof needed), first->backend->name,
                    first->info.ordinal, cgp_bytes_text(now, left, sizeof left),
                    cgp__plan_advice(plan));
}

cgp_status cgp__memory_check_hardware(const cgp_plan *plan, int rank, bool shares) {
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        if (cgp__plan_is_on(plan, d, rank) && !cgp__plan_device(plan, d)->backend->host_addressable)
            CGP_TRY(check_hardware(plan, rank, shares, d));
    }
    return CGP_OK;
}

static cgp_status read_driver_bytes(const cgp_plan *plan, int rank, int64_t *bytes) {
    char text[32];
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp__device_plan *device = cgp__plan_device(plan, d);
        bytes[d] = INT64_MAX;
        if (!cgp__plan_is_on(plan, d, rank) || !device->backend->device.driver_bytes) continue;
        CGP_TRY(device->backend->device.driver_bytes(device->info.ordinal, &bytes[d]));
        cgp_log(CGP_LOG_INFO, "pipeline",
                "device %s: beside what is allocated the driver and other programs have %s",
                device->info.name, cgp_bytes_text(bytes[d], text, sizeof text));
    }
    return CGP_OK;
}

cgp_status cgp_pipeline_driver_bytes(cgp_pipeline *pipeline, int64_t *bytes) {
    CGP__PIPELINE(pipeline);
    if (pipeline->rank < pipeline->setup->ranks) CGP__NEED(bytes);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_DRIVER_BYTES, .out = bytes);
    const cgp__ranks *ranks = pipeline->ranks;
    int64_t *figures = ranks->figures;
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    CGP_TRY(cgp__ranks_agree(ranks, read_driver_bytes(pipeline->plan, ranks->rank, figures)));
    CGP_TRY(cgp__ranks_share_devices(ranks, pipeline->plan, figures, sizeof *figures));
    if (bytes) memcpy(bytes, figures, (size_t)cgp_plan_devices(pipeline->plan) * sizeof *bytes);
    return CGP_OK;
}

/* --- one rank at a time --- */

cgp_status cgp_pipeline_check_memory(const cgp_plan *plan, int64_t *available) {
    CGP__NEED(plan);
    const int ranks = cgp__plan_setup(plan)->ranks;
    const int64_t now = cgp__memory_available();
    int64_t most = 0;
    for (int r = 0; r < ranks; r++)
        most = cgp__max(most, host_bytes(plan, r, false));
    if (available) *available = now;
    CGP_TRY(check_alone(plan, most, now));
    for (int r = 0; r < ranks; r++)
        CGP_TRY(cgp__memory_check_hardware(plan, r, false));
    return CGP_OK;
}
