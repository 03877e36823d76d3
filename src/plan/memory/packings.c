/* SPDX-License-Identifier: Apache-2.0 */
/* packings.c -- places prepacked weights. Kernels with the same parameters and the same layout
 * share one copy. The copies come last in memory, so that a device can drop them. */
#include "plan/memory/packings.h"

#include <string.h>

#include "plan/plan.h"

/* Hash the device, the layout and the parameters. */
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

/* Place a packing after the existing packings. */
static cgp_status place(cgp_plan *plan, cgp__packing *packing, uint64_t hash) {
    if (!cgp__grow(&plan->packings, &plan->packings_capacity, plan->n_packings + 1,
                   sizeof *plan->packings) ||
        !cgp__index_add(&plan->packing_index, hash, plan->n_packings))
        return cgp__no_memory("plan: packed parameters", sizeof *plan->packings);
    cgp_plan_device *info = &plan->devices[packing->device].info;
    packing->offset = info->packed_bytes;
    info->packed_bytes += cgp__align_up(packing->bytes);
    plan->packings[plan->n_packings++] = *packing;
    return CGP_OK;
}

/* Return whether a device's kernels get packed parameters. Kernels that can run without packed
 * parameters get them on two conditions: several runs may read the parameters before they change,
 * and the device has a memory limit. The limit is checked later. */
static bool is_wanted(const cgp_plan *plan, const cgp__device_plan *d) {
    if (!d->backend->packed) return false;
    return !d->backend->packs_optionally ||
           (d->info.limit_bytes > 0 && (plan->inference || plan->chunks > 1));
}

cgp_status cgp__plan_packing(cgp_plan *plan, int device, cgp__call *call) {
    const cgp__device_plan *d = &plan->devices[device];
    if (!is_wanted(plan, d)) return CGP_OK;
    cgp__packing packing = {.device = device, .spec = cgp__call_spec(plan, call, plan->microbatch)};
    memcpy(packing.param, call->param, sizeof packing.param);
    CGP_TRY(d->backend->packed(&d->options, &packing.spec, &packing.bytes, &packing.layout));
    if (packing.bytes == 0) return CGP_OK;
    const uint64_t hash = hash_of(&packing);
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&plan->packing_index, hash, &tried)) >= 0) {
        plan->steps++;
        if (is_same(&plan->packings[i], &packing)) break;
    }
    if (i < 0) CGP_TRY(place(plan, &packing, hash));
    call->packed = (cgp__location){CGP__PACKED, i < 0 ? packing.offset : plan->packings[i].offset};
    return CGP_OK;
}

static void drop_from(cgp__program *program) {
    for (int i = 0; i < program->n; i++)
        program->calls[i].packed = (cgp__location){CGP__NOWHERE, 0};
}

static void drop(cgp_plan *plan, int device) {
    int left = 0;
    for (int j = 0; j < plan->n_stages; j++) {
        cgp__stage_plan *stage = &plan->stages[j];
        if (stage->info.device != device) continue;
        drop_from(&stage->forward_nosave);
        drop_from(&stage->forward);
        drop_from(&stage->recompute);
        drop_from(&stage->backward);
    }
    for (int i = 0; i < plan->n_packings; i++) {
        if (plan->packings[i].device != device) plan->packings[left++] = plan->packings[i];
    }
    plan->n_packings = left;
    plan->devices[device].info.packed_bytes = 0;
}

void cgp__plan_place_packings(cgp_plan *plan, int device) {
    cgp__device_plan *d = &plan->devices[device];
    cgp_plan_device *info = &d->info;
    d->packed = info->planned_bytes;
    if (d->backend->packs_optionally && info->packed_bytes > 0 &&
        info->planned_bytes + info->packed_bytes > info->limit_bytes)
        drop(plan, device);
    info->planned_bytes += info->packed_bytes;
}
