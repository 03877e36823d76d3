/* SPDX-License-Identifier: Apache-2.0 */
/* packings.c -- packed parameters: kernels of the same parameters and the same layout share one. */
#include "plan/memory/packings.h"

#include <string.h>

#include "plan/plan.h"

/* The parameters of a device in one layout. */
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

/* The place of a packing behind those that are there. */
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

cgp_status cgp__plan_packing(cgp_plan *plan, int device, cgp__call *call) {
    const cgp__device_plan *d = &plan->devices[device];
    if (!d->backend->packed) return CGP_OK;
    cgp__packing packing = {.device = device,
                            .spec = cgp__call_spec(plan, call, plan->microbatch)};
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
    call->packed =
        (cgp__location){CGP__PACKED, i < 0 ? packing.offset : plan->packings[i].offset};
    return CGP_OK;
}
