/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_lists.c -- see schedule_lists.h. */
#include "schedule_lists.h"

/* Check that the numbers of an action are in range, so that they can be indices. */
static cgp_status check_action(const test_schedule_table *table, int device, int position) {
    const cgp_action *a = &table->lists[device][position];
    const int kind = (int)a->kind;
    if (kind < 0 || kind > CGP_ACTION_RECV_B)
        return cgp_fail(CGP_EINVAL,
                        "schedule: device %d, position %d: expected an action, got kind %d", device,
                        position, kind);
    if (a->stage < 0 || a->stage >= table->stages)
        return cgp__wrong_action(a, device, position, "expected stage 0 to %d, got %d",
                                 table->stages - 1, a->stage);
    if (a->microbatch < 0 || a->microbatch >= table->chunks)
        return cgp__wrong_action(a, device, position, "expected micro-batch 0 to %d, got %d",
                                 table->chunks - 1, a->microbatch);
    if (table->device_of[a->stage] != device)
        return cgp__wrong_action(a, device, position, "expected on device %d as all of stage %d",
                                 table->device_of[a->stage], a->stage);
    if (cgp__is_transfer(a->kind) && !table->lowered)
        return cgp__wrong_action(a, device, position,
                                 "expected compute actions only before lowering");
    if (!cgp__is_transfer(a->kind) && a->edge != -1)
        return cgp__wrong_action(a, device, position, "expected edge -1, got %d", a->edge);
    if (cgp__is_transfer(a->kind) && (a->edge < 0 || a->edge >= table->n_edges))
        return cgp__wrong_action(a, device, position, "expected one of %d edges, got edge %d",
                                 table->n_edges, a->edge);
    return CGP_OK;
}

static cgp_status check_table(const test_schedule_table *table) {
    if (table->devices < 1)
        return cgp_fail(CGP_EINVAL, "devices: expected 1 or more, got %d", table->devices);
    for (int j = 0; j < table->stages; j++) {
        const int device = table->device_of[j];
        if (device < 0 || device >= table->devices)
            return cgp_fail(CGP_EINVAL, "schedule: stage %d: expected a device 0 to %d, got %d", j,
                            table->devices - 1, device);
    }
    if (!table->lowered && table->n_edges != 0)
        return cgp_fail(CGP_EINVAL, "schedule: expected no edges before lowering, got %d",
                        table->n_edges);
    CGP_TRY(cgp__edges_check(table->edges, table->n_edges, table->stages));
    for (int device = 0; device < table->devices; device++) {
        if (table->counts[device] < 0)
            return cgp_fail(CGP_EINVAL, "schedule: device %d: expected 0 or more actions, got %d",
                            device, table->counts[device]);
        for (int i = 0; i < table->counts[device]; i++)
            CGP_TRY(check_action(table, device, i));
    }
    return CGP_OK;
}

cgp_status test_schedule_from_lists(cgp_schedule **out, const test_schedule_table *table) {
    cgp_schedule *schedule = NULL;
    CGP_TRY(check_table(table));
    CGP_TRY(cgp__schedule_new(&schedule, table->name, table->stages, table->chunks, table->devices,
                              table->device_of));
    for (int device = 0; device < table->devices; device++) {
        for (int i = 0; i < table->counts[device]; i++)
            cgp__append_action(schedule, &table->lists[device][i]);
    }
    const cgp_status status =
        table->lowered ? cgp__set_edges(schedule, table->edges, table->n_edges) : CGP_OK;
    return cgp__schedule_finish(out, schedule, status);
}
