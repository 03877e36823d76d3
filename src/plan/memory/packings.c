/* SPDX-License-Identifier: Apache-2.0 */
/* packings.c -- places prepacked weights. Kernels with the same parameters and the same layout
 * share one prepacked copy. Prepacked copies come last in a device's memory, so the plan can drop
 * them. */
#include "plan/memory/packings.h"

#include <string.h>

#include "plan/memory/devices.h"
#include "plan/memory/outside.h"
#include "plan/placement.h"
#include "plan/program/program.h"
#include "plan/setup.h"

/* Hash the device, the layout and the parameters of a prepacked copy. */
static uint64_t hash_of(const cgp__packing *packing) {
    int64_t key[2 + CGP_OP_MAX_PARAMETERS] = {packing->device, packing->layout};
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++)
        key[2 + k] = packing->param[k].arena == CGP__NOWHERE ? -1 : packing->param[k].offset;
    return cgp__hash(key, sizeof key);
}

static bool is_same(const cgp__packing *a, const cgp__packing *b) {
    bool same = a->device == b->device && a->layout == b->layout && a->bytes == b->bytes;
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++)
        same = same && cgp__same_location(a->param[k], b->param[k]);
    return same;
}

/* Place a prepacked copy after the existing prepacked copies of its device. */
static cgp_status place(cgp__packings *packings, cgp_plan_device *info, cgp__packing *packing,
                        uint64_t hash) {
    if (!cgp__grow(&packings->list, &packings->capacity, packings->n + 1, sizeof *packings->list) ||
        !cgp__index_add(&packings->index, hash, packings->n))
        return cgp__no_memory("plan: packed parameters", sizeof *packings->list);
    packing->offset = info->packed_bytes;
    info->packed_bytes += cgp__align_up(packing->bytes);
    packings->list[packings->n++] = *packing;
    return CGP_OK;
}

/* Return true if a device's kernels get packed parameters. Some kernels can also run without packed
 * parameters. They get packed parameters only if the device has a memory limit, and if several runs
 * may read the parameters before they change. The limit is checked later. */
static bool is_wanted(const cgp__setup *setup, const cgp__device_plan *d) {
    if (!d->backend->kernels.packed) return false;
    return !d->backend->packs_optionally ||
           (d->info.limit_bytes > 0 && (setup->inference || setup->chunks > 1));
}

cgp_status cgp__find_packing(const cgp__program_parts *parts, int device, cgp__call *call) {
    const cgp__setup *setup = parts->setup;
    cgp__packings *packings = parts->packings;
    cgp__device_plan *d = &parts->placement->devices[device];
    if (!is_wanted(setup, d)) return CGP_OK;
    cgp__packing packing = {.device = device,
                            .spec = cgp__call_spec(setup, call, setup->microbatch)};
    memcpy(packing.param, call->param, sizeof packing.param);
    CGP_TRY(
        d->backend->kernels.packed(&d->options, &packing.spec, &packing.bytes, &packing.layout));
    if (packing.bytes == 0) return CGP_OK;
    const uint64_t hash = hash_of(&packing);
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&packings->index, hash, &tried)) >= 0) {
        ++*parts->steps;
        if (is_same(&packings->list[i], &packing)) break;
    }
    if (i < 0) CGP_TRY(place(packings, &d->info, &packing, hash));
    call->packed = (cgp__location){CGP__PACKED, i < 0 ? packing.offset : packings->list[i].offset};
    return CGP_OK;
}

static void drop_from(cgp__program *program) {
    for (int i = 0; i < program->n; i++)
        program->calls[i].packed = (cgp__location){CGP__NOWHERE, 0};
}

static void drop(cgp__packings *packings, cgp__placement *placement, int device) {
    int left = 0;
    for (int j = 0; j < placement->n_stages; j++) {
        cgp__stage_plan *stage = &placement->stages[j];
        for (int k = 0; k < CGP__PROGRAMS && stage->info.device == device; k++)
            drop_from(&stage->programs[k]);
    }
    for (int i = 0; i < packings->n; i++) {
        if (packings->list[i].device != device) packings->list[left++] = packings->list[i];
    }
    packings->n = left;
    placement->devices[device].info.packed_bytes = 0;
}

void cgp__place_packings(cgp__packings *packings, cgp__placement *placement, int device) {
    cgp__device_plan *d = &placement->devices[device];
    cgp_plan_device *info = &d->info;
    d->packed = info->planned_bytes;
    if (d->backend->packs_optionally && info->packed_bytes > 0 &&
        cgp__limited_bytes(info) + info->packed_bytes > info->limit_bytes)
        drop(packings, placement, device);
    info->planned_bytes += info->packed_bytes;
}
