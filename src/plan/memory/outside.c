/* SPDX-License-Identifier: Apache-2.0 */
/* outside.c -- counts the bytes that custom ops keep outside the plan between a forward and its
 * backward. The sum covers all micro-batches that a stage has in flight:
 *
 *     a stage's micro-batches in flight x bytes of a full micro-batch, summed over its custom ops
 *
 * With recomputation, an op may also keep the bytes of its latest forward until that forward is
 * recomputed. */
#include "plan/memory/outside.h"

#include "base/base.h"
#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/placement.h"
#include "plan/program/program.h"
#include "plan/setup.h"

#include <inttypes.h>

/* Return the largest number of forwards whose data a stage keeps for backward at one time. For a
 * stage without slots this number is unknown, so all micro-batches are counted. */
static int64_t in_flight(const cgp__setup *setup, const cgp__stage_plan *stage) {
    const int slots = (int)cgp__max(stage->info.saved_slots, stage->info.input_slots);
    const int64_t kept = slots > 0 ? slots : setup->chunks;
    return cgp__min(kept + setup->recomputes, setup->chunks);
}

static cgp_status add_node(const cgp__setup *setup, const cgp__stage_plan *stage,
                           const cgp__node *node, cgp_plan_device *info) {
    const int64_t bytes = node->use.op->outside_bytes(&node->use, setup->microbatch);
    const int64_t most = (INT64_C(1) << 60) / setup->chunks - info->outside_bytes;
    if (bytes < 0 && info->limit_bytes > 0)
        return cgp_fail(CGP_EINVAL,
                        "%s: its memory outside the plan is not known, so it cannot be counted in "
                        "the memory limit of device %s",
                        node->use.op->name, info->name);
    if (bytes > most)
        return cgp_fail(CGP_ELIMIT, "%s: more than 2^60 bytes outside the plan, got %" PRId64,
                        node->use.op->name, bytes);
    info->outside_bytes += cgp__max(bytes, 0) * in_flight(setup, stage);
    return CGP_OK;
}

cgp_status cgp__count_outside(cgp__placement *placement, const cgp__setup *setup) {
    for (int j = 0; !setup->inference && j < placement->n_stages; j++) {
        const cgp__stage_plan *stage = &placement->stages[j];
        cgp_plan_device *info = &placement->devices[stage->info.device].info;
        for (int i = 0; i < stage->n_nodes; i++) {
            const cgp__node *node = &setup->model->nodes[stage->first_node + i];
            if (node->use.op->outside_bytes) CGP_TRY(add_node(setup, stage, node, info));
        }
    }
    return CGP_OK;
}
